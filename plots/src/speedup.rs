//! Throughput of each policy relative to that of a baseline, the coordinator, over ranks, a panel
//! per workload.

use crate::axis::Axis;
use crate::drawing::{Align, Drawing, HARD_SPACE, Point, Text, text_width};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::rounds::Rounds;
use crate::rows::{Estimate, Row, Rows};
use crate::training::{Line, POINTS, Panel, Training, Wanted};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "speedup", sheets };

/// The finding and the printed numbers are for about this many ranks, if there are rows: the most
/// that results of negotiation with bit vectors were published for.
const TOLD: f64 = 6000.0;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.throughput().value > Some(0.0),
        columns: "throughput_samples_s_p50, or a measured time_us_p50 (a baseline too),",
        ranks_min: 2,
        predictions: false,
    };
    Training::sheets(rows, view, &wanted, |training| {
        let rounds = Rounds::of(rows, training.selection.rows.iter().copied());
        Some(Speedup::of(training, &rounds)?.draw())
    })
}

/// The policies and the baseline.
struct Speedup<'a> {
    training: &'a Training<'a>,
    /// The blocks of measured rows.
    rounds: &'a Rounds,
    baseline: &'a str,
    /// The panels that have the baseline and others.
    panels: Vec<&'a Panel<'a>>,
    /// The policy and the number of ranks of the finding.
    stated: (&'a str, f64),
}

