//! The tuning job, from the command line and a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::super::usage;
use super::{Arguments, duration};
use cluster::launch::Launched;
use measure::back_ends::{self, has_processes};
use measure::config::{Axes, Config, Data, Host, Measure, Scaling, Step};
use measure::environment::Environment;
use measure::plan::Plan;
use measure::summary::HOROVOD_DEFAULTS;
use results::toml_file::{Checked, TomlFile};
use results::units::MIB;
use simulator::machine_file::MachineFile;
use transports::transport::MPI;
use tune::grid::Grid;
use tune::larger::misfit;
use tune::space::{self, CACHED, Pins, Present, UNCACHED};
use tune::surface::Budget;
use workloads::framework::Framework;
use workloads::workload::workload_path;
use workloads::workload::{Workload, from_timeline};

/// Steps of a block: one for warm-up, and the measured ones.
const WARMUP_STEPS: usize = 1;
const STEPS: usize = 4;

/// How long Horovod's threads are busy with PyTorch, where a configuration does not say: medians of
/// `results/reference/horovod/one-node-4/host_times.json`, of one processor (an AMD EPYC), with Python 3.11 and PyTorch 2.0.1.
/// `take_back_us` is the median of `one-node-6`, of an Intel Xeon: earlier runs time Horovod's call alone.
const HOROVODS: Host = Host {
    wake_us: 38.0,
    hand_over_us: 5.5,
    take_back_us: 1.5,
    loop_gradient_us: 1.6,
    loop_message_us: 1.1,
    add_mb_us: 0.0,
    cast_mb_us: 0.0,
    cast_back_mb_us: 0.0,
    launch_gradient_us: 0.0,
    framework_mib: 169.5,
};

/// Default time to measure.
const BUDGET: Duration = Duration::from_secs(300);

/// Default of the largest simulated number of ranks, as a multiple of the job's.
const TIMES_AS_MANY: usize = 8;

/// The same as a file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    workload: String,
    step: Step,
    host: Option<Host>,
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
    topology: Topologies,
    budget: Option<String>,
    steps: Option<usize>,
    #[serde(flatten)]
    pins: Pins,
}

/// One, or several.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged, expecting = "expected a topology, such as \"2x2\", or a list of them")]
enum Topologies {
    One(String),
    Several(Vec<String>),
}

impl Default for Topologies {
    fn default() -> Topologies {
        Topologies::Several(Vec::new())
    }
}

impl Topologies {
    fn names(self) -> Vec<String> {
        match self {
            Topologies::One(name) => vec![name],
            Topologies::Several(names) => names,
        }
    }
}

/// The tuning job.
pub struct Request {
    /// The executor's input: the cases of all grids.
    pub all: Plan,
    /// A grid for each topology.
    pub grids: Vec<Grid>,
    /// How much to measure.
    pub budget: Budget,
    /// The name of the first default.
    pub reference: String,
    /// The machine file for more ranks, and the largest number of ranks.
    pub machine: Option<(MachineFile, usize)>,
}

