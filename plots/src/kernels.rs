//! The bandwidth that kernels on a GPU reach, beside that of the device's own copy, which is their roof.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::comparison::Kernel;
use crate::drawing::{Align, Drawing, Text, text_width};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::rows::Rows;
use crate::view::View;
use crate::{Figure, Sheet, distinct, theme};

pub(crate) const FIGURE: Figure = Figure { name: "kernels", sheets };

const ROW: f64 = 58.0;
/// The height of a bar.
const BAR: f64 = 34.0;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let devices = distinct::in_order(rows.kernels.iter().map(|kernel| kernel.device.clone()));
    let drawn = devices.iter().map(|device| {
        let kernels: Vec<&Kernel> = rows.kernels.iter().filter(|it| it.device == *device).collect();
        let suffix = if devices.len() == 1 { String::new() } else { device.clone() };
        (suffix, draw(view, device, &kernels))
    });
    Sheet::all(drawn.collect(), || {
        "no kernels of a GPU; `kolo bench --transport cuda --kernels LIST --out FILE` writes them"
            .to_string()
    })
}

fn draw(view: View, device: &str, kernels: &[&Kernel]) -> Drawing {
    let mut page = Page::new(view, "Memory bandwidth of kernels on a GPU", &finding(kernels));
    let copy = Entry {
        sign: Box::new(|drawing: &mut Drawing, (x, y)| {
            drawing.dashes((x, y - 18.0), (x, y + 18.0), theme::INK, 3.0);
        }),
        label: "the device's own copy".into(),
    };
    let goal = Entry {
        sign: Box::new(|drawing: &mut Drawing, (x, y)| mark_goal(drawing, x, y)),
        label: "goal".into(),
    };
    page.legend(&[copy, goal]);
    let workloads = distinct::in_order(kernels.iter().map(|kernel| kernel.workload.clone()));
    let of = |workload: &String| -> Vec<&Kernel> {
        let timed =
            |kernel: &&&Kernel| kernel.workload == *workload && kernel.bandwidth_gb_s.is_some();
        kernels.iter().filter(timed).copied().collect()
    };
    let most = workloads.iter().map(|workload| of(workload).len()).max().unwrap_or(0);
    let names = kernels.iter().map(|kernel| text_width(&kernel.name, view.small(), false));
    let left = names.fold(0.0, f64::max) + 30.0;
    let shape = Shape { left, right: 110.0, height: ROW * most as f64, is_elastic: false };
    let title = |workload: &String| {
        let megabytes = of(workload).first().map_or(0.0, |kernel| 4e-6 * kernel.elements);
        format!("{workload}, {} MB of gradients", theme::significant(megabytes, 3))
    };
    let titles: Vec<String> = workloads.iter().map(title).collect();
    let all: Vec<f64> = kernels.iter().filter_map(|kernel| kernel.bandwidth_gb_s).collect();
    panels::lay(&mut page, &titles, shape, |drawing, panel, frame| {
        draw_panel(drawing, frame, &of(&workloads[panel]), &all);
    });
    let repetitions = kernels.iter().map(|kernel| kernel.repetitions as usize).min().unwrap_or(0);
    let origin = format!(
        "{device}. Median of {repetitions} or more repetitions by the device's clock, from the shortest to the longest as \
         a line; the operations take turns."
    );
    let note = "Bytes that an operation reads and writes, over its time. Gradients are f32, cast where a name has f16. \
                The number is the share of the copy's bandwidth.";
    page.finish(&Caption::plain("MEASURED".into(), vec![origin, note.into()]))
}

