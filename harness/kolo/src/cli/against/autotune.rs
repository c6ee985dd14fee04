//! `kolo against autotune`.

use std::collections::BTreeMap;
use std::env::current_exe;
use std::path::Path;
use std::thread;
use std::time::Duration;

use against::agenda::{Agenda, Next};
use against::block::BlockRow;
use against::counted::Distance;
use against::host_times;
use against::kolo::Kolo;
use against::plan::Plan;
use against::regret::{self, Answer, RegretRow};
use against::run::Run;
use against::tuners::{self, Answers, KoloTune};
use anyhow::Result;
use results::core_to_core::core_to_core_ns;
use results::files::write_whole;
use results::provenance::PROVENANCE;
use results::record::csv_bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::Common;
use super::scratch::Scratch;
use crate::cli::printed::Printed;
use crate::cli::{Exit, usage};

/// Compare what kolo tune recommends with what Horovod's autotune finds
///
/// For each configuration Horovod's autotune runs until it has finished, for at most 5000 steps; kolo tune gets a tenth
/// of its steps. Then Horovod runs both answers, its default, and all cases of the configuration, block by block in
/// random order; kolo's engine runs its answer and the default among them. Both settings of a promised gain run up
/// to six times as often, until the interval of the measured gain is at most half as wide as the promised one. The regret
/// of an answer is how much longer its step takes than that of the best of these settings. `make horovod` installs Horovod.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo against autotune horovod                                  # the embedded configuration
  kolo against autotune configs/tuners-burst.toml --steps 440    # kolo tune alone: does its promise hold?")]
pub struct Arguments {
    /// Leave out Horovod's autotune, and give kolo tune so many steps
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), help_heading = "What to run")]
    steps: Option<u64>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    printed: Printed,
}

/// How long to wait until the processors of a virtual machine may have moved.
const PAUSE: Duration = Duration::from_secs(1);

/// Version of [`Regrets`] as JSON.
const SCHEMA: u32 = 1;

/// What each tuner's answer costs when Horovod runs it.
#[derive(Serialize, JsonSchema)]
pub struct Regrets {
    /// Version of this structure.
    schema: u32,
    /// The folder of the results.
    results: String,
    /// Every answer: the columns of autotune.csv.
    answers: Vec<RegretRow>,
}

pub fn run(Arguments { steps, common, printed }: &Arguments) -> Result<Exit> {
    let launcher = common.launcher()?;
    let mut plan = common.plan("kolo against autotune")?;
    let scratch = Scratch::new()?;
    let program = current_exe()?;
    if let Some(case) = plan.cases.iter().find(|case| case.is_over_gloo()) {
        return Err(usage(format!(
            "{}: sweep.algorithm is \"ring\", which Horovod runs over Gloo; expected \"mpi-allreduce\" only, since both \
             tuners run over MPI here",
            case.name
        )));
    }
    let mut kolo = Kolo::new(program.clone(), launcher.clone(), scratch.path()).map_err(usage)?;
    let mut horovod = common.horovod(&plan, &launcher, scratch.path())?.staying();
    plan.conditions = Common::conditions(&plan, &kolo, &horovod, &launcher);
    let (folder, mut provenance) = common.folder(&plan, "autotune")?;
    let report = |line: String| eprintln!("{line}");
    let own = &mut |plan: &_, origin, host| kolo.loop_times(plan, origin, host);
    host_times::measure(&mut plan, &mut horovod, own, &folder, report).map_err(usage)?;
    let tune = KoloTune { program, launcher, scratch: scratch.path().into() };
    let steps = steps.map(|steps| steps as usize);
    let (mut answers, mut named, mut blocks) = (BTreeMap::new(), Vec::new(), Vec::new());
    let (mut agenda, mut is_waiting) = (Agenda::new(plan.origins.len()), false);
    loop {
        match agenda.next(core_to_core_ns()) {
            Next::Tune(origin) => {
                horovod.end_residents();
                let both =
                    tuners::answers(&plan, origin, &mut horovod, &tune, steps, &folder, report);
                let both = both.map_err(usage)?;
                named.extend(regret::with_answers(&mut plan, origin, &both));
                horovod.forget_scripts();
                agenda.add(&plan, origin, both.kolo.core_to_core_ns);
                answers.insert(plan.origins[origin].name.clone(), both);
            }
            Next::Measure(origin, turns) => {
                is_waiting = false;
                let run = Run::open(&plan, &folder)?;
                let both = &answers[&plan.origins[origin].name];
                let distance = both.kolo.core_to_core_ns.map_or(Distance::Any, Distance::Ns);
                blocks = run.finish(&turns, distance, &mut kolo, &mut horovod, report)?;
                let again = regret::cases_to_run_again(&plan, origin, &named, both, &blocks);
                agenda.measured(&plan, origin, again);
                conclude(&folder, &plan, &named, &answers, &blocks)?;
            }
            Next::Wait => {
                if !is_waiting {
                    report("waiting until processors are as far apart as during a promise".into());
                }
                is_waiting = true;
                thread::sleep(PAUSE);
            }
            Next::End => break,
        }
    }
    if let Some(launch) = provenance.launches.last_mut() {
        launch.end(|_| {});
    }
    provenance.write(&folder.join(PROVENANCE))?;
    let (rows, text) = conclude(&folder, &plan, &named, &answers, &blocks)?;
    let results = folder.display().to_string();
    if printed.is_text() {
        print!("{text}");
        println!("results in {results}");
    }
    let is_whole = rows.iter().all(|row| row.step_ms.is_some());
    printed.print(&Regrets { schema: SCHEMA, results, answers: rows }, "/answers")?;
    Ok(if is_whole { Exit::Right } else { Exit::Wrong })
}

/// Writes `autotune.csv` and `summary.txt` from the blocks so far, and returns their contents.
fn conclude(
    folder: &Path,
    plan: &Plan,
    named: &[Answer],
    answers: &BTreeMap<String, Answers>,
    blocks: &[BlockRow],
) -> Result<(Vec<RegretRow>, String)> {
    let rows = regret::rows(plan, named, answers, blocks);
    write_whole(&folder.join("autotune.csv"), &csv_bytes(&rows, true))?;
    let text = regret::text(plan, &rows, answers, blocks);
    write_whole(&folder.join("summary.txt"), text.as_bytes())?;
    Ok((rows, text))
}