impl Request {
    /// # Errors
    /// When a value is missing, wrong or contradictory, or the budget is too small.
    pub fn of(
        arguments: &Arguments,
        file: Option<&TomlFile>,
        environment: &Environment,
    ) -> Result<Request> {
        let beside = file.map_or(Path::new("configs/tune.toml"), |file| &file.path);
        let file = file.map(TomlFile::parse::<File>).transpose()?;
        let (named, step, host, data, framework, tune) = match file {
            Some(File { workload, step, host, data, framework, tune }) => {
                (Some(workload), Some(step), host, data, framework, tune)
            }
            None => Default::default(),
        };
        let (name, path) = workload(arguments, named, beside)?;
        let step = self::step(arguments, step, &path)?;
        let workload = Workload::read(&path).map_err(usage)?;
        let budget = match (arguments.budget, &tune.budget) {
            (Some(budget), _) => budget,
            (None, Some(text)) => {
                duration(text).map_err(|why| usage(format!("tune.budget: {why}")))?
            }
            (None, None) => BUDGET,
        };
        let (transport, topologies) = placement(arguments, tune.transport, tune.topology);
        let pins = arguments.pins.or(&tune.pins);
        // Gradients on devices are announced by the loop.
        let host = host.unwrap_or(if transport == MPI { HOROVODS } else { Host::default() });
        let measure =
            Measure { warmup_steps: WARMUP_STEPS, steps_per_block: STEPS, ..Measure::default() };
        let base = Config {
            workload: name,
            step,
            host,
            data,
            framework,
            sweep: Axes::default(),
            also: Vec::new(),
            measure,
        };
        let present = arguments.check.then(|| present(environment));
        let bytes = workload.elements() * base.wire().size_bytes();
        let config = |topology: &String| -> Result<Config> {
            let mut sweep = space::axes(&transport, topology, bytes, &pins).map_err(usage)?;
            if let Some((plane, bytes, ms)) = &present {
                let mib = *bytes as f64 / MIB;
                pins.allow(plane, mib, *ms).map_err(usage)?;
                insert(&mut sweep.fusion_threshold_mib, mib);
                insert(&mut sweep.cycle_time_ms, *ms);
                let capacity = environment.cache_capacity.value;
                sweep.cache_capacity = if capacity > 0 { capacity } else { sweep.cache_capacity };
            }
            let config = Config { sweep, ..base.clone() };
            config.check().map_err(usage)?;
            Ok(config)
        };
        let configs: Vec<Config> = topologies.iter().map(config).collect::<Result<_>>()?;
        let all = Plan::new(united(&configs), workload.clone());
        let grid = |config| Grid::new(&all, Plan::new(config, workload.clone()), present.as_ref());
        let grids: Vec<Grid> = configs.into_iter().map(grid).collect();
        let steps = arguments.steps.or(tune.steps);
        let blocks = steps.map_or(usize::MAX, |steps| steps / (WARMUP_STEPS + STEPS));
        let budget = Budget { time: budget, blocks };
        enough(&grids, budget)?;
        let machine = machine(arguments, &grids)?;
        let reference = reference(present.as_ref());
        Ok(Request { all, grids, budget, reference, machine })
    }

    /// Takes over the placement that an executor has chosen for the cases.
    ///
    /// # Errors
    /// When a case cannot run here.
    pub fn settle(&mut self) -> Result<()> {
        self.grids.iter_mut().try_for_each(|grid| grid.settle(&self.all)).map_err(usage)
    }

    /// Warns about workloads that are hard to tune.
    pub fn remark(&self) {
        if self.all.workload.gradients.len() == 1 {
            eprintln!("kolo: the workload has a single gradient: there is nothing to fuse");
        }
        let shortest_ms =
            self.all.config.sweep.cycle_time_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let backward_ms = self.all.config.step.backward_ms;
        if backward_ms < shortest_ms {
            eprintln!(
                "kolo: the backward pass of {backward_ms} ms is shorter than one cycle of {shortest_ms} ms: all \
             gradients are ready at the first; try --cycle-time-ms, or check the unit of --backward-ms"
            );
        }
    }
}

/// The workload's name, and its file.
fn workload(
    arguments: &Arguments,
    named: Option<String>,
    beside: &Path,
) -> Result<(String, PathBuf)> {
    let name = arguments.workload.clone().or(named).ok_or_else(|| {
        usage("no workload; name a model with --workload resnet50, or a configuration")
    })?;
    // A file on the command line is relative to the working folder.
    let path = match &arguments.workload {
        Some(file) if Path::new(file).is_file() => PathBuf::from(file),
        _ => workload_path(&name, beside),
    };
    Ok((name, path))
}

/// Lengths of the parts of a step; a timeline may provide that of the backward pass.
fn step(arguments: &Arguments, step: Option<Step>, path: &Path) -> Result<Step> {
    if step.is_some_and(|step| step.scaling == Scaling::Strong) {
        return Err(usage(
            "step.scaling is \"strong\", expected \"weak\": one world is tuned at a time",
        ));
    }
    let is_timeline = path.extension().is_some_and(|ending| ending == "json");
    let timed = || from_timeline::read(path).ok().map(|seen| seen.backward_ms);
    let backward_ms = arguments
        .backward_ms
        .or(step.map(|step| step.backward_ms))
        .or_else(|| is_timeline.then(timed).flatten())
        .ok_or_else(|| {
            usage(
                "the length of the backward pass is missing; give it with --backward-ms, without \
                 communication, on one GPU or process",
            )
        })?;
    let forward_ms = arguments.forward_ms.or(step.map(|step| step.forward_ms));
    let optimizer_ms = arguments.optimizer_ms.or(step.map(|step| step.optimizer_ms));
    Ok(Step {
        backward_ms,
        forward_ms: forward_ms.unwrap_or(backward_ms / 2.0),
        optimizer_ms: optimizer_ms.unwrap_or(0.0),
        scaling: Scaling::Weak,
    })
}

