//! The rows of one picture, and the rows left out of it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::distinct;
use crate::layout::Layout;
use crate::rows::{Row, Rows};
use crate::theme;
use crate::work;

/// Rows of one kind and the same conditions, which can share a picture.
#[derive(Debug, Clone)]
pub(crate) struct Selection<'a> {
    /// What distinguishes this selection from the others, for file names; empty if it is the only one.
    pub suffix: String,
    /// The rows to draw: those with status `ok`, and of each case the one that started last.
    pub rows: Vec<&'a Row>,
    /// Rows that cannot be drawn, each with the reason.
    pub left_out: Vec<(&'a Row, &'a str)>,
    /// Rows with status `ok` that are replaced by a later row of the same case.
    pub replaced: Vec<&'a Row>,
}

impl<'a> Selection<'a> {
    /// One selection for each combination of conditions among the rows of a kind that ran. `case`
    /// returns what a figure distinguishes within a picture.
    pub fn of(rows: &'a Rows, kind: &str, case: fn(&Row) -> Vec<String>) -> Vec<Selection<'a>> {
        Selection::parts(run(rows, kind), conditions, case)
    }

    /// One selection for each combination of the values of `apart` among the simulated rows of a
    /// kind. `case` returns everything else that a figure distinguishes, layouts included.
    pub fn simulated(
        rows: &'a Rows,
        kind: &str,
        apart: fn(&Row) -> Vec<&str>,
        case: fn(&Row) -> Vec<String>,
    ) -> Vec<Selection<'a>> {
        let simulated = rows.of_kind(kind).filter(|row| row.source == "simulated");
        let condition =
            |value: &str| Condition { column: "", value: value.to_string(), of_layout: false };
        let apart = |row: &Row| apart(row).into_iter().map(condition).collect();
        Selection::parts(simulated, apart, case)
    }

