//! What the setting that `kolo tune` recommends saves of a step, a bar with its interval for each setting that it was
//! compared with.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Align, Drawing, Text, text_width};
use crate::frame::Frame;
use crate::look::{Look, Slant};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::ratios::{Gains, Ratio};
use crate::rows::Rows;
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "gains", sheets };

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let several = rows.gains.len() > 1;
    let with_others = rows.gains.iter().filter(|gains| !gains.others.is_empty());
    let drawn = with_others.enumerate().map(|(index, gains)| {
        let suffix = if several { (index + 1).to_string() } else { String::new() };
        (suffix, draw(view, gains))
    });
    Sheet::all(drawn.collect(), || {
        "no tune.json with compared settings is among the results; `kolo tune` writes it"
            .to_string()
    })
}

/// The share of a step that is saved, in percent.
fn saved(ratio: f64) -> f64 {
    100.0 * (1.0 - 1.0 / ratio)
}

/// Whether an interval includes that nothing is saved.
fn is_tied(ratio: &Ratio) -> bool {
    ratio.interval.is_none_or(|(low, high)| low <= 1.0 && high >= 1.0)
}

/// The bars of settings that tie are pale.
fn look(ratio: &Ratio) -> Look {
    if is_tied(ratio) {
        Look::new((214, 214, 214), Slant::Rising)
    } else {
        Look::new((0, 114, 178), Slant::None)
    }
}

const ROW: f64 = 64.0;
const BAR: f64 = 36.0;

fn draw(view: View, gains: &Gains) -> Drawing {
    let mut page = Page::new(view, "What the recommended setting saves of a step", &finding(gains));
    let mut legend = vec![];
    if gains.others.iter().any(|ratio| !is_tied(ratio)) {
        legend.push(Look::new((0, 114, 178), Slant::None).entry("the interval excludes 0"));
    }
    if gains.others.iter().any(is_tied) {
        legend
            .push(Look::new((214, 214, 214), Slant::Rising).entry("ties: the interval includes 0"));
    }
    page.legend(&legend);
    let widest = |words: &mut dyn Iterator<Item = String>| {
        words.map(|words| text_width(&words, theme::TICK, false)).fold(0.0, f64::max)
    };
    let left = widest(&mut gains.others.iter().map(|ratio| format!("{} ", name(ratio)[0])));
    let right = widest(&mut gains.others.iter().map(numbers));
    let height = ROW * gains.others.len() as f64;
    let shape = Shape { left: left + 30.0, right: right + 30.0, height, is_elastic: false };
    panels::lay(&mut page, &[String::new()], shape, |drawing, _, frame| {
        draw_bars(gains, drawing, frame);
    });
    let note = format!(
        "Saved: step time of the setting at the left, less that of {}, as a share of the former. Bars end at the estimate; \
         lines are 95 % intervals.",
        gains.recommended
    );
    page.finish(&Caption::plain(gains.origin.stamp(), vec![gains.origin.words.clone(), note]))
}

/// The name on two lines, if it says in brackets what it is.
fn name(ratio: &Ratio) -> [&str; 2] {
    let at = ratio.name.find(" (").unwrap_or(ratio.name.len());
    let (name, rest) = ratio.name.split_at(at);
    [name, rest.trim_start().trim_matches(['(', ')'])]
}

/// For example `31 % [25, 37]`.
fn numbers(ratio: &Ratio) -> String {
    let percent = |ratio: f64| theme::significant(saved(ratio), 2).replace('-', "−");
    let value = format!("{} %", percent(ratio.value));
    match ratio.interval {
        Some((low, high)) => format!("{value} [{}, {}]", percent(low), percent(high)),
        None => value,
    }
}

fn draw_bars(gains: &Gains, drawing: &mut Drawing, frame: Frame) {
    let ends = gains.others.iter().flat_map(|ratio| {
        let (low, high) = ratio.interval.unwrap_or((ratio.value, ratio.value));
        [low, high].map(saved)
    });
    let ends: Vec<f64> = ends.collect();
    let x = Axis::around(0.0, 5.0, &ends, 8.0, (frame.left, frame.right));
    x.draw_below(drawing, frame, "step time saved (%)");
    for (index, ratio) in gains.others.iter().enumerate() {
        let middle = frame.top + (index as f64 + 0.5) * ROW;
        let name = Text::new(name(ratio)[0], (frame.left - 14.0, middle), theme::TICK).centered();
        drawing.text(Text { align: Align::Right, ..name });
        let (zero, end) = (x.at(0.0), x.at(saved(ratio.value)));
        let (from, to) = (zero.min(end), zero.max(end));
        look(ratio).fill(drawing, [from, middle - BAR / 2.0, to - from, BAR]);
        if let Some((low, high)) = ratio.interval {
            theme::interval_across(
                drawing,
                middle,
                x.at(saved(low)),
                x.at(saved(high)),
                theme::INK,
            );
        }
        let words = Text::new(numbers(ratio), (frame.right + 14.0, middle), theme::TICK).centered();
        drawing.text(Text { align: Align::Left, ..words });
    }
    drawing.line(&[(x.at(0.0), frame.top), (x.at(0.0), frame.bottom)], theme::INK, 3.0);
    frame.draw(drawing);
}

/// The finding of the picture in a sentence: the most that is saved, and what it is compared with.
fn finding(gains: &Gains) -> String {
    let Some(most) = gains.others.iter().max_by(|a, b| a.value.total_cmp(&b.value)) else {
        return String::new();
    };
    let [name, what] = name(most);
    let what = if what.is_empty() { String::new() } else { format!(" ({what})") };
    format!("{} saves {} over {name}{what}.", gains.recommended, numbers(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::ratios::Origin;

    fn gains() -> Gains {
        let ratio =
            |name: &str, value: f64, interval| Ratio { name: name.to_string(), value, interval };
        Gains {
            recommended: "1 MiB, 0.1 ms".to_string(),
            others: vec![
                ratio("1 MiB, 2.5 ms", 1.01, Some((0.99, 1.02))),
                ratio("128 MiB, 1 ms (Horovod's default)", 1.25, Some((1.0 / 0.9, 2.0))),
            ],
            origin: Origin { is_doubtful: true, words: "densenet121.".to_string() },
        }
    }

    fn drawing() -> Drawing {
        let mut rows = Rows::default();
        rows.add_gains(gains());
        match sheets(&rows, View::default()).pop() {
            Some(Sheet::Drawn { drawing, .. }) => drawing,
            _ => panic!("it is drawn"),
        }
    }

    #[test]
    fn a_bar_is_the_share_of_the_other_step_that_is_saved() {
        let drawing = drawing();
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let said = drawing.prose();
        let finding = "1 MiB, 0.1 ms saves 20 % [10, 50] over 128 MiB, 1 ms (Horovod's default).";
        assert!(said.contains(finding), "{said}");
        assert!(
            said.contains(" 0.99 % [−1.0, 2.0] ") && said.contains(" 20 % [10, 50] "),
            "{said}"
        );
        assert!(said.contains("MEASURED · emulated nodes, or ranks that share cores"), "{said}");
    }

    #[test]
    fn settings_that_tie_look_different() {
        let fills = |look: Look| {
            let is =
                |mark: &&Mark| matches!(mark, Mark::Area { color, .. } if *color == look.color);
            drawing().marks.iter().filter(is).count()
        };
        // One in the legend and one bar each.
        assert_eq!(fills(Look::new((214, 214, 214), Slant::Rising)), 2);
        assert_eq!(fills(Look::new((0, 114, 178), Slant::None)), 2);
    }
}
