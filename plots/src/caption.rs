//! The caption below a figure: the conditions of its values.

use std::collections::BTreeSet;

use crate::engines;
use crate::layout::Layout;
use crate::rows::{Estimate, Row};
use crate::selection::Selection;
use crate::theme;

/// The conditions, statistics and provenance of the values of a figure.
#[derive(Debug, Clone)]
pub(crate) struct Caption {
    /// Whether values were simulated.
    pub simulated: bool,
    /// `MEASURED` or `SIMULATED`, followed by what limits the values, such as emulated nodes.
    pub origin: String,
    /// Conditions, statistics and provenance, followed by notes.
    pub paragraphs: Vec<String>,
}

impl Caption {
    /// The caption of values that are not rows: what they are, and paragraphs, of which empty ones are left out.
    pub fn plain(origin: String, mut paragraphs: Vec<String>) -> Caption {
        paragraphs.retain(|words| !words.is_empty());
        Caption { simulated: false, origin, paragraphs }
    }

    /// What the values are, in a few words: measured or simulated, and whether nodes are emulated.
    pub fn stamp(&self) -> String {
        let words =
            [("MEASURED", "MEASURED"), ("SIMULATED", "SIMULATED"), ("emulated", "emulated nodes")];
        let said = words.iter().filter(|(word, _)| self.origin.contains(word));
        said.map(|(_, stamp)| *stamp).collect::<Vec<_>>().join(", ")
    }

    /// The caption of a selection. `drawn` picks the estimate that the figure shows, and `notes` are
    /// additional sentences.
    pub fn of(
        selection: &Selection,
        drawn: impl Fn(&Row) -> Estimate,
        notes: Vec<String>,
    ) -> Caption {
        Caption::of_statistic(selection, "median", drawn, notes)
    }

    /// The caption of a selection of which another statistic than the median is drawn.
    pub fn of_statistic(
        selection: &Selection,
        statistic: &str,
        drawn: impl Fn(&Row) -> Estimate,
        mut notes: Vec<String>,
    ) -> Caption {
        let rows = &selection.rows;
        let replaced = match selection.replaced.len() {
            0 => String::new(),
            1 => "1 row replaced by a later one of the same case".to_string(),
            count => format!("{count} rows replaced by later ones of the same case"),
        };
        notes.extend([sentence(&[selection.left_out_in_words()]), sentence(&[replaced])]);
        let conditions = [
            sentence(&conditions(rows)),
            sentence(&statistics(rows, statistic, drawn)),
            sentence(&provenance(rows)),
        ];
        let paragraphs = [joined(&conditions, " "), joined(&notes, " ")];
        Caption {
            simulated: rows.iter().any(|row| row.source == "simulated"),
            origin: joined(&origin(rows), " · "),
            paragraphs: paragraphs.into_iter().filter(|lines| !lines.is_empty()).collect(),
        }
    }
}

fn origin(rows: &[&Row]) -> Vec<String> {
    let source = several(rows, |row| row.source.to_uppercase()).join(" and ");
    let machine = named("machine file", "machine files", rows, |row| row.machine.clone());
    let source = if machine.is_empty() { source } else { format!("{source} on {machine}") };
    let emulated = if rows.iter().all(|row| row.emulated != Some(true)) {
        String::new()
    } else {
        "emulated nodes (of one machine)".to_string()
    };
    let over = rows.iter().filter(|row| row.oversubscribed == Some(true)).count();
    let ranks = several(rows, |row| row.ranks.map_or(String::new(), theme::plain));
    let on_gpus = |row: &&&Row| ["cuda", "nccl"].contains(&row.transport.as_str());
    let cores = match rows.iter().filter(on_gpus).count() {
        0 => "cores",
        some if some == rows.len() => "GPUs",
        _ => "cores or GPUs",
    };
    let oversubscribed = match (over, ranks.as_slice()) {
        (0, _) => String::new(),
        (over, [ranks]) if over == rows.len() => {
            format!("oversubscribed: {ranks} ranks on fewer {cores}")
        }
        (over, _) if over == rows.len() => format!("oversubscribed: more ranks than {cores}"),
        (over, _) => {
            format!("{over} of {} points oversubscribed: more ranks than {cores}", rows.len())
        }
    };
    vec![source, engines::in_words(rows), seeds(rows), emulated, oversubscribed]
}