fn draw_panel(drawing: &mut Drawing, frame: Frame, kernels: &[&Kernel], all: &[f64]) {
    let x = Axis::measured(all, frame.left, frame.right);
    x.draw_below(drawing, frame, "bandwidth (GB/s)");
    let copy = kernels.iter().find(|kernel| kernel.goal.is_none()).and_then(|it| it.bandwidth_gb_s);
    for (index, kernel) in kernels.iter().enumerate() {
        let Some(bandwidth) = kernel.bandwidth_gb_s else { continue };
        let y = frame.top + (index as f64 + 0.5) * ROW;
        let name = Text::new(&kernel.name, (frame.left - 14.0, y), drawing.small()).centered();
        drawing.text(Text { align: Align::Right, ..name });
        let color = if kernel.goal.is_some() { theme::series(0) } else { theme::SOFT };
        drawing.rectangle(frame.left, y - BAR / 2.0, x.at(bandwidth) - frame.left, BAR, color);
        let (slow, fast) = kernel.range_gb_s(bandwidth);
        if x.holds(slow) && x.holds(fast) {
            theme::interval_across(drawing, y, x.at(slow), x.at(fast), theme::INK);
        }
        if let Some((goal, copy)) = kernel.goal.zip(copy) {
            mark_goal(drawing, x.at(goal * copy), y);
        }
        if let Some(share) = kernel.of_copy.filter(|_| kernel.goal.is_some()) {
            let words = format!("{:.0} %", 100.0 * share);
            let words = Text::new(words, (frame.right + 14.0, y), drawing.small());
            drawing.text(Text { align: Align::Left, ..words.centered() });
        }
    }
    if let Some(copy) = copy {
        drawing.dashes((x.at(copy), frame.top), (x.at(copy), frame.bottom), theme::INK, 3.0);
    }
    frame.draw(drawing);
}

/// Draws the sign of a goal.
fn mark_goal(drawing: &mut Drawing, x: f64, y: f64) {
    let half = BAR / 2.0 + 6.0;
    drawing.line(&[(x, y - half), (x, y + half)], theme::series(1), 5.0);
}

/// The finding of the picture in a sentence.
fn finding(kernels: &[&Kernel]) -> String {
    let judged =
        || kernels.iter().filter_map(|kernel| Some((kernel, kernel.of_copy?, kernel.goal?)));
    let reached = judged().filter(|(_, share, goal)| share >= goal).count();
    let least = judged().min_by(|(_, a, _), (_, b, _)| a.total_cmp(b));
    least.map_or(String::new(), |(kernel, share, _)| {
        format!(
            "{reached} of {} reach their goal. Lowest: {:.0} % of the copy's bandwidth, {} of {}.",
            theme::count(judged().count(), "kernel"),
            100.0 * share,
            kernel.name,
            kernel.workload
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TABLE: &str = "\
device,workload,kernel,elements,moved_bytes,repetitions,time_us_min,time_us_p50,time_us_max,bandwidth_gb_s,of_copy,goal
a GPU,resnet50,copy,25000000,200000000,50,49.0,50.0,52.0,4000.0,1.0,
a GPU,resnet50,pack,25000000,200000000,50,51.0,52.0,60.0,3846.0,0.9615,0.9
a GPU,resnet50,check,25000000,100000000,50,28.0,29.0,30.0,3448.0,0.862,0.9
a GPU,resnet50,a launch alone,25000000,0,50,3.0,3.5,4.0,,,
";

    fn drawing(table: &str) -> Drawing {
        let mut rows = Rows::default();
        rows.add_table(Path::new("kernels.csv"), table.as_bytes()).unwrap();
        assert_eq!(rows.len(), table.lines().count() - 1);
        let Some(Sheet::Drawn { drawing, .. }) = sheets(&rows, View::default()).pop() else {
            panic!("it is drawn")
        };
        assert_eq!(drawing.faults(), Vec::<String>::new());
        drawing
    }

    #[test]
    fn each_kernel_has_a_bar_and_its_share_of_the_copy() {
        let said = drawing(TABLE).prose();
        let finding = "1 of 2 kernels reach their goal. Lowest: 86 % of the copy's bandwidth, check of resnet50.";
        assert!(said.contains(finding), "{said}");
        assert!(said.contains("96 % ") && said.contains("86 % "), "{said}");
        // Nothing is moved by it.
        assert!(!said.contains("a launch alone"), "{said}");
    }

    #[test]
    fn workloads_are_panels() {
        let both = format!(
            "{TABLE}{}",
            TABLE
                .lines()
                .skip(1)
                .map(|line| line.replace("resnet50", "bert") + "\n")
                .collect::<String>()
        );
        let said = drawing(&both).prose();
        assert!(
            said.contains("resnet50, 100 MB of gradients") && said.contains("bert, 100 MB"),
            "{said}"
        );
    }

    #[test]
    fn rows_of_other_kinds_have_no_such_figure() {
        let sheets = sheets(&Rows::default(), View::default());
        assert!(matches!(sheets.as_slice(), [Sheet::Skipped { .. }]));
    }
}