    /// As [`Selection::of`], for a figure that distinguishes layouts of ranks within a picture.
    pub fn over_layouts(
        rows: &'a Rows,
        kind: &str,
        case: fn(&Row) -> Vec<String>,
    ) -> Vec<Selection<'a>> {
        let apart = |row: &Row| {
            let mut apart = conditions(row);
            apart.retain(|condition| !condition.of_layout);
            apart
        };
        let case = |row: &Row| [case(row), vec![format!("{:?}", Layout::of(row))]].concat();
        Selection::parts(run(rows, kind), apart, case)
    }

    fn parts(
        rows: impl Iterator<Item = &'a Row>,
        conditions: impl Fn(&Row) -> Vec<Condition>,
        case: impl Fn(&Row) -> Vec<String>,
    ) -> Vec<Selection<'a>> {
        let mut parts: BTreeMap<Vec<String>, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            let values = conditions(row).into_iter().map(|condition| condition.value).collect();
            parts.entry(values).or_default().push(row);
        }
        let differs = |index: usize| {
            let mut values = parts.keys().map(|values| &values[index]);
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let suffix = |row: &Row| {
            let described = conditions(row)
                .into_iter()
                .enumerate()
                .filter(|(index, _)| differs(*index))
                .map(|(_, condition)| file_name_part(&condition));
            described.collect::<Vec<_>>().join("_")
        };
        parts.values().map(|rows| Selection::among(suffix(rows[0]), rows, &case)).collect()
    }

    fn among(
        suffix: String,
        rows: &[&'a Row],
        case: impl Fn(&Row) -> Vec<String>,
    ) -> Selection<'a> {
        let mut left_out = Vec::new();
        let mut latest: BTreeMap<Vec<String>, &Row> = BTreeMap::new();
        let mut replaced = Vec::new();
        for row in rows {
            if row.status != "ok" {
                left_out.push((*row, row.status.as_str()));
                continue;
            }
            // Times in RFC 3339 and UTC sort as text. Of equal times the later line wins.
            match latest.entry(case(row)) {
                Entry::Vacant(place) => drop(place.insert(row)),
                Entry::Occupied(mut place) if row.started >= place.get().started => {
                    replaced.push(place.insert(row));
                }
                Entry::Occupied(_) => replaced.push(row),
            }
        }
        Selection { suffix, rows: latest.into_values().collect(), left_out, replaced }
    }

    /// Leaves out the rows that are not `complete`: they lack a value that the figure draws.
    pub fn require(&mut self, complete: impl Fn(&Row) -> bool) {
        let (complete, lacking): (Vec<_>, Vec<_>) =
            self.rows.iter().copied().partition(|row| complete(row));
        self.rows = complete;
        self.left_out.extend(lacking.into_iter().map(|row| (row, "without a value")));
    }

    /// Removes out-of-place rows of algorithms that also ran in place. A line must not mix them, and
    /// training runs in place.
    pub fn prefer_in_place(&mut self) {
        let line = |row: &Row| (row.algorithm.clone(), row.groups.clone(), Layout::of(row));
        let in_place = |row: &&Row| row.in_place == Some(true);
        let lines: BTreeSet<_> = self.rows.iter().copied().filter(in_place).map(line).collect();
        self.rows.retain(|row| in_place(row) || !lines.contains(&line(row)));
    }

    /// Keeps, for each number of ranks, the layouts over the most nodes.
    pub fn prefer_most_nodes(&mut self) {
        let nodes = |row: &Row| row.nodes.unwrap_or(1.0);
        let mut most: BTreeMap<u64, f64> = BTreeMap::new();
        let ranks = |row: &Row| row.ranks.unwrap_or_default() as u64;
        for row in &self.rows {
            let most = most.entry(ranks(row)).or_default();
            *most = most.max(nodes(row));
        }
        self.rows.retain(|row| nodes(row) == most[&ranks(row)]);
    }

    /// The distinct numbers of ranks in ascending order.
    pub fn ranks(&self) -> Vec<f64> {
        distinct::ascending(self.rows.iter().filter_map(|row| row.ranks))
    }

    /// Removes the rows that this picture is not `about`.
    pub fn restrict(&mut self, about: impl Fn(&Row) -> bool) {
        self.rows.retain(|row| about(row));
        self.left_out.retain(|(row, _)| about(row));
        self.replaced.retain(|row| about(row));
    }

    /// The reason why there is no picture, if no row can be drawn.
    pub fn nothing_to_draw(&self, kind: &str, needed: &str) -> String {
        let which = if self.suffix.is_empty() {
            String::new()
        } else {
            format!(" for {}", self.suffix.replace('_', ", "))
        };
        let left_out = self.left_out_in_words();
        format!("no row of kind `{kind}`{which} has status ok and {needed}; {left_out}")
    }

    /// For example `3 cases left out: 2 unsupported (byteps), 1 wrong (ddp)`, without the names if
    /// every name would be listed. Empty if no case was left out.
    pub fn left_out_in_words(&self) -> String {
        let left_out = || self.left_out.iter().map(|(row, _)| *row);
        let all: BTreeSet<&str> = self.rows.iter().copied().chain(left_out()).map(owner).collect();
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (row, why) in &self.left_out {
            reasons.entry(why).or_default().push(owner(row));
        }
        let words = |(why, mut owners): (&str, Vec<&str>)| {
            let count = owners.len();
            owners.sort();
            owners.dedup();
            if owners.len() < all.len() {
                format!("{count} {why} ({})", owners.join(", "))
            } else {
                format!("{count} {why}")
            }
        };
        if self.left_out.is_empty() {
            return String::new();
        }
        let each: Vec<String> = reasons.into_iter().map(words).collect();
        format!("{} left out: {}", theme::count(self.left_out.len(), "case"), each.join(", "))
    }

    /// The control planes by name, the coordinator first, as the others are compared with it.
    pub fn control_planes(&self) -> Vec<String> {
        let mut planes: Vec<String> =
            self.rows.iter().map(|row| row.control_plane.clone()).collect();
        planes.sort_by_cached_key(|plane| (plane != "coordinator", plane.clone()));
        planes.dedup();
        planes
    }

    /// The names of algorithms, with their numbers of groups and how ranks start together, if these vary.
    pub fn algorithms(&self) -> Algorithms {
        let mut known: BTreeMap<String, [Values; 2]> = BTreeMap::new();
        for row in &self.rows {
            if !known.contains_key(&row.algorithm) {
                known.insert(row.algorithm.clone(), Default::default());
            }
            let of = known.get_mut(&row.algorithm).expect("it is there");
            for (values, value) in of.iter_mut().zip([&row.groups, &row.sync]) {
                values.add(value);
            }
        }
        Algorithms { known }
    }

    /// The name of a row's algorithm. For many rows, ask [`Selection::algorithms`].
    pub fn algorithm(&self, row: &Row) -> String {
        self.algorithms().name(row)
    }
}

