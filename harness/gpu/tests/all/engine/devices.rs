//! The whole loop on emulated devices in host memory, whose work is done in adversarial orders.

use std::time::Duration;

use algorithms::control::{self, DataType, ReduceOp, StallCheck};
use algorithms::topology::Topology;
use gpu::cuda::emulated::Turns;
use training::fault::Fault;
use training::outcome::EngineError;
use workloads::framework::{Compression, Framework};
use workloads::replay::HostCosts;

use crate::engine::faults::{LINGERS, TIMEOUT, at_once};
use crate::engine::setting::{On, Setting, options, run, try_run, workload};

const TURNS: [Turns; 6] = [
    Turns::Lot,
    Turns::Eager,
    Turns::Starving(0),
    Turns::Starving(3),
    Turns::Hurrying(1),
    Turns::Hurrying(2),
];

/// Control planes, algorithms, types and reductions, on one device and on two that do not reach each other.
#[test]
fn every_plane_algorithm_type_and_operation_is_exact() {
    let workload = workload(24);
    let mut turn = 0;
    for plane in control::NAMES {
        for algorithm in [
            "ring",
            "hierarchical",
            "halving-doubling",
            "two-shot",
            "grouped",
            "grouped-scattered:tree",
        ] {
            for (dtype, op) in [
                (DataType::F32, ReduceOp::Average),
                (DataType::F16, ReduceOp::Sum),
                (DataType::BF16, ReduceOp::Max),
                (DataType::F64, ReduceOp::Product),
                (DataType::I32, ReduceOp::Min),
                (DataType::I64, ReduceOp::Sum),
            ] {
                turn += 1;
                let on = On::Devices(1 + turn % 2, TURNS[turn % TURNS.len()], turn as u64);
                let setting = Setting {
                    plane,
                    algorithm,
                    dtype,
                    op,
                    steps: 2 + turn % 2,
                    threshold: [0, 700, 5000, 1 << 20][turn % 4],
                    cycle_ms: [0.0, 0.1, 1.0][turn % 3],
                    on,
                    ..Setting::default()
                };
                let wrong = run(&setting, &workload).wrong;
                assert_eq!(wrong.count, 0, "{plane} {algorithm} {dtype:?}: {wrong:?}");
            }
        }
    }
}

/// Passes, casts and factors, which kernels execute here and the host elsewhere.
#[test]
fn the_optimizers_work_is_exact_on_devices() {
    let workload = workload(14);
    let mut turn = 0;
    for dtype in DataType::ALL {
        for compression in [Compression::None, Compression::Fp16, Compression::Bf16] {
            for (ranks, passes) in [(1, 2), (2, 1), (2, 3), (3, 2), (4, 1)] {
                turn += 1;
                let (op, framework) = options(turn, dtype, compression, passes);
                let setting = Setting {
                    algorithm: ["ring", "tree", "recursive-doubling"][turn % 3],
                    topology: Topology::flat(ranks),
                    dtype,
                    op,
                    threshold: [0, 700, 1 << 20][turn % 3],
                    cycle_ms: 0.2,
                    steps: 2,
                    framework,
                    on: On::Devices(1 + turn % 2, TURNS[turn % TURNS.len()], turn as u64),
                    ..Setting::default()
                };
                let wrong = run(&setting, &workload).wrong;
                let what = format!("{dtype:?} over {ranks} ranks, {:?}", setting.framework);
                assert_eq!(wrong.count, 0, "{what}: {wrong:?}");
            }
        }
    }
}

/// A host that runs ahead hands gradients over before they are computed, so messages must wait for them.
#[test]
fn gradients_of_a_host_that_runs_ahead_are_exact() {
    let workload = workload(24);
    let mut turn = 0;
    for plane in control::NAMES {
        for (launch_us, turns) in [(1, Turns::Slow), (20, Turns::Slow), (400, Turns::Lot)] {
            for (algorithm, passes) in [("ring", 1), ("grouped-scattered", 2), ("tree", 3)] {
                turn += 1;
                let launch_gradient = Duration::from_micros(launch_us);
                let compression = [Compression::None, Compression::Fp16][turn % 2];
                let (op, framework) = options(turn, DataType::F32, compression, passes);
                let setting = Setting {
                    plane,
                    algorithm,
                    op,
                    framework,
                    host: HostCosts { launch_gradient, ..HostCosts::default() },
                    steps: 2,
                    threshold: [0, 700, 1 << 20][turn % 3],
                    cycle_ms: [0.1, 1.0][turn % 2],
                    on: On::Devices(1, turns, turn as u64),
                    ..Setting::default()
                };
                let outcome = run(&setting, &workload);
                let wrong = outcome.wrong;
                assert_eq!(wrong.count, 0, "{plane} {algorithm} {launch_us} us: {wrong:?}");
                // Launches of forward passes take half as long as those of backward passes.
                let launches = launch_gradient.mul_f64(24.0 * 1.5 * passes as f64);
                for step in outcome.ranks.iter().flat_map(|rank| &rank.steps) {
                    assert!(step.time >= launches, "{:?} < {launches:?}", step.time);
                }
            }
        }
    }
}

