//! `kolo tune`.

mod confirm;
mod regret;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Exit, plot, usage};
use crate::config::{Config, Data, MIB, Measure, Step, read_toml, workload_path};
use crate::crew;
use crate::environment::Environment;
use crate::framework::Framework;
use crate::launch::Launched;
use crate::plan::Plan;
use crate::provenance::{Launch, PROVENANCE, Provenance, now};
use crate::record::{Store, csv_bytes, write_whole};
use crate::summary::HOROVOD_DEFAULTS;
use crate::transport::{self, MPI, threads};
use crate::tune::answer::{Answer, LEAST_ROUNDS, Verdict};
use crate::tune::model::{Costs, predict};
use crate::tune::regret::{Run, exhaust};
use crate::tune::report::Report;
use crate::tune::search::{Blocks, Task, search};
use crate::tune::space::{self, CACHED, Pins, Space, UNCACHED};
use crate::tune::surface::Measured;
use crate::workload::{Workload, from_timeline};

/// Steps of a block: one to warm up, and those that count.
const WARMUP_STEPS: usize = 1;
const STEPS: usize = 4;

/// Find the fusion threshold and cycle time for a model on this cluster: a model learned from the first
/// measurements proposes, real training steps decide. Ends with a recommendation, how sure it is, and why;
/// and with lines to copy where the data plane measured is the one that Horovod uses (over MPI).
///
/// Horovod's defaults and the points where its own autotune begins are always measured. The gain is stated
/// with a 95 % interval, from measurements made after the choice.
#[derive(clap::Args)]
pub struct Arguments {
    /// All of this in TOML: workload, [step], [data], [framework], [tune]
    config: Option<PathBuf>,
    /// The gradients: a model of configs/workloads, or a file
    #[arg(long, value_name = "NAME|FILE")]
    workload: Option<String>,
    /// Length of the backward pass in ms, without communication [default: as a timeline shows it]
    #[arg(long, value_name = "MS")]
    backward_ms: Option<f64>,
    /// Length of the forward pass in ms [default: half the backward pass]
    #[arg(long, value_name = "MS")]
    forward_ms: Option<f64>,
    /// Length of the optimizer in ms [default: 0]
    #[arg(long, value_name = "MS")]
    optimizer_ms: Option<f64>,
    /// What moves bytes [default: mpi where several processes were started, else threads]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(transport::NAMES))]
    transport: Option<String>,
    /// Nodes x ranks per node [default: all processes of the job; on threads 1x2]
    #[arg(long)]
    topology: Option<String>,
    /// How long to measure, such as 90s or 10m [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// Compare with what Horovod's variables say now, instead of the defaults: does a change pay?
    #[arg(long)]
    check: bool,
    /// Afterwards measure every setting so many times, at least twice, and say what the recommendation loses
    /// against the best; takes as long as that takes
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u16).range(2..))]
    exhaustive: Option<u16>,
    /// Measure on processes that share cores or differ, too: rows and provenance say so
    #[arg(long)]
    force: bool,
    /// Also write confirm.py, which measures the recommendation against the defaults where Horovod runs
    #[arg(long)]
    confirm_script: bool,
    /// Read what confirm.py has printed, and say whether reality agrees with the tune.json beside it, or in
    /// the folder given by --out
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "workload", "check"])]
    confirm: Option<PathBuf>,
    /// Where results go [default: results/DATE-tune-WORKLOAD]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    pins: Pins,
}

/// The same as a file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    workload: String,
    step: Step,
    #[serde(default)]
    data: Data,
    #[serde(default)]
    framework: Framework,
    #[serde(default)]
    tune: Tune,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tune {
    transport: Option<String>,
    topology: Option<String>,
    budget: Option<String>,
    #[serde(flatten)]
    pins: Pins,
}