/// The names of the algorithms of a selection.
pub(crate) struct Algorithms {
    /// By algorithm: the numbers of groups, and how ranks start together.
    known: BTreeMap<String, [Values; 2]>,
}

/// The values of a column: one, or several.
#[derive(Default)]
struct Values {
    first: Option<String>,
    vary: bool,
}

impl Values {
    fn add(&mut self, value: &str) {
        match &self.first {
            None => self.first = Some(value.to_string()),
            Some(first) => self.vary |= first != value,
        }
    }

    /// Whether there is another value than this one.
    fn has_other(&self, value: &str) -> bool {
        self.vary || self.first.as_ref().is_some_and(|first| first != value)
    }
}

impl Algorithms {
    /// The name of a row's algorithm.
    pub fn name(&self, row: &Row) -> String {
        let [groups, sync] = match self.known.get(&row.algorithm) {
            Some([groups, sync]) => [groups.has_other(&row.groups), sync.has_other(&row.sync)],
            None => [false; 2],
        };
        let mut name = row.algorithm.clone();
        if groups && !row.groups.is_empty() {
            name += &format!(", groups {}", row.groups);
        }
        if sync && !row.sync.is_empty() {
            name += &format!(", {}", row.sync);
        }
        name
    }
}

/// The first of policy, algorithm and control plane that is not empty.
fn owner(row: &Row) -> &str {
    let names = [&row.policy, &row.algorithm, &row.control_plane];
    names.into_iter().find(|name| !name.is_empty()).map_or("", String::as_str)
}

/// The rows of a kind without those of a simulated machine.
fn run<'a>(rows: &'a Rows, kind: &str) -> impl Iterator<Item = &'a Row> {
    rows.of_kind(kind).filter(|row| !row.of_machine())
}

/// The number of ranks of a row whose selection requires it.
pub(crate) fn ranks_of(row: &Row) -> f64 {
    row.ranks.expect("the selection has no rows without ranks")
}

/// The reason why a figure over ranks has no picture.
pub(crate) fn none_over_ranks(kind: &str, column: &str) -> String {
    format!("no rows of kind `{kind}` with status ok have {column} for several numbers of ranks")
}

/// The reason why a figure has no rows, and what to do.
pub(crate) fn none(rows: &Rows, kinds: &[&str], remedy: &str) -> String {
    let quoted: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
    let which = format!("no row of kind {}", quoted.join(" or "));
    let simulated = kinds.iter().any(|kind| rows.of_kind(kind).next().is_some());
    let but = if simulated { ", apart from those of a simulated machine" } else { "" };
    format!("{which}{but}; {remedy}")
}

/// A column whose value is the same in all rows of a picture.
struct Condition {
    column: &'static str,
    value: String,
    /// Whether it depends on the [`Layout`]. One node is real even where several are emulated.
    of_layout: bool,
}

