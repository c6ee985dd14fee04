//! `kolo sweep`.

mod budget;
mod control;
mod folder;
mod intended;
mod nodes;
mod simulated;
mod slurm;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use self::budget::{affordable_blocks, no_interval, short_budget};
pub use self::folder::Concluded;
use self::folder::{end_launch, finish, forget_failed, launch_again, open};
pub use self::intended::Intended;
use super::printed::Printed;
use super::tune::duration;
use super::{Exit, configuration, not_for, usage, voice};
use measure::back_ends::has_processes;
use measure::calibrate;
use measure::config::{Config, Timelines};
use measure::environment::Environment;
use measure::executor;
use measure::plan::Plan;
use measure::precedence::{self, Options, Precedence};
use measure::summary;
use measure::sweep::{Course, run as run_plan};
use results::columnar::{self, ColumnarError};
use results::config_kind::ConfigKind;
use results::journal::Journal;
use results::provenance::Override;
use results::provenance::{Launch, memory_bytes};
use results::record::table;
use results::row::{Status, columns};
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
    #[arg(long, help_heading = RUN)]
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

/// Those that [`Arguments::has_options_of_steps`] finds, as a sentence has them.
const OPTIONS_OF_STEPS: &str = "--timeline, --samples, --budget, --nodes, --ranks-per-node, --fusion-threshold-mb, \
                                --cycle-time-ms, --cache-capacity, --transport, --launches or --steps";

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
    if let Some(set_by) = &environment.timeline.set_by {
        say(&format!(
            "{set_by}: the name is ignored; timelines/ in the results folder gets one file per case"
        ));
    }
    let mut plan = Plan::new(config, workload);
    if arguments.timeline || environment.timeline.value.is_some() {
        plan.timelines = Timelines::All;
    }
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
    // Two blocks are compared round by round, and the summary says that they have no interval.
    let blocks = plan.config.measure.launches * affordable_blocks(&plan, arguments.budget);
    let is_ranked = blocks > 1 && arguments.budget.is_none();
    let few = no_interval(&plan, arguments.budget).filter(|_| !is_ranked);
    short.into_iter().chain(few).for_each(|warning| say(&format!("warning: {warning}")));
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
        Intended::of(&plan, arguments.budget).show(arguments.printed)?;
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
    let rounds = report.round_effect.map(|effect| effect.to_string());
    let few = report.few_blocks.map(|few| few.to_string());
    let limits: Vec<String> =
        [spread, drift, again, unsteady, rounds, few, warmup].into_iter().flatten().collect();
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
        let is_repeated = row.outcome.measured().is_some_and(|result| {
            result.times.time_us_p50_low.is_some() || result.effort.blocks > 1
        });
        (row.outcome.status(), is_repeated)
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

/// The exit status from how each case ended, and whether it has an interval or was measured in more than one block.
fn exit(cases: impl Iterator<Item = (Status, bool)> + Clone) -> Exit {
    let bad = |status| matches!(status, Status::Wrong | Status::Failed);
    let is_bad = cases.clone().any(|(status, _)| bad(status));
    let is_repeated = { cases }.any(|(_, is_repeated)| is_repeated);
    match (is_bad, is_repeated) {
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