/// What is to be tuned.
struct Request {
    config: Config,
    workload: Workload,
    budget: Duration,
    /// What the first of the defaults is.
    reference: String,
    /// Where that lies in the grid: plane, bytes, ms.
    present: Option<(String, usize, f64)>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(path) =
        arguments.config.as_deref().filter(|path| crate::tune::regret::Config::is_at(path))
    {
        return regret::run(path, arguments.out.as_deref());
    }
    if let Some(printed) = &arguments.confirm {
        return confirm::run(printed, arguments.out.as_deref());
    }
    let mut launch = Launch::now();
    let environment = Environment::read(&launch.environment).map_err(usage)?;
    let request = request(arguments, &environment)?;
    let mut plan = Plan::new(request.config, request.workload);
    let mut space = Space::of(&plan);
    if let Some(present) = &request.present {
        space.compare_with(&plan, present);
    }
    let least = least_blocks(&space);
    let estimate =
        plan.cases.iter().map(|planned| plan.estimate(planned)).max().unwrap_or_default();
    let needed = estimate * least as u32;
    let follows = matches!(Launched::here(), Some(Launched { rank: 1.., .. }));
    if needed > request.budget {
        return Err(usage(format!(
            "a budget of {} s is too short: {least} blocks of about {:.1} s are the least, {:.0} s; give \
             --budget {:.0}s or more",
            request.budget.as_secs(),
            estimate.as_secs_f64(),
            needed.as_secs_f64(),
            (needed.as_secs_f64() * 1.5).ceil(),
        )));
    }
    let Some(mut crew) = crew::assemble(&mut plan, &mut launch, arguments.force).map_err(usage)?
    else {
        return Ok(Exit::Right);
    };
    if let Some((reason, _)) = plan.left().first() {
        return Err(usage(format!("{reason}; name another with --topology")));
    }
    if let Some(Err(reason)) = plan.cases.iter().map(|planned| planned.data_plane.as_ref()).next() {
        return Err(usage(reason));
    }
    let folder = arguments.out.clone().unwrap_or_else(|| {
        let name = format!("{}-tune-{}", launch.started.replace(':', ""), plan.workload.name);
        Path::new("results").join(name)
    });
    let mut provenance = Provenance::new(&plan, launch);
    let mut store = Store::create(&folder, &provenance)?;
    provenance.write(&folder.join(PROVENANCE))?;
    if !follows {
        eprintln!(
            "{} settings, at most {:.0} s; results in {}",
            plan.cases.len(),
            request.budget.as_secs_f64(),
            folder.display()
        );
    }
    let (begun, progress) = (Instant::now(), progress());
    let launches = provenance.launches.clone();
    let mut surface =
        Measured::new(&plan, (&mut store, &launches), &mut *crew, request.budget, &progress);
    let expect = |blocks: &Blocks| {
        let observed = blocks
            .iter()
            .flat_map(|(&setting, blocks)| blocks.iter().map(move |block| (setting, block)));
        let costs =
            Costs::learn(observed.map(|(setting, block)| (&plan.cases[setting].case, block)));
        predict(&plan, &costs, true)
    };
    let task = Task {
        points: &space.points,
        always: &space.always,
        defaults: &space.defaults,
        predict: &expect,
    };
    let found = search(&task, &mut surface, &mut plan.random(0, 0));
    progress.finish_and_clear();
    let found = found?;
    let blocks = surface.measured();
    let effort = (blocks, WARMUP_STEPS + STEPS, begun.elapsed().as_secs_f64());
    let mut lost = String::new();
    if let Some(rounds) = arguments.exhaustive.map(usize::from) {
        let (times, best) =
            exhaust(plan.cases.len(), rounds, &mut surface, &mut plan.random(1, 0))?;
        progress.finish_and_clear();
        let run = Run::of(&plan, &space, &found, (blocks, effort.1, rounds), (&times, best));
        lost = format!(
            "\nmeasured all {} settings in {rounds} rounds: the best, chosen in every second round, saves \
             {:.1} % against what is recommended in the others, {:.1} % against {}\n",
            plan.cases.len(),
            100.0 * (1.0 - 1.0 / (1.0 + run.regret)),
            100.0 * (1.0 - 1.0 / (1.0 + run.default_regret)),
            request.reference,
        );
        write_whole(&folder.join("regret.csv"), &csv_bytes(&[run], true))?;
    }
    let rows = surface.finish(&found.failed)?;
    drop(crew);
    let answer = space.defaults.first().and_then(|&default| Answer::of(&found, default));
    let report = Report {
        plan: &plan,
        space: &space,
        found: &found,
        answer: answer.as_ref(),
        rows: &rows,
        effort,
        reference: &request.reference,
    };
    let text = report.text() + &lost;
    store.write_whole("summary.txt", text.as_bytes())?;
    let json = serde_json::to_string_pretty(&report.json())? + "\n";
    store.write_whole("tune.json", json.as_bytes())?;
    if let Some(yaml) = report.yaml() {
        store.write_whole("horovod.yaml", yaml.as_bytes())?;
    }
    if let Some(script) = report.script().filter(|_| arguments.confirm_script) {
        store.write_whole("confirm.py", script.as_bytes())?;
    }
    if let Some(launch) = provenance.launches.last_mut() {
        launch.ended = Some(now());
    }
    provenance.write(&folder.join(PROVENANCE))?;
    let figures = plot::figures(std::slice::from_ref(&folder), &folder.join("figures"))?;
    print!("{text}{figures}");
    println!("results in {}", folder.display());
    Ok(match answer.map(|answer| answer.verdict) {
        None | Some(Verdict::Unknown) => Exit::Inconclusive,
        Some(_) => Exit::Right,
    })
}

/// Every setting that is always measured, and fresh rounds of the choice and the defaults.
fn least_blocks(space: &Space) -> usize {
    space.always.len() + LEAST_ROUNDS * (space.defaults.len() + 1)
}

