//! `kolo against`: the engine beside other programs.

pub mod autotune;
pub mod horovod;
mod scratch;

use std::path::{Path, PathBuf};

use against::engine::Engine;
use against::horovod::{Horovod, VERSION};
use against::kolo::Kolo;
use against::launcher::Launcher;
use against::plan::{Origin, Plan, folder_name};
use against::report;
use anyhow::Result;
use clap::{Args, Subcommand};
use results::config_kind::ConfigKind;
use results::files::create_folder;
use results::provenance::{Launch, PROVENANCE, Provenance};

use super::{Exit, configuration, not_for, usage};

/// Where `make horovod` installs it.
const PYTHON: &str = "target/horovod/bin/python";

/// Headings of the options.
const RUN: &str = "What to run";
const OUTPUT: &str = "Output";

/// Run the same cases by kolo's engine and by another program, and compare their times
#[derive(Args)]
#[command(after_help = "\
Examples:
  kolo against horovod horovod
  kolo against autotune horovod horovod-burst")]
pub struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    Horovod(horovod::Arguments),
    Autotune(autotune::Arguments),
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match &arguments.program {
        Program::Horovod(arguments) => horovod::run(arguments),
        Program::Autotune(arguments) => autotune::run(arguments),
    }
}

/// Options of every comparison with Horovod.
#[derive(Args)]
struct Common {
    /// Configurations of training steps in TOML, or names of embedded ones
    #[arg(required = true, value_name = "CONFIG")]
    configs: Vec<PathBuf>,
    /// Python with Horovod and PyTorch
    #[arg(long, default_value = PYTHON, value_name = "FILE", help_heading = RUN)]
    python: PathBuf,
    /// Command that starts ranks: "srun --ntasks={ranks} --mpi=pmix" [default: mpirun on this machine]
    #[arg(long, value_name = "COMMAND", help_heading = RUN)]
    launcher: Option<String>,
    /// Command that starts ranks of Horovod over Gloo [default: horovodrun --gloo of --python, on this machine]
    #[arg(long, hide_short_help = true, value_name = "COMMAND", help_heading = RUN)]
    gloo_launcher: Option<String>,
    /// Continue the run in --out: blocks that it has are not run again
    #[arg(long, requires = "out", help_heading = OUTPUT)]
    resume: bool,
    /// Folder for the results [default: results/DATE-against-PROGRAM-CONFIG]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    out: Option<PathBuf>,
}

impl Common {
    fn launcher(&self) -> Result<Launcher> {
        match &self.launcher {
            Some(text) => Launcher::parse(text).map_err(usage),
            None => Ok(Launcher::mpirun()),
        }
    }

    /// The cases of all configurations that Horovod can run.
    fn plan(&self, command: &str) -> Result<Plan> {
        let mut origins = Vec::new();
        for path in &self.configs {
            let file = configuration(path)?;
            match ConfigKind::of_file(&file)? {
                ConfigKind::Training => origins.push(Origin::read(&file)?),
                kind => return Err(not_for(&file, kind, command)),
            }
        }
        let plan = Plan::new(origins);
        let left_out = plan.left_out.iter();
        left_out.for_each(|&(why, count)| eprintln!("{}", report::left_out(why, count)));
        if plan.cases.is_empty() {
            return Err(usage("no case is left that Horovod can run"));
        }
        Ok(plan)
    }

    /// Horovod, with a warning for another version.
    fn horovod(&self, plan: &Plan, launcher: &Launcher, scratch: &Path) -> Result<Horovod> {
        let found = Horovod::find(&self.python, launcher.clone(), scratch);
        let mut horovod = found.map_err(usage)?;
        horovod.check(plan).map_err(usage)?;
        if let Some(text) = &self.gloo_launcher {
            horovod = horovod.with_gloo_launcher(Launcher::parse(text).map_err(usage)?);
        }
        if horovod.installed.horovod != VERSION {
            eprintln!(
                "warning: Horovod {} is installed; the engine follows Horovod {VERSION}",
                horovod.installed.horovod
            );
        }
        Ok(horovod)
    }

    /// What a comparison depends on besides its configurations.
    fn conditions(plan: &Plan, kolo: &Kolo, horovod: &Horovod, launcher: &Launcher) -> Vec<String> {
        let mut conditions =
            vec![kolo.about(), horovod.about(), format!("ranks started by: {launcher}")];
        if let Some(case) = plan.cases.iter().find(|case| case.is_over_gloo()) {
            let launcher = horovod.launcher_of(case);
            conditions.push(format!("Horovod's ranks over Gloo started by: {launcher}"));
        }
        conditions
    }

    /// A new folder, or that of a run that goes on, with its provenance. Blocks of other configurations, versions or
    /// launchers are refused.
    fn folder(&self, plan: &Plan, program: &str) -> Result<(PathBuf, Provenance)> {
        let launch = Launch::now();
        let folder = self.out.clone();
        let folder = folder.unwrap_or_else(|| folder_name(&launch.started, program, &plan.origins));
        let path = folder.join(PROVENANCE);
        let provenance = match (self.resume, path.exists()) {
            (true, true) => Provenance::resume(&path, plan, launch, false)?,
            (true, false) => {
                return Err(usage(format!(
                    "{}: no {PROVENANCE}, so there is no run to resume; leave out --resume",
                    folder.display()
                )));
            }
            (false, true) => {
                return Err(usage(format!(
                    "{} has results; add --resume to continue them, or choose another --out",
                    folder.display()
                )));
            }
            (false, false) => {
                create_folder(&folder)?;
                Provenance::new(plan, launch)
            }
        };
        provenance.write(&path)?;
        Ok((folder, provenance))
    }
}
