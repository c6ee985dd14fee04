//! `kolo against horovod`.

use std::env::current_exe;

use against::comparison::Comparison;
use against::engine::Engine;
use against::host_times;
use against::kolo::Kolo;
use against::plan::Turn;
use against::report;
use against::run::Run;
use anyhow::Result;
use results::conclusion::CONCLUSION;
use results::files::write_whole;
use results::provenance::PROVENANCE;
use results::record::csv_bytes;

use super::{Common, RUN, Scratch};
use crate::cli::{Exit, plot, usage};

/// Compare with real Horovod over MPI, block by block on the same processors
///
/// Each block runs in processes of its own: once by kolo's engine, twice by Horovod, in random order. The second
/// block of Horovod is the control: how far Horovod differs from itself. `make horovod` installs Horovod.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo against horovod horovod                  # the embedded configuration
  kolo against horovod configs/horovod.toml mine.toml --python venv/bin/python")]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Print the order of blocks without measuring
    #[arg(long, help_heading = RUN)]
    dry_run: bool,
}

pub fn run(Arguments { common, dry_run }: &Arguments) -> Result<Exit> {
    let launcher = common.launcher()?;
    let mut plan = common.plan("kolo against horovod")?;
    if *dry_run {
        for Turn { case, runner, block } in plan.order() {
            println!("block {block}: {}: {}", runner.name(), plan.cases[case].name);
        }
        return Ok(Exit::Right);
    }
    let scratch = Scratch::new()?;
    let mut kolo = Kolo::new(current_exe()?, launcher.clone(), &scratch.0).map_err(usage)?;
    let mut horovod = common.horovod(&launcher, &scratch.0)?;
    plan.conditions = vec![kolo.about(), horovod.about(), format!("ranks started by: {launcher}")];
    let (folder, mut provenance) = common.folder(&plan, "horovod")?;
    let report = |line: String| eprintln!("{line}");
    let own = &mut |plan: &_, origin, host| kolo.loop_times(plan, origin, host);
    host_times::measure(&mut plan, &mut horovod, own, &folder, report).map_err(usage)?;
    let rows = Run::open(&plan, &folder)?.finish(&mut kolo, &mut horovod, report)?;
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
    print!("{text}{figures}");
    println!("results in {}", folder.display());
    let is_whole = comparison.cases.iter().all(|case| case.failed.is_empty());
    Ok(if is_whole { Exit::Right } else { Exit::Wrong })
}
