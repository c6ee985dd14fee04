//! `kolo sweep`.

mod control;
mod folder;
mod nodes;
mod simulated;
mod slurm;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use algorithms::algorithm::Choice;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

pub use self::folder::Concluded;
use self::folder::{end_launch, finish, forget_failed, launch_again, open};
use super::printed::Printed;
use super::tune::duration;
use super::{Exit, configuration, not_for, usage, voice};
use measure::back_ends::has_processes;
use measure::calibrate;
use measure::config::{Config, Measure};
use measure::environment::Environment;
use measure::executor;
use measure::plan::{Plan, Planned};
use measure::precedence::{self, Options, Precedence};
use measure::summary;
use measure::sweep::{Course, run as run_plan};
use results::columnar::{self, ColumnarError};
use results::config_kind::ConfigKind;
use results::journal::Journal;
use results::nested::{BLOCKS_MIN, LAUNCHES_MIN};
use results::provenance::Override;
use results::provenance::{Launch, memory_bytes};
use results::record::table;
use results::row::{Status, columns};
use results::statistics::SAMPLES_MIN;
use results::toml_file::{Checked, ConfigProblem, TomlFile};
use workloads::workload::Workload;

/// A sweep ends before its next block once this file is in its folder.
const STOP: &str = "stop";

/// Run every case of a configuration, and draw figures
///
/// A case is training steps of a real model's gradients through one combination of control plane, algorithm, fusion
/// threshold and cycle time. With a table [control] in the configuration, it is steps of control planes alone; with
/// a table [simulate], training steps in virtual time on a machine file. A sweep ends with figures and a summary.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo sweep quick                              # the embedded configuration, or configs/quick.toml
  kolo sweep --slurm quick --site generic --dry-run")]
pub struct Arguments {
    /// A configuration in TOML, or the name of an embedded one: `kolo init --list`
    config: PathBuf,
    /// Print the plan (cases, estimated time, sizes of files) without measuring
    #[arg(long, conflicts_with_all = ["json", "format"], help_heading = RUN)]
    dry_run: bool,
    /// Continue a killed run, in the folder given by --out or the newest one
    #[arg(long, help_heading = RUN)]
    resume: bool,
    /// Continue the run in the folder given by --out, or start it
    #[arg(
        long,
        requires = "out",
        conflicts_with = "resume",
        help_heading = RUN,
        hide_short_help = true
    )]
    go_on: bool,
    /// With --resume: measure these cases again
    #[arg(
        long,
        value_enum,
        value_name = "CASES",
        requires = "out",
        help_heading = RUN,
        hide_short_help = true
    )]
    retry: Option<Retried>,
    /// The same in one word, for scripts.
    #[arg(long, requires = "out", hide = true)]
    retry_failed: bool,
    /// The last processes of this sweep failed: count their last block as a failure
    #[arg(long, requires = "go_on", hide = true)]
    after_break: bool,
    /// Start no block that may end after this time, in seconds since 1970
    #[arg(long, value_name = "SECONDS", hide = true)]
    until: Option<u64>,
    /// Start no block after this time, such as 90s, 10m, 1h, once every case has one
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = RUN, hide_short_help = true)]
    budget: Option<Duration>,
    /// Measure even if processes share cores or differ, or resume what another commit began; rows and provenance say so
    #[arg(long, help_heading = RUN, hide_short_help = true)]
    force: bool,
    /// Folder for the results [default: results/DATE-CONFIG]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    /// Write a timeline of each case's last block, for Perfetto and `kolo timeline`
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    timeline: bool,
    /// Draw no figures and write no report; `kolo plot` and `kolo report` do so later
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    no_figures: bool,
    /// Samples and messages as csv, or once all cases are done as parquet, which needs a build with `--features parquet`
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "csv",
        help_heading = OUTPUT,
        hide_short_help = true
    )]
    samples: Samples,
    #[command(flatten)]
    printed: Printed,
    #[command(flatten)]
    nodes: nodes::NodeOptions,
    #[command(flatten)]
    slurm: slurm::Flags,
    #[command(flatten)]
    options: Options,
}

