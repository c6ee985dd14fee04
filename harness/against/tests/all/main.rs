//! Plans, engines and comparisons, with programs that stand in for launcher, kolo and Horovod.

mod agenda;
mod autotune;
mod ddp;
mod exposed;
mod messages;
mod packs;
mod resident;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use against::block::{BlockRow, Runner};
use against::comparison::{Comparison, ComparisonRow};
use against::counted::Distance;
use against::engine::{BlockError, Engine, Steps};
use against::horovod::Horovod;
use against::launcher::Launcher;
use against::plan::{Compared, Origin, Plan, Turn, Unrepresented};
use against::report;
use against::rounds::further;
use against::run::Run;
use results::toml_file::TomlFile;

const CONFIG: &str = "workload = \"resnet50\"\n[step]\nbackward_ms = 1\n[sweep]\ntransport = [\"mpi\"]\n\
    topology = [\"1x2\"]\ncontrol_plane = [\"coordinator\", \"bitvector\"]\nalgorithm = [\"mpi-allreduce\"]\n\
    fusion_threshold_mib = [4, 64]\ncycle_time_ms = [1]\n\
    [measure]\nwarmup_steps = 1\nsteps_per_block = 6\nblocks_min = 6\nblocks_max = 6\n";

/// The plan of configurations named `first`, `second`.
fn plan(texts: &[&str]) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let workloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/workloads");
    let origin = |(name, text): (&&str, &&str)| {
        let path = folder.path().join(format!("{name}.toml"));
        let workload = workloads.join("resnet50.csv").display().to_string();
        fs::write(&path, text.replace("resnet50", &workload)).unwrap();
        Origin::read(&TomlFile::read(&path).unwrap()).unwrap()
    };
    Plan::new(["first", "second"].iter().zip(texts).map(origin).collect())
}

#[test]
fn every_case_comes_once_per_round_with_its_three_blocks_together() {
    let plan = plan(&[CONFIG, &CONFIG.replace("blocks_min = 6", "blocks_min = 2")]);
    let order = plan.order();
    assert_eq!((plan.cases.len(), order.len()), (8, 3 * (4 * 6 + 4 * 2)));
    for three in order.chunks(3) {
        let mut runners: Vec<Runner> = three.iter().map(|turn| turn.runner).collect();
        runners.sort();
        assert_eq!(runners, Runner::ALL);
        assert!(
            three.iter().all(|turn| (turn.case, turn.block) == (three[0].case, three[0].block))
        );
    }
    let blocks: Vec<usize> = order.iter().map(|turn| turn.block).collect();
    assert!(blocks.is_sorted(), "a round ends before the next begins");
    let cases = |block| -> Vec<usize> {
        let own = order.iter().filter(|turn| turn.block == block).step_by(3);
        own.map(|turn| turn.case).collect()
    };
    assert_ne!(cases(0), cases(1), "orders are random");
    assert_eq!(order, plan.order(), "and the same for the same seed");
}

#[test]
fn cases_that_horovod_cannot_run_are_left_out_with_the_reason() {
    let left_out = |from: &str, to: &str| {
        let text = CONFIG.replace(from, to);
        assert_ne!(text, CONFIG);
        plan(&[&text]).left_out
    };
    let both = left_out("[\"mpi\"]", "[\"mpi\", \"threads\"]");
    assert_eq!(both, [(Unrepresented::Transport, 4)]);
    let tree = left_out("[\"mpi-allreduce\"]", "[\"tree\", \"mpi-allreduce\"]");
    assert_eq!(tree, [(Unrepresented::Algorithm, 4)]);
    let ring = left_out("[\"mpi-allreduce\"]", "[\"ring\", \"mpi-allreduce\"]");
    assert_eq!(ring, [], "Gloo's");
    let ddp = left_out("[\"coordinator\", \"bitvector\"]", "[\"bitvector\", \"ddp\"]");
    assert_eq!(ddp, [(Unrepresented::ControlPlane, 2)]);
    let cast = left_out("[sweep]", "[framework]\ncompression = \"bf16\"\n[sweep]");
    assert_eq!(cast, [(Unrepresented::Compression, 4)]);
    let average = "[framework]\naverage_aggregated_gradients = true\n[sweep]";
    assert_eq!(left_out("[sweep]", average), [(Unrepresented::AverageAggregated, 4)]);
    let sum = left_out("[sweep]", "[data]\nop = \"sum\"\n[sweep]");
    assert_eq!(sum, [(Unrepresented::Data, 4)]);
    assert_eq!(report::left_out(sum[0].0, 1).split(':').next(), Some("1 case is left out"));
}

