//! `kolo against horovod`.

use std::env::current_exe;

use against::comparison::{Comparison, ComparisonRow};
use against::counted::Distance;
use against::host_times;
use against::kolo::Kolo;
use against::plan::Turn;
use against::report;
use against::rounds;
use against::run::Run;
use anyhow::Result;
use results::conclusion::CONCLUSION;
use results::files::write_whole;
use results::provenance::PROVENANCE;
use results::record::csv_bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::scratch::Scratch;
use super::{Common, RUN};
use crate::cli::printed::Printed;
use crate::cli::{Exit, plot, usage};

/// Compare with real Horovod over MPI, block by block on the same processors
///
/// Each block runs in processes of its own: once by kolo's engine, twice by Horovod, in random order. The second
/// block of Horovod is the control: how far Horovod differs from itself. Cases of which rounds do not count, because a hypervisor
/// moved the processors, get further ones (`blocks_max`). `make horovod` installs Horovod.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo against horovod horovod                  # the embedded configuration
  kolo against horovod configs/horovod.toml mine.toml --python venv/bin/python")]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Print the order of blocks without measuring
    #[arg(long, conflicts_with_all = ["json", "format"], help_heading = RUN)]
    dry_run: bool,
    #[command(flatten)]
    printed: Printed,
}

/// Version of [`Beside`] as JSON.
const SCHEMA: u32 = 1;

/// Cases by kolo's engine and by Horovod.
#[derive(Serialize, JsonSchema)]
pub struct Beside {
    /// Version of this structure.
    schema: u32,
    /// The folder of the results.
    results: String,
    /// What the run says, a sentence or two.
    verdicts: Vec<String>,
    /// Every case: the columns of comparison.csv.
    cases: Vec<ComparisonRow>,
}

pub fn run(Arguments { common, dry_run, printed }: &Arguments) -> Result<Exit> {
    let launcher = common.launcher()?;
    let mut plan = common.plan("kolo against horovod")?;
    if *dry_run {
        for Turn { case, runner, block } in plan.order() {
            println!("block {block}: {}: {}", runner.name(), plan.cases[case].name);
        }
        return Ok(Exit::Right);
    }
    let scratch = Scratch::new()?;
    let mut kolo = Kolo::new(current_exe()?, launcher.clone(), scratch.path()).map_err(usage)?;
    let mut horovod = common.horovod(&plan, &launcher, scratch.path())?;
    plan.conditions = Common::conditions(&plan, &kolo, &horovod, &launcher);
    let (folder, mut provenance) = common.folder(&plan, "horovod")?;
    let report = |line: String| eprintln!("{line}");
    let own = &mut |plan: &_, origin, host| kolo.loop_times(plan, origin, host);
    host_times::measure(&mut plan, &mut horovod, own, &folder, report).map_err(usage)?;
    let (mut order, mut rows) = (plan.order(), Vec::new());
    while !order.is_empty() {
        let run = Run::open(&plan, &folder)?;
        rows = run.finish(&order, Distance::Usual, &mut kolo, &mut horovod, report)?;
        order = rounds::further(&plan, &rows);
    }
    if let Some(launch) = provenance.launches.last_mut() {
        launch.end(|_| {});
    }
    provenance.write(&folder.join(PROVENANCE))?;
    let comparison = Comparison::of(&plan, &rows);
    let lines: Vec<_> = comparison.cases.iter().map(|case| case.row()).collect();
    write_whole(&folder.join("comparison.csv"), &csv_bytes(&lines, true))?;
    let text = report::text(&plan, &comparison);
    write_whole(&folder.join("summary.txt"), text.as_bytes())?;
    let conclusion = report::conclusion(&comparison);
    if !conclusion.verdicts.is_empty() {
        write_whole(&folder.join(CONCLUSION), &conclusion.json())?;
    }
    let figures = plot::figures_and_report(&folder)?;
    let results = folder.display().to_string();
    if printed.is_text() {
        print!("{text}{figures}");
        println!("results in {results}");
    }
    let verdicts = conclusion.verdicts;
    printed.print(&Beside { schema: SCHEMA, results, verdicts, cases: lines }, "/cases")?;
    let is_whole = comparison.cases.iter().all(|case| case.failed.is_empty());
    Ok(if is_whole { Exit::Right } else { Exit::Wrong })
}
