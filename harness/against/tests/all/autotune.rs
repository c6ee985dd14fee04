//! Both tuners' answers, and their regret, with programs that stand in for Horovod and kolo.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use against::block::{BlockRow, Runner};
use against::horovod::Horovod;
use against::host_times::{self, LoopTimes};
use against::launcher::Launcher;
use against::regret;
use against::tuners::{self, Chosen, KoloTune};

use crate::{CONFIG, PROBED, plan, program, rows};

/// A Python whose Horovod's autotune finds 8.5 MiB and 20 ms after 1250 steps, once it has failed as often as the file
/// `python-failures` says.
fn python(folder: &Path) -> std::path::PathBuf {
    let script = "
case \"$1\" in
*loop_times.py) [ \"$3\" = 0 ] && us=9.5 || us=3.5; report=\"{\\\"gradient_us\\\": $us}\";;
*autotune.py)
left=$(cat \"$0-failures\" 2>/dev/null || echo 0)
[ \"$left\" -gt 0 ] && { echo $((left - 1)) >\"$0-failures\"; echo Horovod has been shut down; exit 1; }
report=\"{\\\"finished\\\": true, \\\"steps\\\": 1250, \\\"seconds\\\": 99.5, \\\"settings\\\": 22, \
\\\"fusion_threshold_mib\\\": 8.5, \\\"cycle_time_ms\\\": 20, \\\"is_cached\\\": true}\";;
*) report=\"{\\\"ranks\\\": 2, \\\"steps_ms\\\": [1], \\\"wake_us\\\": 22, \\\"hand_over_us\\\": 8, \\\"take_back_us\\\": 0.5, \\\"framework_mib\\\": 167, \
\\\"add_mb_us\\\": 57, \\\"cast_mb_us\\\": 54, \\\"cast_back_mb_us\\\": 52}\";;
esac
echo \"KOLO-REPORT $report\"";
    program(folder, "python", &format!("{}{script}", PROBED.replace("MPI", "true")))
}

/// A kolo that recommends 4 MiB and 1 ms, and keeps the configuration that it was given.
fn kolo(folder: &Path) -> std::path::PathBuf {
    let setting = |bytes: usize| {
        format!(
            "{{\"control_plane\": \"bitvector\", \"fusion_threshold_bytes\": {bytes}, \"cycle_time_ms\": 1}}"
        )
    };
    let json = format!(
        "{{\"verdict\": \"change\", \"recommended\": {}, \"steps\": 125, \"seconds\": 8.5, \"compared\": \
         [{{\"setting\": {}, \"promised\": {{\"ratio\": 1.5, \"low\": 1.4, \"high\": 1.6}}}}]}}",
        setting(4 << 20),
        setting(128 << 20)
    );
    let kept = folder.join("asked.toml").display().to_string();
    program(
        folder,
        "kolo",
        &format!("cp \"$2\" {kept}; mkdir -p \"$4\"; echo '{json}' >\"$4/tune.json\"; exit 3"),
    )
}

#[test]
fn autotune_that_fails_is_asked_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let launcher = || Launcher::parse("env RANKS={ranks}").unwrap();
    let mut horovod = Horovod::find(&python(folder.path()), launcher(), folder.path()).unwrap();
    let (plan, scratch) = (plan(&[CONFIG]), folder.path());
    let tune = KoloTune { program: kolo(scratch), launcher: launcher(), scratch: scratch.into() };
    let lines = RefCell::new(Vec::new());
    let mut ask = |failures: usize| {
        fs::write(scratch.join("python-failures"), failures.to_string()).unwrap();
        let report = |line| lines.borrow_mut().push(line);
        tuners::answers(&plan, 0, &mut horovod, &tune, None, scratch, report)
    };
    let problem = ask(2).unwrap_err().to_string();
    assert!(problem.contains("Horovod has been shut down"), "{problem}");
    assert_eq!(ask(1).unwrap().autotune.unwrap().steps, 1250);
    let lines = lines.into_inner();
    let failed = lines.iter().filter(|line| line.contains("autotune failed, and runs once more: "));
    assert_eq!(failed.count(), 2, "{lines:?}");
}

