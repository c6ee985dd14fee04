//! Tests from a plan to rows.

use algorithms::listed::Listed;
use measure::config::Config;
use measure::executor::Local;
use measure::plan::Plan;
use measure::sweep::Course;
use results::provenance::{Launch, Provenance};
use results::record::{Earlier, Store};
use results::row::{CaseOutcome, Status, StepRow};
use transports::data_plane::{DataPlane, Schedules};
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

/// The rows of a sweep.
pub fn rows(mut plan: Plan) -> Vec<StepRow> {
    let mut local = Local::open(&mut plan, &mut Launch::now()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let provenance = Provenance::new(&plan, Launch::now());
    let mut store = Store::create(&folder.path().join("run"), &provenance).unwrap();
    let report = measure::sweep::run(
        &plan,
        &mut store,
        Earlier::default(),
        &[Launch::now()],
        &Course::default(),
        &mut local,
        &indicatif::ProgressBar::hidden(),
    );
    report.unwrap().rows
}

/// A schedule that forgets its last step is measured, found out, and recorded as wrong.
#[test]
fn a_wrong_sum_is_a_row_with_its_first_element() {
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
    let Ok(DataPlane::Ours(Schedules { choices, .. })) = &mut plan.cases[1].data_plane else {
        panic!()
    };
    let mut broken = Listed::of(&*choices[0].schedule);
    broken.steps.pop();
    choices[0].schedule = Box::new(broken);
    let rows = rows(plan);
    assert_eq!(rows[0].outcome.right().unwrap().effort.wrong, Some(0));
    let CaseOutcome::Wrong { result, .. } = &rows[1].outcome else { panic!("{:?}", rows[1]) };
    let effort = &result.effort;
    assert!(effort.wrong > Some(100), "{:?}", effort.wrong);
    assert!(effort.first_wrong.starts_with("rank 1, element 0: got "), "{}", effort.first_wrong);
    let text = measure::summary::text(&rows);
    assert!(text.contains("WRONG       threads/3x1/bitvector/tree/1MiB/0.5ms"), "{text}");
}

/// The effect of options on a row.
#[test]
fn rows_record_the_options() {
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
    let rows = rows(plan);
    let text = measure::summary::text(&rows);
    assert!(text.contains("; 3 backward passes per step, f32 cast to fp16, "), "{text}");
    for row in rows {
        let StepRow { setting, outcome, bound_us } = row;
        assert_eq!(outcome.status(), Status::Ok, "{}", outcome.reason());
        assert_eq!((setting.key.dtype.as_str(), setting.key.size_bytes), ("f32", 2 * elements));
        let (training, framework) = (&setting.training, &setting.framework);
        assert_eq!((training.groups, framework.grouping.as_str()), (12, "layers"));
        assert_eq!(training.compression, "fp16");
        assert_eq!(training.backward_passes_per_step, Some(3));
        assert_eq!(framework.gradient_predivide_factor, Some(2.0));
        let result = outcome.right().unwrap();
        assert_eq!(result.effort.wrong, Some(0));
        assert!(result.compression_us_p50 > Some(0.0));
        let added = result.aggregation_us_p50.filter(|&added| added > 0.0).unwrap();
        assert!((bound_us - 8500.0 - added).abs() < 0.01, "{bound_us} us");
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
            "framework.groups: workload uneven has no gradient \"layer12\"",
        ),
        (
            "compression = \"bf16\"\nbackward_passes_per_step = 100",
            "bf16 sums over 4 ranks and 100",
        ),
        ("compression = \"fp16\"\ngradient_predivide_factor = 1e6", "which f16 does not hold"),
    ] {
        let plan = plan(options);
        let Err(reason) = &plan.cases[0].data_plane else { panic!("{options} is accepted") };
        assert!(reason.to_string().contains(expected), "{reason}");
    }
    let warnings = plan("groups = 2").warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("2 of 2 groups are larger than the fusion threshold of 1024 b")
    );
    assert_eq!(plan("").warnings(), [""; 0]);
}