impl Arguments {
    fn retries_failed(&self) -> bool {
        self.retry_failed || matches!(self.retry, Some(Retried::Failed))
    }

    /// Options are given that are for measured training steps only.
    fn has_options_of_steps(&self) -> bool {
        self.options != Options::default()
            || self.timeline
            || self.samples != Samples::Csv
            || self.budget.is_some()
            || self.nodes != nodes::NodeOptions::default()
    }
}

/// The files of samples and messages once a sweep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Samples {
    /// Text
    Csv,
    /// Apache Parquet
    Parquet,
}

/// Headings of the options.
const RUN: &str = "What to run";
const OUTPUT: &str = "Output";

/// Cases that are measured again.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Retried {
    /// Those that have failed
    Failed,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if arguments.samples == Samples::Parquet && !columnar::IS_BUILT {
        return Err(usage(ColumnarError::CannotWrite));
    }
    if arguments.slurm.is_set() {
        return slurm::run(arguments);
    }
    let file = configuration(&arguments.config)?;
    match ConfigKind::of_file(&file)? {
        ConfigKind::Training => trained(arguments, &file),
        ConfigKind::ControlPlanes => control::run(arguments, &file),
        ConfigKind::Simulated => simulated::run(arguments, &file),
        kind => Err(not_for(&file, kind, "kolo sweep")),
    }
}

