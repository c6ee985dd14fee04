//! Simulated training steps on one machine: the policies of each workload over ranks.
//!
//! A policy has the same looks in every panel, picture and figure. Of a policy that was simulated
//! with several settings, the fastest counts for each number of ranks.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::dash;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, Page, SIGN};
use crate::panels::Frame;
use crate::rows::{Estimate, Row, Rows};
use crate::selection::Selection;
use crate::{Sheet, theme};

const KIND: &str = "step";

/// The rows of one picture.
pub(crate) struct Simulation<'a> {
    pub selection: Selection<'a>,
    pub panels: Vec<Panel<'a>>,
    /// Whether a policy had several settings to be the fastest of.
    chosen: bool,
}

/// A workload.
pub(crate) struct Panel<'a> {
    /// Its name in a sentence.
    pub name: String,
    pub title: String,
    pub lines: Vec<Line<'a>>,
}

/// A policy and its rows, few ranks first.
pub(crate) struct Line<'a> {
    pub policy: String,
    pub style: usize,
    pub rows: Vec<&'a Row>,
}

/// What a figure takes of simulations.
pub(crate) struct Wanted {
    /// Whether a row has what the figure draws.
    pub complete: fn(&Row) -> bool,
    /// The same for the reader.
    pub columns: &'static str,
    /// Fewer numbers of ranks give no picture.
    pub ranks_min: usize,
}

impl<'a> Simulation<'a> {
    /// A picture of each simulation that has what the figure wants, unless drawing it gives none.
    pub fn sheets(
        rows: &'a Rows,
        wanted: &Wanted,
        draw: impl Fn(&Simulation) -> Option<Drawing>,
    ) -> Vec<Sheet> {
        let simulated = rows.of_kind(KIND).filter(|row| row.source == "simulated");
        let policies = in_order(simulated.map(|row| row.policy.clone()));
        let selections = Selection::simulated(rows, KIND, case);
        let simulations =
            selections.into_iter().filter_map(|selection| Self::of(selection, &policies, wanted));
        let drawn = simulations.filter_map(|it| Some((it.selection.suffix.clone(), draw(&it)?)));
        Sheet::all(drawn.collect(), || {
            let several = if wanted.ranks_min > 1 { " for several numbers of ranks" } else { "" };
            let columns = wanted.columns;
            format!(
                "no simulated rows of kind `{KIND}` with status ok have a policy and \
                 {columns}{several}"
            )
        })
    }

    fn of(
        mut selection: Selection<'a>,
        policies: &[String],
        wanted: &Wanted,
    ) -> Option<Simulation<'a>> {
        selection.restrict(|row| !row.policy.is_empty());
        selection.require(|row| row.ranks > Some(0.0) && (wanted.complete)(row));
        selection.prefer_most_nodes();
        let all = selection.rows.len();
        let mut panels: BTreeMap<Vec<String>, Vec<&Row>> = BTreeMap::new();
        for row in &selection.rows {
            panels.entry(work(row)).or_default().push(row);
        }
        let works: Vec<Vec<String>> = panels.keys().cloned().collect();
        let panel = |(work, rows): (Vec<String>, Vec<&'a Row>)| {
            let title = title(&work, &works);
            let alone = works.iter().filter(|other| other[0] == work[0]).count() == 1;
            let name = if alone { work[0].clone() } else { title.clone() };
            Panel { name, title, lines: Line::all(policies, &rows) }
        };
        let panels: Vec<Panel> = panels.into_iter().map(panel).collect();
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        selection.rows = lines.flat_map(|line| line.rows.iter().copied()).collect();
        let chosen = selection.rows.len() < all;
        let enough = selection.ranks().len() >= wanted.ranks_min.max(1);
        enough.then_some(Simulation { selection, panels, chosen })
    }

    pub fn lines(&self) -> impl Iterator<Item = &Line<'a>> {
        self.panels.iter().flat_map(|panel| &panel.lines)
    }

    pub fn titles(&self) -> Vec<String> {
        self.panels.iter().map(|panel| panel.title.clone()).collect()
    }

    /// What all panels have in common, drawn into one: the horizontal axis over ranks.
    pub fn ranks_axis(&self, drawing: &mut Drawing, frame: Frame) -> Axis {
        let x = Axis::ranks(&self.selection.ranks(), frame.left, frame.right);
        x.draw_below(drawing, frame.top, frame.bottom, &format!("ranks ({})", x.scale()));
        x
    }

    /// A legend of the policies, apart from one, and of what else is drawn.
    pub fn legend(&self, page: &mut Page, without: Option<&str>, more: Option<Entry<'static>>) {
        let mut once: BTreeMap<usize, &Line> = BTreeMap::new();
        for line in self.lines().filter(|line| Some(line.policy.as_str()) != without) {
            once.insert(line.style, line);
        }
        let entries = once.into_values().map(Line::entry).chain(more);
        page.legend(&entries.collect::<Vec<_>>());
    }

    /// The caption, with the figure's own notes.
    pub fn caption(&self, drawn: fn(&Row) -> Estimate, mut notes: Vec<String>) -> Caption {
        if self.chosen {
            notes.push("Each policy with its fastest setting for that many ranks.".to_string());
        }
        Caption::of(&self.selection, drawn, notes)
    }
}

