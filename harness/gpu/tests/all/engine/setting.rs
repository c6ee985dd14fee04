//! Settings of a job that tests vary, and its execution.

use std::time::Duration;

use algorithms::control::{DataType, ReduceOp, StallCheck};
use algorithms::registry::find;
use algorithms::topology::Topology;
use gpu::cuda::emulated::{Emulated, Turns};
use gpu::trainer::{self, Devices};
use training::engine::{self, RankMemory};
use training::fault::Fault;
use training::job::Job;
use training::outcome::EngineError;
use training::outcome::Outcome;
use transports::allreduce::Sizes;
use transports::data_plane::DataPlane;
use workloads::framework::{Compression, Framework};
use workloads::groups::Groups;
use workloads::replay::{HostCosts, StepTimes};
use workloads::workload::{Gradient, Workload};

/// `count` gradients of uneven sizes that become ready one after the other, the last one first.
pub fn workload(count: usize) -> Workload {
    let gradient = |id: usize| Gradient {
        name: format!("layer{id}"),
        shape: vec![(id as u64 * 37) % 600],
        ready_fraction: 1.0 - id as f64 / count as f64,
    };
    Workload {
        name: "uneven".into(),
        gradients: (0..count).map(gradient).collect(),
        ready_order: (0..count).rev().collect(),
        ready_assumed: false,
    }
}

/// The devices of the ranks.
#[derive(Clone, Copy)]
pub enum On {
    Threads,
    /// This many devices, whose streams run in some order, with that seed.
    Devices(usize, Turns, u64),
    /// One device, on which this many blocks of memory can be allocated.
    Scarce(usize),
}

pub struct Setting<'a> {
    pub plane: &'a str,
    pub algorithm: &'a str,
    pub topology: Topology,
    pub dtype: DataType,
    pub op: ReduceOp,
    pub threshold: usize,
    pub cycle_ms: f64,
    pub cache_capacity: usize,
    pub segment_bytes: usize,
    pub packing_bytes: usize,
    pub backward: Duration,
    pub host: HostCosts,
    pub timeout: Duration,
    pub steps: usize,
    pub framework: Framework,
    pub disable_group_fusion: bool,
    pub stall_check: Option<StallCheck>,
    pub fault: Option<Fault>,
    pub on: On,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        Setting {
            plane: "bitvector",
            algorithm: "ring",
            topology: Topology::uniform(2, 2),
            dtype: DataType::F32,
            op: ReduceOp::Average,
            threshold: 1 << 20,
            cycle_ms: 0.5,
            cache_capacity: 1024,
            segment_bytes: 1000,
            packing_bytes: 5000,
            backward: Duration::from_millis(8),
            host: HostCosts::default(),
            timeout: Duration::from_secs(60),
            steps: 3,
            framework: Framework::default(),
            disable_group_fusion: false,
            stall_check: None,
            fault: None,
            on: On::Threads,
        }
    }
}

/// A framework with a thread of its own, and a loop that is busy besides.
pub const BUSY: HostCosts = HostCosts {
    wake: Duration::from_micros(5),
    hand_over: Duration::from_micros(10),
    take_back: Duration::from_micros(2),
    loop_gradient: Duration::from_micros(3),
    loop_message: Duration::from_micros(4),
    add_mb: Duration::ZERO,
    cast_mb: Duration::ZERO,
    cast_back_mb: Duration::ZERO,
    launch_gradient: Duration::ZERO,
    framework_bytes: 0,
};

/// The forward part of a pass.
pub const FORWARD: Duration = Duration::from_micros(300);