fn seeds(rows: &[&Row]) -> String {
    let seeds = || rows.iter().filter_map(|row| row.seeds);
    match seeds().reduce(f64::min).zip(seeds().reduce(f64::max)) {
        None => String::new(),
        Some((few, many)) if few == many => theme::count(few as usize, "seed"),
        Some((few, many)) => format!("{few} to {many} seeds per point"),
    }
}

fn conditions(rows: &[&Row]) -> Vec<String> {
    let layouts: BTreeSet<Layout> = rows.iter().map(|row| Layout::of(row)).collect();
    let layouts: Vec<String> = match (layouts.first(), layouts.last()) {
        (Some(few), Some(many)) if layouts.len() > MOST_LAYOUTS => {
            let sizes = several(rows, |row| row.local_size.map_or(String::new(), theme::plain));
            match sizes.as_slice() {
                [each] => vec![format!("{}, {each} per node", few.to_ranks(many))],
                _ => vec![few.to_ranks(many)],
            }
        }
        _ => layouts.iter().map(Layout::to_string).collect(),
    };
    vec![
        named("workload", "workloads", rows, |row| row.workload.clone()),
        named("transport", "transports", rows, |row| row.transport.clone()),
        joined(&layouts, " and "),
        in_part("one rank of each class driven", rows, |row| row.driven == "classes"),
        in_part("each rank pinned to a core", rows, |row| row.pinned == Some(true)),
        several(rows, |row| {
            // Logs do not always say.
            let known = [&row.dtype, &row.op].map(|word| word.as_str().replace("unknown", ""));
            known.join(" ").trim().to_string()
        })
        .join(" and "),
    ]
}

/// The words if a condition holds for all rows, the number of points if it holds for some of them, and
/// nothing if it holds for none.
fn in_part(words: &str, rows: &[&Row], holds: impl Fn(&Row) -> bool) -> String {
    let count = rows.iter().filter(|row| holds(row)).count();
    if count == 0 {
        String::new()
    } else if count == rows.len() {
        words.to_string()
    } else {
        format!("{words} in {count} of {} points", rows.len())
    }
}

/// The most layouts to list. Of more, the caption has the first and the last number of ranks.
const MOST_LAYOUTS: usize = 4;

fn statistics(rows: &[&Row], statistic: &str, drawn: impl Fn(&Row) -> Estimate) -> Vec<String> {
    let simulated = rows.iter().all(|row| row.of_machine());
    let over_seeds = simulated && rows.iter().any(|row| row.seeds > Some(1.0));
    let mut samples: Vec<f64> = rows.iter().filter_map(|row| row.samples).collect();
    samples.retain(|samples| !simulated || *samples > 0.0);
    let low = samples.iter().copied().reduce(f64::min);
    let samples = match low.zip(samples.iter().copied().reduce(f64::max)) {
        None if simulated => String::new(),
        None => "number of samples not known".to_string(),
        Some((low, high)) if low == high => {
            format!("{} per point", theme::count(low as usize, "sample"))
        }
        Some((low, high)) => format!("{low} to {high} samples per point"),
    };
    let estimates = || rows.iter().map(|row| drawn(row)).filter(|drawn| drawn.value.is_some());
    let points = estimates().count();
    let bare = estimates().filter(|estimate| estimate.interval.is_none()).count();
    if bare == points && simulated && !over_seeds {
        return vec!["computed once per point, without interval".to_string()];
    }
    if bare == points {
        return vec![format!("{statistic} without interval"), samples];
    }
    let has_parameters = rows.iter().any(|row| row.interval_over == "seeds and parameters");
    let interval = match over_seeds {
        true if has_parameters => {
            "95 % interval over seeds, and all parameters of the machine at either end of their ranges"
        }
        true => "95 % interval over seeds",
        false => "95 % interval",
    };
    let mut parts = vec![format!("{statistic} with {interval}"), samples];
    if bare > 0 {
        let have = if bare == 1 { "has" } else { "have" };
        parts.push(format!("{bare} of {points} points {have} no interval"));
    }
    parts
}

