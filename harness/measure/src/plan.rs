//! The plan of a configuration: cases, their schedules, and the order of measuring.

mod unsupported;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use algorithms::algorithm::Choice;
use algorithms::control::TensorId;
use algorithms::fusion::effective_threshold_bytes;
use algorithms::registry;
use algorithms::topology::{Rank, Topology};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::back_ends::has_processes;
use crate::block::{Context, Schedules};
use crate::calibrate;
use crate::config::{Case, Config, Timelines};
use crate::executor::{BlockRequest, BuiltWithoutMpi};
use cluster::nodes::{EMULATED, Node, TooFewProcesses, place};
use results::provenance::{Launch, Subject, cores};
use results::row::{self, Key, Run, StepSetting, Training, Tuning};
use training::back_end::{MemoryKind, RankKind};
use training::job::Job;
use training::timeline::record::Recorder;
use transports::data_plane::DataPlane;
use transports::for_dtype;
use transports::transport::TransportError;
pub use unsupported::UnsupportedCase;
use workloads::framework::Framework;
use workloads::groups::{Groups, too_large};
use workloads::replay::StepTimes;
use workloads::workload::Workload;

/// A case with everything that is needed to run it.
pub struct Planned {
    /// The setting.
    pub case: Case,
    /// The framework's options.
    pub framework: Framework,
    /// How its messages are reduced, or why they cannot be.
    pub data_plane: Result<DataPlane, UnsupportedCase>,
    /// The gradients of each group; empty if there are no groups.
    pub groups: Vec<Vec<TensorId>>,
    /// The placement of its ranks.
    pub placement: Placement,
    /// Why it is left for a run on another machine, if it is.
    pub left: Option<String>,
}

impl Planned {
    /// Schedules by size of the message, if they are ours.
    pub fn choices(&self) -> Option<&[Choice]> {
        self.data_plane.as_ref().ok()?.choices()
    }
}

/// The placement of a case's ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The process of each rank; none on threads.
    pub members: Vec<Rank>,
    /// Nodes are emulated.
    pub emulated: bool,
    /// A node has fewer cores than ranks.
    pub oversubscribed: bool,
}

impl Placement {
    /// Threads of this process emulate all nodes.
    pub fn on_threads(topology: &Topology) -> Placement {
        let (emulated, oversubscribed) = (topology.nodes() > 1, topology.ranks() > cores());
        Placement { members: Vec::new(), emulated, oversubscribed }
    }

    /// The placement of ranks that are processes on these nodes. Nodes are emulated if they are configured as such
    /// or share a machine.
    ///
    /// # Errors
    /// When there are too few processes: the number available and the number needed.
    pub fn among(nodes: &[Node], topology: &Topology) -> Result<Placement, TooFewProcesses> {
        let (members, is_emulated) = place(nodes, topology)?;
        let is_declared = std::env::var_os(EMULATED).is_some() && topology.nodes() > 1;
        let oversubscribed = nodes.iter().any(|node| node.is_crowded(&members));
        Ok(Placement { members, emulated: is_emulated || is_declared, oversubscribed })
    }
}

/// The plan of a configuration.
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// Its gradients.
    pub workload: Workload,
    /// Every case, in the order of the configuration.
    pub cases: Vec<Planned>,
    /// Which cases get a timeline.
    pub timelines: Timelines,
    /// Elements of all gradients.
    elements: usize,
}

impl Subject for Plan {
    fn config(&self) -> serde_json::Value {
        serde_json::to_value(&self.config).expect("a configuration is plain data")
    }

    fn seed(&self) -> u64 {
        self.config.measure.seed
    }

    fn workload_digest(&self) -> String {
        self.workload.digest()
    }
}

