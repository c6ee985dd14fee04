//! The engine: every control plane with every algorithm, on real threads.

use std::time::{Duration, Instant};

use algorithms::control::{self, DataType, ReduceOp, StallCheck};
use algorithms::listed::Listed;
use algorithms::registry::find;
use algorithms::topology::Topology;
use harness::allreduce::Sizes;
use harness::config::Config;
use harness::crew::Threads;
use harness::data_plane::DataPlane;
use harness::engine::{self, EngineError, Fault, Job, Outcome, RankMemory};
use harness::framework::{Compression, Framework};
use harness::groups::Groups;
use harness::plan::Plan;
use harness::provenance::{Launch, Provenance};
use harness::record::{Earlier, Store};
use harness::replay::StepTimes;
use harness::row::Status;
use harness::sweep::Course;
use harness::workload::{Gradient, Workload};

/// `count` gradients of uneven sizes that become ready one after the other, the last one first.
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

struct Setting<'a> {
    plane: &'a str,
    algorithm: &'a str,
    topology: Topology,
    dtype: DataType,
    op: ReduceOp,
    threshold: usize,
    cycle_ms: f64,
    cache_capacity: usize,
    segment_bytes: usize,
    packing_bytes: usize,
    backward: Duration,
    patience: Duration,
    steps: usize,
    framework: Framework,
    disable_group_fusion: bool,
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
            patience: Duration::from_secs(60),
            steps: 3,
            framework: Framework::default(),
            disable_group_fusion: false,
        }
    }
}

fn run(setting: &Setting, workload: &Workload) -> Outcome {
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
            let passes = setting.framework.backward_passes_per_step as u32;
            assert!(rank.steps[step].time >= (FORWARD + setting.backward) * passes);
        }
    }
    outcome
}

/// The forward part of a pass.
const FORWARD: Duration = Duration::from_micros(300);

fn try_run(setting: &Setting, workload: &Workload) -> Result<Outcome, EngineError> {
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
        },
        topology: &setting.topology,
        dtype: setting.dtype,
        op: setting.op,
        data_plane: &data_plane,
        framework: &setting.framework,
        groups: &groups,
        disable_group_fusion: setting.disable_group_fusion,
        control_plane: setting.plane,
        stall_check: None,
        fusion_threshold_bytes: setting.threshold,
        cycle_time: Duration::from_secs_f64(setting.cycle_ms / 1e3),
        cache_capacity: setting.cache_capacity,
        sizes: Sizes { segment_bytes: setting.segment_bytes, packing_bytes: setting.packing_bytes },
        patience: setting.patience,
        steps: setting.steps,
        seed: 99,
        recorder: None,
        fault: None,
    };
    let mut memories = Vec::new();
    memories.resize_with(setting.topology.ranks(), RankMemory::default);
    engine::run(&job, &mut memories)
}

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