impl<'a> Speedup<'a> {
    fn of(training: &'a Training, rounds: &'a Rounds) -> Option<Speedup<'a>> {
        let first = training.lines().min_by_key(|line| line.style)?;
        let baseline = first.policy.as_str();
        // A comparison of algorithms has no baseline.
        if !training.is_simulated() && !baseline.contains("coordinator") {
            return None;
        }
        let compared = |panel: &&Panel| {
            panel.lines.len() > 1 && panel.lines.iter().any(|line| line.policy == baseline)
        };
        let panels: Vec<&Panel> = training.panels.iter().filter(compared).collect();
        let others = || {
            let lines = panels.iter().flat_map(|panel| &panel.lines);
            lines.filter(|line| line.policy != baseline)
        };
        // A policy of Horovod differs from the baseline by the coordinator alone.
        let stated = |line: &&Line| {
            let name = &line.policy;
            (!name.contains("bitvector"), !name.starts_with("horovod"), line.style)
        };
        let policy = others().min_by_key(stated)?.policy.as_str();
        let ranks = training.selection.ranks();
        let ranks = near(&ranks, TOLD).or(ranks.last().copied())?;
        Some(Speedup { training, rounds, baseline, panels, stated: (policy, ranks) })
    }

    fn draw(&self) -> Drawing {
        let title = format!("Throughput relative to {}, by number of ranks", self.baseline);
        let mut page = Page::new(self.training.view, &title, &self.finding());
        let one = Entry::dashed(&format!("{}: 1", self.baseline));
        self.training.legend(&mut page, Some(self.baseline), Some(one));
        let values = self.panels.iter().flat_map(|panel| {
            let rows = panel.lines.iter().flat_map(|line| &line.rows);
            rows.flat_map(|row| self.ratio(panel, row).ends())
        });
        let values: Vec<f64> = values.collect();
        let titles: Vec<String> = self.panels.iter().map(|panel| panel.title.clone()).collect();
        let shape = Shape::usual(130.0, self.training.ends_room(), titles.len());
        panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
            self.draw_panel(self.panels[index], &values, drawing, frame);
        });
        let widest = "Intervals: the low end of the one over the high end of the other, and the other \
                      way round, which is wider than 95 %.";
        let note = self.training.is_simulated().then(|| widest.to_string());
        let notes = note.into_iter().chain([POINTS.to_string()]).collect();
        let drawn = |row: &Row| {
            let panel = self.panels.iter().find(|panel| panel.has(row));
            panel.map_or(Estimate::default(), |panel| self.ratio(panel, row))
        };
        page.finish(&self.training.caption_of_ratios(drawn, notes))
    }

    fn draw_panel(&self, panel: &Panel, values: &[f64], drawing: &mut Drawing, frame: Frame) {
        let x = self.training.ranks_axis(drawing, frame);
        let wide = Axis::measured(values, frame.bottom, frame.top);
        let y = if wide.is_logarithmic() {
            wide
        } else {
            Axis::shares(1.0, values, frame.bottom, frame.top)
        };
        y.draw_left(drawing, frame, "times the throughput");
        let one = y.at(1.0);
        drawing.dashes((frame.left, one), (frame.right, one), theme::INK, 3.0);
        let others = || panel.lines.iter().filter(|line| line.policy != self.baseline);
        for line in others() {
            self.training.draw_line(line, drawing, &x, &y, |row| self.ratio(panel, row));
        }
        let (policy, ranks) = self.stated;
        let stated = others().find(|line| line.policy == policy);
        let stated = stated.and_then(|line| self.at(panel, line, ranks));
        if let Some(value) = stated {
            let points: Vec<Point> = others()
                .flat_map(|line| &line.rows)
                .filter_map(|row| Some((x.at(row.ranks?), y.at(self.ratio(panel, row).value?))))
                .collect();
            number(drawing, frame, &points, (x.at(ranks), y.at(value)), value);
        }
        frame.draw(drawing);
        let ratio = |_: &Line, row: &Row| self.ratio(panel, row).value;
        self.training.draw_ends(others(), drawing, frame, &y, ratio);
    }

    /// A row's throughput relative to the baseline's on the same number of ranks.
    fn ratio(&self, panel: &Panel, row: &Row) -> Estimate {
        let base = panel.lines.iter().find(|line| line.policy == self.baseline);
        let Some(base) = base.zip(row.ranks).and_then(|(line, ranks)| line.at(ranks)) else {
            return Estimate::default();
        };
        if std::ptr::eq(base, row) {
            return Estimate::default();
        }
        if !row.is_simulated() {
            return self.rounds.ratio(base, row);
        }
        let (over, under) = (row.throughput(), base.throughput());
        let positive = |value: &f64| *value > 0.0;
        let value = over.value.zip(under.value.filter(positive));
        let interval = over.interval.zip(under.interval.filter(|(low, _)| positive(low)));
        Estimate {
            value: value.map(|(over, under)| over / under),
            interval: interval.map(|(over, under)| (over.0 / under.1, over.1 / under.0)),
        }
    }

    fn at(&self, panel: &Panel, line: &Line, ranks: f64) -> Option<f64> {
        self.ratio(panel, line.at(ranks)?).value
    }

    /// The finding of the picture in a sentence.
    fn finding(&self) -> String {
        let (policy, ranks) = self.stated;
        let of = |panel: &&Panel| {
            let line = panel.lines.iter().find(|line| line.policy == policy)?;
            let value = self.at(panel, line, ranks)?;
            Some(format!("{}{HARD_SPACE}{}", panel.name, theme::significant(value, 3)))
        };
        let each: Vec<String> = self.panels.iter().filter_map(of).collect();
        let (baseline, ranks) = (self.baseline, theme::exact(ranks));
        format!("{policy} over {baseline} on {ranks} ranks: {}.", each.join("; "))
    }
}

/// The value nearest to `target`, if they differ by less than a factor of 1.25.
pub(crate) fn near(values: &[f64], target: f64) -> Option<f64> {
    let off = |value: &f64| (value / target).ln().abs();
    let nearest = values.iter().copied().min_by(|a, b| off(a).total_cmp(&off(b)))?;
    (off(&nearest) < 1.25_f64.ln()).then_some(nearest)
}