fn request(arguments: &Arguments, environment: &Environment) -> Result<Request> {
    let file = arguments.config.as_deref().map(read_toml::<File>).transpose()?;
    let beside = arguments.config.clone().unwrap_or_else(|| PathBuf::from("configs/tune.toml"));
    let (named, step, data, framework, tune) = match file {
        Some(File { workload, step, data, framework, tune }) => {
            (Some(workload), Some(step), data, framework, tune)
        }
        None => (None, None, Data::default(), Framework::default(), Tune::default()),
    };
    let name = arguments.workload.clone().or(named).ok_or_else(|| {
        usage("no workload: name a model with --workload resnet50, or a configuration")
    })?;
    // A file that the command line names lies where the user is.
    let path = match &arguments.workload {
        Some(file) if Path::new(file).is_file() => PathBuf::from(file),
        _ => workload_path(&name, &beside),
    };
    let timed = |path: &Path| from_timeline::read(path).ok().map(|seen| seen.backward_ms);
    let is_timeline = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "json");
    let backward_ms = arguments
        .backward_ms
        .or(step.map(|step| step.backward_ms))
        .or_else(|| Some(&path).filter(is_timeline).and_then(|path| timed(path)));
    let backward_ms = backward_ms.ok_or_else(|| {
        usage(
            "no backward pass: say with --backward-ms how long it takes without communication, on one \
             GPU or process",
        )
    })?;
    let step = Step {
        backward_ms,
        forward_ms: arguments
            .forward_ms
            .or(step.map(|step| step.forward_ms))
            .unwrap_or(backward_ms / 2.0),
        optimizer_ms: arguments.optimizer_ms.or(step.map(|step| step.optimizer_ms)).unwrap_or(0.0),
    };
    let workload = Workload::read(&path).map_err(usage)?;
    let launched = Launched::here();
    let several = launched.is_some_and(|launched| launched.tasks > 1);
    let transport = arguments
        .transport
        .clone()
        .or(tune.transport)
        .unwrap_or_else(|| if several { MPI.into() } else { threads::NAME.into() });
    let topology = arguments.topology.clone().or(tune.topology).unwrap_or_else(|| match launched {
        Some(launched) if transport == MPI => launched.shape(|name| std::env::var(name).ok()),
        _ => "1x2".into(),
    });
    let pins = arguments.pins.or(&tune.pins);
    let budget = match (arguments.budget, &tune.budget) {
        (Some(budget), _) => budget,
        (None, Some(text)) => duration(text).map_err(|why| usage(format!("tune.budget: {why}")))?,
        (None, None) => Duration::from_secs(300),
    };
    let mut config = Config {
        workload: name,
        step,
        data,
        framework,
        sweep: Default::default(),
        measure: Measure {
            warmup_steps: WARMUP_STEPS,
            steps_per_block: STEPS,
            ..Measure::default()
        },
    };
    let bytes = workload.elements() * config.framework.wire(config.dtype()).size_bytes();
    config.sweep = space::axes(&transport, &topology, bytes, &pins).map_err(usage)?;
    let present = arguments.check.then(|| {
        let capacity = environment.cache_capacity.value;
        let plane = if capacity == 0 { UNCACHED } else { CACHED };
        let (bytes, ms) =
            (environment.fusion_threshold_bytes.value, environment.cycle_time_ms.value);
        let axes = &mut config.sweep;
        insert(&mut axes.fusion_threshold_mib, bytes as f64 / MIB);
        insert(&mut axes.cycle_time_ms, ms);
        (plane.to_string(), bytes, ms)
    });
    config.check().map_err(usage)?;
    let reference = match &present {
        Some((_, bytes, ms)) => {
            format!("what the environment says now ({} MiB, {ms} ms)", *bytes as f64 / MIB)
        }
        None => {
            let (mib, ms, since) = HOROVOD_DEFAULTS[0];
            format!("{since} ({mib} MiB, {ms} ms)")
        }
    };
    Ok(Request { config, workload, budget, reference, present })
}

fn insert(values: &mut Vec<f64>, value: f64) {
    if !values.contains(&value) {
        values.push(value);
        values.sort_by(f64::total_cmp);
    }
}

fn progress() -> ProgressBar {
    let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} blocks  {msg}";
    let style = ProgressStyle::with_template(style).expect("a template that indicatif accepts");
    ProgressBar::new(1).with_style(style.progress_chars("=> "))
}

/// `90s`, `10m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; write 90s, 10m or 1h");
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    match (0.0..1e6).contains(&number) {
        true => Ok(Duration::from_secs_f64(number * seconds)),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "90", "m", "-1m", "tenm", "1e9h", "5µ"] {
            assert!(duration(wrong).unwrap_err().contains("write 90s"), "{wrong}");
        }
    }
}