/// Rows of steps that a function of the turn gives, in ms.
fn rows(plan: &Plan, step_ms: impl Fn(&Turn) -> f64) -> Vec<BlockRow> {
    let row = |(order, turn): (usize, Turn)| BlockRow {
        case: plan.cases[turn.case].name.clone(),
        block: turn.block,
        order,
        engine: turn.runner.name().into(),
        status: "ok".into(),
        steps: 2,
        step_ms: Some(step_ms(&turn)),
        ..BlockRow::default()
    };
    plan.order().into_iter().enumerate().map(row).collect()
}

#[test]
fn a_comparison_finds_what_was_put_in() {
    let plan = plan(&[CONFIG]);
    // Case 3 is best for kolo, and second for Horovod; kolo's step is 10 % longer than Horovod's in case 0.
    let kolo = [110.0, 70.0, 60.0, 45.0];
    let horovod = [100.0, 70.0, 48.0, 50.0];
    let comparison = Comparison::of(
        &plan,
        &rows(&plan, |turn| {
            let drift = 1.0 + 0.01 * turn.block as f64;
            drift
                * match turn.runner {
                    Runner::Kolo => kolo[turn.case],
                    Runner::Horovod => horovod[turn.case],
                    Runner::Control => 1.02 * horovod[turn.case],
                }
        }),
    );
    let first = &comparison.cases[0];
    assert_eq!((first.blocks, first.kolo.as_ref().unwrap().samples), (6, 6));
    assert_eq!(first.horovod.as_ref().unwrap().samples, 12, "both of Horovod's");
    let ratio = first.ratio.unwrap();
    assert!((ratio.ratio - 1.1 / 1.02_f64.sqrt()).abs() < 1e-9, "{ratio:?}");
    assert!(!ratio.may_be_one(), "drift cancels in pairs: {ratio:?}");
    assert!((first.control.unwrap().ratio - 1.0 / 1.02).abs() < 1e-9);
    let group = &comparison.groups[0];
    assert_eq!((&*group.name, group.settings), ("first 1x2", 4));
    assert_eq!(group.best, plan.cases[3].name);
    assert!((group.regret - 2.0 / 48.0).abs() < 1e-3, "{group:?}");
    assert_eq!(group.rank_correlation, Some(0.8), "two neighbours are exchanged");
    let overall = comparison.overall.unwrap();
    // Cases 2 and 3 are exchanged.
    assert_eq!((overall.cases, overall.distinct_pairs, overall.ordered_alike), (4, 6, 5));
    assert!(overall.worst_error > 0.2 && overall.close < 0.5, "{overall:?}");
    assert!((overall.median_control - 0.0196).abs() < 1e-3, "{overall:?}");
    let text = report::text(&plan, &comparison);
    let worst = text.lines().find(|line| line.contains("first:mpi/")).unwrap();
    assert!(worst.contains(&plan.cases[2].name), "the worst comes first:\n{text}");
    assert!(text.contains("faster setting       the same in 5 of 6 pairs of settings"), "{text}");
}

/// In block 2 the processors were elsewhere while Horovod ran, in block 3 before its control ended. Kolo's and the control's block of
/// the one and Horovod's of the other make up a round.
#[test]
fn blocks_whose_processors_have_moved_do_not_count() {
    let plan = plan(&[CONFIG]);
    let mut all = rows(&plan, |turn| match (turn.block, turn.runner) {
        (2, Runner::Horovod) => 90.0,
        _ => 60.0,
    });
    for row in &mut all {
        let ns = match (row.block, &*row.engine) {
            (2, "horovod") => [190.0, 195.0],
            (3, "control") => [39.0, 188.0],
            (4, _) => [186.0, 190.0],
            _ => [38.0, 41.0],
        };
        [row.core_to_core_ns_least, row.core_to_core_ns_most] = ns.map(Some);
    }
    let comparison = Comparison::of(&plan, &all);
    for case in &comparison.cases {
        assert_eq!((case.blocks, case.moved_blocks), (5, 1));
        assert_eq!((case.ratio.unwrap().ratio, case.control.unwrap().ratio), (1.0, 1.0));
    }
    let text = report::text(&plan, &comparison);
    let line = format!(
        "the hypervisor moved the processors: {}: 1 of 6 blocks do not count",
        plan.cases[0].name
    );
    assert!(text.contains(&line), "{text}");
}

