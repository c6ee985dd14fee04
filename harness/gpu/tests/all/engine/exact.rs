//! Results are exact, and messages are as expected.

use std::time::Instant;

use algorithms::control::{self, DataType, ReduceOp};
use algorithms::topology::Topology;
use workloads::framework::Framework;
use workloads::replay::HostCosts;

use crate::engine::setting::{BUSY, Setting, run, workload};

#[test]
fn every_plane_algorithm_type_and_operation_is_exact() {
    let workload = workload(40);
    for plane in control::NAMES {
        for algorithm in ["ring", "tree", "hierarchical", "grouped", "grouped-scattered:tree"] {
            for (dtype, op) in [
                (DataType::F32, ReduceOp::Average),
                (DataType::F16, ReduceOp::Sum),
                (DataType::BF16, ReduceOp::Max),
                (DataType::F64, ReduceOp::Product),
                (DataType::I32, ReduceOp::Min),
                (DataType::I64, ReduceOp::Sum),
            ] {
                let setting =
                    Setting { plane, algorithm, dtype, op, steps: 2, ..Setting::default() };
                let outcome = run(&setting, &workload);
                assert_eq!(outcome.wrong.count, 0, "{plane} {algorithm} {:?}", outcome.wrong);
            }
        }
    }
}

#[test]
fn awkward_settings_are_exact() {
    for setting in [
        Setting { threshold: 0, ..Setting::default() },
        Setting { threshold: 600, ..Setting::default() },
        Setting { packing_bytes: 0, ..Setting::default() },
        Setting { cycle_ms: 0.0, ..Setting::default() },
        Setting { cycle_ms: 20.0, ..Setting::default() },
        Setting { cache_capacity: 0, ..Setting::default() },
        Setting { cache_capacity: 7, steps: 6, ..Setting::default() },
        Setting { topology: Topology::flat(1), ..Setting::default() },
        Setting { topology: Topology::new(&[3, 1]), ..Setting::default() },
        Setting { topology: Topology::flat(7), algorithm: "tree", ..Setting::default() },
        Setting { steps: 1, ..Setting::default() },
        Setting {
            framework: Framework {
                backward_passes_per_step: 2,
                gradient_predivide_factor: 3.0,
                ..Framework::default()
            },
            ..Setting::default()
        },
    ] {
        for (plane, host) in control::NAMES.into_iter().zip([HostCosts::default(), BUSY].repeat(9))
        {
            let (topology, framework) = (setting.topology.clone(), setting.framework.clone());
            let setting = Setting { plane, topology, framework, host, ..setting };
            assert_eq!(run(&setting, &workload(25)).wrong.count, 0);
        }
    }
}

/// `grouped` releases 3 groups of 20 as units, so messages hold whole groups; a plain ring sends what fits into the
/// fusion buffer.
#[test]
fn groups_change_the_messages() {
    let workload = workload(60);
    let tensors = |algorithm, threshold| {
        let outcome = run(&Setting { algorithm, threshold, ..Setting::default() }, &workload);
        let messages = outcome.ranks[0].messages.iter();
        messages.map(|message| message.tensors).collect::<Vec<_>>()
    };
    let grouped = tensors("grouped", 1 << 20);
    assert!(grouped.iter().all(|tensors| tensors.is_multiple_of(20)), "{grouped:?}");
    let bytes = 4 * workload.elements();
    let ring = tensors("ring", bytes / 8);
    assert!(ring.len() >= 3 * 8, "{ring:?} in 3 steps");
}

/// The first step is negotiated by messages with names; afterwards the cache takes their place, if there is one.
#[test]
fn the_cache_takes_the_place_of_messages() {
    let workload = workload(40);
    let bytes = |plane| {
        let outcome = run(&Setting { plane, steps: 4, ..Setting::default() }, &workload);
        [0, 2].map(|step| {
            let reports = outcome.ranks.iter().map(|rank| rank.steps[step].report);
            reports.map(|report| report.bytes_wire_sent).sum::<usize>()
        })
    };
    let names = 3 * 40 * 6;
    let [first, later] = bytes("bitvector");
    assert!(first > names && later == 0, "three ranks send 40 names: {first}, then {later} bytes");
    let [first, later] = bytes("coordinator");
    assert!(first > names && later > names, "{first}, then {later} bytes");
}

/// The cycle time is a deadline: an idle job has as many cycles as fit.
#[test]
fn cycles_keep_their_deadline_whatever_the_steps_do() {
    let workload = workload(10);
    let start = Instant::now();
    let outcome = run(&Setting { cycle_ms: 2.0, steps: 20, ..Setting::default() }, &workload);
    let most = start.elapsed().as_secs_f64() / 2e-3;
    let cycles = outcome.ranks[0].cycles.len() as f64;
    assert!(cycles <= most + 1.0, "{cycles} cycles in {most} times 2 ms");
}

/// `HOROVOD_DISABLE_GROUP_FUSION`: as many messages as groups, and one for each gradient without a group.
#[test]
fn groups_that_are_not_fused_are_messages_of_their_own() {
    let workload = workload(12);
    let groups = "groups = [[\"layer1\", \"layer2\", \"layer3\"], [\"layer7\", \"layer9\"]]";
    let framework: Framework = toml::from_str(groups).unwrap();
    for alone in [true, false] {
        let setting = Setting {
            threshold: 1 << 30,
            cycle_ms: 30.0,
            steps: 2,
            framework: framework.clone(),
            disable_group_fusion: alone,
            ..Setting::default()
        };
        let outcome = run(&setting, &workload);
        assert_eq!(outcome.wrong.count, 0);
        let last = outcome.ranks[0].messages.iter().filter(|message| message.step == 1);
        let tensors: Vec<usize> = last.map(|message| message.tensors).collect();
        if alone {
            // Two groups, of 3 and of 2, and 7 gradients in none.
            assert_eq!((tensors.len(), tensors.iter().max()), (9, Some(&3)), "{tensors:?}");
        } else {
            assert!(tensors.len() < 9, "{tensors:?}");
        }
    }
}
