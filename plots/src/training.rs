//! Training steps over ranks, a line per policy and a panel per workload.
//!
//! Simulated steps name their policy. For measured steps a policy is a control plane, or an algorithm if there is one
//! control plane only. A policy has the same colour and marker in every panel, picture and figure. If it has several
//! settings, the fastest one counts for each number of ranks.

use std::collections::{BTreeMap, BTreeSet};

use crate::axis::Axis;
use crate::caption::Caption;
use crate::dash;
use crate::distinct;
use crate::drawing::Drawing;
use crate::ends::{self, End};
use crate::frame::Frame;
use crate::page::{Entry, Page, sign_ends};
use crate::policies::Policies;
use crate::predicted::{self, Predicted};
use crate::rounds;
use crate::rows::{Estimate, Row, Rows};
use crate::selection::{Selection, ranks_of};
use crate::series::{Series, Value};
use crate::view::View;
use crate::{Sheet, steps, theme, work};

const KIND: &str = "step";

/// The rows of one picture.
pub(crate) struct Training<'a> {
    pub view: View,
    pub selection: Selection<'a>,
    pub panels: Vec<Panel<'a>>,
    /// Whether a policy had several settings.
    chosen: bool,
    /// What a line stands for.
    noun: &'static str,
    /// Whether predictions are beside measured lines, which are solid then.
    pub is_predicted: bool,
}

/// The lines of one workload.
pub(crate) struct Panel<'a> {
    /// The workload's name in a sentence.
    pub name: String,
    pub title: String,
    pub lines: Vec<Line<'a>>,
}

impl Panel<'_> {
    /// Whether the row is on a line of it.
    pub fn has(&self, row: &Row) -> bool {
        self.lines.iter().flat_map(|line| &line.rows).any(|own| std::ptr::eq(*own, row))
    }
}

/// A policy and its rows in the order of ranks.
pub(crate) struct Line<'a> {
    pub policy: String,
    pub style: usize,
    pub rows: Vec<&'a Row>,
    /// Of a measured line: what was predicted for it, if the figure draws that.
    pub predicted: Option<Predicted<'a>>,
}

/// The caption's note on lines over ranks.
pub(crate) const POINTS: &str =
    "At the right, numbers and names on most ranks. Lines only join the points.";

/// What a figure requires of the steps.
pub(crate) struct Wanted {
    /// Whether a row has the values that the figure draws.
    pub complete: fn(&Row) -> bool,
    /// The columns of these values, for the reason why there is no picture.
    pub columns: &'static str,
    /// The fewest numbers of ranks for a picture.
    pub ranks_min: usize,
    /// Whether predictions are drawn beside measured lines.
    pub predictions: bool,
}