/// Of the second case a round does not count, of the third its block failed.
#[test]
fn rounds_that_do_not_count_are_run_again() {
    let plan = plan(&[&CONFIG.replace("blocks_max = 6", "blocks_max = 8")]);
    let (near, far) = ([38.0, 41.0], [186.0, 190.0]);
    let mut all = rows(&plan, |_| 60.0);
    let is_of = |row: &BlockRow, case: usize| row.case == plan.cases[case].name;
    for row in &mut all {
        let is_elsewhere = row.block == 1 && row.engine == "kolo";
        [row.core_to_core_ns_least, row.core_to_core_ns_most] =
            if is_elsewhere && (is_of(row, 1) || is_of(row, 2)) { far } else { near }.map(Some);
        if is_elsewhere && is_of(row, 2) {
            (row.status, row.step_ms) = ("failed".into(), None);
        }
    }
    let runners = |turns: &[Turn], block: usize| {
        assert!(turns.iter().all(|turn| (turn.case, turn.block) == (1, block)), "{turns:?}");
        turns.iter().map(|turn| turn.runner).collect::<BTreeSet<Runner>>().len()
    };
    for block in 6..8 {
        let turns = further(&plan, &all);
        assert_eq!((turns.len(), runners(&turns, block)), (3, 3));
        // The processors move again in the first further round.
        let row = |turn: &Turn| BlockRow {
            case: plan.cases[turn.case].name.clone(),
            block,
            engine: turn.runner.name().into(),
            step_ms: Some(60.0),
            core_to_core_ns_least: Some(38.0),
            core_to_core_ns_most: Some(if block == 6 { 190.0 } else { 38.0 }),
            ..BlockRow::default()
        };
        all.extend(turns.iter().map(row));
    }
    assert_eq!(further(&plan, &all), [], "six count");
    all.iter_mut()
        .filter(|row| row.block == 7)
        .for_each(|row| row.core_to_core_ns_most = Some(190.0));
    assert_eq!(further(&plan, &all), [], "there are eight");
}

#[test]
fn failures_and_noise_are_reported() {
    let plan = plan(&[CONFIG]);
    let mut all = rows(&plan, |turn| match turn.runner {
        Runner::Control => 80.0,
        _ => 60.0,
    });
    let by = |row: &&mut BlockRow, engine: &str| row.order < 9 && row.engine == engine;
    all.iter_mut().filter(|row| by(row, "kolo")).for_each(|row| row.long_steps = 2);
    all.iter_mut().filter(|row| by(row, "control")).for_each(|row| row.long_steps = 1);
    let comparison = Comparison::of(&plan, &all);
    let text = report::text(&plan, &comparison);
    // Nine turns are three cases, each by every runner.
    let long = |line: &&str| line.ends_with("kolo 2 of 12 steps, Horovod 1 of 24 steps");
    assert_eq!(text.lines().filter(long).count(), 3, "{text}");
    let shares = |row: ComparisonRow| (row.kolo_long_share, row.horovod_long_share);
    let long: Vec<_> = comparison.cases.iter().map(|case| shares(case.row())).collect();
    let (some, none) = ((Some(2.0 / 12.0), Some(1.0 / 24.0)), (Some(0.0), Some(0.0)));
    assert_eq!(long.iter().filter(|&&shares| shares == some).count(), 3);
    assert_eq!(long.iter().filter(|&&shares| shares == none).count(), 1);
    let failing = plan.cases[1].name.clone();
    all.retain(|row| row.case != failing || row.block == 0);
    for row in all.iter_mut().filter(|row| row.case == failing && row.engine == "horovod") {
        *row = BlockRow {
            status: "failed".into(),
            reason: "rank 1 is gone".into(),
            step_ms: None,
            ..row.clone()
        };
    }
    let comparison = Comparison::of(&plan, &all);
    assert_eq!(comparison.cases[1].ratio, None, "without a control there is no comparison");
    assert_eq!(comparison.overall.unwrap().cases, 3);
    let text = report::text(&plan, &comparison);
    assert!(text.contains(&format!("failed: {failing}: horovod: rank 1 is gone")), "{text}");
    let noisy = format!(
        "too noisy to compare: {}: Horovod differs from itself by 25.0 %",
        plan.cases[0].name
    );
    assert!(text.contains(&noisy), "{text}");
    assert!(Comparison::of(&plan, &[]).overall.is_none());
}

