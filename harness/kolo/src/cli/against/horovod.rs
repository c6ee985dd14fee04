//! `kolo against horovod`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cli::{Exit, configuration, not_for, plot, usage};
use against::block::{BlockRow, Runner};
use against::comparison::Comparison;
use against::engine::{BlockError, Engine, Steps};
use against::horovod::{Horovod, VERSION};
use against::kolo::Kolo;
use against::launcher::Launcher;
use against::plan::{Origin, Plan, Turn, folder_name};
use against::report;
use results::config_kind::ConfigKind;
use results::files::{create_folder, write_whole};
use results::provenance::{Launch, PROVENANCE, Provenance};
use results::record::{Appended, csv_bytes};
use results::statistics::Summary;

/// Where `make horovod` installs it.
const PYTHON: &str = "target/horovod/bin/python";

/// Headings of the options.
const RUN: &str = "What to run";
const OUTPUT: &str = "Output";

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
    /// Configurations of training steps in TOML, or names of embedded ones
    #[arg(required = true, value_name = "CONFIG")]
    configs: Vec<PathBuf>,
    /// Python with Horovod and PyTorch
    #[arg(long, default_value = PYTHON, value_name = "FILE", help_heading = RUN)]
    python: PathBuf,
    /// Command that starts ranks: "srun --ntasks={ranks} --mpi=pmix" [default: mpirun on this machine]
    #[arg(long, value_name = "COMMAND", help_heading = RUN)]
    launcher: Option<String>,
    /// Print the order of blocks without measuring
    #[arg(long, help_heading = RUN)]
    dry_run: bool,
    /// Folder for the results [default: results/DATE-against-CONFIG]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let launcher = match &arguments.launcher {
        Some(text) => Launcher::parse(text).map_err(usage)?,
        None => Launcher::mpirun(),
    };
    let mut origins = Vec::new();
    for path in &arguments.configs {
        let file = configuration(path)?;
        match ConfigKind::of_file(&file)? {
            ConfigKind::Training => origins.push(Origin::read(&file)?),
            kind => return Err(not_for(&file, kind, "kolo against horovod")),
        }
    }
    let mut plan = Plan::new(origins);
    plan.left_out.iter().for_each(|&(why, count)| eprintln!("{}", report::left_out(why, count)));
    if plan.cases.is_empty() {
        return Err(usage("no case is left that Horovod can run"));
    }
    if arguments.dry_run {
        for Turn { case, runner, block } in plan.order() {
            println!("block {block}: {}: {}", runner.name(), plan.cases[case].name);
        }
        return Ok(Exit::Right);
    }
    let scratch = std::env::temp_dir().join(format!("kolo-against-{}", std::process::id()));
    create_folder(&scratch)?;
    let _scratch = Removed(&scratch);
    let program = std::env::current_exe()?;
    let mut kolo = Kolo::new(program, launcher.clone(), &scratch).map_err(usage)?;
    let found = Horovod::find(&arguments.python, launcher.clone(), &scratch);
    let mut horovod = found.map_err(usage)?;
    if horovod.installed.horovod != VERSION {
        eprintln!(
            "Horovod {} is compared, and the engine follows {VERSION}",
            horovod.installed.horovod
        );
    }
    plan.conditions = vec![kolo.about(), horovod.about(), format!("ranks started by: {launcher}")];
    let launch = Launch::now();
    let folder = arguments.out.clone();
    let folder = folder.unwrap_or_else(|| folder_name(&launch.started, &plan.origins));
    let rows = compare(&plan, launch, &folder, [&mut kolo, &mut horovod])?;
    let comparison = Comparison::of(&plan, &rows);
    let lines: Vec<_> = comparison.cases.iter().map(|case| case.row()).collect();
    write_whole(&folder.join("comparison.csv"), &csv_bytes(&lines, true))?;
    let text = report::text(&plan, &comparison);
    write_whole(&folder.join("summary.txt"), text.as_bytes())?;
    let figures = plot::figures(std::slice::from_ref(&folder), &folder.join("figures"))?;
    print!("{text}{figures}");
    println!("results in {}", folder.display());
    let is_whole = comparison.cases.iter().all(|case| case.failed.is_empty());
    Ok(if is_whole { Exit::Right } else { Exit::Wrong })
}

/// Runs every turn, and records each block as it ends. A case of which a block failed is given up.
fn compare(
    plan: &Plan,
    launch: Launch,
    folder: &Path,
    [kolo, horovod]: [&mut dyn Engine; 2],
) -> Result<Vec<BlockRow>> {
    if folder.join(PROVENANCE).exists() {
        return Err(usage(format!("{} has results; choose another --out", folder.display())));
    }
    create_folder(folder)?;
    let mut provenance = Provenance::new(plan, launch);
    provenance.write(&folder.join(PROVENANCE))?;
    let mut file = Appended::open(folder.join("blocks.csv"))?;
    let order = plan.order();
    let mut rows: Vec<BlockRow> = Vec::new();
    for (index, &Turn { case, runner, block }) in order.iter().enumerate() {
        let case = &plan.cases[case];
        if rows.iter().any(|row| row.case == case.name && row.status != "ok") {
            continue;
        }
        let engine: &mut dyn Engine = match runner {
            Runner::Kolo => &mut *kolo,
            Runner::Horovod | Runner::Control => &mut *horovod,
        };
        let start = std::time::Instant::now();
        let ended = engine.run(plan, case);
        let row = BlockRow {
            case: case.name.clone(),
            block,
            order: index,
            engine: runner.name().into(),
            block_s: rounded(start.elapsed().as_secs_f64()),
            ..outcome(ended)
        };
        let told = match row.step_ms {
            Some(step_ms) => format!("{step_ms:.3} ms"),
            None => format!("failed, the case is given up: {}", row.reason),
        };
        eprintln!("[{}/{}] {}: {}: {told}", index + 1, order.len(), case.name, runner.name());
        file.append(std::slice::from_ref(&row))?;
        rows.push(row);
    }
    if let Some(launch) = provenance.launches.last_mut() {
        launch.end(|_| {});
    }
    provenance.write(&folder.join(PROVENANCE))?;
    Ok(rows)
}

/// The part of a row that a block's end decides.
fn outcome(ended: Result<Steps, BlockError>) -> BlockRow {
    let summary = ended.map(|Steps { times_ms, shares }| (Summary::of(&times_ms), shares));
    match summary {
        Ok((Some(Summary { samples, p50, min, max, .. }), shares)) => BlockRow {
            status: "ok".into(),
            steps: samples,
            step_ms: Some(rounded(p50)),
            min_ms: Some(rounded(min)),
            max_ms: Some(rounded(max)),
            emulated: shares.map(|shares| shares.emulated),
            oversubscribed: shares.map(|shares| shares.oversubscribed),
            ..BlockRow::default()
        },
        Ok((None, _)) => failed("no step was measured".into()),
        Err(why) => failed(why.to_string()),
    }
}

/// Three digits behind the point.
fn rounded(value: f64) -> f64 {
    (1e3 * value).round() / 1e3
}

fn failed(reason: String) -> BlockRow {
    BlockRow { status: "failed".into(), reason, ..BlockRow::default() }
}

/// A folder that is removed with this.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}
