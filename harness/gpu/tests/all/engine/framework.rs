//! Horovod's optimizer.

use std::time::Duration;

use algorithms::control::DataType;
use algorithms::topology::Topology;
use training::outcome::RankLog;
use training::outcome::RankMessage;
use workloads::framework::{Compression, Framework};
use workloads::groups::Groups;
use workloads::replay::HostCosts;

use crate::engine::setting::{BUSY, FORWARD, Setting, options, run, workload};

/// Passes, types, casts, worlds; and, taken in turns, all that may go with them.
#[test]
fn every_number_of_passes_type_and_cast_is_exact() {
    let workload = workload(14);
    let mut turn = 0;
    for dtype in DataType::ALL {
        for compression in [Compression::None, Compression::Fp16, Compression::Bf16] {
            for ranks in 1..=4 {
                for passes in [1, 2, 3, 5] {
                    turn += 1;
                    let algorithms = ["ring", "tree", "grouped-scattered", "grouped"];
                    let (op, framework) = options(turn, dtype, compression, passes);
                    let setting = Setting {
                        algorithm: algorithms[turn % algorithms.len()],
                        topology: Topology::flat(ranks),
                        dtype,
                        op,
                        packing_bytes: [0, 300][turn % 2],
                        threshold: [0, 700, 1 << 20][turn % 3],
                        backward: Duration::from_micros(600),
                        host: [HostCosts::default(), BUSY][turn % 7 % 2],
                        cycle_ms: 0.2,
                        steps: 2,
                        framework,
                        ..Setting::default()
                    };
                    let wrong = run(&setting, &workload).wrong;
                    let what = format!("{dtype:?} over {ranks} ranks, {:?}", setting.framework);
                    assert_eq!(wrong.count, 0, "{what}: {wrong:?}");
                }
            }
        }
    }
}

/// A step of N passes takes N times as long and communicates once, so the bytes per pass drop by N.
#[test]
fn passes_share_one_communication() {
    let workload = workload(40);
    for passes in [1, 2, 5] {
        let framework = Framework { backward_passes_per_step: passes, ..Framework::default() };
        let setting = Setting { framework, cycle_ms: 0.5, ..Setting::default() };
        let outcome = run(&setting, &workload);
        for rank in &outcome.ranks {
            let sent: usize = rank.messages.iter().map(|message| message.elements).sum();
            assert_eq!(sent, setting.steps * workload.elements(), "once in each step");
            for step in &rank.steps {
                assert_eq!(step.work.aggregation > Duration::ZERO, passes > 1);
                assert!(step.time >= (FORWARD + setting.backward) * passes as u32);
            }
            let idle = rank.cycles.iter().filter(|cycle| cycle.messages == 0).count();
            assert!(passes == 1 || idle > 10, "passes before the last communicate nothing: {idle}");
        }
    }
}

/// When a cycle finds all gradients at once, messages are those of the fusion rule: half the bytes need
/// fewer of them.
#[test]
fn fusion_sees_what_was_cast() {
    let workload = workload(40);
    let messages = |compression| {
        let framework = Framework { compression, ..Framework::default() };
        let groups = Some(Groups::Even(1));
        let framework = Framework { groups, ..framework };
        let setting = Setting { framework, threshold: 8 << 10, ..Setting::default() };
        let outcome = run(&setting, &workload);
        assert_eq!(outcome.wrong.count, 0);
        let cast = |rank: &RankLog| rank.steps.iter().all(|step| !step.work.compression.is_zero());
        assert_eq!(outcome.ranks.iter().all(cast), compression != Compression::None);
        outcome.ranks[0].messages.len() / setting.steps
    };
    let (plain, half) = (messages(Compression::None), messages(Compression::Fp16));
    assert!(plain > 4 && half <= plain / 2 + 1, "{plain} messages, {half} at half the bytes");
    assert_eq!(messages(Compression::Bf16), half);
}

#[test]
fn layers_are_handed_over_as_units() {
    let mut workload = workload(24);
    for (id, gradient) in workload.gradients.iter_mut().enumerate() {
        gradient.name = format!("block.{}.{}", id / 6, id);
    }
    let groups = Some(Groups::Named("layers".into()));
    let setting =
        Setting { framework: Framework { groups, ..Framework::default() }, ..Setting::default() };
    let outcome = run(&setting, &workload);
    assert_eq!(outcome.wrong.count, 0);
    let whole = |message: &RankMessage| message.tensors.is_multiple_of(6);
    assert!(outcome.ranks[0].messages.iter().all(whole));
}
