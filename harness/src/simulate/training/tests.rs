use std::path::Path;

use super::*;
use crate::simulate::config::{Case, Config};
use crate::simulate::data_plane::Engine;
use crate::simulate::sweep::Plan;

/// The shipped sweep, with other jitter.
fn plan(cv: f64) -> Plan {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/summit-scaling.toml"));
    let mut config = Config::read(path).unwrap();
    config.jitter.cv = Some(cv);
    config.model.retain(|model| model.workload == "resnet50");
    Plan::new(config, path).unwrap()
}

fn steps(plan: &Plan, policy: &str, ranks: usize, drive: Drive, steps: usize) -> Vec<Step> {
    let (model, policy) = (&plan.config.model[0], plan.config.policy(policy).unwrap());
    let data = DataPlane::new("nccl", &plan.machine, ranks, 0.0, Engine::Rounds).unwrap();
    let job = plan.job(&Case { model, policy, ranks }, &data, 11, drive).unwrap();
    simulate(&job, steps).unwrap()
}

#[test]
fn some_ranks_stand_for_all() {
    let plan = plan(0.03);
    for policy in ["horovod-coordinator", "horovod-bitvector", "horovod-grouped", "ddp"] {
        for ranks in [1, 2, 6, 96, 1536] {
            let all = steps(&plan, policy, ranks, Drive::All, 4);
            let some = steps(&plan, policy, ranks, Drive::Classes, 4);
            assert_eq!(all, some, "{policy}, {ranks} ranks");
        }
    }
}

#[test]
fn the_parts_of_a_step_add_up() {
    let plan = plan(0.01);
    for policy in &plan.config.policy {
        for ranks in [6, 6000] {
            for step in steps(&plan, &policy.name, ranks, Drive::Classes, 5) {
                let parts = step.compute
                    + step.jitter
                    + step.cycle
                    + step.negotiation
                    + step.latency
                    + step.bandwidth
                    + step.contention
                    + step.reduction;
                assert!((parts / step.time - 1.0).abs() < 1e-9, "{}: {step:?}", policy.name);
                assert!(step.cycle >= 0.0 && step.negotiation >= 0.0 && step.latency >= 0.0);
            }
        }
    }
}

#[test]
fn one_rank_waits_for_its_next_cycle_and_nothing_else() {
    let plan = plan(0.0);
    for step in steps(&plan, "horovod-bitvector", 1, Drive::All, 6) {
        // 5 ms a cycle, and what a cycle and a launch take.
        assert!(step.time >= step.compute && step.time < step.compute + 0.0052, "{step:?}");
        assert_eq!(step.jitter, 0.0);
    }
}

#[test]
fn asking_rank_0_about_everything_costs_what_its_processor_takes() {
    let plan = plan(0.0);
    let ns = plan.machine.control.as_ref().unwrap().rank0_ns.value;
    let step = steps(&plan, "horovod-coordinator", 6000, Drive::Classes, 3)[2];
    let processor_s = 6000.0 * 161.0 * ns * 1e-9;
    assert!(step.negotiating > processor_s && step.negotiating < 1.2 * processor_s, "{step:?}");
    let cached = steps(&plan, "horovod-bitvector", 6000, Drive::Classes, 3);
    assert!(cached[0].negotiating > processor_s, "the first step fills the cache");
    assert!(cached[2].negotiating < 0.01 * processor_s, "{:?}", cached[2]);
}

#[test]
fn buckets_reach_the_network_while_the_backward_pass_goes_on() {
    let plan = plan(0.0);
    let ddp = steps(&plan, "ddp", 96, Drive::Classes, 3)[2];
    let one_pack = steps(&plan, "tf-distribute", 96, Drive::Classes, 3)[2];
    assert_eq!(one_pack.messages, 1);
    assert!(ddp.messages >= 4 && ddp.time < one_pack.time, "{ddp:?} {one_pack:?}");
    assert!((one_pack.time - one_pack.compute - one_pack.communicating).abs() < 1e-4);
}

#[test]
fn messages_slow_computation_down_if_they_share_it() {
    let plan = plan(0.0);
    let (model, policy) = (&plan.config.model[0], plan.config.policy("ddp").unwrap());
    let data = DataPlane::new("nccl", &plan.machine, 96, 0.0, Engine::Rounds).unwrap();
    let mut job = plan.job(&Case { model, policy, ranks: 96 }, &data, 1, Drive::Classes).unwrap();
    let alone = simulate(&job, 3).unwrap()[2];
    job.slowdown = 1.1;
    let shared = simulate(&job, 3).unwrap()[2];
    let busy = shared.communicating;
    assert!(shared.time > alone.time && shared.time < alone.time + 0.1 * busy + 1e-3, "{shared:?}");
}

#[test]
fn a_straggler_holds_up_everybody() {
    let mut plan = plan(0.0);
    plan.config.jitter.straggler = 1.5;
    let step = steps(&plan, "ddp", 6, Drive::Classes, 3)[2];
    let compute = plan.config.model[0].forward_ms + plan.config.model[0].backward_ms;
    assert!((step.jitter - 0.5e-3 * compute).abs() < 1e-9);
}