/// The conditions that a picture does not distinguish and must not mix.
fn conditions(row: &Row) -> Vec<Condition> {
    let number = |value: Option<f64>| value.map_or(String::new(), theme::plain);
    let [forward_ms, backward_ms] = row.passes_ms(row.is_strong());
    let emulated = match row.emulated {
        Some(true) => "emulated",
        Some(false) => "real-nodes",
        None => "",
    };
    let layout = [
        ("", emulated.to_string()),
        ("nodes", number(row.nodes)),
        ("local", number(row.local_size)),
        ("ranks", number(row.ranks)),
    ];
    let before =
        [("", row.source.clone()), ("", row.workload.clone()), ("", row.transport.clone())];
    let after = [
        ("", row.dtype.clone()),
        ("", row.op.clone()),
        ("cache", number(row.cache_capacity)),
        ("segment", number(row.segment_bytes)),
        ("packing", number(row.packing_bytes)),
        ("", work::scaling(row).to_string()),
        ("forward", number(forward_ms)),
        ("backward", number(backward_ms)),
        ("optimizer", number(row.optimizer_ms)),
        ("", row.ready_order.clone()),
        ("misses", number(row.miss_share)),
        ("invalid", number(row.invalid_share)),
    ];
    let condition = |of_layout| move |(column, value)| Condition { column, value, of_layout };
    let before = before.into_iter().map(condition(false));
    let layout = layout.into_iter().map(condition(true));
    before.chain(layout).chain(after.into_iter().map(condition(false))).collect()
}

/// The values that [`Selection::of`] keeps apart, as text.
pub(crate) fn values(row: &Row) -> Vec<String> {
    conditions(row).into_iter().map(|condition| condition.value).collect()
}

