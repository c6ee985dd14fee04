//! What makes a run's numbers less than they seem.

use std::collections::{BTreeMap, BTreeSet};

use results::rank_tests::{Estimate, signed_rank};
use results::statistics::{Summary, median};

use crate::run::Run;
use crate::tables::{File, Record};
use crate::words::sentence;

/// A drift that does not matter, as a share of the time.
const SMALL_DRIFT: f64 = 0.03;

/// Of more cases the drift is a median, which takes no pairs.
const MOST_PAIRED: usize = 1000;

/// Shares of the processors' time that disturb a block: of other programs, and of other machines. A sweep gives them as
/// reasons from the same shares on.
const OTHERS_SHARE: f64 = 0.05;
const STEAL_SHARE: f64 = 0.01;

/// The share of disturbed blocks from which on they are a warning.
const NOTABLE_SHARE: f64 = 0.05;

/// The most rows of one outcome that are named.
const NAMED: usize = 3;

/// The warnings of a run, as sentences; the most far-reaching first.
pub fn of(run: &Run) -> Vec<String> {
    let files = || run.files.iter().filter(|file| file.is_of_rows());
    let rows: Vec<Record> = files().flat_map(|file| file.records()).collect();
    let simulated = rows.iter().filter(|row| row.text("source") == "simulated").count();
    let mut warnings = Vec::new();
    let is_true = |column: &str| rows.iter().filter(|row| row.text(column) == "true").count();
    let of_rows = |count: usize| match count {
        _ if count == rows.len() => String::new(),
        count => format!(" ({count} of {} rows)", rows.len()),
    };
    let mut add = |count: usize, what: &str| {
        if count > 0 {
            warnings.push(format!("{what}{}.", of_rows(count)));
        }
    };
    add(
        simulated,
        "Simulated: times are computed in virtual time from a machine file, not measured",
    );
    add(
        is_true("emulated"),
        "Emulated: threads, processes or namespaces of one machine stand for nodes, so the numbers describe that \
         machine and not a cluster",
    );
    let (on_gpus, on_cores): (Vec<&Record>, Vec<&Record>) = rows
        .iter()
        .filter(|row| row.text("oversubscribed") == "true")
        .partition(|row| ["cuda", "nccl"].contains(&row.text("transport")));
    add(
        on_cores.len(),
        "Oversubscribed: there are more ranks than cores, so ranks wait for each other's time slices",
    );
    add(
        on_gpus.len(),
        "Oversubscribed: there are more ranks than GPUs, so ranks share multiprocessors and memory bandwidth",
    );
    warnings.extend(outcomes(&rows));
    warnings.extend(strangers(run, &rows));
    let read =
        run.files.iter().chain(&run.samples).chain(&run.conditions).filter(|file| file.is_cut);
    warnings.extend(
        read.map(|file| {
            format!("Cut: the last line of {} is incomplete, and left out.", file.name())
        }),
    );
    warnings.extend(run.samples.as_ref().and_then(drift));
    if !run.disturbed_rounds.is_empty() {
        warnings.push(format!(
            "Drift: {} rounds of the tuner do not count, because steps took up to {:.1} times as long in them as in \
             the others.",
            run.disturbed_rounds.len(),
            run.disturbed_rounds.iter().copied().fold(0.0, f64::max)
        ));
    }
    warnings.extend(run.conditions.iter().flat_map(disturbed));
    for launch in &run.launches {
        let inventory = launch.inventory.iter().flat_map(|inventory| inventory.warnings());
        warnings.extend(inventory.map(|gpu| format!("Throttled: {gpu}.")));
        warnings
            .extend(launch.forced.iter().map(|finding| format!("Forced: {}", sentence(finding))));
        if launch.commit.ends_with("-dirty") {
            warnings.push(format!(
                "Uncommitted changes: the program was built from {} and changes that are in no commit.",
                launch.commit.trim_end_matches("-dirty")
            ));
        }
        if launch.build.contains("debug") {
            warnings
                .push(format!("Debug build: the program was not optimised ({}).", launch.build));
        }
    }
    if run
        .launches
        .last()
        .is_some_and(|launch| launch.ended.is_none() && !launch.started.is_empty())
    {
        warnings.push("Cut: the last launch has no end, so cases may be missing.".into());
    }
    warnings.dedup();
    warnings
}