/// The transport and the topology.
fn placement(
    arguments: &Arguments,
    transport: Option<String>,
    topology: Topologies,
) -> (String, Vec<String>) {
    let launched = Launched::here();
    let several = launched.is_some_and(|launched| launched.tasks > 1);
    let usual = || {
        let back_end =
            if several { back_ends::default_of_processes() } else { back_ends::default() };
        back_end.name().into()
    };
    let transport = arguments.transport.clone().or(transport).unwrap_or_else(usual);
    let topologies = match &arguments.topology[..] {
        [] => topology.names(),
        named => named.to_vec(),
    };
    let whole = || match launched {
        Some(launched) if back_ends::find(&transport).is_some_and(has_processes) => {
            launched.shape(|name| std::env::var(name).ok())
        }
        _ => "1x2".into(),
    };
    let topologies = if topologies.is_empty() { vec![whole()] } else { topologies };
    (transport, topologies)
}

/// The current values of Horovod's variables.
fn present(environment: &Environment) -> Present {
    let plane = if environment.cache_capacity.value == 0 { UNCACHED } else { CACHED };
    let bytes = environment.fusion_threshold_bytes.value;
    (plane.to_string(), bytes, environment.cycle_time_ms.value)
}

fn reference(present: Option<&Present>) -> String {
    match present {
        Some((_, bytes, ms)) => {
            format!("the current environment ({} MiB, {ms} ms)", *bytes as f64 / MIB)
        }
        None => {
            let (mib, ms, since) = HOROVOD_DEFAULTS[0];
            format!("{since} ({mib} MiB, {ms} ms)")
        }
    }
}

/// The cases of all topologies.
fn united(configs: &[Config]) -> Config {
    let mut all = configs[0].clone();
    for Axes { topology, algorithm, .. } in configs[1..].iter().map(|config| &config.sweep) {
        let add = |names: &mut Vec<String>, more: &[String]| {
            let new = more.iter().filter(|name| !names.contains(name)).cloned();
            let new: Vec<String> = new.collect();
            names.extend(new);
        };
        add(&mut all.sweep.topology, topology);
        add(&mut all.sweep.algorithm, algorithm);
    }
    all
}

/// Rejects a budget that is too small for the minimum of blocks.
fn enough(grids: &[Grid], budget: Budget) -> Result<()> {
    let least: usize = grids.iter().map(Grid::least_blocks).sum();
    if budget.blocks < least {
        let each = WARMUP_STEPS + STEPS;
        return Err(usage(format!(
            "{} steps are too few: {least} blocks of {each} steps are needed at least; give --steps {} or more",
            budget.blocks * each,
            2 * least * each,
        )));
    }
    let needed = |grid: &Grid| grid.longest_block() * grid.least_blocks() as u32;
    let Some(most) = grids.iter().max_by_key(|grid| needed(grid)) else { return Ok(()) };
    let all = needed(most) * grids.len() as u32;
    if all <= budget.time {
        return Ok(());
    }
    let of_each =
        if grids.len() > 1 { format!(" for each of {}", grids.len()) } else { String::new() };
    Err(usage(format!(
        "a budget of {} s is too short: {} blocks of about {:.1} s{of_each} need at least {:.0} s; give \
         --budget {:.0}s or more",
        budget.time.as_secs(),
        most.least_blocks(),
        most.longest_block().as_secs_f64(),
        all.as_secs_f64(),
        (all.as_secs_f64() * 1.5).ceil(),
    )))
}

/// The machine file for more ranks than the last grid has, and the largest number of ranks.
fn machine(arguments: &Arguments, grids: &[Grid]) -> Result<Option<(MachineFile, usize)>> {
    let (Some(path), Some(grid)) = (&arguments.machine, grids.last()) else { return Ok(None) };
    let machine = MachineFile::choose(path)?;
    let topology = &grid.plan.cases[0].case.topology;
    if let Some(why) = misfit(&machine, topology) {
        return Err(usage(format!("{}: {why}", path.display())));
    }
    let up_to = arguments.up_to.unwrap_or(TIMES_AS_MANY * topology.ranks());
    if up_to < 2 * topology.ranks() {
        let least = 2 * topology.ranks();
        return Err(usage(format!(
            "--up-to {up_to}: expected {least} or more, twice the ranks of this job"
        )));
    }
    Ok(Some((machine, up_to)))
}

fn insert(values: &mut Vec<f64>, value: f64) {
    if !values.contains(&value) {
        values.push(value);
        values.sort_by(f64::total_cmp);
    }
}