/// Draws a number beside its point on a white rectangle, at a place where it covers no marker if there
/// is one.
fn number(drawing: &mut Drawing, frame: Frame, points: &[Point], (x, y): Point, value: f64) {
    let words = theme::significant(value, 3);
    let width = text_width(&words, theme::TICK, true);
    // First above and to the left, as lines rise to the right, then further and further away.
    let places = (0..6).flat_map(|step| {
        let off = 68.0 + 30.0 * f64::from(step);
        let right = x + 12.0 + width;
        [(x + 8.0, y - off), (right, y - off), (x + 8.0, y + off), (right, y + off)]
    });
    let free = |(right, middle): &Point| {
        let (across, down) = (right - width - 20.0..=right + 16.0, middle - 34.0..=middle + 34.0);
        frame.top + 20.0 < *middle
            && *middle < frame.bottom - 20.0
            && right - width > frame.left + 8.0
            && *right < frame.right - 8.0
            && !points.iter().any(|(x, y)| across.contains(x) && down.contains(y))
    };
    let (right, middle) = places.into_iter().find(free).unwrap_or((x + 8.0, y - 68.0));
    let towards = if middle < y { -1.0 } else { 1.0 };
    drawing.line(&[(x, middle - towards * 18.0), (x, y + towards * 12.0)], theme::INK, 2.0);
    drawing.rectangle(right - width - 4.0, middle - 18.0, width + 8.0, 36.0, theme::PAPER);
    let text = Text::new(words, (right, middle), theme::TICK).centered();
    drawing.text(Text { align: Align::Right, bold: true, ..text });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, POLICIES, RANKS, WORKLOADS, policy, scaling, step};

    fn row(name: &str, ranks: u32, samples_s: &str) -> synthetic::Row {
        let row = policy("vgg16", name, ranks).with("throughput_samples_s_p50", samples_s);
        row.with("throughput_samples_s_p50_low", "").with("throughput_samples_s_p50_high", "")
    }

    #[test]
    fn the_finding_compares_bit_vectors_with_the_coordinator_at_the_published_number_of_ranks() {
        let rows = [
            row("horovod-coordinator", 6, "10"),
            row("horovod-bitvector", 6, "10"),
            row("horovod-coordinator", 6144, "400"),
            row("horovod-bitvector", 6144, "900"),
            row("horovod-coordinator", 27600, "500"),
            row("horovod-bitvector", 27600, "2000"),
            row("ddp", 27600, "2500"),
        ];
        let said = FIGURE.words(&rows);
        let finding = "horovod-bitvector over horovod-coordinator on 6144 ranks: vgg16 2.25. ddp \
                       horovod-bitvector horovod-coordinator: 1 vgg16, 64";
        assert!(said.contains(finding), "{said}");
        assert!(
            said.contains(" 2.25 5.00 ddp 4.00 horovod-bitvector "),
            "beside the points: {said}"
        );
        let said = FIGURE.words(&[&rows[..2], &rows[4..]].concat());
        assert!(said.contains("on 27\u{202f}600 ranks: vgg16 4.00."), "{said}");
    }

    #[test]
    fn without_bit_vectors_the_finding_names_another_policy_of_horovod() {
        let names = ["byteps", "ddp", "horovod-coordinator", "horovod-grouped"];
        let said = FIGURE.words(&scaling(&["vgg16"], &names, &[6, 6000]));
        assert!(said.contains("horovod-grouped over horovod-coordinator on 6000 ranks"), "{said}");
        let said = FIGURE.words(&scaling(&["vgg16"], &names[..3], &[6, 6000]));
        assert!(said.contains("byteps over horovod-coordinator on 6000 ranks"), "{said}");
    }

    #[test]
    fn a_number_covers_no_marker() {
        let at = |points: &[Point]| {
            let mut drawing = Drawing::default();
            let frame = Frame::new(0.0, 0.0, 900.0, 600.0);
            number(&mut drawing, frame, points, (500.0, 300.0), 4.73);
            drawing.texts()[0].at
        };
        let usual = at(&[]);
        assert!(usual.0 < 510.0 && usual.1 < 300.0, "above and to the left: {usual:?}");
        let beside = at(&[(500.0, 240.0)]);
        assert!(beside.0 < 510.0 && beside.1 > 300.0, "below: {beside:?}");
        let both = at(&[(500.0, 240.0), (500.0, 360.0)]);
        assert!((usual.1 - both.1).abs() > 29.0, "further off: {both:?}");
    }

    #[test]
    fn without_a_coordinator_the_first_is_the_baseline() {
        let rows = scaling(&["vgg16"], &["tf-distribute", "ddp"], &[6, 12]);
        assert!(FIGURE.words(&rows).contains("Throughput relative to ddp, by number of ranks"));
    }

    #[test]
    fn the_interval_is_the_widest_that_both_allow() {
        let wide = |name, low, high| {
            let row = row(name, 6, "100").with("throughput_samples_s_p50_low", low);
            [row.with("throughput_samples_s_p50_high", high), self::row(name, 12, "100")]
        };
        let coordinator = wide("horovod-coordinator", "50", "200");
        let rows = [coordinator, wide("ddp", "80", "150")].concat();
        let rows = Rows::of(&synthetic::table(&rows));
        let wanted = Wanted { complete: |_| true, columns: "", ranks_min: 2, predictions: false };
        let seen = std::cell::Cell::new(0);
        Training::sheets(&rows, View::default(), &wanted, |training| {
            let rounds = Rounds::default();
            let speedup = Speedup::of(training, &rounds)?;
            let panel = speedup.panels[0];
            let ratio = speedup.ratio(panel, panel.lines[1].rows[0]);
            assert_eq!(ratio, Estimate { value: Some(1.0), interval: Some((0.4, 3.0)) });
            seen.set(seen.get() + 1);
            None
        });
        assert_eq!(seen.get(), 1);
    }

    #[test]
    fn a_workload_without_the_baseline_has_no_panel_and_a_baseline_alone_no_picture() {
        let mut rows = scaling(&["vgg16"], &["horovod-coordinator", "ddp"], &[6, 12]);
        rows.extend(scaling(&["resnet50"], &["ddp", "byteps"], &[6, 12]));
        let said = FIGURE.words(&rows);
        assert!(said.contains("vgg16, 64") && !said.contains("resnet50, 64"), "{said}");
        let alone = scaling(&["vgg16"], &["ddp"], &[6, 12]);
        let reason = "no rows of kind `step` with status ok have throughput_samples_s_p50, or a measured \
                      time_us_p50 (a baseline too), for several numbers of ranks";
        assert_eq!(FIGURE.refusal(&alone), reason);
    }

    #[test]
    fn all_workloads_fit() {
        FIGURE.words(&scaling(&WORKLOADS, &POLICIES, &RANKS));
        FIGURE.words(&scaling(&WORKLOADS[..1], &POLICIES, &RANKS));
    }

    /// 100 ms with the coordinator and 80 ms with bit vectors, on 4 ranks.
    #[test]
    fn measured_steps_compare_control_planes_and_algorithms_have_no_baseline() {
        let on = |plane: &str, ranks: &str, time_us: f64| {
            let row = step("ring", plane, 64.0, 5.0).with("nodes", ranks).with("ranks", ranks);
            row.with_estimate("time_us_p50", time_us, 1000.0)
        };
        let rows = [
            on("coordinator", "2", 60e3),
            on("bitvector", "2", 60e3),
            on("coordinator", "4", 100e3),
            on("bitvector", "4", 80e3),
        ];
        let said = FIGURE.words(&rows);
        assert!(said.contains("bitvector over coordinator on 4 ranks: resnet50 1.25."), "{said}");
        assert!(said.contains("MEASURED"), "{said}");
        let tree = |row: &synthetic::Row| row.with("algorithm", "tree");
        let algorithms = [rows[0].clone(), rows[2].clone(), tree(&rows[0]), tree(&rows[2])];
        assert!(FIGURE.refusal(&algorithms).contains("(a baseline too)"));
    }

    #[test]
    fn near_is_within_a_quarter() {
        let ranks = [6.0, 1536.0, 6144.0, 27600.0];
        assert_eq!((near(&ranks, 6000.0), near(&ranks, 4000.0)), (Some(6144.0), None));
        assert_eq!(near(&[], 6000.0), None);
    }
}