impl Plan {
    /// Works out the cases; those that cannot be run stay in, with the reason.
    pub fn new(config: Config, workload: Workload) -> Plan {
        let planned = |case: Case| {
            let (ranks, framework) = (case.topology.ranks(), case.varied.apply(&config.framework));
            let pattern = training::job::pattern(&framework, ranks, config.dtype(), config.op(), 0);
            let unchecked = for_dtype!(config.dtype(), T => pattern.unsupported::<T>());
            let data_plane = case.transport.data_plane(&case.algorithm, &case.topology);
            let by_algorithm =
                registry::find(&case.algorithm).ok().and_then(|algorithm| algorithm.grouping());
            let by_algorithm = by_algorithm.map(|_| config.sweep.groups);
            let groups = framework.groups(&workload, by_algorithm);
            let ungrouped = || groups.as_ref().err().cloned().map(UnsupportedCase::from);
            let problem = unchecked.map(UnsupportedCase::from).or_else(ungrouped);
            let data_plane = problem.map_or(data_plane.map_err(UnsupportedCase::from), Err);
            let (groups, placement) =
                (groups.unwrap_or_default(), Placement::on_threads(&case.topology));
            Planned { case, framework, data_plane, groups, placement, left: None }
        };
        let cases = config.cases().into_iter().map(planned).collect();
        let elements = workload.elements();
        let timelines = config.measure.timelines;
        Plan { config, workload, cases, timelines, elements }
    }

