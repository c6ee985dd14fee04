//! The engine: every control plane with every algorithm, on real threads.

use std::time::Duration;

use algorithms::control::{self, DataType, ReduceOp};
use algorithms::listed::Listed;
use algorithms::registry::{Choice, find};
use algorithms::topology::Topology;
use harness::allreduce::Sizes;
use harness::config::Config;
use harness::engine::{self, Job, Outcome, RankMemory};
use harness::plan::Plan;
use harness::provenance::{Launch, Provenance};
use harness::record::{Earlier, Store};
use harness::replay::StepTimes;
use harness::row::Status;
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
    steps: usize,
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
            steps: 3,
        }
    }
}

fn run(setting: &Setting, workload: &Workload) -> Outcome {
    let algorithm = find(setting.algorithm).unwrap();
    run_choices(setting, workload, &algorithm.choices(&setting.topology).unwrap())
}

fn run_choices(setting: &Setting, workload: &Workload, choices: &[Choice]) -> Outcome {
    let job = Job {
        workload,
        times: StepTimes {
            forward: Duration::from_micros(300),
            backward: Duration::from_millis(8),
            optimizer: Duration::from_micros(100),
        },
        topology: &setting.topology,
        dtype: setting.dtype,
        op: setting.op,
        algorithm: &*find(setting.algorithm).unwrap(),
        choices,
        groups: 3,
        control_plane: setting.plane,
        fusion_threshold_bytes: setting.threshold,
        cycle_time: Duration::from_secs_f64(setting.cycle_ms / 1e3),
        cache_capacity: setting.cache_capacity,
        sizes: Sizes { segment_bytes: setting.segment_bytes, packing_bytes: setting.packing_bytes },
        patience: Duration::from_secs(60),
        steps: setting.steps,
        seed: 99,
        recorder: None,
    };
    let mut memories = Vec::new();
    memories.resize_with(setting.topology.ranks(), RankMemory::default);
    let outcome = engine::run(&job, &mut memories).unwrap();
    for rank in &outcome.ranks {
        assert_eq!(rank.steps.len(), setting.steps);
        assert_eq!(rank.cycles.len(), outcome.ranks[0].cycles.len(), "a cycle is all ranks'");
        let same = rank.messages.iter().zip(&outcome.ranks[0].messages);
        assert!({ same }.all(|(a, b)| (a.tensors, a.elements) == (b.tensors, b.elements)));
        for step in 0..setting.steps {
            let of_step = || rank.messages.iter().filter(|message| message.step == step);
            let tensors: usize = of_step().map(|message| message.tensors).sum();
            let elements: usize = of_step().map(|message| message.elements).sum();
            assert_eq!((tensors, elements), (workload.gradients.len(), workload.elements()));
            assert!(rank.steps[step].time >= job.times.forward + job.times.backward);
        }
    }
    outcome
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
    ] {
        for plane in control::NAMES {
            let setting = Setting { plane, topology: setting.topology.clone(), ..setting };
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
    let choice = plan.cases[1].choices.as_mut().unwrap().pop().unwrap();
    let mut broken = Listed::of(&*choice.schedule);
    broken.steps.pop();
    plan.cases[1].choices = Ok(vec![Choice { schedule: Box::new(broken), ..choice }]);
    let provenance = Provenance::new(&plan, Launch::now());
    let mut store = Store::create(&folder.path().join("run"), &provenance).unwrap();
    let progress = indicatif::ProgressBar::hidden();
    let report =
        harness::sweep::run(&plan, &mut store, Earlier::default(), &[Launch::now()], &progress);
    let rows = report.unwrap().rows;
    assert_eq!((rows[0].status, rows[0].wrong), (Status::Ok, Some(0)));
    assert_eq!(rows[1].status, Status::Wrong);
    assert!(rows[1].wrong > Some(100), "{:?}", rows[1].wrong);
    assert!(rows[1].first_wrong.starts_with("rank 1, element 0: got "), "{}", rows[1].first_wrong);
    let text = harness::summary::text(&rows);
    assert!(text.contains("WRONG       threads/3x1/bitvector/tree/1MiB/0.5ms"), "{text}");
}
