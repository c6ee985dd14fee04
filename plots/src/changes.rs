//! How the times of one run differ from those of another: a point with its interval for each case, sorted.

use plotters::style::RGBColor;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Align, Drawing, Text, text_width};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::ratios::{Changes, Ratio};
use crate::rows::Rows;
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "changes", sheets };

/// Of more cases, those that differ most are shown.
const SHOWN: usize = 40;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let drawn = rows.changes.iter().filter(|changes| !changes.cases.is_empty());
    // The second runs are b, c, ..., as in the table of `kolo compare`.
    let drawn = ('b'..).zip(drawn).map(|(letter, it)| (letter.to_string(), draw(view, it)));
    Sheet::all(drawn.collect(), || {
        "no two runs are compared; `kolo compare --figure` does it".to_string()
    })
}

/// What a case's interval says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Slower,
    Faster,
    Same,
    Unknown,
}

impl Verdict {
    const ALL: [Verdict; 4] = [Verdict::Slower, Verdict::Faster, Verdict::Same, Verdict::Unknown];

    fn of(ratio: &Ratio, threshold: f64) -> Verdict {
        match ratio.interval {
            Some((low, high)) if low >= 1.0 / (1.0 + threshold) && high <= 1.0 + threshold => {
                Verdict::Same
            }
            Some((low, _)) if low > 1.0 => Verdict::Slower,
            Some((_, high)) if high < 1.0 => Verdict::Faster,
            _ => Verdict::Unknown,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::Same => "the same",
            Verdict::Unknown => "cannot be said",
        }
    }

    fn color(self) -> RGBColor {
        match self {
            Verdict::Slower => theme::series(1),
            Verdict::Faster => theme::series(0),
            Verdict::Same => theme::INK,
            Verdict::Unknown => theme::SOFT,
        }
    }

    /// Draws its marker: a triangle up or down, a disc, or a ring.
    fn mark(self, drawing: &mut Drawing, at: (f64, f64)) {
        let (shape, hollow) = match self {
            Verdict::Slower => (2, false),
            Verdict::Faster => (4, false),
            Verdict::Same => (0, false),
            Verdict::Unknown => (0, true),
        };
        theme::marker_in(drawing, shape, at, theme::MARKER, hollow, self.color());
    }
}

const ROW: f64 = 44.0;

fn draw(view: View, changes: &Changes) -> Drawing {
    let title = format!("{} against {}, case by case", changes.runs[1], changes.runs[0]);
    let mut page = Page::new(view, &title, &finding(changes));
    let verdict = |ratio: &Ratio| Verdict::of(ratio, changes.threshold);
    let there = |it: &Verdict| changes.cases.iter().any(|case| verdict(case) == *it);
    let entries = Verdict::ALL.into_iter().filter(there).map(|it| Entry {
        sign: Box::new(move |drawing: &mut Drawing, at| it.mark(drawing, at)),
        label: it.words().to_string(),
    });
    let band = Entry {
        sign: Box::new(|drawing: &mut Drawing, (x, y)| {
            drawing.rectangle(x - 30.0, y - 15.0, 60.0, 30.0, theme::BAND);
        }),
        label: format!("within {} %", theme::tick(100.0 * changes.threshold)),
    };
    page.legend(&entries.chain([band]).collect::<Vec<_>>());
    let cases = shown(changes);
    let names = cases.iter().map(|case| text_width(&case.name, view.small(), false));
    let left = names.fold(0.0, f64::max) + 30.0;
    let shape = Shape { left, right: 120.0, height: ROW * cases.len() as f64, is_elastic: false };
    panels::lay(&mut page, &[String::new()], shape, |drawing, _, frame| {
        draw_cases(changes, &cases, drawing, frame);
    });
    let turns = if changes.interleaved {
        "The runs took turns, block by block."
    } else {
        "They do not know how the machine changed from one run to the other."
    };
    let mut note =
        format!("Time in the second run over that in the first, with 95 % intervals. {turns}");
    if cases.len() < changes.cases.len() {
        note += &format!(
            " The {} of {} cases that differ most are shown.",
            cases.len(),
            changes.cases.len()
        );
    }
    page.finish(&Caption::plain(changes.origin.stamp(), vec![changes.origin.words.clone(), note]))
}