/// Passes, types, casts, worlds; and, taken in turns, all that may go with them.
#[test]
fn every_number_of_passes_type_and_cast_is_exact() {
    let workload = workload(14);
    let groups = [None, Some(Groups::Even(3)), Some(Groups::Named("layers".into()))];
    let mut turn = 0;
    for dtype in DataType::ALL {
        for compression in [Compression::None, Compression::Fp16, Compression::Bf16] {
            for ranks in 1..=4 {
                for passes in [1, 2, 3, 5] {
                    turn += 1;
                    let algorithms = ["ring", "tree", "grouped-scattered", "grouped"];
                    let average = !dtype.is_integer() && turn % 3 != 0;
                    let factor = |often: usize, factor| match turn % often == 0 && average {
                        true => factor,
                        false => 1.0,
                    };
                    let setting = Setting {
                        algorithm: algorithms[turn % algorithms.len()],
                        topology: Topology::flat(ranks),
                        dtype,
                        op: if average { ReduceOp::Average } else { ReduceOp::Sum },
                        packing_bytes: [0, 300][turn % 2],
                        threshold: [0, 700, 1 << 20][turn % 3],
                        backward: Duration::from_micros(600),
                        cycle_ms: 0.2,
                        steps: 2,
                        framework: Framework {
                            backward_passes_per_step: passes,
                            average_aggregated_gradients: average && turn % 5 < 2,
                            compression,
                            gradient_predivide_factor: factor(4, 4.0),
                            prescale_factor: factor(5, 0.5),
                            postscale_factor: factor(7, 3.0),
                            groups: groups[turn % groups.len()].clone(),
                        },
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
        let cast =
            |rank: &engine::RankLog| rank.steps.iter().all(|step| !step.work.compression.is_zero());
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
    let whole = |message: &engine::RankMessage| message.tensors.is_multiple_of(6);
    assert!(outcome.ranks[0].messages.iter().all(whole));
}

/// A gradient that never becomes ready ends the job, by name, instead of leaving it hanging.
#[test]
fn a_gradient_that_never_becomes_ready_is_named() {
    let mut workload = workload(9);
    workload.gradients[4].ready_fraction = f64::INFINITY;
    let listed = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let lists = Groups::Listed(vec![listed(&["layer8"]), listed(&["layer3", "layer4", "layer5"])]);
    for (groups, expected) in [
        (None, "the step waits for 1 of its 9 gradients: \"layer4\"; see that every gradient"),
        (Some(lists), "group 1 waits for 1 of its 3 gradients: \"layer4\"; see that"),
        (Some(Groups::Even(2)), "group 0 waits for 1 of its 5 gradients: \"layer4\"; see that"),
    ] {
        for plane in control::NAMES {
            let setting = Setting {
                plane,
                patience: Duration::from_millis(200),
                framework: Framework { groups: groups.clone(), ..Framework::default() },
                ..Setting::default()
            };
            let error = try_run(&setting, &workload).unwrap_err().to_string();
            assert!(error.contains("s after the last backward pass "), "{plane}: {error}");
            assert!(error.contains(expected), "{plane}: {error}");
        }
    }
}

/// A schedule that forgets its last step is measured, found out, and recorded as wrong.
#[test]
fn a_wrong_sum_is_a_row_with_its_first_element() {
    let folder = tempfile::tempdir().unwrap();
    let config: Config = toml::from_str(
        r#"
        workload = "uneven"
        step = { backward_ms = 2 }
        [sweep]
        topology = ["3x1"]
        control_plane = ["bitvector"]
        algorithm = ["ring", "tree"]
        fusion_threshold_mib = [1]
        cycle_time_ms = [0.5]
        [measure]
        steps_per_block = 3
        blocks_max = 2
        "#,
    )
    .unwrap();
    let mut plan = Plan::new(config, workload(12));
    let Ok(DataPlane::Ours { choices, .. }) = &mut plan.cases[1].data_plane else { panic!() };
    let mut broken = Listed::of(&*choices[0].schedule);
    broken.steps.pop();
    choices[0].schedule = Box::new(broken);
    let provenance = Provenance::new(&plan, Launch::now());
    let mut store = Store::create(&folder.path().join("run"), &provenance).unwrap();
    let progress = indicatif::ProgressBar::hidden();
    let report = harness::sweep::run(
        &plan,
        &mut store,
        Earlier::default(),
        &[Launch::now()],
        &Course::default(),
        &mut Threads::default(),
        &progress,
    );
    let rows = report.unwrap().rows;
    assert_eq!((rows[0].status, rows[0].wrong), (Status::Ok, Some(0)));
    assert_eq!(rows[1].status, Status::Wrong);
    assert!(rows[1].wrong > Some(100), "{:?}", rows[1].wrong);
    assert!(rows[1].first_wrong.starts_with("rank 1, element 0: got "), "{}", rows[1].first_wrong);
    let text = harness::summary::text(&rows);
    assert!(text.contains("WRONG       threads/3x1/bitvector/tree/1MiB/0.5ms"), "{text}");
}

/// What the options do to a row.
#[test]
fn rows_tell_the_options() {
    let folder = tempfile::tempdir().unwrap();
    let config: Config = toml::from_str(
        r#"
        workload = "uneven"
        step = { forward_ms = 0.5, backward_ms = 2, optimizer_ms = 1 }
        [framework]
        backward_passes_per_step = 3
        average_aggregated_gradients = true
        compression = "fp16"
        gradient_predivide_factor = 2
        groups = "layers"
        [sweep]
        topology = ["3x1"]
        control_plane = ["bitvector"]
        algorithm = ["ring", "grouped"]
        fusion_threshold_mib = [1]
        cycle_time_ms = [0.5]
        [measure]
        steps_per_block = 3
        blocks_max = 2
        "#,
    )
    .unwrap();
    let workload = workload(12);
    let elements = workload.elements();
    let plan = Plan::new(config, workload);
    assert_eq!(plan.warnings(), [""; 0]);
    let provenance = Provenance::new(&plan, Launch::now());
    let mut store = Store::create(&folder.path().join("run"), &provenance).unwrap();
    let progress = indicatif::ProgressBar::hidden();
    let report = harness::sweep::run(
        &plan,
        &mut store,
        Earlier::default(),
        &[Launch::now()],
        &Course::default(),
        &mut Threads::default(),
        &progress,
    );
    let rows = report.unwrap().rows;
    let text = harness::summary::text(&rows);
    assert!(text.contains("; 3 backward passes per step, f32 cast to fp16, "), "{text}");
    for row in rows {
        assert_eq!((row.status, row.wrong), (Status::Ok, Some(0)), "{}", row.reason);
        assert_eq!((row.dtype.as_str(), row.size_bytes), ("f32", 2 * elements));
        assert_eq!((row.groups, row.grouping.as_str()), (12, "layers"));
        assert_eq!((row.compression.as_str(), row.backward_passes_per_step), ("fp16", Some(3)));
        assert_eq!(row.gradient_predivide_factor, Some(2.0));
        assert!(row.compression_us_p50 > Some(0.0) && row.aggregation_us_p50 > Some(0.0));
        let (bound, added) = (row.bound_us.unwrap(), row.aggregation_us_p50.unwrap());
        assert!((bound - 8500.0 - added).abs() < 0.01, "{bound} us");
    }
}

/// Options that a workload or a type does not allow leave a row with the reason.
#[test]
fn options_that_cannot_be_run_are_unsupported() {
    let plan = |options: &str| {
        let text = format!(
            "workload = \"uneven\"\nstep = {{ backward_ms = 2 }}\n[framework]\n{options}\n[sweep]\n\
             topology = [\"4\"]\ncontrol_plane = [\"bitvector\"]\nalgorithm = [\"ring\"]\n\
             fusion_threshold_mib = [0.0005]\ncycle_time_ms = [1]"
        );
        Plan::new(toml::from_str(&text).unwrap(), workload(12))
    };
    for (options, expected) in [
        (
            "groups = [[\"layer1\", \"layer12\"]]",
            "framework.groups names gradient \"layer12\", which",
        ),
        (
            "compression = \"bf16\"\nbackward_passes_per_step = 100",
            "bf16 sums over 4 ranks and 100",
        ),
        ("compression = \"fp16\"\ngradient_predivide_factor = 1e6", "which f16 does not hold"),
    ] {
        let plan = plan(options);
        let Err(reason) = &plan.cases[0].data_plane else { panic!("{options} is accepted") };
        assert!(reason.contains(expected), "{reason}");
    }
    let warnings = plan("groups = 2").warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("2 of 2 groups are larger than the fusion threshold of 1024 b")
    );
    assert_eq!(plan("").warnings(), [""; 0]);
}

/// A job in which something goes wrong on rank 2 of 4.
fn run_with(fault: Fault, plane: &str, patience: Duration) -> Result<Outcome, EngineError> {
    let workload = workload(12);
    let topology = Topology::flat(4);
    let ring = DataPlane::ours(find("ring").unwrap(), &topology).unwrap();
    let job = Job {
        workload: &workload,
        times: StepTimes {
            forward: FORWARD,
            backward: Duration::from_millis(4),
            optimizer: Duration::ZERO,
        },
        topology: &topology,
        dtype: DataType::F32,
        op: ReduceOp::Sum,
        data_plane: &ring,
        framework: &Framework::default(),
        groups: &[],
        disable_group_fusion: false,
        control_plane: plane,
        stall_check: Some(StallCheck {
            warn_after: Duration::from_millis(100),
            shut_down_after: Some(Duration::from_millis(300)),
        }),
        fusion_threshold_bytes: 2000,
        cycle_time: Duration::from_millis(1),
        cache_capacity: 1024,
        sizes: Sizes { segment_bytes: 0, packing_bytes: 0 },
        patience,
        steps: 4,
        seed: 5,
        recorder: None,
        fault: Some(fault),
    };
    let mut memories = Vec::new();
    memories.resize_with(4, RankMemory::default);
    engine::run(&job, &mut memories)
}

const NEGOTIATING: [&str; 3] = ["coordinator", "tree:2", "bitvector"];

/// The error reaches every rank, names both values and both ranks, and the job goes on: all other
/// gradients are reduced, in every step, and are right.
#[test]
fn ranks_that_disagree_are_told_so_and_go_on() {
    for plane in NEGOTIATING {
        let fault = Fault::Mismatch { rank: 2, gradient: 5 };
        let outcome = run_with(fault, plane, Duration::from_secs(60)).unwrap();
        for rank in &outcome.ranks {
            assert_eq!(rank.steps.len(), 4, "{plane}");
            assert_eq!(rank.refused.len(), 4, "{plane}: once a step");
            for (gradient, error) in &rank.refused {
                assert_eq!(*gradient, 5);
                assert!(
                    error.starts_with("Mismatched shapes for tensor \"layer5\": rank "),
                    "{error}"
                );
                assert!(error.contains("[185]") && error.contains("[185, 1]"), "{error}");
                assert!(error.contains("rank 2 has"), "{error}");
            }
        }
        assert_eq!(outcome.wrong.count, 0, "{plane}: {:?}", outcome.wrong);
        let error = outcome.refusal().unwrap().to_string();
        assert!(error.ends_with("(4 such errors)"), "{error}");
    }
}

#[test]
fn a_gradient_that_one_rank_lacks_ends_the_job_for_all() {
    for plane in NEGOTIATING {
        let fault = Fault::Missing { rank: 2, gradient: 5 };
        let error = run_with(fault, plane, Duration::from_secs(60)).unwrap_err();
        let EngineError::ShutDown { unfinished } = &error else { panic!("{plane}: {error}") };
        assert!(unfinished == "layer5" || unfinished.starts_with("nothing"), "{plane}: {error}");
    }
}

/// Within the patience all others know, and name it.
#[test]
fn a_rank_that_dies_within_a_step_is_named_by_all_others() {
    // Long enough for ranks that only wait for a core not to be taken for dead.
    let patience = Duration::from_millis(1500);
    for plane in ["coordinator", "tree:2", "bitvector", "ddp"] {
        let start = Instant::now();
        let fault = Fault::Death { rank: 2, step: 1, lingers: Duration::from_secs(4) };
        let error = run_with(fault, plane, patience).unwrap_err().to_string();
        assert!(error.contains("for rank 2, which does not answer"), "{plane}: {error}");
        assert!(start.elapsed() < Duration::from_secs(20), "{plane}");
    }
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
