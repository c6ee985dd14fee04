//! kolo's step time over that of real Horovod, a mark per case.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::comparison::Compared;
use crate::distinct::in_order;
use crate::drawing::{Align, Drawing, HARD_SPACE, Point, Text, text_width};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::rows::Rows;
use crate::validation::median;
use crate::view::View;
use crate::{Figure, Sheet, panels, theme};

pub(crate) const FIGURE: Figure = Figure { name: "against", sheets };

/// Errors within this are good, in percent.
const CLOSE_PERCENT: f64 = 5.0;
/// Side of the frame.
const SIDE: f64 = 1100.0;
/// Room left of the frame for labels.
const LEFT: f64 = 190.0;
/// So many cases are listed beside the frame.
const LISTED: usize = 16;
/// Height of a line of that list.
const LINE: f64 = 50.0;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let both = |case: &&Compared| case.kolo_ms.value.is_some() && case.horovod_ms.value.is_some();
    let cases: Vec<&Compared> = rows.compared.iter().filter(both).collect();
    let drawn = (!cases.is_empty()).then(|| (String::new(), draw(view, &cases)));
    Sheet::all(drawn.into_iter().collect(), || {
        "comparison.csv is not among the results, or no case ran in both; `kolo against horovod` writes it".into()
    })
}

fn draw(view: View, cases: &[&Compared]) -> Drawing {
    let mut page =
        Page::new(view, "Training steps by kolo's engine and by real Horovod", &finding(cases));
    let groups = in_order(cases.iter().map(|case| case.group.as_str()));
    let entries = groups.iter().enumerate().map(|(style, group)| Entry {
        sign: Box::new(move |drawing: &mut Drawing, at| {
            theme::marker(drawing, style, at, theme::MARKER, false);
        }),
        label: group.to_string(),
    });
    page.legend(&entries.chain([Entry::dashed("equal; thin: 5 % either way")]).collect::<Vec<_>>());
    let (left, top) = (theme::MARGIN + LEFT, page.y + 30.0);
    let side = SIDE.min(view.width() - left - theme::MARGIN);
    let frame = Frame::new(left, top, left + side, top + side);
    let ends = cases.iter().flat_map(|case| case.kolo_ms.ends().chain(case.horovod_ms.ends()));
    let values: Vec<f64> = ends.collect();
    let x = Axis::measured(&values, frame.left, frame.right);
    let y = Axis::measured(&values, frame.bottom, frame.top);
    let drawing = &mut page.drawing;
    x.draw_below(drawing, frame, "Horovod's step (ms)");
    y.draw_left(drawing, frame, "kolo's step (ms)");
    let (low, high) = x.ends();
    let diagonal = |share: f64| {
        // Within the frame on both axes.
        let from = (low / share).max(low);
        let to = (high / share).min(high);
        [from, to].map(|value| (x.at(value), y.at(value * share)))
    };
    for share in [1.0 - CLOSE_PERCENT / 100.0, 1.0 + CLOSE_PERCENT / 100.0] {
        drawing.line(&diagonal(share), theme::SOFT, 2.0);
    }
    let [from, to] = diagonal(1.0);
    drawing.dashes(from, to, theme::INK, 3.0);
    for case in cases {
        let style = groups.iter().position(|group| *group == case.group).unwrap_or_default();
        case.draw(drawing, &x, &y, style);
    }
    frame.draw(drawing);
    // A column has no room for it.
    if !view.is_paper() {
        list(cases, drawing, &groups, (frame.right + 70.0, frame.top + 26.0));
    }
    page.y = frame.bottom + panels::BELOW;
    page.finish(&caption(cases))
}

/// The cases with the largest differences, with their ratios.
fn list(cases: &[&Compared], drawing: &mut Drawing, groups: &[&str], (x, mut y): Point) {
    let distance = |case: &&&Compared| case.ratio.map_or(0.0, |ratio| (ratio - 1.0).abs());
    let mut worst: Vec<&&Compared> = cases.iter().filter(|case| case.ratio.is_some()).collect();
    worst.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
    if worst.is_empty() {
        return;
    }
    let heading = Text::new("kolo / Horovod", (x, y), theme::TICK).centered();
    drawing.text(Text { align: Align::Left, bold: true, ..heading });
    for case in worst.into_iter().take(LISTED) {
        y += LINE;
        let style = groups.iter().position(|group| *group == case.group).unwrap_or_default();
        theme::marker(drawing, style, (x + 14.0, y), theme::MARKER, false);
        let ratio = case.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let text = format!("{ratio}   {}", case.setting());
        let room = drawing.width - theme::MARGIN - x - 44.0;
        let size = theme::SMALL * (room / text_width(&text, theme::SMALL, false)).min(1.0);
        let text = Text::new(text, (x + 44.0, y), size).centered();
        drawing.text(Text { align: Align::Left, ..text });
    }
}

impl Compared {
    /// What differs from other cases of the group.
    fn setting(&self) -> String {
        match (self.fusion_threshold_bytes, self.cycle_time_ms) {
            (Some(bytes), Some(ms)) => {
                format!("{}, {}, {} ms", self.variant, theme::threshold(bytes), theme::tick(ms))
            }
            _ => self.case.clone(),
        }
    }