pub fn run(setting: &Setting, workload: &Workload) -> Outcome {
    let outcome = try_run(setting, workload).unwrap();
    for rank in &outcome.ranks {
        assert_eq!(rank.steps.len(), setting.steps);
        let same_cycles = rank.cycles.len() == outcome.ranks[0].cycles.len();
        assert!(same_cycles || !outcome.negotiated, "a cycle is all ranks'");
        let same = rank.messages.iter().zip(&outcome.ranks[0].messages);
        assert!({ same }.all(|(a, b)| (a.tensors, a.elements) == (b.tensors, b.elements)));
        for step in 0..setting.steps {
            let of_step = || rank.messages.iter().filter(|message| message.step == step);
            let tensors: usize = of_step().map(|message| message.tensors).sum();
            let elements: usize = of_step().map(|message| message.elements).sum();
            assert_eq!((tensors, elements), (workload.gradients.len(), workload.elements()));
            // On emulated devices no time passes.
            if let On::Threads = setting.on {
                let passes = setting.framework.backward_passes_per_step as u32;
                assert!(rank.steps[step].time >= (FORWARD + setting.backward) * passes);
            }
        }
    }
    outcome
}

pub fn try_run(setting: &Setting, workload: &Workload) -> Result<Outcome, EngineError> {
    let algorithm = find(setting.algorithm).unwrap();
    let by_algorithm = algorithm.grouping().map(|_| 3);
    let groups = setting.framework.groups(workload, by_algorithm).unwrap();
    let data_plane = DataPlane::ours(algorithm, &setting.topology).unwrap();
    let job = Job {
        workload,
        times: StepTimes {
            forward: FORWARD,
            backward: setting.backward,
            optimizer: Duration::from_micros(100),
            host: setting.host,
        },
        topology: &setting.topology,
        dtype: setting.dtype,
        op: setting.op,
        data_plane: &data_plane,
        framework: &setting.framework,
        groups: &groups,
        disable_group_fusion: setting.disable_group_fusion,
        control_plane: setting.plane,
        stall_check: setting.stall_check,
        fusion_threshold_bytes: setting.threshold,
        cycle_time: Duration::from_secs_f64(setting.cycle_ms / 1e3),
        cache_capacity: setting.cache_capacity,
        sizes: Sizes { segment_bytes: setting.segment_bytes, packing_bytes: setting.packing_bytes },
        timeout: setting.timeout,
        steps: setting.steps,
        seed: 99,
        recorder: None,
        fault: setting.fault,
    };
    let mut memories = Vec::new();
    memories.resize_with(setting.topology.ranks(), RankMemory::default);
    match setting.on {
        On::Threads => engine::run(&job, &mut memories),
        On::Devices(..) | On::Scarce(_) => {
            let emulated = match setting.on {
                On::Devices(count, turns, seed) => Emulated::new(count, count == 1, turns, seed),
                _ => Emulated::new(1, true, Turns::Lot, 1),
            };
            let mut devices = Devices::new(emulated);
            if let On::Scarce(blocks) = setting.on {
                devices.streams.blocks_left = Some(blocks);
            }
            let ended = trainer::run(&job, &mut memories, &mut devices);
            assert!(devices.streams.guards_are_whole());
            assert_eq!(devices.streams.allocated(), 0, "all memory is given back: {ended:?}");
            ended
        }
    }
}

/// The reduction and the options of a turn: passes and a cast, and with them, now and then, all that may go
/// with them.
pub fn options(
    turn: usize,
    dtype: DataType,
    compression: Compression,
    passes: usize,
) -> (ReduceOp, Framework) {
    let groups = [None, Some(Groups::Even(3)), Some(Groups::Named("layers".into()))];
    let average = !dtype.is_integer() && !turn.is_multiple_of(3);
    let factor =
        |often: usize, factor| if turn.is_multiple_of(often) && average { factor } else { 1.0 };
    let framework = Framework {
        backward_passes_per_step: passes,
        average_aggregated_gradients: average && turn % 5 < 2,
        compression,
        gradient_predivide_factor: factor(4, 4.0),
        prescale_factor: factor(5, 0.5),
        postscale_factor: factor(7, 3.0),
        groups: groups[turn % groups.len()].clone(),
    };
    (if average { ReduceOp::Average } else { ReduceOp::Sum }, framework)
}