impl<'a> Training<'a> {
    /// A picture for each combination of conditions that has what the figure requires, unless `draw` returns `None`.
    pub fn sheets(
        rows: &'a Rows,
        view: View,
        wanted: &Wanted,
        draw: impl Fn(&Training) -> Option<Drawing>,
    ) -> Vec<Sheet> {
        let draw = |selections: Vec<Selection<'a>>, policies: &Policies, works: &[Vec<String>]| {
            let of = |selection| Self::of(selection, rows, view, policies, works, wanted);
            let trainings = selections.into_iter().filter_map(of);
            let drawn = trainings.filter_map(|it| Some((it.selection.suffix.clone(), draw(&it)?)));
            drawn.collect::<Vec<_>>()
        };
        let simulated = || rows.of_kind(KIND).filter(|row| row.is_simulated());
        let mut selections = Selection::simulated(rows, KIND, apart, case);
        selections.iter_mut().for_each(|it| it.restrict(|row| !row.policy.is_empty()));
        let simulated =
            draw(selections, &Policies::simulated(simulated()), &work::in_order(simulated()));
        let measured = || rows.of_kind(KIND).filter(|row| !row.is_simulated());
        let mut selections = Selection::over_layouts(rows, KIND, steps::settings);
        selections.iter_mut().for_each(|it| it.restrict(|row| !row.is_simulated()));
        let measured =
            draw(selections, &Policies::measured(measured()), &work::in_order(measured()));
        let sheets = |drawn| {
            Sheet::all(drawn, || {
                let several =
                    if wanted.ranks_min > 1 { " for several numbers of ranks" } else { "" };
                let columns = wanted.columns;
                format!("no rows of kind `{KIND}` with status ok have {columns}{several}")
            })
        };
        Sheet::either(sheets(simulated), sheets(measured), "measured")
    }

    fn of(
        mut selection: Selection<'a>,
        all_rows: &'a Rows,
        view: View,
        policies: &Policies,
        works: &[Vec<String>],
        wanted: &Wanted,
    ) -> Option<Training<'a>> {
        selection.require(|row| row.ranks > Some(0.0) && (wanted.complete)(row));
        selection.prefer_most_nodes();
        let all = selection.rows.len();
        let rows = |one: &Vec<String>| -> Vec<&'a Row> {
            selection.rows.iter().copied().filter(|row| work::of(row) == *one).collect()
        };
        let works: Vec<Vec<String>> =
            works.iter().filter(|work| !rows(work).is_empty()).cloned().collect();
        let panel = |work: &Vec<String>| {
            let title = work::title(work, &works);
            let alone = works.iter().filter(|other| other[0] == work[0]).count() == 1;
            let name = if alone { work[0].clone() } else { title.clone() };
            let mut lines = Line::all(policies, &rows(work));
            for line in lines.iter_mut().filter(|_| wanted.predictions) {
                let measured = line.rows.iter().find(|row| !row.is_simulated());
                let is_own = |row: &Row| policies.name(row) == line.policy;
                line.predicted = measured.and_then(|row| Predicted::of(all_rows, row, is_own));
            }
            Panel { name, title, lines }
        };
        let panels: Vec<Panel> = works.iter().map(panel).collect();
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        selection.rows = lines.flat_map(|line| line.rows.iter().copied()).collect();
        let chosen = selection.rows.len() < all;
        let enough = selection.ranks().len() >= wanted.ranks_min.max(1);
        let is_predicted =
            panels.iter().flat_map(|panel| &panel.lines).any(|line| line.predicted.is_some());
        let noun = policies.noun();
        enough.then_some(Training { view, selection, panels, chosen, noun, is_predicted })
    }

    /// Whether the steps were simulated; otherwise they were measured.
    pub fn is_simulated(&self) -> bool {
        self.selection.rows.iter().any(|row| row.is_simulated())
    }

    /// Whether all ranks together have the same work in any world, and not each of them.
    pub fn is_strong(&self) -> bool {
        self.selection.rows.iter().any(|row| row.is_strong())
    }

    pub fn lines(&self) -> impl Iterator<Item = &Line<'a>> {
        self.panels.iter().flat_map(|panel| &panel.lines)
    }

    pub fn titles(&self) -> Vec<String> {
        self.panels.iter().map(|panel| panel.title.clone()).collect()
    }

    /// The room that [`Training::draw_ends`] needs right of a frame, in pixels.
    pub fn ends_room(&self) -> f64 {
        ends::room(self.view, self.lines().map(|line| line.policy.as_str()))
    }

    /// The predictions beside measured lines.
    pub fn predictions(&self) -> impl Iterator<Item = &Predicted<'a>> {
        self.lines().filter_map(|line| line.predicted.as_ref())
    }

    /// The numbers of ranks of lines and predictions, ascending.
    pub fn ranks(&self) -> Vec<f64> {
        let predicted = self.predictions().flat_map(|line| &line.rows).filter_map(|row| row.ranks);
        distinct::ascending(self.selection.ranks().into_iter().chain(predicted))
    }

    /// Draws the horizontal axis over ranks, which all panels have.
    pub fn ranks_axis(&self, drawing: &mut Drawing, frame: Frame) -> Axis {
        let x = Axis::ranks(&self.ranks(), frame.left, frame.right);
        x.draw_below(drawing, frame, "ranks");
        x
    }

    /// Adds a legend of all policies except `without`, followed by `more`.
    pub fn legend(&self, page: &mut Page, without: Option<&str>, more: Option<Entry<'static>>) {
        let mut once: BTreeMap<usize, &Line> = BTreeMap::new();
        for line in self.lines().filter(|line| Some(line.policy.as_str()) != without) {
            once.insert(line.style, line);
        }
        let entries = once.into_values().map(|line| self.entry(line)).chain(more);
        page.legend(&entries.collect::<Vec<_>>());
        page.legend(&self.predictions().take(1).map(Predicted::entry).collect::<Vec<_>>());
    }

    fn entry(&self, line: &Line) -> Entry<'static> {
        let (style, pattern) = (line.style, self.pattern(line));
        Entry {
            sign: Box::new(move |drawing, at| {
                drawing.broken(&sign_ends(at), theme::series(style), 3.0, pattern);
                theme::marker(drawing, style, at, theme::radius(style), false);
            }),
            label: line.policy.clone(),
        }
    }

    fn pattern(&self, line: &Line) -> dash::Pattern {
        dash::pattern(if self.is_predicted { 0 } else { line.style })
    }

    /// Draws a quantity of the predictions of a panel, which lines are to be drawn over.
    pub fn draw_predictions(
        &self,
        panel: &Panel,
        drawing: &mut Drawing,
        axes: (&Axis, &Axis),
        quantity: impl Fn(&Line, &Row) -> Estimate,
    ) {
        let lines = || panel.lines.iter().filter_map(|line| Some((line, line.predicted.as_ref()?)));
        for (line, predicted) in lines() {
            predicted.draw_band(drawing, line.style, axes, |row| quantity(line, row));
        }
        for (line, predicted) in lines() {
            predicted.draw_line(drawing, line.style, axes, |row| quantity(line, row));
        }
    }

    /// Draws a quantity of a line. Intervals without width are not drawn.
    pub fn draw_line(
        &self,
        line: &Line,
        drawing: &mut Drawing,
        x: &Axis,
        y: &Axis,
        quantity: impl Fn(&Row) -> Estimate,
    ) {
        let style = line.style;
        let value = |row: &&Row| {
            let Estimate { value, interval } = quantity(row);
            let interval = interval.filter(|(low, high)| low < high);
            Value::of(x.at(ranks_of(row)), y, Estimate { value, interval })
        };
        let series = Series::new(style, line.rows.iter().filter_map(value));
        drawing.broken(&series.path(), theme::series(style), 3.0, self.pattern(line));
        series.draw_markers(drawing);
    }

    /// Draws values and names at the right ends of those lines that reach the largest number of
    /// ranks. Where predictions reach further, they are those of predictions, with hollow markers.
    pub fn draw_ends<'b>(
        &self,
        lines: impl Iterator<Item = &'b Line<'b>>,
        drawing: &mut Drawing,
        frame: Frame,
        y: &Axis,
        value: impl Fn(&Line, &Row) -> Option<f64>,
    ) {
        let Some(most) = self.ranks().pop() else { return };
        let hollow = self.selection.ranks().pop() != Some(most);
        let end = |line: &Line| {
            let row = if hollow { line.predicted.as_ref()?.at(most)? } else { line.at(most)? };
            let value = value(line, row)?;
            let (words, name) = (theme::significant(value, 3), line.policy.clone());
            Some(End { y: y.at(value), style: line.style, hollow, words, name })
        };
        ends::draw(self.view, drawing, frame, lines.filter_map(end).collect());
    }

    /// The caption, with the notes of the figure.
    pub fn caption(&self, drawn: impl Fn(&Row) -> Estimate, notes: Vec<String>) -> Caption {
        self.caption_on(&self.selection.ranks(), drawn, notes)
    }

    /// The caption of ratios: of measured steps they are over rounds.
    pub fn caption_of_ratios(
        &self,
        drawn: impl Fn(&Row) -> Estimate,
        mut notes: Vec<String>,
    ) -> Caption {
        if self.is_simulated() {
            return self.caption(drawn, notes);
        }
        notes.push(rounds::NOTE.into());
        self.described(&self.selection.ranks(), "mean ratio", drawn, notes)
    }

    /// The caption of a figure that shows only the given numbers of ranks.
    pub fn caption_on(
        &self,
        ranks: &[f64],
        drawn: impl Fn(&Row) -> Estimate,
        notes: Vec<String>,
    ) -> Caption {
        self.described(ranks, "median", drawn, notes)
    }

    fn described(
        &self,
        ranks: &[f64],
        statistic: &str,
        drawn: impl Fn(&Row) -> Estimate,
        mut notes: Vec<String>,
    ) -> Caption {
        if self.chosen {
            let noun = self.noun;
            notes.push(format!("Each {noun} with its fastest setting for that many ranks."));
        }
        let mut selection = self.selection.clone();
        selection.rows.retain(|row| ranks.contains(&ranks_of(row)));
        notes.extend(self.predictions().take(1).map(Predicted::note));
        notes.extend(self.without_prediction());
        let mut caption = Caption::of_statistic(&selection, statistic, drawn, notes);
        if self.is_predicted {
            predicted::mark(&mut caption);
        }
        caption
    }

    /// Says which algorithms of measured points no prediction is for.
    fn without_prediction(&self) -> Option<String> {
        let predicted: BTreeSet<&str> =
            self.predictions().flat_map(|line| line.algorithms.iter().copied()).collect();
        let measured: BTreeSet<&str> =
            self.selection.rows.iter().map(|row| row.algorithm.as_str()).collect();
        let measured: Vec<&str> = measured.difference(&predicted).copied().collect();
        (self.is_predicted && !measured.is_empty()).then(|| {
            format!(
                "There is no prediction of {}; beside their points is the fastest prediction of other algorithms.",
                measured.join(" and ")
            )
        })
    }
}