/// An engine whose steps take as long as it says, and that fails where it is told to.
struct Fake {
    runs: usize,
    fails_at: Option<usize>,
}

impl Engine for Fake {
    fn about(&self) -> String {
        "a fake".into()
    }

    fn run(&mut self, _: &Plan, _: &Compared) -> Result<Steps, BlockError> {
        self.runs += 1;
        if self.fails_at == Some(self.runs) {
            return Err(BlockError::Result("rank 1 is gone".into()));
        }
        let times_ms = vec![2.0, 1.0, 30.0];
        Ok(Steps { times_ms, moments_s: None, ends_s: Vec::new(), shares: None })
    }
}

#[test]
fn a_run_that_was_killed_goes_on_with_the_block_that_was_cut_off() {
    let plan = plan(&[CONFIG]);
    let folder = tempfile::tempdir().unwrap();
    let finish = |fails_at| {
        let [mut kolo, mut horovod] =
            [Fake { runs: 0, fails_at }, Fake { runs: 0, fails_at: None }];
        let run = Run::open(&plan, folder.path()).unwrap();
        let rows =
            run.finish(&plan.order(), Distance::Usual, &mut kolo, &mut horovod, |_| {}).unwrap();
        (rows, kolo.runs + horovod.runs)
    };
    let (all, runs) = finish(None);
    assert_eq!((all.len(), runs), (4 * 6 * 3, 4 * 6 * 3));
    assert!(all.iter().all(|row| row.step_ms == Some(2.0) && row.max_ms == Some(30.0)));
    assert!(all.iter().all(|row| (row.long_steps, row.steps) == (1, 3)), "of 1, 2 and 30 ms");
    let path = folder.path().join("blocks.csv");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // Five blocks, and a part of the sixth.
    fs::write(&path, format!("{}\n{}", lines[..6].join("\n"), &lines[6][..9])).unwrap();
    let (rows, runs) = finish(None);
    assert_eq!((rows.len(), runs), (4 * 6 * 3, 4 * 6 * 3 - 5));
    let orders: Vec<usize> = rows.iter().map(|row| row.order).collect();
    assert_eq!(orders, (0..4 * 6 * 3).collect::<Vec<_>>(), "each block once");
    fs::remove_file(&path).unwrap();
    let (rows, runs) = finish(Some(2));
    let failed: Vec<&BlockRow> = rows.iter().filter(|row| row.status == "failed").collect();
    assert_eq!((failed.len(), &*failed[0].reason), (1, "rank 1 is gone"));
    assert!(rows.iter().all(|row| row.case != failed[0].case || row.order <= failed[0].order));
    assert_eq!(rows.len(), runs);
    assert_eq!(finish(None).1, 0, "a case that was given up stays so");
}