fn provenance(rows: &[&Row]) -> Vec<String> {
    let first = |text: &str, length| text.chars().take(length).collect::<String>();
    let days = several(rows, |row| first(&row.started, 10));
    let days = match days.as_slice() {
        [] => String::new(),
        [day] => day.clone(),
        [day, .., last] => format!("{day} to {last}"),
    };
    vec![
        named("host", "hosts", rows, |row| row.host.clone()),
        days,
        named("commit", "commits", rows, |row| {
            // A suffix such as `-dirty` follows the hash if the tree had changes.
            let (hash, state) =
                row.commit.split_at(row.commit.find('-').unwrap_or(row.commit.len()));
            format!("{}{state}", first(hash, 10))
        }),
    ]
}

/// The parts that are not empty as one sentence.
fn sentence(parts: &[String]) -> String {
    let text = joined(parts, "; ");
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => text,
    }
}

fn joined(parts: &[String], between: &str) -> String {
    let known: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    known.join(between)
}

/// The distinct values of a column that are not empty, in order.
fn several(rows: &[&Row], value: impl Fn(&Row) -> String) -> Vec<String> {
    let values: BTreeSet<String> = rows.iter().map(|row| value(row)).collect();
    values.into_iter().filter(|value| !value.is_empty()).collect()
}