impl<'a> Line<'a> {
    fn all(policies: &[String], rows: &[&'a Row]) -> Vec<Line<'a>> {
        let line = |(style, policy): (usize, &String)| {
            let own = rows.iter().copied().filter(|row| row.policy == *policy);
            let mut rows: Vec<&Row> = own.collect();
            let time_us = |row: &Row| row.time_us.value.unwrap_or(f64::MAX);
            rows.sort_by(|a, b| {
                let ranks = ranks_of(a).total_cmp(&ranks_of(b));
                ranks.then(time_us(a).total_cmp(&time_us(b)))
            });
            rows.dedup_by_key(|row| row.ranks);
            Line { policy: policy.clone(), style, rows }
        };
        let lines = policies.iter().enumerate().map(line);
        lines.filter(|line| !line.rows.is_empty()).collect()
    }

    /// The row of so many ranks.
    pub fn at(&self, ranks: f64) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| row.ranks == Some(ranks))
    }

    fn entry(&self) -> Entry<'static> {
        let style = self.style;
        Entry {
            sign: Box::new(move |drawing, (x, y)| {
                let half = SIGN / 2.0;
                let ends = [(x - half, y), (x + half, y)];
                drawing.broken(&ends, theme::series(style), 3.0, dash::pattern(style));
                theme::marker(drawing, style, (x, y), theme::MARKER, false);
            }),
            label: self.policy.clone(),
        }
    }

    /// Draws a quantity over ranks, with a bar where its interval has a width.
    pub fn draw(
        &self,
        drawing: &mut Drawing,
        x: &Axis,
        y: &Axis,
        quantity: impl Fn(&Row) -> Estimate,
    ) {
        let color = theme::series(self.style);
        let known = || {
            let of = |row: &&Row| Some((x.at(ranks_of(row)), quantity(row).value?, quantity(row)));
            self.rows.iter().filter_map(of)
        };
        let path: Vec<Point> = known().map(|(x, value, _)| (x, y.at(value))).collect();
        drawing.broken(&path, color, 3.0, dash::pattern(self.style));
        for (x, value, Estimate { interval, .. }) in known() {
            if let Some((low, high)) = interval.filter(|(low, high)| low < high) {
                theme::interval(drawing, x, y.at(low), y.at(high), color);
            }
            theme::marker(drawing, self.style, (x, y.at(value)), theme::MARKER, false);
        }
    }
}

/// A dashed line of ink in a legend.
pub(crate) fn dashed(label: &str) -> Entry<'static> {
    Entry {
        sign: Box::new(|drawing, (x, y)| {
            let half = SIGN / 2.0;
            drawing.dashes((x - half, y), (x + half, y), theme::INK, 3.0);
        }),
        label: label.to_string(),
    }
}

pub(crate) fn ranks_of(row: &Row) -> f64 {
    row.ranks.expect("rows without ranks have left the selection")
}

/// Rows of one case differ in nothing that was set.
fn case(row: &Row) -> Vec<String> {
    let settings = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        row.fusion_threshold_bytes,
        row.cycle_time_ms,
        row.cache_capacity,
        row.segment_bytes,
        row.packing_bytes
    );
    let layout = format!("{:?} {:?} {:?}", row.ranks, row.nodes, row.local_size);
    let names = [&row.policy, &row.control_plane, &row.algorithm, &row.groups, &row.transport];
    let names = names.map(Clone::clone);
    [work(row), names.to_vec(), vec![settings, layout]].concat()
}

/// What a rank computes in a step: workload, batch, and times of its parts.
fn work(row: &Row) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), theme::plain);
    vec![
        row.workload.clone(),
        number(row.batch),
        number(row.forward_ms),
        number(row.backward_ms),
        number(row.optimizer_ms),
    ]
}

/// As `resnet50, 64 samples per rank`; with times where works would otherwise have one title.
fn title(work: &[String], works: &[Vec<String>]) -> String {
    let alike = works.iter().filter(|other| other[..2] == work[..2]).count();
    let mut words = vec![work[0].clone()];
    if !work[1].is_empty() {
        words.push(format!("{} samples per rank", work[1]));
    }
    if alike > 1 {
        words.push(format!("{} + {} + {} ms", work[2], work[3], work[4]));
    }
    words.retain(|word| !word.is_empty());
    words.join(", ")
}

/// Policies by name, a coordinator's first, for it is what the others are compared with.
fn in_order(policies: impl Iterator<Item = String>) -> Vec<String> {
    let mut policies: Vec<String> = policies.filter(|policy| !policy.is_empty()).collect();
    policies.sort_by_cached_key(|policy| (!policy.contains("coordinator"), policy.clone()));
    policies.dedup();
    policies
}
