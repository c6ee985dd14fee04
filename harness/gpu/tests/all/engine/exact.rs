//! Results are exact, and messages are those that are to be expected.

use std::time::Duration;

use algorithms::control::{self, DataType, ReduceOp};
use algorithms::topology::Topology;
use workloads::framework::Framework;

use crate::engine::setting::{Setting, run, workload};

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
        for plane in control::NAMES {
            let (topology, framework) = (setting.topology.clone(), setting.framework.clone());
            let setting = Setting { plane, topology, framework, ..setting };
            assert_eq!(run(&setting, &workload(25)).wrong.count, 0);
        }
    }
}

/// `grouped` releases 3 groups as units: at most 3 messages a step, while a plain ring sends what
/// each cycle finds.
#[test]
fn groups_change_the_messages() {
    let workload = workload(60);
    let messages = |algorithm| {
        let setting = Setting { algorithm, steps: 6, ..Setting::default() };
        let outcome = run(&setting, &workload);
        let of_step =
            |step| outcome.ranks[0].messages.iter().filter(|message| message.step == step).count();
        (1..6).map(of_step).collect::<Vec<_>>()
    };
    let (ring, grouped) = (messages("ring"), messages("grouped"));
    assert!(grouped.iter().all(|&count| count <= 3), "{grouped:?}");
    assert!(ring.iter().any(|&count| count > 3), "{ring:?}");
}

/// The first step is negotiated by messages with names; afterwards a few words per cycle do.
#[test]
fn the_cache_takes_the_place_of_messages() {
    let workload = workload(40);
    let bytes = |plane| {
        let outcome = run(&Setting { plane, steps: 4, ..Setting::default() }, &workload);
        let of_step = |step: usize| -> usize {
            outcome.ranks.iter().map(|rank| rank.steps[step].control_bytes).sum()
        };
        (of_step(0), of_step(2))
    };
    let (first, later) = bytes("bitvector");
    assert!(first > 3 * 40 * 6, "three ranks send 40 names, {first} bytes");
    assert!(later < first, "{later} bytes");
    let (first, later) = bytes("coordinator");
    assert!(first.abs_diff(later) < first / 2, "{first} and {later} bytes");
}

/// The cycle is a deadline: cycles of a job that has little to do are as many as fit.
#[test]
fn cycles_keep_their_deadline_whatever_the_steps_do() {
    let workload = workload(10);
    let outcome = run(&Setting { cycle_ms: 2.0, steps: 20, ..Setting::default() }, &workload);
    let total: Duration = outcome.ranks[0].steps.iter().map(|step| step.time).sum();
    let most = total.as_secs_f64() / 2e-3;
    let cycles = outcome.ranks[0].cycles.len() as f64;
    // The writing of the last step's data adds cycles outside of steps, hence some room.
    assert!(cycles <= most + 30.0, "{cycles} cycles in {most} times 2 ms");
}

/// `HOROVOD_DISABLE_GROUP_FUSION`: as many messages as groups, and a gradient in none is one by itself.
#[test]
fn groups_that_are_not_fused_are_messages_of_their_own() {
    let workload = workload(12);
    let groups = "groups = [[\"layer1\", \"layer2\", \"layer3\"], [\"layer7\", \"layer9\"]]";
    let framework: Framework = toml::from_str(groups).unwrap();
    for (alone, expected) in [(true, 9), (false, 1)] {
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
        let last = outcome.ranks[0].messages.iter().filter(|message| message.step == 1).count();
        assert!(if alone { last == expected } else { last <= 3 }, "{alone}: {last}");
    }
}