/// For example `host a`, or `2 hosts: a, b`.
fn named(one: &str, more: &str, rows: &[&Row], value: impl Fn(&Row) -> String) -> String {
    const SHOWN: usize = 4;
    let values = several(rows, value);
    match values.as_slice() {
        [] => String::new(),
        [value] => format!("{one} {value}"),
        values => {
            let rest = if values.len() > SHOWN { ", ..." } else { "" };
            let shown = values[..values.len().min(SHOWN)].join(", ");
            format!("{} {more}: {shown}{rest}", values.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;
    use crate::synthetic::{self, step, table};

    /// The caption of some rows, each a case of its own.
    fn caption(rows: &[synthetic::Row]) -> String {
        let numbered =
            rows.iter().enumerate().map(|(index, row)| row.with("groups", &format!("{index}")));
        let rows = Rows::of(&table(&numbered.collect::<Vec<_>>()));
        let selections = Selection::of(&rows, "step", |row| vec![row.groups.clone()]);
        assert_eq!(selections.len(), 1);
        let caption = Caption::of(&selections[0], |row| row.time_us, vec!["A note.".to_string()]);
        assert_eq!(caption.simulated, caption.origin.starts_with("SIMULATED"));
        let text = format!("{}\n{}", caption.origin, caption.paragraphs.join("\n"));
        text.replace('\u{a0}', " ")
    }

    fn row() -> synthetic::Row {
        step("ring", "coordinator", 64.0, 5.0)
    }

    #[test]
    fn ranks_on_gpus_share_gpus() {
        let on_gpu = row().with("transport", "nccl");
        assert!(caption(&[on_gpu]).contains("oversubscribed: 4 ranks on fewer GPUs\n"));
    }

    #[test]
    fn captions_have_all_known_values() {
        assert_eq!(
            caption(&[row()]),
            "MEASURED · emulated nodes (of one machine) · oversubscribed: 4 ranks on \
             fewer cores\n\
             Workload resnet50; transport threads; 4 ranks = 2 nodes × 2; float32 average. \
             Median with 95 % interval; 30 samples per point. \
             Host saturn; 2026-03-02; commit 0123456789.\n\
             A note."
        );
    }

    #[test]
    fn captions_leave_out_unknown_values() {
        let mut row = row().with("source", "simulated");
        for column in
            ["emulated", "oversubscribed", "workload", "transport", "ranks", "dtype", "op"]
        {
            row = row.with(column, "");
        }
        for column in ["host", "started", "commit", "samples", "time_us_p50_low"] {
            row = row.with(column, "");
        }
        let expected = "SIMULATED\nMedian without interval; number of samples not known.\nA note.";
        assert_eq!(caption(&[row]), expected);
    }

    #[test]
    fn a_simulation_names_machine_engine_and_seeds() {
        let row = row()
            .with("source", "simulated")
            .with("emulated", "false")
            .with("oversubscribed", "false")
            .with("machine", "summit")
            .with("engine", "nccl")
            .with("driven", "all")
            .with("seeds", "10");
        // Other figures would not mix it with what ran.
        let of = |rows: &[synthetic::Row]| {
            let rows = Rows::of(&table(rows));
            let selections =
                Selection::simulated(&rows, "step", |_| vec![], |row| vec![row.driven.clone()]);
            let caption = Caption::of(&selections[0], |row| row.time_us, Vec::new());
            assert!(caption.simulated);
            format!("{}\n{}", caption.origin, caption.paragraphs.join("\n"))
        };
        let text = of(std::slice::from_ref(&row));
        let origin = "SIMULATED on machine file summit · engine nccl (the model by which NCCL \
                      itself chooses) · 10 seeds\n";
        assert!(text.starts_with(origin), "{text}");
        assert!(text.contains("Median with 95 % interval over seeds; 30 samples per"), "{text}");
        let text = of(&[row.with("interval_over", "seeds and parameters")]);
        assert!(text.contains("all parameters of the machine at either end"), "{text}");
        let text = of(&[row.clone(), row.with("driven", "classes").with("seeds", "3")]);
        assert!(text.contains(" · 3 to 10 seeds per point\n"), "{text}");
        assert!(text.contains("; one rank of each class driven in 1 of 2 points;"), "{text}");
        let bare = row.with("time_us_p50_low", "").with("seeds", "").with("engine", "new");
        let text = of(&[bare]);
        assert!(text.starts_with("SIMULATED on machine file summit · engine new\n"), "{text}");
        assert!(text.contains(" Computed once per point, without interval. "), "{text}");
    }

    #[test]
    fn rows_that_disagree_are_listed() {
        let other = row()
            .with("commit", "fedcba9876543210")
            .with("host", "jupiter")
            .with("started", "2026-03-05T00:00:00Z")
            .with("samples", "12")
            .with("oversubscribed", "false");
        let text = caption(&[row(), other]);
        assert!(text.contains("2 commits: 0123456789, fedcba9876."), "{text}");
        assert!(text.contains("2 hosts: jupiter, saturn; 2026-03-02 to 2026-03-05"), "{text}");
        assert!(text.contains("12 to 30 samples per point"), "{text}");
        assert!(text.contains("1 of 2 points oversubscribed: more ranks than cores"), "{text}");
    }

    #[test]
    fn a_commit_is_cut_but_not_what_says_that_it_was_changed() {
        let text = caption(&[row().with("commit", "fedcba9876543210-dirty"), row()]);
        assert!(text.contains("; 2 commits: 0123456789, fedcba9876-dirty."), "{text}");
    }

    #[test]
    fn captions_mention_pinned_ranks() {
        let pinned = row().with("pinned", "true");
        let text = caption(&[pinned.clone(), pinned.clone()]);
        assert!(text.contains("2 nodes × 2; each rank pinned to a core; float32"), "{text}");
        let text = caption(&[pinned, row().with("pinned", "false")]);
        assert!(text.contains("; each rank pinned to a core in 1 of 2 points; "), "{text}");
    }

    #[test]
    fn cases_left_out_are_counted() {
        let text =
            caption(&[row(), row().with("status", "wrong"), row().with("status", "unsupported")]);
        assert!(text.ends_with("A note. 2 cases left out: 1 unsupported, 1 wrong."), "{text}");
    }
}