/// Training steps, measured.
fn trained(arguments: &Arguments, file: &TomlFile) -> Result<Exit> {
    let mut config = Config::of(file)?;
    let say = voice();
    let mut launch = Launch::now();
    let environment = Environment::read(&launch.environment).map_err(usage)?;
    launch.overrides = override_config(&mut config, &arguments.options, &environment, say);
    let earlier = folder::of_earlier(arguments)?;
    nodes::settle(&mut config, arguments, earlier.as_deref(), nodes::here)?;
    let workload = Workload::read(&config.workload_path(&file.path))
        .map_err(|error| file.refuse(ConfigProblem::unusable(error)))?;
    workload.assumption().iter().for_each(|sentence| say(sentence));
    if let Some(groups) = &config.framework.groups {
        let wrong =
            |problem| usage(format!("{}: framework.groups: {problem}", arguments.config.display()));
        groups.of(&workload).map_err(wrong)?;
    }
    let timelines = arguments.timeline || environment.timeline.value.is_some();
    if let Some(set_by) = &environment.timeline.set_by {
        say(&format!(
            "{set_by}: the name is ignored; timelines/ in the results folder gets one file per case"
        ));
    }
    let mut plan = Plan::new(config, workload);
    plan.timelines = timelines;
    if plan.cases.is_empty() {
        return Err(usage(format!(
            "{}: there is no case: transport {} has no allreduce of a library; give another algorithm, or --transport \
             mpi",
            file.path.display(),
            plan.config.sweep.transport.join(", "),
        )));
    }
    plan.warnings().iter().for_each(|warning| say(&format!("warning: {warning}")));
    let short = short_budget(&plan, arguments.budget);
    let short = short.into_iter().chain(no_interval(&plan, arguments.budget));
    short.for_each(|warning| say(&format!("warning: {warning}")));
    if let Some(available) = memory_bytes("MemAvailable").filter(|&has| has < plan.memory_bytes()) {
        return Err(usage(format!(
            "{}: the largest case takes up to {} MB of memory and {} MB are free; use fewer ranks \
             or a smaller workload",
            file.path.display(),
            plan.memory_bytes() / 1_000_000,
            available / 1_000_000
        )));
    }
    if arguments.dry_run {
        dry_run(&plan, arguments.budget);
        return Ok(Exit::Right);
    }
    let Some(mut executor) =
        executor::assemble(&mut plan, &mut launch, arguments.force).map_err(usage)?
    else {
        return Ok(Exit::Right);
    };
    for (reason, count) in plan.left() {
        say(&format!("{count} cases are left out: {reason}"));
    }
    launch.auto = plan.calibrate()?;
    for (topology, table) in &launch.auto {
        eprintln!("{topology}: {}", calibrate::in_words(table));
    }
    let steps = plan.config.measure.steps_per_block;
    let (mut store, mut earlier, mut provenance) = open(arguments, &plan, launch, steps)?;
    let retried = if arguments.retries_failed() {
        forget_failed(&mut store, &mut earlier)?
    } else {
        Vec::new()
    };
    if !earlier.rows.is_empty() || !earlier.blocks.is_empty() {
        eprintln!(
            "resuming {}: {} of {} cases and {} blocks are there",
            store.folder().display(),
            earlier.rows.len(),
            plan.cases.len(),
            earlier.blocks.len()
        );
    }
    // Removes the request of an earlier launch to stop.
    let _ = fs::remove_file(store.folder().join(STOP));
    let may_break = plan.cases.iter().any(|planned| has_processes(planned.case.transport));
    let journal = || {
        let journal = Journal::open(store.folder(), &earlier, arguments.after_break)?;
        retried.iter().try_for_each(|case| journal.forgive(case)).map(|()| journal)
    };
    let course = Course {
        until: arguments.until.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
        budget: arguments.budget,
        stop: Some(store.folder().join(STOP)),
        journal: may_break.then(journal).transpose()?,
    };
    let progress = progress(&plan);
    let launches = &provenance.launches;
    let report = run_plan(&plan, &mut store, earlier, launches, &course, &mut *executor, &progress);
    progress.finish_and_clear();
    let report = report?;
    drop(executor);
    if let Some(reason) = report.left.as_ref().filter(|_| report.wants_launch) {
        end_launch(&store, &mut provenance)?;
        if may_break {
            println!("{reason}; start the same command again with --resume, for the next launch");
            return Ok(Exit::Left);
        }
        eprintln!("{reason}");
        let folder = store.folder().to_path_buf();
        drop(store);
        return launch_again(&folder);
    }
    store.write_whole("bandwidth.csv", &table(&report.bandwidth, &columns()))?;
    let spread = report.spread.map(|spread| spread.to_string());
    let drift = report.drift.map(|drift| drift.to_string());
    let unsteady = report.unsteady.map(|unsteady| unsteady.to_string());
    let again = report.again.map(|again| again.to_string());
    let warmup = report.warmup.map(|warmup| warmup.to_string());
    let differ = report.blocks_differ.map(|differ| differ.to_string());
    let limits: Vec<String> =
        [spread, drift, again, unsteady, differ, warmup].into_iter().flatten().collect();
    let text = limits.iter().fold(summary::text(&report.rows), |text, limit| text + limit + "\n");
    let mut conclusion = summary::conclusion(&report.rows);
    conclusion.limits.extend(limits);
    finish(arguments, &store, provenance, &text, &conclusion)?;
    if report.left.is_none() && arguments.samples == Samples::Parquet {
        convert(store.folder());
    }
    if let Some(reason) = report.left {
        let remain = format!("cases remain ({reason}); continue with --resume");
        if arguments.printed.is_text() {
            println!("{remain}")
        } else {
            eprintln!("{remain}")
        }
        return Ok(Exit::Left);
    }
    Ok(exit(report.rows.iter().map(|row| {
        let is_ranked = row.outcome.measured().is_some_and(|result| {
            let is_compared = result.lost_interval() && result.confidence.over_best_low.is_some();
            result.times.time_us_p50_low.is_some() || is_compared
        });
        (row.outcome.status(), is_ranked)
    })))
}

/// Converts samples and messages of a sweep that has ended. Its results are complete in CSV as well, so an error is printed,
/// and the sweep's status stays as it is.
fn convert(folder: &Path) {
    match columnar::convert(folder) {
        Ok(converted) => converted.iter().for_each(|table| eprintln!("{table}")),
        Err(why) => eprintln!("kolo: {why}; the file stays as it is"),
    }
}

