//! One training step: what each rank computes, negotiates and communicates, over time.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Align, Drawing, Text, text_width};
use crate::frame::Frame;
use crate::look::{Look, Slant};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::Rows;
use crate::timeline::{Activity, Timeline, outside};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "step", sheets };

/// The activities in the order in which they are drawn, as later ones cover earlier ones.
const LOOKS: [(Activity, &str, Look); 7] = [
    (Activity::Forward, "forward pass", Look::new((214, 214, 214), Slant::None)),
    (Activity::Backward, "backward pass", Look::new((150, 150, 150), Slant::None)),
    (Activity::Optimizer, "optimizer", Look::new((214, 214, 214), Slant::Rising)),
    (Activity::Negotiation, "negotiation", Look::new((213, 94, 0), Slant::None)),
    (Activity::Operation, "operation, with waiting", Look::new((200, 224, 240), Slant::None)),
    (Activity::Allreduce, "allreduce", Look::new((0, 114, 178), Slant::None)),
    (Activity::Packing, "packing", Look::new((240, 228, 66), Slant::Falling)),
];

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let several = rows.timelines.len() > 1;
    let drawn = rows.timelines.iter().enumerate().map(|(index, timeline)| {
        let suffix = if several { (index + 1).to_string() } else { String::new() };
        (suffix, draw(view, timeline))
    });
    Sheet::all(drawn.collect(), || {
        "no timeline is among the results; `kolo sweep --timeline` writes them".to_string()
    })
}

const ROW: f64 = 44.0;
const BAR: f64 = 32.0;

fn draw(view: View, timeline: &Timeline) -> Drawing {
    let mut page = Page::new(view, "A training step over time", &finding(timeline));
    let occurs = |activity: Activity| !timeline.joined(&[activity]).is_empty();
    let looks = LOOKS.into_iter().filter(|(activity, ..)| occurs(*activity));
    page.legend(&looks.map(|(_, label, look)| look.entry(label)).collect::<Vec<_>>());
    let names = timeline.lanes.iter().map(|lane| text_width(&lane.name, theme::TICK, false));
    let left = names.fold(0.0, f64::max) + 30.0;
    let height = ROW * timeline.lanes.len() as f64;
    let shape = Shape { left, right: 40.0, height, is_elastic: false };
    panels::lay(&mut page, &[String::new()], shape, |drawing, _, frame| {
        draw_lanes(timeline, drawing, frame);
    });
    let note = "A stretch that is shorter than a pixel is a pixel wide. Stretches of one kind are joined where they overlap. \
                A timeline does not say whether nodes were emulated."
        .to_string();
    let origin = format!("{}; {}.", timeline.name, timeline.step);
    page.finish(&Caption::plain("MEASURED".to_string(), vec![origin, note]))
}

fn draw_lanes(timeline: &Timeline, drawing: &mut Drawing, frame: Frame) {
    let x = Axis::until(timeline.time_ms, frame.left, frame.right);
    x.draw_below(drawing, frame, "time (ms)");
    for (index, lane) in timeline.lanes.iter().enumerate() {
        let middle = frame.top + (index as f64 + 0.5) * ROW;
        let name = Text::new(&lane.name, (frame.left - 14.0, middle), theme::TICK).centered();
        drawing.text(Text { align: Align::Right, ..name });
        for (activity, _, look) in LOOKS {
            for (begin, end) in lane.joined(activity) {
                let (left, right) = (x.at(begin), x.at(end));
                look.fill(drawing, [left, middle - BAR / 2.0, (right - left).max(1.0), BAR]);
            }
        }
    }
    frame.draw(drawing);
}

/// The finding of the picture in a sentence: how much of the communication the computation hides.
fn finding(timeline: &Timeline) -> String {
    let computation =
        timeline.joined(&[Activity::Forward, Activity::Backward, Activity::Optimizer]);
    let communication =
        timeline.joined(&[Activity::Operation, Activity::Allreduce, Activity::Packing]);
    let length = |stretches: &[(f64, f64)]| outside(stretches, &[]);
    let ms = |value: f64| theme::significant(value, 3);
    let (step, communicated) = (ms(timeline.time_ms), ms(length(&communication)));
    if computation.is_empty() {
        return format!(
            "The step takes {step} ms, with communication under way in {communicated} ms of it."
        );
    }
    let exposed = ms(outside(&communication, &computation));
    format!(
        "The step takes {step} ms. Communication is under way in {communicated} ms of it, and in {exposed} ms no rank \
         computes meanwhile."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Lane, Stretch};

    fn step() -> Timeline {
        let stretch = |activity, begin_ms, end_ms| Stretch { activity, begin_ms, end_ms };
        let lane = |name: &str, stretches| Lane { name: name.to_string(), stretches };
        Timeline {
            name: "threads/2x1/ring".to_string(),
            step: "step 3 of 5, the median by time".to_string(),
            time_ms: 10.0,
            lanes: vec![
                lane(
                    "rank 0, computation",
                    vec![
                        stretch(Activity::Forward, 0.0, 2.0),
                        stretch(Activity::Backward, 2.0, 6.0),
                    ],
                ),
                lane(
                    "rank 0, messages",
                    vec![
                        stretch(Activity::Allreduce, 4.0, 9.0),
                        stretch(Activity::Packing, 4.0, 5.0),
                    ],
                ),
            ],
        }
    }

    #[test]
    fn a_step_is_a_row_for_each_lane_and_says_what_is_exposed() {
        let mut rows = Rows::default();
        rows.add_timeline(step());
        let Some(Sheet::Drawn { drawing, .. }) = sheets(&rows, View::default()).pop() else {
            panic!("it is drawn")
        };
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let said = drawing.prose();
        let finding = "The step takes 10.0 ms. Communication is under way in 5.00 ms of it, and in 3.00 ms no rank computes \
                       meanwhile.";
        assert!(said.contains(finding), "{said}");
        assert!(said.contains(" forward pass backward pass allreduce packing "), "{said}");
        assert!(said.contains("threads/2x1/ring; step 3 of 5"), "{said}");
    }
}