#[test]
fn awkward_settings_are_exact() {
    let on = On::Devices(2, Turns::Lot, 5);
    for setting in [
        Setting { on, cycle_ms: 20.0, ..Setting::default() },
        Setting { on, cache_capacity: 7, steps: 6, ..Setting::default() },
        Setting { on, topology: Topology::flat(1), ..Setting::default() },
        Setting { on, topology: Topology::new(&[3, 1]), ..Setting::default() },
        Setting { on, steps: 1, ..Setting::default() },
    ] {
        for plane in control::NAMES {
            let topology = setting.topology.clone();
            let setting = Setting { plane, topology, framework: Framework::default(), ..setting };
            assert_eq!(run(&setting, &workload(25)).wrong.count, 0);
        }
    }
}

fn with(fault: Fault, plane: &str, timeout: Duration) -> Result<u64, EngineError> {
    let setting = Setting {
        plane,
        topology: Topology::flat(4),
        threshold: 2000,
        timeout,
        steps: 4,
        stall_check: Some(StallCheck {
            warn_after: Duration::from_millis(100),
            shut_down_after: Some(Duration::from_millis(300)),
        }),
        fault: Some(fault),
        on: On::Devices(2, Turns::Lot, 3),
        ..Setting::default()
    };
    try_run(&setting, &workload(12)).map(|outcome| {
        assert_eq!(outcome.ranks[0].refused.len(), 4);
        outcome.wrong.count as u64
    })
}

#[test]
fn what_goes_wrong_ends_well_or_with_a_name() {
    let mismatch = Fault::Mismatch { rank: 2, gradient: 5 };
    let missing = Fault::Missing { rank: 2, gradient: 5 };
    for plane in ["coordinator", "bitvector"] {
        assert_eq!(with(mismatch, plane, Duration::from_secs(60)).unwrap(), 0, "{plane}");
        let error = with(missing, plane, Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, EngineError::ShutDown { .. }), "{plane}: {error}");
    }
    at_once(&["coordinator", "bitvector", "ddp"], |plane| {
        let fault = Fault::Death { rank: 2, step: 1, lingers: LINGERS };
        let error = with(fault, plane, TIMEOUT).unwrap_err().to_string();
        assert!(error.contains("for rank 2, which does not answer"), "{plane}: {error}");
    });
}

#[test]
fn a_gradient_that_never_becomes_ready_is_named() {
    let mut workload = workload(9);
    workload.gradients[4].ready_fraction = f64::INFINITY;
    at_once(&control::NAMES, |plane| {
        let (timeout, cycle_ms, on) = (TIMEOUT, 5.0, On::Devices(1, Turns::Lot, 1));
        let setting = Setting { plane, timeout, cycle_ms, on, ..Setting::default() };
        let error = try_run(&setting, &workload).unwrap_err().to_string();
        assert!(error.contains("waits for 1 of its 9 gradients: \"layer4\""), "{plane}: {error}");
    });
}

/// Whichever allocation is refused, the job ends with that, and gives the others back.
#[test]
fn memory_that_is_refused_ends_the_job_and_nothing_is_lost() {
    let workload = workload(9);
    let framework = Framework { backward_passes_per_step: 2, ..Framework::default() };
    let with = |blocks| {
        let (on, framework) = (On::Scarce(blocks), framework.clone());
        let (algorithm, topology) = ("recursive-doubling", Topology::flat(3));
        try_run(&Setting { on, framework, algorithm, topology, ..Setting::default() }, &workload)
    };
    let mut blocks = 0;
    while let Err(error) = with(blocks) {
        let said = error.to_string();
        assert!(said.starts_with("device: allocating ") && said.ends_with("none left"), "{said}");
        blocks += 1;
        assert!(blocks < 200, "a job of three ranks takes no more");
    }
    // A clock, two passes, a fusion buffer, eight tables of each rank, and staging memory.
    assert!(blocks >= 3 * (1 + 2 + 1 + 8), "{blocks} blocks");
}
