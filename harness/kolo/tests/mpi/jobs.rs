//! Control planes and whole jobs, each rank in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use algorithms::control::{self, DataType, ReduceOp, Settings, TensorId, Tensors};
use algorithms::topology::Topology;
use rand::seq::SliceRandom;
use training::back_end::{BackEnd, Mpi};
use training::engine::{self, RankMemory};
use training::job::Job;
use training::negotiate::Negotiator;
use training::outcome;
use transports::allreduce::Sizes;
use transports::mpi::MpiPlane;
use transports::transport::Connections;
use workloads::framework::Framework;
use workloads::replay::StepTimes;
use workloads::workload::{Gradient, Workload};

use crate::process::{Process, doing};

const TIMEOUT: Duration = Duration::from_secs(20);
const PLANES: [&str; 7] =
    ["coordinator", "tree", "tree:2", "point-to-point", "bitvector", "ddp", "packs"];

/// Gradients of uneven sizes that become ready one after the other, the last one first.
fn workload(count: usize) -> Workload {
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

/// Tensors become ready in another order on every rank, a few before each cycle: all ranks are told to
/// do the same, and everything is done once in each round.
pub fn negotiations(process: &mut Process) {
    const ROUNDS: usize = 3;
    let workload = workload(30);
    for name in PLANES {
        let list = Framework::default().tensors(&workload, DataType::F32, ReduceOp::Sum);
        let settings = Settings {
            fusion_threshold_bytes: 4000,
            cache_capacity: 20,
            ..Settings::new(process.rank, process.ranks)
        };
        let tensors = Arc::new(Tensors::new(list).unwrap());
        let plane = control::find(name, tensors, &settings).unwrap();
        let (control, bits) = (process.comm(100), process.comm(0));
        let mut negotiator =
            Negotiator::new(plane, process.control_channel(&control), process.endpoint(&bits));
        let mut random = process.random(process.rank as u64);
        for round in 0..ROUNDS {
            let mut order: Vec<TensorId> = (0..workload.gradients.len()).collect();
            order.shuffle(&mut random);
            let mut ready = order.chunks(7);
            let mut all = Vec::new();
            let mut done = 0;
            for cycle in 0.. {
                doing(format!("{name}, round {round}, cycle {cycle}"));
                let mut responses = Vec::new();
                negotiator.cycle(ready.next().unwrap_or(&[]), &mut responses).unwrap();
                assert!(responses.iter().all(|response| response.error.is_none()));
                done += responses.iter().map(|response| response.tensors.len()).sum::<usize>();
                let said = format!("{responses:?}");
                if negotiator.is_paced() {
                    process.assert_alike(&said);
                }
                all.push(said);
                if done == order.len() {
                    break;
                }
                assert!(cycle < 100, "{done} tensors after {cycle} cycles");
            }
            if negotiator.is_paced() {
                process.assert_alike(all);
            }
        }
        negotiator.flush().unwrap();
    }
}

/// Whole jobs: the data of the last step are right on every rank.
pub fn jobs(process: &mut Process) {
    let workload = workload(25);
    let [_, topology] = process.topologies();
    let members: Vec<usize> = (0..process.ranks).collect();
    let mut memory = RankMemory::default();
    for plane in PLANES {
        for (name, dtype, op) in [
            ("ring", DataType::F32, ReduceOp::Average),
            ("leader:tree", DataType::F16, ReduceOp::Sum),
            ("grouped-scattered:two-shot", DataType::I64, ReduceOp::Max),
            ("mpi-allreduce", DataType::BF16, ReduceOp::Average),
        ] {
            doing(format!("a job of {plane} and {name} on {topology}"));
            run(process, (plane, name, dtype, op), (&workload, &topology, &members), &mut memory);
        }
    }
}

fn run(
    process: &mut Process,
    (plane, name, dtype, op): (&str, &str, DataType, ReduceOp),
    (workload, topology, members): (&Workload, &Topology, &[usize]),
    memory: &mut RankMemory,
) {
    const STEPS: usize = 3;
    let data_plane = Mpi.data_plane(name, topology).unwrap();
    let framework = Framework::default();
    let groups = framework.groups(workload, name.starts_with("grouped").then_some(3)).unwrap();
    let job = Job {
        workload,
        times: StepTimes {
            forward: Duration::from_micros(300),
            backward: Duration::from_millis(4),
            optimizer: Duration::from_micros(100),
            ..StepTimes::default()
        },
        topology,
        dtype,
        op,
        data_plane: &data_plane,
        framework: &framework,
        groups: &groups,
        disable_group_fusion: false,
        control_plane: plane,
        stall_check: None,
        fusion_threshold_bytes: 10_000,
        cycle_time: Duration::from_micros(500),
        cache_capacity: 20,
        sizes: Sizes { segment_bytes: 1000, packing_bytes: 3000 },
        timeout: TIMEOUT,
        steps: STEPS,
        seed: process.seed,
        recorder: None,
        fault: None,
    };
    let (rank, connections) = process.world.connect(members, TIMEOUT).unwrap().unwrap();
    let Connections { data, bits, control, last_step } = connections;
    let plane = MpiPlane::of(job.data_plane).unwrap();
    let all_reduce = |fusion_buffer| plane.all_reduce(data, job.sizes, fusion_buffer);
    let log = engine::run_rank(&job, rank, all_reduce, (bits, control, last_step), memory).unwrap();
    let wrong = engine::check(&job, &log, std::iter::once((rank, &*memory)));
    assert_eq!(wrong.count, 0, "{:?}", wrong.first);
    assert_eq!(log.steps.len(), STEPS);
    let is_divided = |step: &outcome::RankStep| step.reduction.is_some();
    assert_eq!(log.steps.iter().all(is_divided), name != "mpi-allreduce");
    assert_eq!(log.steps.iter().any(is_divided), name != "mpi-allreduce");
    let messages = |(tensors, elements): (usize, usize), message: &outcome::RankMessage| {
        (tensors + message.tensors, elements + message.elements)
    };
    let all = (STEPS * workload.gradients.len(), STEPS * workload.elements());
    assert_eq!(log.messages.iter().fold((0, 0), messages), all);
    let shapes: Vec<_> = log.messages.iter().map(|m| (m.step, m.tensors, m.elements)).collect();
    process.assert_alike(shapes);
    if job.negotiates().unwrap() {
        process.assert_alike(log.cycles.len());
    }
}