/// A value for a file name, after its column if the value is a number. Characters other than ASCII
/// letters, digits and dots become hyphens.
fn file_name_part(condition: &Condition) -> String {
    let value = if condition.value.is_empty() { "unknown" } else { &condition.value };
    let kept: String = value
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    if condition.column.is_empty() { kept } else { format!("{}-{kept}", condition.column) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Row, step, table};

    fn algorithm(row: &crate::rows::Row) -> Vec<String> {
        vec![row.algorithm.clone()]
    }

    fn ring() -> Row {
        step("ring", "coordinator", 64.0, 5.0)
    }

    #[test]
    fn rows_of_other_conditions_are_kept_apart_and_named_by_what_differs() {
        let rows = Rows::of(&table(&[
            ring(),
            ring().with("workload", "bert large"),
            ring().with("ranks", "8").with("nodes", "4"),
        ]));
        let suffixes: Vec<_> =
            Selection::of(&rows, "step", algorithm).into_iter().map(|part| part.suffix).collect();
        let expected =
            ["bert-large_nodes-2_ranks-4", "resnet50_nodes-2_ranks-4", "resnet50_nodes-4_ranks-8"];
        assert_eq!(suffixes, expected);
    }

    #[test]
    fn a_simulated_machine_is_apart_from_what_ran() {
        let simulated = ring().with("source", "simulated");
        let rows = Rows::of(&table(&[
            ring(),
            ring().with("policy", "ddp"),
            simulated.clone(),
            simulated.with("policy", "ddp"),
            simulated.with("machine", "summit").with("engine", "nccl"),
        ]));
        let count = |selections: Vec<Selection>| -> Vec<usize> {
            let rows = |part: Selection| part.rows.len() + part.replaced.len();
            selections.into_iter().map(rows).collect()
        };
        assert_eq!(count(Selection::of(&rows, "step", algorithm)), [2, 1]);
        assert_eq!(count(Selection::over_layouts(&rows, "step", algorithm)), [2, 1]);
        fn apart(row: &crate::rows::Row) -> Vec<&str> {
            vec![&row.machine, &row.engine]
        }
        let selections = Selection::simulated(&rows, "step", apart, algorithm);
        let suffixes: Vec<&str> = selections.iter().map(|part| part.suffix.as_str()).collect();
        assert_eq!(suffixes, ["unknown_unknown", "summit_nccl"]);
        assert_eq!(count(selections), [2, 1]);
        let reason = "no row of kind `step`, apart from those of a simulated machine; do it";
        assert_eq!(none(&rows, &["step"], "do it"), reason);
        assert_eq!(none(&rows, &["control"], "do it"), "no row of kind `control`; do it");
    }

    #[test]
    fn the_latest_row_of_a_case_is_drawn_wherever_it_stands() {
        let old = ring().with("started", "2026-03-01T00:00:00Z").with("host", "old");
        let new = ring().with("started", "2026-03-02T00:00:00Z").with("host", "new");
        for order in [[&old, &new], [&new, &old]] {
            let rows = Rows::of(&table(&order.map(Row::clone)));
            let selection = Selection::of(&rows, "step", algorithm).remove(0);
            assert_eq!(selection.rows.len(), 1);
            assert_eq!(selection.rows[0].host, "new");
            assert_eq!(selection.replaced.len(), 1);
        }
    }

    #[test]
    fn layouts_share_a_selection_where_a_figure_tells_them_apart() {
        let old = ring().with("started", "2026-03-01T00:00:00Z");
        let eight = ring().with("ranks", "8").with("nodes", "4");
        let rows = Rows::of(&table(&[ring(), old, eight.clone(), eight.with("op", "sum")]));
        let selections = Selection::over_layouts(&rows, "step", algorithm);
        let said = selections.iter().map(|part| (part.suffix.as_str(), part.rows.len()));
        assert_eq!(said.collect::<Vec<_>>(), [("average", 2), ("sum", 1)]);
        assert_eq!(selections[0].replaced.len(), 1);
    }

    #[test]
    fn out_of_place_is_forgotten_only_where_the_same_algorithm_ran_in_place() {
        let outside = ring().with("in_place", "false");
        let case =
            |row: &crate::rows::Row| vec![row.algorithm.clone(), format!("{:?}", row.in_place)];
        let rows = Rows::of(&table(&[ring(), outside.clone(), outside.with("algorithm", "tree")]));
        let mut selection = Selection::of(&rows, "step", case).remove(0);
        selection.prefer_in_place();
        let kept = selection.rows.iter().map(|row| (row.algorithm.as_str(), row.in_place));
        assert_eq!(kept.collect::<Vec<_>>(), [("ring", Some(true)), ("tree", Some(false))]);
    }

    #[test]
    fn rows_left_out_are_counted_by_reason() {
        let tree = |status| step("tree", "coordinator", 64.0, 5.0).with("status", status);
        let rows = Rows::of(&table(&[ring(), tree("wrong"), tree("unsupported"), tree("wrong")]));
        let mut selection = Selection::of(&rows, "step", algorithm).remove(0);
        let said = selection.left_out_in_words();
        assert_eq!(said, "3 cases left out: 1 unsupported (tree), 2 wrong (tree)");
        selection.require(|row| row.size_bytes.is_some());
        let said = selection.left_out_in_words();
        assert!(said.ends_with("1 unsupported (tree), 1 without a value (ring), 2 wrong (tree)"));
        selection.restrict(|row| row.algorithm == "ring");
        assert_eq!(selection.left_out_in_words(), "1 case left out: 1 without a value");
    }

    #[test]
    fn the_number_of_groups_is_named_where_it_varies() {
        let grouped = |groups| step("grouped", "coordinator", 64.0, 5.0).with("groups", groups);
        let case = |row: &crate::rows::Row| vec![row.groups.clone()];
        let rows = Rows::of(&table(&[grouped("2")]));
        let selection = Selection::of(&rows, "step", case).remove(0);
        assert_eq!(selection.algorithm(selection.rows[0]), "grouped");
        let rows = Rows::of(&table(&[grouped("2"), grouped("4")]));
        let selection = Selection::of(&rows, "step", case).remove(0);
        assert_eq!(selection.algorithm(selection.rows[0]), "grouped, groups 2");
    }
}