/// Applies options and Horovod's variables to the configuration, and prints each override.
fn override_config(
    config: &mut Config,
    options: &Options,
    environment: &Environment,
    say: fn(&str),
) -> Vec<Override> {
    let Precedence { overrides, ignored } = precedence::apply(config, options, environment);
    environment.notices.iter().chain(&ignored).for_each(|sentence| say(sentence));
    overrides.iter().for_each(|replaced| say(&replaced.to_string()));
    overrides
}

/// A guess at the time of the fewest and of the most blocks in seconds, without network time; `weight` is that of a
/// case.
fn seconds(plan: &Plan, budget: Option<Duration>, weight: impl Fn(&Planned) -> f64) -> (f64, f64) {
    let measure = &plan.config.measure;
    let block = block_seconds(plan, |_| 1.0) * measure.launches as f64;
    let (least, most) = (block * measure.blocks_min as f64, block * measure.blocks_max as f64);
    let most = most.min(least.max(measure.budget_seconds));
    let within = |seconds: f64| match budget {
        Some(budget) => seconds.min(budget.as_secs_f64()).max(block),
        None => seconds,
    };
    let all = block_seconds(plan, |_| 1.0);
    let mean = if all > 0.0 { block_seconds(plan, weight) / all } else { 0.0 };
    (within(least) * mean, within(most) * mean)
}

/// A guess at the time of one block of every case in seconds.
fn block_seconds(plan: &Plan, weight: impl Fn(&Planned) -> f64) -> f64 {
    let runs = plan.cases.iter().filter(|planned| planned.data_plane.is_ok());
    runs.map(|planned| plan.estimate(planned).as_secs_f64() * weight(planned)).sum()
}

/// The sentence on a budget that does not suffice for the fewest blocks.
fn short_budget(plan: &Plan, budget: Option<Duration>) -> Option<String> {
    let measure = &plan.config.measure;
    let block = block_seconds(plan, |_| 1.0) * measure.launches as f64;
    let least = block * measure.blocks_min as f64;
    let given = budget.map_or(measure.budget_seconds, |budget| budget.as_secs_f64());
    let consequence = match budget {
        None => "they are measured all the same".into(),
        Some(_) if block > given => {
            format!("each case gets one block, which takes about {block:.0} s for all")
        }
        Some(_) => "some cases get fewer".into(),
    };
    (least > given).then(|| {
        format!(
            "a budget of {given} s is too small for measure.blocks_min = {} blocks of each of {} cases, about {least:.0} \
             s: {consequence}",
            measure.blocks_min,
            plan.cases.len(),
        )
    })
}

/// The sentence on a configuration or budget that gives cases too few blocks and steps for an interval.
fn no_interval(plan: &Plan, budget: Option<Duration>) -> Option<String> {
    let Measure { launches, blocks_min, blocks_max, steps_per_block, .. } = plan.config.measure;
    let round = block_seconds(plan, |_| 1.0) * launches as f64;
    let affordable = |budget: Duration| (budget.as_secs_f64() / round) as usize;
    let blocks = match budget.map(affordable) {
        Some(affordable) => affordable.clamp(1, blocks_max),
        None => {
            ((plan.config.measure.budget_seconds / round) as usize).clamp(blocks_min, blocks_max)
        }
    };
    let has_interval = |blocks: usize| {
        launches >= LAUNCHES_MIN
            || launches * blocks >= BLOCKS_MIN
            || launches * blocks * steps_per_block >= SAMPLES_MIN
    };
    if has_interval(blocks) {
        return None;
    }
    let enough = (blocks..).find(|&blocks| has_interval(blocks))?;
    Some(format!(
        "{} block(s) of {steps_per_block} step(s) are too few for an interval, so nothing can be ranked: {} blocks are \
         needed, about {:.0} s (measure.blocks_max, and measure.budget_seconds or --budget)",
        launches * blocks,
        launches * enough,
        (round * enough as f64).ceil(),
    ))
}

