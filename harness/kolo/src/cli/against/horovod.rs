//! `kolo against horovod`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cli::{Exit, configuration, not_for, plot, usage};
use against::comparison::Comparison;
use against::engine::Engine;
use against::horovod::{Horovod, VERSION};
use against::host_times;
use against::kolo::Kolo;
use against::launcher::Launcher;
use against::plan::{Origin, Plan, Turn, folder_name};
use against::report;
use against::run::Run;
use results::config_kind::ConfigKind;
use results::files::{create_folder, write_whole};
use results::provenance::{Launch, PROVENANCE, Provenance};
use results::record::csv_bytes;

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
    /// Continue the run in --out: blocks that it has are not run again
    #[arg(long, requires = "out", help_heading = OUTPUT)]
    resume: bool,
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
            "warning: Horovod {} is installed; the engine follows Horovod {VERSION}",
            horovod.installed.horovod
        );
    }
    plan.conditions = vec![kolo.about(), horovod.about(), format!("ranks started by: {launcher}")];
    let launch = Launch::now();
    let folder = arguments.out.clone();
    let folder = folder.unwrap_or_else(|| folder_name(&launch.started, &plan.origins));
    let mut provenance = folder_of(&plan, launch, &folder, arguments.resume)?;
    provenance.write(&folder.join(PROVENANCE))?;
    host_times::measure(&mut plan, &mut horovod, &folder).map_err(usage)?;
    let rows =
        Run::open(&plan, &folder)?.finish(&mut kolo, &mut horovod, |line| eprintln!("{line}"))?;
    if let Some(launch) = provenance.launches.last_mut() {
        launch.end(|_| {});
    }
    provenance.write(&folder.join(PROVENANCE))?;
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

/// Opens a new folder, or that of a run that goes on. Blocks of other configurations, versions or launchers are
/// refused.
fn folder_of(plan: &Plan, launch: Launch, folder: &Path, resume: bool) -> Result<Provenance> {
    let path = folder.join(PROVENANCE);
    match (resume, path.exists()) {
        (true, true) => Ok(Provenance::resume(&path, plan, launch)?),
        (true, false) => Err(usage(format!(
            "{}: no {PROVENANCE}, so there is no run to resume; leave out --resume",
            folder.display()
        ))),
        (false, true) => Err(usage(format!(
            "{} has results; add --resume to continue them, or choose another --out",
            folder.display()
        ))),
        (false, false) => {
            create_folder(folder)?;
            Ok(Provenance::new(plan, launch))
        }
    }
}

/// A folder that is removed with this.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}
