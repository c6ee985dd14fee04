//! Throughput of each policy over that of one, the coordinator's, over ranks: simulated training, a
//! panel per workload.

use crate::axis::Axis;
use crate::drawing::{Align, Drawing, Text, text_width};
use crate::page::Page;
use crate::panels::{self, Frame, Shape};
use crate::rows::{Estimate, Row, Rows};
use crate::simulation::{Line, Panel, Simulation, Wanted, dashed};
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "speedup", sheets };

/// About so many ranks are told in words and numbers, if there are: the most that negotiation with
/// bit vectors was published for.
const TOLD: f64 = 6000.0;

fn sheets(rows: &Rows) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.throughput_samples_s.value > Some(0.0),
        columns: "throughput_samples_s_p50, beside a baseline,",
        ranks_min: 2,
    };
    Simulation::sheets(rows, &wanted, |simulation| {
        let speedup = Speedup::of(simulation)?;
        Some(speedup.draw())
    })
}

/// Policies and what they are compared with.
struct Speedup<'a> {
    simulation: &'a Simulation<'a>,
    baseline: &'a str,
    /// The panels that have the baseline and others.
    panels: Vec<&'a Panel<'a>>,
    /// The policy whose speed-up is told, and on how many ranks.
    told: (&'a str, f64),
}

impl<'a> Speedup<'a> {
    fn of(simulation: &'a Simulation) -> Option<Speedup<'a>> {
        let first = simulation.lines().min_by_key(|line| line.style)?;
        let baseline = first.policy.as_str();
        let compared = |panel: &&Panel| {
            panel.lines.len() > 1 && panel.lines.iter().any(|line| line.policy == baseline)
        };
        let panels: Vec<&Panel> = simulation.panels.iter().filter(compared).collect();
        let others = || {
            let lines = panels.iter().flat_map(|panel| &panel.lines);
            lines.filter(|line| line.policy != baseline)
        };
        let bits = others().find(|line| line.policy.contains("bitvector"));
        let policy = bits.or_else(|| others().min_by_key(|line| line.style))?.policy.as_str();
        let ranks = simulation.selection.ranks();
        let ranks = near(&ranks, TOLD).or(ranks.last().copied())?;
        Some(Speedup { simulation, baseline, panels, told: (policy, ranks) })
    }

    fn draw(&self) -> Drawing {
        let title = format!("Throughput relative to {}, by number of ranks", self.baseline);
        let mut page = Page::new(&title, &self.finding());
        let one = dashed(&format!("{}: 1", self.baseline));
        self.simulation.legend(&mut page, Some(self.baseline), Some(one));
        let each = self.panels.iter().flat_map(|panel| {
            let lines = panel.lines.iter().flat_map(|line| &line.rows);
            lines.filter_map(|row| self.ratio(panel, row).span())
        });
        let values: Vec<f64> = each.flat_map(|(low, high)| [low, high]).collect();
        let titles: Vec<String> = self.panels.iter().map(|panel| panel.title.clone()).collect();
        let shape = Shape::usual(130.0, 20.0, titles.len());
        panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
            self.draw_panel(self.panels[index], &values, drawing, frame);
        });
        let note = "Intervals: the low end of the one over the high end of the other, and the other \
                    way round, which is wider than 95 %. Lines only join the points.";
        page.finish(
            &self.simulation.caption(|row| row.throughput_samples_s, vec![note.to_string()]),
        )
    }

    fn draw_panel(&self, panel: &Panel, values: &[f64], drawing: &mut Drawing, frame: Frame) {
        let x = self.simulation.ranks_axis(drawing, frame);
        let y = Axis::measured(values, frame.bottom, frame.top);
        let title = format!("times the throughput ({})", y.scale());
        y.draw_left(drawing, frame.left, frame.right, &title);
        let one = y.at(1.0);
        drawing.dashes((frame.left, one), (frame.right, one), theme::INK, 3.0);
        let others = || panel.lines.iter().filter(|line| line.policy != self.baseline);
        for line in others() {
            line.draw(drawing, &x, &y, |row| self.ratio(panel, row));
        }
        let (policy, ranks) = self.told;
        let told = others().find(|line| line.policy == policy);
        let told = told.and_then(|line| Some((line, self.at(panel, line, ranks)?)));
        if let Some((line, value)) = told {
            number(drawing, (x.at(ranks), y.at(value)), value, line.style);
        }
        drawing.frame(frame.left, frame.top, frame.right, frame.bottom);
    }

    /// A row's throughput over the baseline's on as many ranks.
    fn ratio(&self, panel: &Panel, row: &Row) -> Estimate {
        let base = panel.lines.iter().find(|line| line.policy == self.baseline);
        let Some(base) = base.zip(row.ranks).and_then(|(line, ranks)| line.at(ranks)) else {
            return Estimate::default();
        };
        let (over, under) = (row.throughput_samples_s, base.throughput_samples_s);
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

    /// What the picture shows, in a sentence.
    fn finding(&self) -> String {
        let (policy, ranks) = self.told;
        let of = |panel: &&Panel| {
            let line = panel.lines.iter().find(|line| line.policy == policy)?;
            let value = self.at(panel, line, ranks)?;
            Some(format!("{} {}", panel.name, theme::significant(value, 3)))
        };
        let each: Vec<String> = self.panels.iter().filter_map(of).collect();
        let (baseline, ranks) = (self.baseline, theme::tick(ranks));
        format!("{policy} over {baseline} on {ranks} ranks: {}.", each.join("; "))
    }
}

/// The value nearest to another, if it is within a quarter of it.
pub(crate) fn near(values: &[f64], target: f64) -> Option<f64> {
    let off = |value: &f64| (value / target).ln().abs();
    let nearest = values.iter().copied().min_by(|a, b| off(a).total_cmp(&off(b)))?;
    (off(&nearest) < 1.25_f64.ln()).then_some(nearest)
}

/// A number beside its point, on paper of its own so that lines do not run through it.
fn number(drawing: &mut Drawing, (x, y): (f64, f64), value: f64, style: usize) {
    let words = theme::significant(value, 3);
    let width = text_width(&words, theme::TICK, true);
    let (x, y) = (x - 22.0, y - 34.0);
    drawing.rectangle(x - width - 6.0, y - 19.0, width + 12.0, 38.0, theme::PAPER);
    let text = Text::new(words, (x, y), theme::TICK).centered();
    let color = theme::series(style);
    drawing.text(Text { align: Align::Right, bold: true, color, ..text });
}