impl<'a> Line<'a> {
    /// The steps of all ranks per second that were predicted.
    pub fn predicted_steps_s(&self, row: &Row) -> Estimate {
        row.steps_s(self.rows.iter().any(|row| row.is_strong()))
    }

    fn all(policies: &Policies, rows: &[&'a Row]) -> Vec<Line<'a>> {
        let line = |(style, policy): (usize, &String)| {
            let own = rows.iter().copied().filter(|row| policies.name(row) == *policy);
            let mut rows: Vec<&Row> = own.collect();
            let time_us = |row: &Row| row.time_us.value.unwrap_or(f64::MAX);
            rows.sort_by(|a, b| {
                let ranks = ranks_of(a).total_cmp(&ranks_of(b));
                ranks.then(time_us(a).total_cmp(&time_us(b)))
            });
            rows.dedup_by_key(|row| row.ranks);
            Line { policy: policy.clone(), style, rows, predicted: None }
        };
        let lines = policies.names.iter().enumerate().map(line);
        lines.filter(|line| !line.rows.is_empty()).collect()
    }

    /// The row for a number of ranks.
    pub fn at(&self, ranks: f64) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| row.ranks == Some(ranks))
    }
}

/// The columns that pictures keep apart. Engines are not among them: policies of one picture may have
/// different engines, and the caption names them.
fn apart(row: &Row) -> Vec<&str> {
    vec![&row.machine, &row.dtype, &row.op]
}