#[test]
fn answers_are_asked_for_once_and_each_has_its_regret() {
    let folder = tempfile::tempdir().unwrap();
    let launcher = || Launcher::parse("env RANKS={ranks}").unwrap();
    let mut horovod = Horovod::find(&python(folder.path()), launcher(), folder.path()).unwrap();
    let mut plan = plan(&[CONFIG]);
    let own = &mut |_: &_, _, _| Ok(LoopTimes { fused_us: 1.0, alone_us: 2.0 });
    host_times::measure(&mut plan, &mut horovod, own, folder.path(), |_| {}).unwrap();
    let host = plan.origins[0].host;
    assert_eq!((host.wake_us, host.hand_over_us, host.take_back_us), (22.0, 8.0, 0.5));
    assert_eq!(host.framework_mib, 167.0);
    assert_eq!(
        (host.loop_gradient_us, host.loop_message_us),
        (2.5, 5.0),
        "beyond the engine's own"
    );
    let tune = KoloTune {
        program: kolo(folder.path()),
        launcher: launcher(),
        scratch: folder.path().into(),
    };
    let answers =
        tuners::answers(&plan, 0, &mut horovod, &tune, None, folder.path(), |_| {}).unwrap();
    let asked = fs::read_to_string(folder.path().join("asked.toml")).unwrap();
    for line in ["steps = 125", "topology = \"1x2\"", "wake_us = 22.0", "backward_ms = 1.0"] {
        assert!(asked.contains(line), "{line}:\n{asked}");
    }
    // Nothing is asked again: the programs are gone.
    fs::remove_file(folder.path().join("kolo")).unwrap();
    fs::remove_file(folder.path().join("python")).unwrap();
    let again =
        tuners::answers(&plan, 0, &mut horovod, &tune, None, folder.path(), |_| {}).unwrap();
    assert_eq!(answers, again);

    let named = regret::with_answers(&mut plan, 0, &answers);
    let answers = BTreeMap::from([("first".to_string(), answers)]);
    let names: Vec<&str> = plan.cases.iter().map(|case| case.name.as_str()).collect();
    // The configuration has 4 and 64 MiB with and without cache; the answer of kolo tune is among them.
    assert_eq!(names.len(), 4 + 2, "{names:?}");
    assert!(names[4].ends_with("bitvector/mpi-allreduce/8.5MiB/20ms"), "{names:?}");
    assert!(names[5].ends_with("bitvector/mpi-allreduce/128MiB/1ms"), "{names:?}");
    for case in &plan.cases {
        let is_engines = ["bitvector/mpi-allreduce/4MiB/1ms", "/128MiB/1ms"];
        let is_engines = is_engines.iter().any(|setting| case.name.ends_with(setting));
        let runners = [Runner::Horovod, Runner::Kolo];
        assert_eq!(case.runners, runners[..1 + usize::from(is_engines)], "{}", case.name);
    }
    // With cache 4 MiB takes 62 ms; without it, 60. The engine takes less.
    let step_ms = [60.0, 90.0, 62.0, 80.0, 75.0, 93.0];
    let gain = 1.45;
    let blocks = rows(&plan, |turn| {
        let of_engine = if turn.case == 5 { 40.0 * gain } else { 40.0 };
        let step_ms = if turn.runner == Runner::Kolo { of_engine } else { step_ms[turn.case] };
        step_ms * (1.0 + 0.001 * turn.block as f64)
    });
    let found = regret::rows(&plan, &named, &answers, &blocks);
    let of = |tuner: &str| found.iter().find(|row| row.tuner == tuner).unwrap();
    let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 0.01;
    assert!(near(of("autotune").regret_percent, 25.0), "{found:?}");
    assert!(near(of("kolo tune").regret_percent, 100.0 * 2.0 / 60.0), "{found:?}");
    assert!(near(of("default").regret_percent, 55.0), "{found:?}");
    assert!(near(of("kolo tune").measured, 1.5) && of("autotune").promised.is_none());
    assert!(near(of("autotune").measured, 93.0 / 75.0) && of("default").measured.is_none());
    let text = regret::text(&plan, &found, &answers, &blocks);
    for line in [
        "first, best of 6 settings: 60.",
        "finished: 1250 steps, 100 s",
        "change: 125 steps, 8 s; gain 1.50 [1.40, 1.60], measured 1.50 [1.50, 1.50], in the engine 1.45; 0.827 [0.827, 0.827] of autotune's step",
        "beside autotune's: shorter in 1 of 1 cases, longer in 0, no difference beyond the interval in 0",
        "autotune   8.5 MiB, 20 ms ",
        "kolo tune: regret 3.3 % in the median, 3.3 % at most",
        "promised gains: 1 of 1 intervals contain what was measured; they are 8.9 points of the saving wide in the median",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    assert!(!text.contains("the machine has changed") && !text.contains("overlap"), "{text}");
    assert!(!text.contains("half as wide"), "all promises are tested: {text}");
    let text_of = |blocks: &[BlockRow]| {
        regret::text(&plan, &regret::rows(&plan, &named, &answers, blocks), &answers, blocks)
    };
    // Who is told to keep the default has its step, whatever it was compared with.
    let mut kept = answers.clone();
    let of_kolo = &mut kept.get_mut("first").unwrap().kolo;
    (of_kolo.verdict, of_kolo.promised) = ("keep".into(), Some((1.5, 1.4, 1.6)));
    let found = regret::rows(&plan, &named, &kept, &blocks);
    let row = found.iter().find(|row| row.tuner == "kolo tune").unwrap();
    assert_eq!((row.fusion_threshold_mib, row.cycle_time_ms), (128.0, 1.0));
    assert!(near(row.regret_percent, 55.0) && near(row.measured, 1.5), "{row:?}");
    assert!(near(row.over_autotune, 93.0 / 75.0), "{row:?}");
    let text = regret::text(&plan, &found, &kept, &blocks);
    assert!(
        text.contains("keep: 125 steps, 8 s; gain of 4 MiB, 1 ms 1.50 [1.40, 1.60], "),
        "{text}"
    );
    // Both gains are 1.2 times as large as they were.
    let changed: Vec<BlockRow> = blocks
        .iter()
        .map(|row| match row.case.ends_with("/128MiB/1ms") {
            true => BlockRow { step_ms: row.step_ms.map(|ms| 1.2 * ms), ..row.clone() },
            false => row.clone(),
        })
        .collect();
    let text = text_of(&changed);
    for line in ["promised gains: 0 of 1", "lies in the interval, 0 of 0 contain"] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    assert!(!text.contains("overlap"), "{text}");
    // What is measured is 1.09 times as large, and varies by 10 %.
    let noisy: Vec<BlockRow> = blocks
        .iter()
        .map(|row| match row.case.ends_with("/128MiB/1ms") && row.is_of(Runner::Horovod) {
            true => {
                let factor = if row.block % 2 == 0 { 1.14 } else { 1.04 };
                BlockRow { step_ms: row.step_ms.map(|ms| factor * ms), ..row.clone() }
            }
            false => row.clone(),
        })
        .collect();
    let text = text_of(&noisy);
    for line in [
        "promised gains: 0 of 1",
        "other intervals that overlap with the one of what was measured: 1 of 1",
        "where the interval of what was measured is at most half as wide: 0 of 0",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    // The promise holds for processors 40 ns apart. In the first block they were 190 ns apart, and all took twice as long.
    let mut there = answers.clone();
    there.get_mut("first").unwrap().kolo.core_to_core_ns = Some(40.0);
    let moved: Vec<BlockRow> = blocks
        .iter()
        .map(|row| {
            let [factor, least, most] =
                if row.block == 0 { [2.0, 41.0, 190.0] } else { [1.0, 38.0, 42.0] };
            BlockRow {
                step_ms: row.step_ms.map(|ms| factor * ms),
                core_to_core_ns_least: Some(least),
                core_to_core_ns_most: Some(most),
                ..row.clone()
            }
        })
        .collect();
    let rows_there = regret::rows(&plan, &named, &there, &moved);
    let tuned = rows_there.iter().find(|row| row.tuner == "kolo tune").unwrap();
    assert_eq!((tuned.blocks, tuned.core_to_core_ns), (5, Some(40.0)));
    assert!(near(tuned.step_ms, 62.0 * 1.003), "{tuned:?}");
    let again = |answers: &BTreeMap<String, tuners::Answers>, blocks: &[BlockRow]| {
        regret::cases_to_run_again(&plan, 0, &named, &answers["first"], blocks)
    };
    assert_eq!(again(&there, &moved), [0, 1, 2, 3, 4, 5]);
    let turns = plan.again(again(&there, &moved), 6);
    assert!(turns.len() == 6 && turns.iter().all(|turn| turn.block == 6));
    let last = moved.iter().filter(|row| row.block == 5).cloned();
    let more: Vec<BlockRow> =
        moved.iter().cloned().chain(last.map(|row| BlockRow { block: 6, ..row })).collect();
    assert_eq!(again(&there, &more), [0; 0]);
    // The gain is uncertain by 5 %, and was promised to 7 %: both of its settings run again, until it is certain by 3 %, or 36
    // times.
    assert_eq!(again(&answers, &blocks), [0; 0]);
    assert_eq!(again(&answers, &noisy), [2, 5]);
    let varied = |factor_of: fn(usize) -> f64| -> Vec<BlockRow> {
        let of_row = |row: &BlockRow| match row.case.ends_with("/128MiB/1ms") {
            true if row.is_of(Runner::Horovod) => {
                let factor = factor_of(row.block);
                BlockRow { step_ms: row.step_ms.map(|ms| factor * ms), ..row.clone() }
            }
            _ => row.clone(),
        };
        blocks.iter().map(of_row).collect()
    };
    let noisy = varied(|block| 1.04 + 0.02 * block as f64);
    assert_eq!(again(&answers, &noisy), [2, 5]);
    let times = |blocks: &[BlockRow], more: usize| -> Vec<BlockRow> {
        let shifted =
            |row: &BlockRow, by: usize| BlockRow { block: row.block + 6 * by, ..row.clone() };
        (0..more).flat_map(|by| blocks.iter().map(move |row| shifted(row, by))).collect()
    };
    // It rises from block to block, so blocks tell less than independent ones.
    assert_eq!(again(&answers, &times(&noisy, 2)), [2, 5]);
    let mixed = varied(|block| 1.04 + [0.04, 0.1, 0.0, 0.08, 0.02, 0.06][block]);
    assert_eq!(again(&answers, &mixed), [2, 5]);
    assert_eq!(again(&answers, &times(&mixed, 2)), [0; 0]);
    let noisier = varied(|block| if block % 2 == 0 { 1.6 } else { 1.1 });
    assert_eq!(again(&answers, &times(&noisier, 2)), [2, 5]);
    let never_certain = varied(|block| 1.1 + 0.1 * block as f64);
    assert_eq!(again(&answers, &times(&never_certain, 5)), [2, 5]);
    assert_eq!(again(&answers, &times(&never_certain, 6)), [0; 0]);
    let text = regret::text(&plan, &rows_there, &there, &moved);
    let line = "; 40 of 48 blocks ran on processors 40 ns apart, and count";
    assert!(text.contains(line), "{line}:\n{text}");
    // Blocks of another machine do not tell, and count.
    let tuned = regret::rows(&plan, &named, &there, &blocks);
    assert_eq!(tuned.iter().find(|row| row.tuner == "kolo tune").unwrap().blocks, 6);
    // Without autotune kolo tune gets the steps that are asked for.
    let alone = folder.path().join("alone");
    fs::create_dir(&alone).unwrap();
    let asks = KoloTune { program: kolo(folder.path()), launcher: launcher(), ..tune };
    let mut plan = self::plan(&[CONFIG]);
    let answers = tuners::answers(&plan, 0, &mut horovod, &asks, Some(77), &alone, |_| {}).unwrap();
    assert!(fs::read_to_string(folder.path().join("asked.toml")).unwrap().contains("steps = 77"));
    let named = regret::with_answers(&mut plan, 0, &answers);
    let answers = BTreeMap::from([("first".to_string(), answers)]);
    let found = regret::rows(&plan, &named, &answers, &blocks);
    assert_eq!(found.iter().map(|row| row.tuner).collect::<Vec<_>>(), ["kolo tune", "default"]);
    let failed: Vec<BlockRow> =
        blocks.into_iter().map(|row| BlockRow { step_ms: None, ..row }).collect();
    assert!(regret::rows(&plan, &named, &answers, &failed)[0].step_ms.is_none());
}

/// Only configurations that add or cast gradients are charged for it.
#[test]
fn work_on_gradients_is_that_of_horovods_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let launcher = Launcher::parse("env RANKS={ranks}").unwrap();
    let mut horovod = Horovod::find(&python(folder.path()), launcher, folder.path()).unwrap();
    let mut work = |framework: &str| {
        let config = CONFIG.replace("[sweep]", &format!("[framework]\n{framework}\n[sweep]"));
        let found = horovod.work_times(&plan(&[&config]), 0).unwrap();
        horovod.forget_scripts();
        (found.add_us, found.cast_us, found.cast_back_us)
    };
    assert_eq!(work("compression = \"none\""), (0.0, 0.0, 0.0));
    assert_eq!(work("backward_passes_per_step = 2"), (57.0, 0.0, 0.0));
    assert_eq!(work("compression = \"fp16\""), (57.0, 54.0, 52.0));
}

#[test]
fn the_default_is_horovods() {
    let Chosen { fusion_threshold_mib, cycle_time_ms, is_cached } = Chosen::default();
    assert_eq!((fusion_threshold_mib, cycle_time_ms, is_cached), (128.0, 1.0, true));
}