    fn draw(&self, drawing: &mut Drawing, x: &Axis, y: &Axis, style: usize) {
        let Some((kolo, horovod)) = self.kolo_ms.value.zip(self.horovod_ms.value) else { return };
        let at = (x.at(horovod), y.at(kolo));
        if let Some((low, high)) = self.kolo_ms.interval {
            theme::interval(drawing, at.0, y.at(low), y.at(high), theme::series(style));
        }
        if let Some((low, high)) = self.horovod_ms.interval {
            drawing.line(&[(x.at(low), at.1), (x.at(high), at.1)], theme::series(style), 3.0);
        }
        theme::marker(drawing, style, at, theme::MARKER, false);
    }
}

/// The finding of the picture in sentences.
fn finding(cases: &[&Compared]) -> String {
    let error = |ratio: f64| 100.0 * (ratio - 1.0).abs();
    let ratios = |of: fn(&Compared) -> Option<f64>| -> Vec<f64> {
        cases.iter().filter_map(|case| of(case)).map(error).collect()
    };
    let (errors, controls) = (ratios(|case| case.ratio), ratios(|case| case.control_ratio));
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let Some((middle, control)) = median(errors).zip(median(controls)) else {
        return "No case has a block of kolo and two of Horovod.".to_string();
    };
    let [middle, worst, control] =
        [middle, worst, control].map(|value| theme::significant(value, 2));
    format!(
        "{}: kolo differs from Horovod by {middle}{HARD_SPACE}% in the median and {worst}{HARD_SPACE}% at worst; \
         Horovod from itself by {control}{HARD_SPACE}% in the median.",
        theme::count(cases.len(), "case")
    )
}

/// Where the values come from, for a caption.
pub(crate) fn origin(cases: &[&Compared]) -> String {
    let any = |of: fn(&Compared) -> Option<bool>| cases.iter().any(|case| of(case) == Some(true));
    let mut origin =
        "MEASURED: both on the same processors, block by block in random order".to_string();
    if any(|case| case.emulated) {
        origin += " · emulated nodes (of one machine)";
    }
    if any(|case| case.oversubscribed) {
        origin += " · oversubscribed: more ranks than cores";
    }
    origin
}

fn caption(cases: &[&Compared]) -> Caption {
    let paragraph = "A mark is a case: median over blocks of the slowest rank's step, with its exact 95 % interval \
                     where there are 6 blocks or more. Differences are of ratios paired by block. Below the dashed \
                     line kolo's step is shorter. Horovod's marks pool both of its runs; one against the other is \
                     how far Horovod differs from itself."
        .to_string();
    Caption { simulated: false, origin: origin(cases), paragraphs: vec![paragraph] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::against;

    fn drawing(table: &str) -> Drawing {
        match sheets(&Rows::of(table), View::default()).pop() {
            Some(Sheet::Drawn { drawing, .. }) => drawing,
            _ => panic!("it is drawn"),
        }
    }

    #[test]
    fn the_picture_has_a_mark_per_case_and_tells_the_control() {
        let drawing = drawing(&against());
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let words = drawing.words().replace('\n', " ");
        for expected in [
            "4 cases: kolo differs from Horovod by 4.0 % in the median and 10 % at worst; Horovod from itself by 1.0 %",
            "resnet50 1x2",
            "vgg16 1x4",
            "Horovod's step (ms)",
            "oversubscribed: more ranks than cores",
            "kolo / Horovod 0.900   bitvector, 128 MiB, 1 ms 1.040   bitvector, 64 MiB, 1 ms 1.040   coordinator, 64 MiB, 1 ms",
        ] {
            assert!(words.contains(expected), "{words}\nexpected {expected}");
        }
        assert!(!words.contains("emulated"), "{words}");
    }

    #[test]
    fn a_case_on_the_diagonal_is_drawn_on_it() {
        let header = against().lines().next().unwrap().to_string();
        let equal = format!("{header}\na,g,bitvector,0,1,6,50,,,50,,,1,,,1,true,false,false,\n");
        let drawing = drawing(&equal);
        let mut marks = drawing.marks.iter().filter_map(|mark| match mark {
            Mark::Disc { center, .. } => Some(*center),
            _ => None,
        });
        // After the legend's, and before that of the list.
        let (x, y) = marks.nth(1).expect("a mark is drawn");
        let (left, bottom) = (theme::MARGIN + LEFT, y + (x - theme::MARGIN - LEFT));
        assert!((x - left - (bottom - y)).abs() < 1e-6);
        let failed =
            format!("{header}\na,g,bitvector,0,1,0,50,,,,,,,,,,,false,false,horovod: gone\n");
        match sheets(&Rows::of(&failed), View::default()).pop() {
            Some(Sheet::Skipped { reason }) => {
                assert!(reason.ends_with("`kolo against horovod` writes it"))
            }
            _ => panic!("no case ran in both"),
        }
    }
}