/// A program in a folder.
fn program(folder: &Path, name: &str, script: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// What a Python with Horovod answers when it is asked for its versions.
const PROBED: &str = "if [ \"$1\" = -c ]; then echo 'PROBE {\"horovod\": \"0.28.1\", \"torch\": \"2.0.1\", \
    \"python\": \"3.11.2\", \"mpi\": MPI, \"gloo\": false}'; exit; fi";

/// Horovod's own launcher starts ranks over Gloo, and stands beside the Python.
#[test]
fn a_ring_is_gloos_and_needs_horovod_with_gloo() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(&[&CONFIG.replace("[\"mpi-allreduce\"]", "[\"mpi-allreduce\", \"ring\"]")]);
    let find = |name: &str, gloo: &str| {
        let probed = PROBED.replace("MPI", "true").replace("false", gloo);
        let python = program(folder.path(), name, &probed);
        let launcher = Launcher::parse("false {ranks}").unwrap();
        Horovod::find(&python, launcher, folder.path()).unwrap()
    };
    let of =
        |algorithm: &str| plan.cases.iter().find(|case| case.case.algorithm == algorithm).unwrap();
    let error = find("without", "false").check(&plan).unwrap_err().to_string();
    let expected = format!("built without Gloo, which {} needs", of("ring").name);
    assert!(error.contains(&expected), "{error}");
    let reports = "echo \"$*\" >&2; echo \"[0]<stdout>:KOLO-REPORT {\\\"ranks\\\": 2, \\\"steps_ms\\\": [1]}\"";
    program(folder.path(), "horovodrun", reports);
    let mut horovod = find("with", "true");
    horovod.check(&plan).unwrap();
    assert_eq!(horovod.run(&plan, of("ring")).unwrap().times_ms, [1.0]);
    let said = fs::read_to_string(folder.path().join("horovod-output")).unwrap();
    assert!(said.starts_with("--gloo --network-interfaces lo -np 2 "), "{said}");
    assert!(horovod.run(&plan, of("mpi-allreduce")).is_err(), "by the other launcher");
}

#[test]
fn horovod_is_started_with_the_script_and_the_setting_of_the_case() {
    let folder = tempfile::tempdir().unwrap();
    let probed = PROBED.replace("MPI", "true");
    let worker = "grep -c '\"first:' \"$1\" >&2; echo \"KOLO-REPORT {\\\"ranks\\\": $RANKS, \\\"steps_ms\\\": [1, ${2#*=}]}\"";
    let python = program(folder.path(), "python", &format!("{probed}\n{worker}"));
    let launcher = |ranks: &str| Launcher::parse(&format!("env RANKS={ranks}")).unwrap();
    let plan = plan(&[CONFIG]);
    let mut horovod = Horovod::find(&python, launcher("{ranks}"), folder.path()).unwrap();
    assert_eq!(horovod.about(), "Horovod 0.28.1 with MPI; PyTorch 2.0.1; Python 3.11.2");
    for (index, case) in plan.cases.iter().enumerate() {
        assert_eq!(
            horovod.run(&plan, case).unwrap().times_ms,
            [1.0, index as f64],
            "the setting's number"
        );
    }
    assert_eq!(
        fs::read_to_string(folder.path().join("horovod-output")).unwrap().lines().next(),
        Some("5"),
        "the cases, and one without options for the times of the framework's thread"
    );
    let mut alone = Horovod::find(&python, launcher("1{ranks}"), folder.path()).unwrap();
    let error = alone.run(&plan, &plan.cases[0]).unwrap_err().to_string();
    assert_eq!(error, "Horovod found 12 ranks, expected 2");
}

#[test]
fn horovod_without_mpi_or_with_a_dead_rank_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let launcher = || Launcher::parse("env RANKS={ranks}").unwrap();
    let python = program(folder.path(), "without", &PROBED.replace("MPI", "false"));
    let error = Horovod::find(&python, launcher(), folder.path()).err().unwrap().to_string();
    assert_eq!(error, "Horovod 0.28.1 was built without MPI; build it with HOROVOD_WITH_MPI=1");
    let dies = "echo 'mpirun noticed that process rank 1 with PID 77 on node a exited on signal 9 (Killed).'; exit 137";
    let python =
        program(folder.path(), "dies", &format!("{}\n{dies}", PROBED.replace("MPI", "true")));
    let mut horovod = Horovod::find(&python, launcher(), folder.path()).unwrap();
    let plan = plan(&[CONFIG]);
    let error = horovod.run(&plan, &plan.cases[0]).unwrap_err().to_string();
    assert!(error.contains("exit status: 137; mpirun noticed that process rank 1"), "{error}");
}