/// The exit status from how each case ended, and whether it has an interval: of its time, or over the fastest.
fn exit(cases: impl Iterator<Item = (Status, bool)> + Clone) -> Exit {
    let bad = |status| matches!(status, Status::Wrong | Status::Failed);
    let is_bad = cases.clone().any(|(status, _)| bad(status));
    let is_ranked = { cases }.any(|(_, has_interval)| has_interval);
    match (is_bad, is_ranked) {
        (true, _) => Exit::Wrong,
        (false, true) => Exit::Right,
        (false, false) => Exit::Inconclusive,
    }
}

fn progress(plan: &Plan) -> ProgressBar {
    let length = plan.cases.len() * plan.config.measure.blocks_max;
    let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} blocks, {eta} left  {msg}";
    let style = ProgressStyle::with_template(style).expect("a template that indicatif accepts");
    ProgressBar::new(length as u64).with_style(style.progress_chars("=> "))
}

fn dry_run(plan: &Plan, budget: Option<Duration>) {
    let measure = &plan.config.measure;
    for planned in &plan.cases {
        match &planned.data_plane {
            Ok(data_plane) => {
                let block = plan.estimate(planned).as_secs_f64();
                let how = match data_plane.choices().and_then(<[_]>::last) {
                    Some(Choice { schedule, .. }) => {
                        format!("{} steps, {} chunks", schedule.steps(), schedule.chunks())
                    }
                    None => "the library's own".into(),
                };
                println!("{}  {how}, about {block:.1} s per block", planned.case);
            }
            Err(reason) => println!("{}  unsupported: {reason}", planned.case),
        }
    }
    let steps = plan.cases.len() * measure.steps_per_block * measure.launches;
    let gradients = plan.workload.gradients.len();
    let kilobytes = |blocks: usize| {
        (blocks * steps * (130 + 65 * gradients.min(12))).div_ceil(1000).to_string()
    };
    let (least_seconds, most_seconds) = seconds(plan, budget, |_| 1.0);
    println!(
        "{} cases of {} ({} gradients, {:.1} MB); each {} blocks of {} + {} steps{}, in random order from \
         seed {}",
        plan.cases.len(),
        plan.workload.name,
        gradients,
        (plan.workload.elements() * plan.config.dtype().size_bytes()) as f64 / 1e6,
        range(measure.blocks_min.to_string(), measure.blocks_max.to_string()),
        measure.warmup_steps,
        measure.steps_per_block,
        match measure.launches {
            1 => String::new(),
            launches => format!(" in each of {launches} launches"),
        },
        measure.seed,
    );
    println!(
        "about {} s (assuming 16 GB/s per core), at most {} MB of memory, about {} kB of files without figures",
        range(format!("{least_seconds:.0}"), format!("{most_seconds:.0}")),
        plan.memory_bytes() / 1_000_000,
        range(kilobytes(measure.blocks_min), kilobytes(measure.blocks_max)),
    );
    let short = short_budget(plan, budget).into_iter().chain(no_interval(plan, budget));
    short.for_each(|sentence| println!("{sentence}"));
}

/// A range, or a single value if both ends are equal.
fn range(low: String, high: String) -> String {
    if low == high { low } else { format!("{low} to {high}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_right_wrong_or_inconclusive() {
        let right = (Status::Ok, true);
        for (cases, expected) in [
            (vec![right, (Status::Unsupported, false)], Exit::Right),
            (vec![right, (Status::Wrong, true)], Exit::Wrong),
            (vec![right, (Status::Failed, false)], Exit::Wrong),
            (vec![(Status::Ok, false)], Exit::Inconclusive),
            (vec![(Status::Unsupported, false)], Exit::Inconclusive),
        ] {
            assert_eq!(exit(cases.into_iter()), expected);
        }
    }
}