    /// Measures the tables by which `auto` chooses, once per topology; returns them by topology. Without them, and
    /// over MPI, `auto` uses an assumed machine.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn calibrate(&mut self) -> Result<BTreeMap<String, calibrate::Table>, TransportError> {
        let mut tables = BTreeMap::new();
        let most_bytes = self.workload.elements() * self.config.dtype().size_bytes();
        let choosing = self.cases.iter_mut().filter(|planned| {
            let on_threads = planned.case.transport.rank_kind() == RankKind::Thread;
            on_threads && planned.data_plane.is_ok() && calibrate::chooses(&planned.case.algorithm)
        });
        for planned in choosing {
            let Case { algorithm, topology, transport, .. } = &planned.case;
            let sizes = self.config.sizes(*transport);
            let table = match tables.entry(topology.to_string()) {
                Entry::Occupied(table) => table.into_mut(),
                Entry::Vacant(place) => {
                    place.insert(calibrate::table(topology, sizes, most_bytes)?)
                }
            };
            let data_plane = calibrate::data_plane(algorithm, topology, table);
            planned.data_plane = data_plane.map_err(UnsupportedCase::from);
        }
        Ok(tables)
    }

    /// Gives cases over MPI and NCCL their processes; those for which there are too few are left, and so are all
    /// if there is no MPI, for that reason.
    pub fn place(&mut self, nodes: Result<&[Node], BuiltWithoutMpi>) {
        for planned in self.cases.iter_mut().filter(|planned| has_processes(planned.case.transport))
        {
            let placed = nodes.map_err(|error| error.to_string()).and_then(|nodes| {
                Placement::among(nodes, &planned.case.topology).map_err(|error| error.to_string())
            });
            match placed {
                Ok(placement) => planned.placement = placement,
                Err(reason) => planned.left = Some(reason),
            }
        }
    }

    /// Why cases are left for a run on another machine, and how many for each reason.
    pub fn left(&self) -> Vec<(&str, usize)> {
        let mut left: Vec<(&str, usize)> = Vec::new();
        for reason in self.cases.iter().filter_map(|planned| planned.left.as_deref()) {
            match left.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, count)) => *count += 1,
                None => left.push((reason, 1)),
            }
        }
        left
    }

    /// The timeout of a rank that waits for another.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.config.measure.timeout_seconds)
    }

    /// The longest training step of any case, without communication.
    pub fn step_time(&self) -> Duration {
        self.step_time_of(self.config.times())
    }

    /// A training step in this world, without communication.
    pub fn step_time_on(&self, topology: &Topology) -> Duration {
        self.step_time_of(self.config.times_on(topology))
    }

    fn step_time_of(&self, times: StepTimes) -> Duration {
        let StepTimes { forward, backward, optimizer, .. } = times;
        let passes = self.config.framework.backward_passes_per_step as u32;
        (forward + backward) * passes + optimizer
    }

    /// The first block of a case, with the warm-up of the configuration.
    pub fn first_block(&self, index: usize) -> BlockRequest {
        let warmup_steps = self.config.measure.warmup_steps;
        BlockRequest { index, seed: 0, warmup_steps, is_recorded: false }
    }

    /// One block of a case that has a data plane.
    pub fn job<'p>(&'p self, request: BlockRequest, recorder: Option<&'p Recorder>) -> Job<'p> {
        let planned = &self.cases[request.index];
        let (case, measure) = (&planned.case, &self.config.measure);
        let data_plane = planned.data_plane.as_ref().expect("cases without one are not run");
        Job {
            workload: &self.workload,
            times: self.config.times_on(&case.topology),
            topology: &case.topology,
            dtype: self.config.dtype(),
            op: self.config.op(),
            data_plane,
            framework: &planned.framework,
            groups: &planned.groups,
            disable_group_fusion: self.config.sweep.disable_group_fusion,
            control_plane: &case.control_plane,
            stall_check: measure.stall_check(),
            fusion_threshold_bytes: effective_threshold_bytes(
                case.fusion_threshold_bytes,
                &case.topology,
            ),
            cycle_time: case.cycle_time,
            cache_capacity: self.config.sweep.cache_capacity,
            sizes: self.config.sizes(case.transport),
            steps: request.warmup_steps + measure.steps_per_block,
            timeout: self.timeout(),
            seed: request.seed,
            recorder,
            fault: None,
        }
    }

    /// The context that converts the logs of a case's ranks to a block.
    pub fn context<'p>(&'p self, planned: &'p Planned) -> Context<'p> {
        let schedules = planned.choices().map(|choices| Schedules {
            choices,
            segment_bytes: self.config.sizes(planned.case.transport).segment_bytes,
            puts: planned.case.transport.puts(),
        });
        Context {
            case: planned.case.to_string(),
            topology: &planned.case.topology,
            warmup_steps: self.config.measure.warmup_steps,
            element_bytes: planned.framework.wire(self.config.dtype()).size_bytes(),
            gradients: self.workload.gradients.len(),
            schedules,
        }
    }

    /// The part of a case's row that is known before the measurement.
    pub fn setting(&self, planned: &Planned, launch: &Launch) -> StepSetting {
        let Planned { case, framework, groups, placement, .. } = planned;
        let Plan { config, workload, .. } = self;
        let (step, share) = (config.step, config.share_of_passes(&case.topology));
        let grouping = (!groups.is_empty())
            .then(|| framework.groups.clone().unwrap_or(Groups::Even(config.sweep.groups)));
        let key = Key {
            case: case.to_string(),
            nodes: case.topology.nodes(),
            local_size: case.topology.local_size(),
            ranks: case.topology.ranks(),
            dtype: config.dtype().name().into(),
            op: config.op().name().into(),
            in_place: true,
            size_bytes: workload.elements() * config.wire().size_bytes(),
        };
        let run = Run {
            emulated: placement.emulated,
            oversubscribed: placement.oversubscribed,
            pinned: case.transport.pins() && transports::threads::is_pinned(),
            host: launch.machine.host.clone(),
            commit: launch.commit.clone(),
            started: launch.started.clone(),
            seed: config.measure.seed,
            transport: case.transport.name().into(),
        };
        let sizes = config.sizes(case.transport);
        let training = Training {
            workload: workload.name.clone(),
            algorithm: case.algorithm.clone(),
            groups: match grouping {
                Some(Groups::Even(groups)) => groups,
                _ => groups.len(),
            },
            backward_passes_per_step: Some(framework.backward_passes_per_step),
            compression: framework.compression.name().into(),
            cache_capacity: config.sweep.cache_capacity,
            segment_bytes: sizes.segment_bytes,
            packing_bytes: match case.transport.memory() {
                MemoryKind::Host => sizes.packing_bytes,
                // GPUs pack whole messages.
                MemoryKind::Device => 0,
            },
            forward_ms: step.forward_ms * share,
            backward_ms: step.backward_ms * share,
            optimizer_ms: step.optimizer_ms,
            warmup: config.measure.warmup_steps,
        };
        let framework = row::Framework {
            grouping: grouping.map_or("", |groups| groups.name()).into(),
            average_aggregated_gradients: Some(framework.average_aggregated_gradients),
            gradient_predivide_factor: Some(framework.gradient_predivide_factor),
            prescale_factor: Some(framework.prescale_factor),
            postscale_factor: Some(framework.postscale_factor),
        };
        let tuning = Tuning {
            control_plane: case.control_plane.clone(),
            tensors: workload.gradients.len(),
            fusion_threshold_bytes: case.fusion_threshold_bytes,
            cycle_time_ms: case.cycle_time_ms(),
        };
        StepSetting { key, run, training, framework, tuning }
    }

    /// The recorder of a block's events, if they are to be recorded, with room for steps that take twice their
    /// bound.
    pub fn recorder(&self, request: BlockRequest) -> Option<Recorder> {
        let planned = &self.cases[request.index];
        let StepTimes { forward, backward, optimizer, .. } =
            self.config.times_on(&planned.case.topology);
        // No cycle is shorter than some microseconds.
        let cycle_time = planned.case.cycle_time.max(Duration::from_micros(20));
        let cycles = 2 * (forward + backward + optimizer).as_nanos() / cycle_time.as_nanos();
        // A tensor becomes ready, and is at most a message of its own, with a beginning and an end.
        let of_step = 2 + 3 * cycles as usize + 4 * self.workload.gradients.len();
        let steps = request.warmup_steps + self.config.measure.steps_per_block;
        let records = steps * of_step;
        request.is_recorded.then(|| Recorder::new(planned.case.topology.ranks(), records))
    }

    /// Warnings to print before the run.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for Planned { case, groups, framework, .. } in &self.cases {
            let element_bytes = framework.wire(self.config.dtype()).size_bytes();
            let size_bytes = |id: TensorId| self.workload.gradients[id].elements() * element_bytes;
            let threshold = effective_threshold_bytes(case.fusion_threshold_bytes, &case.topology);
            let warning = too_large(groups, size_bytes, threshold);
            warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
        }
        warnings
    }

    /// The order of a block: positions in `cases`, those that cannot be run here left out. The base case, if there is
    /// one, comes first. The same seed gives the same order.
    pub fn order(&self, block: usize) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.cases.len()).filter(|&index| self.runs(index)).collect();
        let base = self.base();
        order.retain(|&index| Some(index) != base);
        order.shuffle(&mut self.random(block, 0));
        base.into_iter().chain(order).collect()
    }

    /// The base case, if the configuration repeats one: the first that can be run here.
    pub fn base(&self) -> Option<usize> {
        let first = || (0..self.cases.len()).find(|&index| self.runs(index));
        self.config.measure.repeat_base.then(first).flatten()
    }

    /// A case can be run here.
    fn runs(&self, index: usize) -> bool {
        let planned = &self.cases[index];
        planned.data_plane.is_ok() && planned.left.is_none()
    }

    /// Random numbers that belong to one thing in one block.
    pub fn random(&self, block: usize, stream: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.config.measure.seed);
        random.set_stream(((block as u64) << 32) | stream);
        random
    }

    /// The most memory in bytes that the largest case takes on a machine: on every rank gradients, those of later
    /// backward passes, their casts, and a fusion buffer for all data on the wire.
    pub fn memory_bytes(&self) -> u64 {
        let one_machine = std::env::var_os(EMULATED).is_some();
        let ranks = |planned: &Planned| {
            let Case { transport, topology, .. } = &planned.case;
            let each = (0..topology.nodes()).map(|node| topology.node(node).len()).max();
            let is_spread = has_processes(*transport) && !one_machine;
            each.filter(|_| is_spread).unwrap_or(topology.ranks())
        };
        let ranks = self.cases.iter().map(ranks).max();
        let (dtype, wire) = (self.config.dtype(), self.config.wire());
        let added = usize::from(self.config.framework.backward_passes_per_step > 1);
        let cast = usize::from(wire != dtype);
        let element = (1 + added) * dtype.size_bytes() + (1 + cast) * wire.size_bytes();
        (ranks.unwrap_or(0) * self.workload.elements() * element) as u64
    }

    /// A guess at the time of one block of a case: its compute time, and its data moved at 16 GB/s
    /// per core.
    pub fn estimate(&self, planned: &Planned) -> Duration {
        let measure = &self.config.measure;
        let size = self.elements * self.config.wire().size_bytes();
        let ranks = planned.case.topology.ranks();
        let moved = 4.0 * (ranks * size) as f64 / (16e9 * cores().min(ranks) as f64);
        let step = self.step_time_on(&planned.case.topology);
        let step = step + Duration::from_secs_f64(moved);
        step * (measure.warmup_steps + measure.steps_per_block + 1) as u32
    }
}
