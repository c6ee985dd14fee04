use std::path::Path;

use super::*;
use crate::config::{Case, Config};
use crate::data_plane::Engine;
use crate::interruption::Interruption;
use crate::machine_file::Parameter;
use crate::policy::Policy;
use crate::sweep::Plan;
use results::toml_file::Checked;

/// The shipped sweep, with other jitter.
fn plan(cv: f64) -> Plan {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/summit-scaling.toml"));
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
                    + step.reduction
                    + step.input;
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
        // 5 ms a cycle, plus the time of a cycle and a launch.
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

/// Tensor by tensor, rank 0 takes a message for each of a rank's, and answers each rank by itself: more than
/// its processor takes, by the time of each message.
#[test]
fn asking_rank_0_point_to_point_costs_every_message() {
    let mut plan = plan(0.0);
    let policy = plan.config.policy.iter_mut().find(|policy| policy.name == "horovod-coordinator");
    policy.unwrap().control_plane = "point-to-point".into();
    let negotiating =
        |plan: &Plan| steps(plan, "horovod-coordinator", 6000, Drive::Classes, 3)[2].negotiating;
    let bound_s = negotiating(&plan);
    let control = plan.machine.control.as_mut().unwrap();
    let alpha_us = control.alpha_us.value;
    control.message_us = Some(Parameter { value: alpha_us / 3.0, ..control.alpha_us.clone() });
    let shorter_s = negotiating(&plan);
    // In addition to the requests, every cycle has end markers and answers.
    let saved_s = bound_s - shorter_s;
    let requests_s = 6000.0 * 161.0 * alpha_us * 1e-6;
    assert!(saved_s > 2.0 / 3.0 * requests_s && saved_s < requests_s, "{bound_s} {shorter_s}");
}

#[test]
fn buckets_reach_the_network_while_the_backward_pass_goes_on() {
    let plan = plan(0.0);
    let ddp = steps(&plan, "ddp", 96, Drive::Classes, 3)[2];
    let one_pack = steps(&plan, "tf-distribute", 96, Drive::Classes, 3)[2];
    assert_eq!(one_pack.messages, 1);
    assert!(ddp.messages >= 4 && ddp.time < one_pack.time, "{ddp:?} {one_pack:?}");
    assert!((one_pack.time - one_pack.compute - one_pack.communicating).abs() < 2e-4);
}

#[test]
fn messages_slow_computation_down_if_they_share_it() {
    let plan = plan(0.0);
    let (model, policy) = (&plan.config.model[0], plan.config.policy("ddp").unwrap());
    let data = DataPlane::new("nccl", &plan.machine, 96, 0.0, Engine::Rounds).unwrap();
    let mut job = plan.job(&Case { model, policy, ranks: 96 }, &data, 1, Drive::Classes).unwrap();
    job.interference = Interference::default();
    let alone = simulate(&job, 3).unwrap()[2];
    job.interference.fixed = 0.1;
    let shared = simulate(&job, 3).unwrap()[2];
    let busy = shared.communicating;
    assert!(shared.time > alone.time && shared.time < alone.time + 0.1 * busy + 1e-3, "{shared:?}");
}

/// At most as long as the message's bytes take beside computation, and none where nothing is computed.
#[test]
fn computation_slows_messages_down_as_long_as_it_goes_on() {
    let plan = plan(0.0);
    let at = |policy: &str, messages: f64, gpu_bytes_s: f64| {
        let (model, policy) = (&plan.config.model[0], plan.config.policy(policy).unwrap());
        let data = DataPlane::new("nccl", &plan.machine, 96, 0.0, Engine::Rounds).unwrap();
        let case = Case { model, policy, ranks: 96 };
        let mut job = plan.job(&case, &data, 1, Drive::Classes).unwrap();
        job.interference = Interference { messages, gpu_bytes_s, ..Interference::default() };
        simulate(&job, 3).unwrap()[2]
    };
    let of = |policy: &str, messages: f64| at(policy, messages, 0.0);
    let (alone, beside) = (of("ddp", 0.0), of("ddp", 1.0));
    let longer_s = beside.communicating - alone.communicating;
    assert!(longer_s > 0.1 * alone.communicating && longer_s < alone.communicating, "{beside:?}");
    assert!(beside.time >= alone.time && beside.contention >= alone.contention, "{beside:?}");
    // A GPU that is faster than its network has time for both.
    let middle = at("ddp", 1.0, 15e9).communicating;
    assert!(alone.communicating < middle && middle < beside.communicating, "{middle}");
    assert_eq!(at("ddp", 1.0, 1e12), alone);
    // One pack is sent when all is computed.
    assert_eq!(of("tf-distribute", 1.0), of("tf-distribute", 0.0));
}

#[test]
fn other_jobs_on_the_network_make_messages_longer_and_vary_them() {
    let plan = plan(0.0);
    let of = |mean: f64, nodes: usize| {
        let (model, policy) = (&plan.config.model[0], plan.config.policy("ddp").unwrap());
        let data = DataPlane::new("nccl", &plan.machine, 96, 0.0, Engine::Rounds).unwrap();
        let case = Case { model, policy, ranks: 96 };
        let mut job = plan.job(&case, &data, 1, Drive::Classes).unwrap();
        job.congestion = Congestion { mean, nodes };
        simulate(&job, 50).unwrap()
    };
    let communicating_s = |steps: &[Step]| steps.iter().map(|step| step.communicating).sum::<f64>();
    let (alone, within, beside) = (of(0.0, 16), of(0.5, 1), of(0.5, 16));
    assert_eq!(alone, within, "one node has no network");
    let longer = communicating_s(&beside) / communicating_s(&alone) - 1.0;
    // The largest of 16 is 3.38 times the mean, on average. Latency does not grow.
    let bytes_alone = 0.5 * 3.38;
    assert!((0.7 * bytes_alone..1.05 * bytes_alone).contains(&longer), "{longer}");
    let both = || beside.iter().zip(&alone);
    let ratios = || both().map(|(step, other)| step.communicating / other.communicating);
    let (least, most) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
    assert!(least > 1.2 && most > 1.2 * least, "{least} {most}");
    for (step, other) in both() {
        assert!(
            step.time > other.time - 1e-9 && step.contention > other.contention - 1e-9,
            "{step:?}"
        );
    }
}

#[test]
fn threads_that_wake_up_late_delay_cycles_and_not_buckets() {
    let mut plan = plan(0.01);
    let of = |plan: &Plan, policy: &str| steps(plan, policy, 96, Drive::Classes, 20);
    let parameter = |value| Parameter { value, low: None, high: None, source: "a test".into() };
    let set = |plan: &mut Plan, late_us: Option<f64>| {
        plan.machine.control.as_mut().unwrap().late_us = late_us.map(parameter);
    };
    set(&mut plan, None);
    let (on_time, buckets) = (of(&plan, "horovod-bitvector"), of(&plan, "ddp"));
    set(&mut plan, Some(300.0));
    let late = of(&plan, "horovod-bitvector");
    let cycles = |steps: &[Step]| steps.iter().map(|step| step.cycles).sum::<usize>();
    // Five times 0.3 ms after 5 ms: a fifth fewer cycles.
    assert!(cycles(&late) < cycles(&on_time) * 9 / 10, "{} {}", cycles(&late), cycles(&on_time));
    assert_eq!(of(&plan, "ddp"), buckets);
    assert_eq!(steps(&plan, "horovod-bitvector", 96, Drive::All, 20), late);
}

#[test]
fn no_step_is_shorter_than_its_input_takes() {
    let mut plan = plan(0.0);
    let free = steps(&plan, "ddp", 12, Drive::Classes, 3)[2];
    let limited = |samples_s: f64| {
        let text = format!("samples_s = {{ value = {samples_s}, source = \"a test\" }}");
        Some(toml::from_str(&text).unwrap())
    };
    // Six ranks of a node take 64 samples each.
    let least_s = 2.0 * free.time;
    plan.machine.input = limited(6.0 * 64.0 / least_s);
    let step = steps(&plan, "ddp", 12, Drive::Classes, 3)[2];
    assert!((step.time - least_s).abs() < 1e-9, "{step:?}");
    assert!((step.input - free.time).abs() < 1e-9, "{step:?}");
    assert!((step.contention - free.contention).abs() < 1e-9 && free.input == 0.0, "{step:?}");
    plan.machine.input = limited(1e6);
    assert_eq!(steps(&plan, "ddp", 12, Drive::Classes, 3)[2], free);
}

#[test]
fn a_straggler_delays_all_ranks() {
    let mut plan = plan(0.0);
    plan.jitter.straggler = 1.5;
    let step = steps(&plan, "ddp", 6, Drive::Classes, 3)[2];
    let compute = plan.config.model[0].forward_ms + plan.config.model[0].backward_ms;
    assert!((step.jitter - 0.5e-3 * compute).abs() < 1e-9);
}

/// The same sweep with noise that lasts and interruptions in its machine file; `cv` as in a configuration.
fn noisy(cv: Option<f64>) -> Plan {
    let Plan { mut config, mut machine, workloads, .. } = plan(0.0);
    config.jitter.cv = cv;
    let text = "
step_correlation = { value = 0.6, source = \"a test\" }
[interruptions.short]
per_second = { value = 3, source = \"a test\" }
duration_us = { value = 200, source = \"a test\" }";
    let mut noise: toml::Table = toml::from_str(text).unwrap();
    let correlation = noise.remove("step_correlation").unwrap().try_into().unwrap();
    machine.variability.as_mut().unwrap().step_correlation = Some(correlation);
    machine.interruptions = Some(noise["interruptions"].clone().try_into().unwrap());
    Plan::of(config, machine, workloads)
}

#[test]
fn the_noise_of_a_machine_is_its_files_unless_a_sweep_has_its_own() {
    let machine = noisy(None).jitter;
    assert_eq!(machine.step_correlation, 0.6);
    let short = Interruption { per_second: 3.0, duration_s: 2e-4 };
    assert_eq!(machine.interruptions, [short]);
    let own = noisy(Some(0.01)).jitter;
    assert_eq!((own.step_correlation, own.interruptions), (0.0, Vec::new()));
}

#[test]
fn noise_does_not_depend_on_the_number_of_threads() {
    let mut plan = noisy(None);
    plan.config.simulate.ranks = vec![6, 96];
    plan.config.policy.truncate(2);
    let simulated = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let all = pool.install(|| plan.run(|| ()));
        all.into_iter().map(|(_, simulated)| simulated.unwrap().steps).collect::<Vec<_>>()
    };
    assert_eq!(simulated(1), simulated(3));
}

/// A microsecond 10^5 times per second: a tenth of the computation, nearly the same on all ranks.
#[test]
fn interruptions_are_part_of_the_slowest_ranks_time() {
    let mut plan = plan(0.0);
    let step = |plan: &Plan| steps(plan, "ddp", 6, Drive::Classes, 3)[2];
    let alone = step(&plan);
    plan.jitter.interruptions = vec![Interruption { per_second: 1e5, duration_s: 1e-6 }];
    let interrupted = step(&plan);
    let compute = plan.config.model[0].forward_ms + plan.config.model[0].backward_ms;
    assert!((interrupted.jitter / (0.1e-3 * compute) - 1.0).abs() < 0.03, "{interrupted:?}");
    let longer_s = interrupted.time - alone.time;
    assert!((longer_s / interrupted.jitter - 1.0).abs() < 0.05, "{longer_s} {interrupted:?}");
}

/// Seeds differ more where noise lasts, but a step is as long on average.
#[test]
fn noise_that_lasts_spreads_means_of_steps_and_not_steps() {
    let mut plan = plan(0.03);
    let mut of = |correlation: f64| {
        plan.jitter.step_correlation = correlation;
        let (model, policy) = (&plan.config.model[0], plan.config.policy("ddp").unwrap());
        let data = DataPlane::new("nccl", &plan.machine, 6, 0.0, Engine::Rounds).unwrap();
        let case = Case { model, policy, ranks: 6 };
        let means = (0..300).map(|seed| {
            let job = plan.job(&case, &data, seed, Drive::Classes).unwrap();
            simulate(&job, 10).unwrap().iter().map(|step| step.jitter).sum::<f64>() / 10.0
        });
        let means: Vec<f64> = means.collect();
        let mean = means.iter().sum::<f64>() / 300.0;
        (mean, (means.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 300.0).sqrt())
    };
    let (independent, lasting) = (of(0.0), of(0.9));
    assert!((lasting.0 / independent.0 - 1.0).abs() < 0.1, "{lasting:?} {independent:?}");
    assert!(lasting.1 > 1.5 * independent.1, "{lasting:?} {independent:?}");
}

/// A policy's step in the steady state, without priorities and with them.
fn without_and_with(plan: &Plan, model: usize, policy: &Policy, ranks: usize) -> [Step; 2] {
    let model = &plan.config.model[model];
    let machine = &plan.machine;
    let data = DataPlane::new(&policy.data_plane, machine, ranks, 0.0, Engine::Rounds).unwrap();
    [false, true].map(|priority| {
        let policy = Policy { priority, ..policy.clone() };
        let case = Case { model, policy: &policy, ranks };
        let job = plan.job(&case, &data, 1, Drive::Classes).unwrap();
        simulate(&job, 5).unwrap()[4]
    })
}

/// All models, on few ranks and on many, in pieces and in one.
fn every_setting(mut look: impl FnMut(&str, &Policy, [Step; 2])) {
    let mut plan = plan(0.0);
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/summit-scaling.toml"));
    plan.config = Config::read(path).unwrap();
    plan.config.jitter.cv = Some(0.0);
    let mut plan = Plan::new(plan.config, path).unwrap();
    // Computation slows every message down, so that priorities have something to gain in many settings.
    plan.machine.interference.as_mut().unwrap().gpu_gb_s = None;
    for data_plane in ["nccl", "hierarchical:parameter-server", "server-nodes"] {
        for (overlap_latency, overlap_stages) in [(false, false), (true, false), (true, true)] {
            for (partition_mib, ranks) in [(0.0, 6), (4.0, 6), (0.0, 96), (4.0, 96), (1.0, 768)] {
                let policy = Policy {
                    partition_mib,
                    overlap_latency,
                    overlap_stages,
                    ..Policy::new("test", "ddp:1", data_plane)
                };
                for (index, model) in plan.config.model.iter().enumerate() {
                    let name = format!("{}, {ranks} ranks, {policy:?}", model.workload);
                    look(&name, &policy, without_and_with(&plan, index, &policy, ranks));
                }
            }
        }
    }
}

#[test]
fn priorities_never_cost_time_and_break_no_bound() {
    let mut gained = 0;
    every_setting(|name, policy, [without, with]| {
        // The last message may be another one, with another latency.
        let slack_s = if policy.overlap_latency { 5e-4 } else { 1e-9 };
        assert!(with.time <= without.time + slack_s, "{name}: {with:?} {without:?}");
        assert!(with.time >= with.compute, "{name}: {with:?}");
        if !policy.overlap_latency {
            assert!(with.time >= with.communicating, "{name}: {with:?}");
            assert!((with.communicating / without.communicating - 1.0).abs() < 1e-9, "{name}");
        }
        assert_eq!(
            (with.messages, with.cycles, with.compute),
            (without.messages, 0, without.compute)
        );
        gained += usize::from(with.time < 0.95 * without.time);
    });
    assert!(gained > 20, "priorities gained something in {gained} settings");
}

/// One rank sends nothing; a node of six has each bucket reduced before the next one is ready.
#[test]
fn where_communication_is_hidden_priorities_change_nothing() {
    let plan = plan(0.0);
    for ranks in [1, 6] {
        let policy = Policy::new("test", "ddp:1", "nccl");
        let [without, with] = without_and_with(&plan, 0, &policy, ranks);
        assert!((with.time - without.time).abs() < 1e-9, "{with:?} {without:?}");
        assert!(without.time < without.compute + 2e-3, "{without:?}");
    }
}

/// VGG's last layers have most of its parameters: by order they hold up the first, which are needed first.
#[test]
fn the_forward_pass_hides_what_it_does_not_need_yet() {
    let mut plan = plan(0.0);
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/summit-scaling.toml"));
    plan.config.model = Config::read(path).unwrap().model;
    plan.config.model.retain(|model| model.workload == "vgg16");
    // On a GPU ten times as fast, so that communication is exposed.
    plan.config.model[0].forward_ms /= 10.0;
    plan.config.model[0].backward_ms /= 10.0;
    let plan = Plan::new(plan.config, path).unwrap();
    let policy = |partition_mib| Policy {
        partition_mib,
        overlap_stages: true,
        ..Policy::new("test", "ddp:1", "hierarchical:parameter-server")
    };
    let [without, in_pieces] = without_and_with(&plan, 0, &policy(4.0), 768);
    let [_, whole] = without_and_with(&plan, 0, &policy(0.0), 768);
    let exposed = |step: Step| step.time - step.compute;
    assert!(exposed(in_pieces) < 0.7 * exposed(without), "{in_pieces:?} {without:?}");
    assert!(in_pieces.time < whole.time, "{in_pieces:?} {whole:?}");
}

#[test]
fn control_planes_with_negotiation_refuse_priorities() {
    let plan = plan(0.0);
    let model = &plan.config.model[0];
    let policy = Policy { priority: true, ..Policy::new("test", "bitvector", "nccl") };
    let data = DataPlane::new("nccl", &plan.machine, 6, 0.0, Engine::Rounds).unwrap();
    let job = plan.job(&Case { model, policy: &policy, ranks: 6 }, &data, 1, Drive::All).unwrap();
    let why = simulate(&job, 1).unwrap_err();
    assert!(matches!(&why, TrainingError::Priority { plane } if plane == "bitvector"), "{why}");
}

/// Agreed messages wait for the last rank; those without negotiation do not.
#[test]
fn ranks_that_start_apart_delay_agreed_messages() {
    let mut plan = plan(0.0);
    // The first step: later ones keep to the cycles' beat.
    let before = |plan: &Plan, policy: &str| steps(plan, policy, 96, Drive::Classes, 1)[0].time;
    let [bits, buckets] = ["horovod-bitvector", "ddp"].map(|policy| before(&plan, policy));
    let skew = Parameter { value: 300.0, low: None, high: None, source: "a test".into() };
    plan.machine.control.as_mut().unwrap().start_skew_us = Some(skew);
    let late_s = before(&plan, "horovod-bitvector") - bits;
    assert!((late_s - 3e-4).abs() < 1e-9, "{late_s}");
    assert_eq!(before(&plan, "ddp"), buckets);
}

/// If the host is fast, all is handed over at once, in messages as large as the threshold; the last one waits for the last
/// gradient. A host that is slower than the GPU changes nothing.
#[test]
fn messages_of_a_framework_that_runs_ahead_wait_for_their_last_gradient() {
    let name = "horovod-bitvector";
    let at = |launch_gradient_us: Option<f64>| {
        let mut plan = plan(0.0);
        let own = plan.config.policy.iter_mut().find(|policy| policy.name == name);
        own.unwrap().launch_gradient_us = launch_gradient_us;
        steps(&plan, name, 96, Drive::Classes, 3)[2]
    };
    let (without, ahead) = (at(None), at(Some(0.1)));
    assert!(ahead.messages < without.messages, "{ahead:?}\n{without:?}");
    let last_s = ahead.communicating / ahead.messages as f64;
    assert!(ahead.time - ahead.compute > last_s / 2.0, "{ahead:?}");
    let between = at(Some(50.0)).messages;
    assert!((ahead.messages..=without.messages).contains(&between), "{between}");
    assert_eq!(at(Some(1e5)), without);
}

#[test]
fn copies_of_single_tensors_delay_messages() {
    let mut plan = plan(0.0);
    let policy = "horovod-coordinator";
    let without = steps(&plan, policy, 96, Drive::Classes, 3)[2];
    let copy_us = Parameter { value: 1000.0, low: None, high: None, source: "assumed".into() };
    plan.machine.control.as_mut().unwrap().copy_us = Some(copy_us);
    let with = steps(&plan, policy, 96, Drive::Classes, 3)[2];
    assert!(with.time > without.time, "{with:?}\n{without:?}");
    let control = plan.machine.control.unwrap();
    assert_eq!((control.copying_s(1), control.copying_s(20)), (0.0, 20e-3));
}