/// Blocks during which the machine was slowed down, or did something else.
fn disturbed(conditions: &File) -> Vec<String> {
    let blocks = conditions.len();
    let values = |column: &str| -> Vec<f64> {
        conditions.records().filter_map(|block| block.number(column)).collect()
    };
    let of_blocks = |count: usize| format!("{count} of {blocks} blocks");
    let throttled = values("throttled").into_iter().filter(|times| *times > 0.0).count();
    let throttled = (throttled > 0).then(|| {
        let those = of_blocks(throttled);
        format!("Throttled: processors were slowed down because of heat in {those}.")
    });
    let share = |column: &str, least: f64, begin: &str, who: &str| {
        let shares = values(column);
        let above: Vec<f64> = shares.iter().copied().filter(|share| *share > least).collect();
        let is_notable =
            !above.is_empty() && above.len() as f64 >= NOTABLE_SHARE * shares.len() as f64;
        is_notable.then(|| {
            format!(
                "{begin}: {who} had {:.1} % of the processors' time, and more than {:.0} % in {} (at most {:.0} %).",
                100.0 * shares.iter().sum::<f64>() / shares.len() as f64,
                100.0 * least,
                of_blocks(above.len()),
                100.0 * above.iter().copied().fold(0.0, f64::max),
            )
        })
    };
    let others = share("others_share", OTHERS_SHARE, "Other programs", "they");
    let stolen = share("steal_share", STEAL_SHARE, "Shared machine", "other virtual machines");
    throttled.into_iter().chain(others).chain(stolen).collect()
}

/// Rows of commits that no launch of the provenance has.
fn strangers(run: &Run, rows: &[Record]) -> Option<String> {
    let of_launches: BTreeSet<&str> =
        run.launches.iter().map(|launch| launch.commit.as_str()).collect();
    let of_rows: BTreeSet<&str> =
        rows.iter().map(|row| row.text("commit")).filter(|commit| !commit.is_empty()).collect();
    let strangers: Vec<&str> = of_rows.difference(&of_launches).copied().collect();
    (!of_launches.is_empty() && !strangers.is_empty()).then(|| {
        format!(
            "Provenance: rows are of commit {}, and provenance.json is of {}, so it is of another run: machine, times and \
             lines to repeat below may not be those of the rows.",
            strangers.join(", "),
            of_launches.into_iter().collect::<Vec<_>>().join(", ")
        )
    })
}

/// Rows that are not right, by status.
fn outcomes(rows: &[Record]) -> Vec<String> {
    let mut by_status: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !matches!(row.text("status"), "ok" | "")) {
        by_status.entry(row.text("status")).or_default().push(row);
    }
    let in_words = |(status, rows): (&str, Vec<&Record>)| {
        let named: Vec<String> = rows
            .iter()
            .take(NAMED)
            .map(|row| match row.text("reason") {
                "" => row.text("case").to_string(),
                reason => format!("{}: {reason}", row.text("case")),
            })
            .collect();
        let more = match rows.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let those =
            if rows.len() == 1 { "1 case is" } else { &format!("{} cases are", rows.len()) };
        format!("Not measured: {those} {status} ({}{more}).", named.join("; "))
    };
    by_status.into_iter().map(in_words).collect()
}

/// How much longer the last block of a case took than its first, over all cases.
fn drift(samples: &File) -> Option<String> {
    let mut cases: BTreeMap<&str, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for sample in samples.records() {
        let (block, time_us) = (sample.number("block")?, sample.number("time_us")?);
        let blocks = cases.entry(sample.text("case")).or_default();
        blocks.entry(block as u64).or_default().push(time_us);
    }
    let change = |blocks: BTreeMap<u64, Vec<f64>>| {
        let count = blocks.len();
        let mut medians = blocks.into_values().filter_map(median);
        let first = medians.next()?;
        (count > 1).then_some((medians.next_back()? / first).ln())
    };
    let changes: Vec<f64> = cases.into_values().filter_map(change).collect();
    let Estimate { value, low, high } = middle(&changes)?;
    let is_clear = (low > 0.0 || high < 0.0) && (value.exp() - 1.0).abs() > SMALL_DRIFT;
    let percent = |log: f64| 100.0 * (log.exp() - 1.0);
    is_clear.then(|| {
        format!(
            "Drift: the last block of a case took {:+.1} % [{:+.1}, {:+.1}] against its first, over {} cases: the \
             machine changed during the run.",
            percent(value),
            percent(low),
            percent(high),
            changes.len()
        )
    })
}

fn middle(values: &[f64]) -> Option<Estimate> {
    if values.len() <= MOST_PAIRED {
        return signed_rank(values);
    }
    let all = Summary::of(values)?;
    all.p50_interval.map(|(low, high)| Estimate { value: all.p50, low, high })
}