/// The settings of a row.
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
    let names = [&row.policy, &row.engine, &row.control_plane, &row.algorithm, &row.groups];
    let names = names.into_iter().chain([&row.transport]).cloned().collect();
    [work::of(row), names, vec![settings, layout]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, policy, scaling, step};

    const WANTED: Wanted = Wanted {
        complete: |row| row.time_us.value.is_some(),
        columns: "a time",
        ranks_min: 2,
        predictions: false,
    };

    /// What a figure would see of each training, in words.
    fn seen(rows: &[synthetic::Row]) -> Vec<String> {
        let rows = Rows::of(&synthetic::table(rows));
        let seen = std::cell::RefCell::new(Vec::new());
        Training::sheets(&rows, View::default(), &WANTED, |training| {
            let of = |panel: &Panel| {
                let line = |line: &Line| {
                    let times = line.rows.iter().filter_map(|row| row.time_us.value);
                    let times: Vec<String> = times.map(|time| format!("{time:.0}")).collect();
                    format!("{} {} {}", line.style, line.policy, times.join(" "))
                };
                let lines: Vec<String> = panel.lines.iter().map(line).collect();
                format!("{}: {}", panel.title, lines.join(", "))
            };
            let panels: Vec<String> = training.panels.iter().map(of).collect();
            seen.borrow_mut().push(panels.join("; "));
            None
        });
        seen.into_inner()
    }

    fn row(name: &str, ranks: u32, time_us: &str) -> synthetic::Row {
        policy("vgg16", name, ranks).with("time_us_p50", time_us)
    }

    #[test]
    fn rows_become_lines_by_ranks_whatever_their_order() {
        let mut rows = vec![
            row("ddp", 12, "2"),
            row("horovod-coordinator", 12, "4"),
            row("ddp", 6, "1"),
            row("horovod-coordinator", 6, "3"),
        ];
        let expected = ["vgg16, 64 samples per rank: 0 horovod-coordinator 3 4, 1 ddp 1 2"];
        assert_eq!(seen(&rows), expected);
        rows.reverse();
        assert_eq!(seen(&rows), expected);
        // What ran, failed, or lacks a policy or a time is in no line.
        rows.push(row("byteps", 6, "9").with("source", "measured"));
        rows.push(row("ddp", 24, "9").with("status", "failed"));
        rows.push(row("ddp", 24, ""));
        rows.push(step("ring", "coordinator", 64.0, 5.0).with("source", "simulated"));
        assert_eq!(seen(&rows)[0], expected[0]);
    }

    #[test]
    fn of_a_policy_the_fastest_setting_counts() {
        let rows = [
            row("ddp", 6, "5").with("cycle_time_ms", "1"),
            row("ddp", 6, "3").with("cycle_time_ms", "5"),
            row("ddp", 12, "4").with("algorithm", "ring"),
            row("ddp", 12, "7"),
        ];
        assert_eq!(seen(&rows), ["vgg16, 64 samples per rank: 0 ddp 3 4"]);
        // Of the same setting, the later row counts, even if it is slower.
        let again = row("ddp", 12, "8").with("started", "2026-04-01T00:00:00Z");
        assert_eq!(seen(&[&rows[..2], &rows[3..], &[again]].concat())[0][28..], *"0 ddp 3 8");
    }

    #[test]
    fn other_work_is_another_panel_and_other_machines_other_pictures() {
        let rows = scaling(&["vgg16"], &["ddp"], &[6, 12]);
        let with = |column: &str, value: &str| -> Vec<_> {
            rows.iter().map(|row| row.with(column, value)).collect()
        };
        let panels = seen(&[rows.clone(), with("batch", "32"), with("workload", "x")].concat());
        assert_eq!(panels.len(), 1);
        let titles: Vec<&str> =
            panels[0].split("; ").filter_map(|panel| panel.split(" per rank").next()).collect();
        // In the order of the rows.
        assert_eq!(titles, ["vgg16, 64 samples", "vgg16, 32 samples", "x, 64 samples"]);
        assert!(seen(&with("batch", "1"))[0].starts_with("vgg16, 1 sample per rank: "));
        let slower = seen(&[rows.clone(), with("backward_ms", "9")].concat());
        assert!(slower[0].contains("vgg16, 64 samples per rank, backward 9 ms"), "{slower:?}");
        for (column, value) in [("machine", "frontier"), ("dtype", "float16")] {
            assert_eq!(seen(&[rows.clone(), with(column, value)].concat()).len(), 2, "{column}");
        }
    }

    #[test]
    fn policies_of_several_engines_share_a_picture_and_a_policy_of_several_is_two() {
        let of = |name, engine| [6, 12].map(|ranks| row(name, ranks, "1").with("engine", engine));
        let both = [of("ddp", "nccl"), of("byteps", "rounds")].concat();
        assert_eq!(seen(&both), ["vgg16, 64 samples per rank: 0 byteps 1 1, 1 ddp 1 1"]);
        // What failed has no engine.
        let failed = row("byteps", 24, "").with("engine", "").with("status", "unsupported");
        assert_eq!(seen(&[both.clone(), vec![failed]].concat()), seen(&both));
        let lines = "0 byteps 1 1, 1 ddp (nccl) 1 1, 2 ddp (rounds) 1 1";
        let said = seen(&[both, of("ddp", "rounds").to_vec()].concat());
        assert_eq!(said, [format!("vgg16, 64 samples per rank: {lines}")]);
    }

    #[test]
    fn one_number_of_ranks_is_no_line() {
        assert_eq!(seen(&[row("ddp", 6, "1"), row("byteps", 6, "1")]), Vec::<String>::new());
    }
}