/// The cases that differ most, the slowest first.
fn shown(changes: &Changes) -> Vec<&Ratio> {
    let mut cases: Vec<&Ratio> = changes.cases.iter().filter(|case| case.value > 0.0).collect();
    cases.sort_by(|a, b| b.value.ln().abs().total_cmp(&a.value.ln().abs()));
    cases.truncate(SHOWN);
    cases.sort_by(|a, b| b.value.total_cmp(&a.value));
    cases
}

fn draw_cases(changes: &Changes, cases: &[&Ratio], drawing: &mut Drawing, frame: Frame) {
    let ends = cases.iter().flat_map(|case| {
        let (low, high) = case.interval.unwrap_or((case.value, case.value));
        [low, high]
    });
    let ends: Vec<f64> = ends.collect();
    let threshold = changes.threshold;
    let x = Axis::around(1.0, (2.0 * threshold).max(0.02), &ends, 8.0, (frame.left, frame.right));
    let (low, high) = (x.at(1.0 / (1.0 + threshold)), x.at(1.0 + threshold));
    drawing.rectangle(low, frame.top, high - low, frame.bottom - frame.top, theme::BAND);
    x.draw_below(drawing, frame, "time of the second run / time of the first");
    drawing.dashes((x.at(1.0), frame.top), (x.at(1.0), frame.bottom), theme::INK, 3.0);
    for (index, case) in cases.iter().enumerate() {
        let y = frame.top + (index as f64 + 0.5) * ROW;
        let verdict = Verdict::of(case, threshold);
        let name = Text::new(&case.name, (frame.left - 14.0, y), drawing.small()).centered();
        drawing.text(Text { align: Align::Right, ..name });
        if let Some((low, high)) = case.interval {
            theme::interval_across(drawing, y, x.at(low), x.at(high), verdict.color());
        }
        verdict.mark(drawing, (x.at(case.value), y));
        let words =
            Text::new(theme::significant(case.value, 4), (frame.right + 14.0, y), drawing.small());
        drawing.text(Text { align: Align::Left, ..words.centered() });
    }
    frame.draw(drawing);
}

/// The finding of the picture in a sentence: how many cases are slower, faster, and so on.
fn finding(changes: &Changes) -> String {
    let count = |it: Verdict| {
        changes.cases.iter().filter(|case| Verdict::of(case, changes.threshold) == it).count()
    };
    let counted = Verdict::ALL.into_iter().map(|it| (count(it), it.words()));
    let said =
        counted.filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
    let said: Vec<String> = said.collect();
    format!("Of {}: {}.", theme::count(changes.cases.len(), "case"), said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratios::Origin;

    fn changes(cases: Vec<Ratio>) -> Changes {
        let runs = ["before".to_string(), "after".to_string()];
        Changes { runs, threshold: 0.02, cases, interleaved: false, origin: Origin::default() }
    }

    fn case(name: &str, value: f64, interval: Option<(f64, f64)>) -> Ratio {
        Ratio { name: name.to_string(), value, interval }
    }

    #[test]
    fn cases_are_sorted_and_counted_by_what_their_intervals_say() {
        let cases = vec![
            case("same", 1.001, Some((0.99, 1.01))),
            case("faster", 0.9, Some((0.88, 0.93))),
            case("slower", 1.3, Some((1.2, 1.4))),
            case("wide", 1.1, Some((0.9, 1.3))),
            case("few", 1.05, None),
        ];
        let mut rows = Rows::default();
        rows.add_changes(changes(cases));
        let Some(Sheet::Drawn { drawing, .. }) = sheets(&rows, View::default()).pop() else {
            panic!("it is drawn")
        };
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let said = drawing.prose();
        let head = "after against before, case by case Of 5 cases: 1 slower, 1 faster, 1 the same, 2 cannot be said.";
        assert!(said.starts_with(head), "{said}");
        let order = "slower 1.300 wide 1.100 few 1.050 same 1.001 faster 0.9000 ";
        assert!(said.contains(order), "{said}");
    }

    #[test]
    fn of_many_cases_those_that_differ_most_are_shown() {
        let cases =
            (0..100).map(|index| case(&format!("c{index}"), 1.0 + f64::from(index) / 1e3, None));
        let changes = changes(cases.collect());
        let shown = shown(&changes);
        assert_eq!(
            (shown.len(), shown[0].name.as_str(), shown[39].name.as_str()),
            (40, "c99", "c60")
        );
    }
}
