//! A sweep of 100,000 cases: its plan, how soon a resumed one measures its next block, and its memory while it measures.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use measure::config::Config;
use measure::executor::{BlockExecutor, BlockRequest, BlockResult};
use measure::plan::Plan;
use measure::sweep::{Course, run};
use results::block::{Block, Message, RankBlock, Sample, histogram};
use results::conditions::Conditions;
use results::provenance::{Launch, Provenance};
use results::record::{Earlier, Output, Store, csv_bytes};

use super::{LIVE, PEAK};
use training::outcome::{EngineError, Outcome, RankCycle, RankLog, RankMessage, RankStep};
use transports::pattern::Wrong;
use workloads::workload::Workload;

/// 10 x 100 x 100 settings.
const CASES: usize = 100_000;
const STEPS: usize = 3;
const MESSAGES: usize = 32;

/// With so many cycle times, 1,000 cases of each. `measure` is the configuration's.
fn plan(cycle_times: usize, measure: &str) -> Plan {
    let list = |count: usize| (1..=count).map(|it| it.to_string()).collect::<Vec<_>>().join(", ");
    let config = format!(
        "workload = \"resnet50\"\nstep = {{ backward_ms = 60 }}\n[sweep]\ntopology = [{}]\n\
         control_plane = [\"bitvector\", \"coordinator\"]\nalgorithm = [\"ring\"]\nfusion_threshold_mib = [{}]\n\
         cycle_time_ms = [{}]\n[measure]\n{measure}",
        ["1x2", "1x4", "2x2", "4x1", "4x2"].map(|name| format!("\"{name}\"")).join(", "),
        list(100),
        list(cycle_times),
    );
    let config: Config = toml::from_str(&config).expect("a configuration");
    let workload = Workload::read(Path::new("../../configs/workloads/resnet50.csv"));
    Plan::new(config, workload.expect("a shipped workload"))
}

/// A block as four ranks on threads leave it.
fn block(case: &str) -> Block {
    let sample = |step| Sample {
        case: case.into(),
        step,
        time_us: 81_234.567 + step as f64,
        data_us: 51_234.567,
        cycles: 97,
        messages: MESSAGES,
        ..Sample::default()
    };
    let message = |at: usize| Message {
        case: case.into(),
        step: at / MESSAGES,
        index: at % MESSAGES,
        tensors: 5,
        size_bytes: 3_276_800,
        time_us: 1_234.567,
        ..Message::default()
    };
    let times_us = "81234.567 81235.567 81236.567".to_string();
    let rank = |rank| RankBlock {
        case: case.into(),
        ranks: 4,
        rank,
        times_us: times_us.clone(),
        ..RankBlock::default()
    };
    let mut latencies = histogram();
    (0..STEPS as u64 * 97).for_each(|cycle| latencies.saturating_record(1_000 + 17 * cycle));
    Block {
        samples: (0..STEPS).map(sample).collect(),
        messages: (0..STEPS * MESSAGES).map(message).collect(),
        ranks: (0..4).map(rank).collect(),
        latencies: Some(latencies),
        conditions: Some(Conditions { case: case.into(), ..Conditions::default() }),
    }
}

/// Puts a block of every case below the first one's, without a disk flush for each.
fn fill(folder: &Path, cases: &[String]) {
    let append = |name: &str, bytes: &dyn Fn(&Block) -> Vec<u8>| {
        let path = folder.join(name);
        let mut text = fs::read(&path).expect("a file of the folder");
        cases[1..].iter().for_each(|case| text.extend(bytes(&block(case))));
        fs::write(&path, &text).expect("room on the disk");
    };
    append("samples.csv", &|block| csv_bytes(&block.samples, false));
    append("messages.csv", &|block| csv_bytes(&block.messages, false));
    append("ranks.csv", &|block| csv_bytes(&block.ranks, false));
    append("conditions.csv", &|block| csv_bytes(block.conditions.as_slice(), false));
    let log = fs::read_to_string(folder.join("latencies.hlog")).expect("a file of the folder");
    let first = log.lines().last().expect("a block").to_string();
    append("latencies.hlog", &|block| {
        (first.replacen(&cases[0], &block.samples[0].case, 1) + "\n").into_bytes()
    });
}

pub fn cases() {
    println!(
        "\n## {CASES} cases of {STEPS} steps and {} messages; goals: plan 2 s, resume 5 s\n",
        STEPS * MESSAGES
    );
    let begun = Instant::now();
    let plan = plan(CASES / 1_000, "");
    println!("plan of {} cases: {:.2} s", plan.cases.len(), begun.elapsed().as_secs_f64());
    let cases: Vec<String> = plan.cases.iter().map(|planned| planned.case.to_string()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("run");
    let mut store =
        Store::create(&folder, &Provenance::new(&plan, Launch::now())).expect("a folder");
    Output::append_block(&mut store, &block(&cases[0])).expect("room on the disk");
    drop(store);
    fill(&folder, &cases);
    let bytes: u64 = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.and_then(|entry| entry.metadata()).map_or(0, |file| file.len()))
        .sum();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let begun = Instant::now();
    let (mut store, earlier) = Store::resume(&folder, STEPS).expect("a folder to resume");
    let read_s = begun.elapsed().as_secs_f64();
    assert_eq!((earlier.blocks.len(), earlier.dropped.len()), (cases.len(), 0));
    let stop = folder.join("stop");
    let mut first = First { begun, stop: stop.clone(), took_s: 0.0, kept: 0 };
    let course = Course { stop: Some(stop), ..Course::default() };
    let launches = [Launch::now(), Launch::now()];
    let progress = ProgressBar::hidden();
    run(&plan, &mut store, earlier, &launches, &course, &mut first, &progress)
        .expect("a sweep that is stopped");
    let per_case = |bytes: isize| (bytes - before) as f64 / cases.len() as f64;
    println!(
        "resume of {} blocks, {:.0} MB: {:.2} s until the first new block begins, of which {read_s:.2} s read files; {:.0} \
         bytes of memory a case then, {:.0} at most",
        cases.len(),
        bytes as f64 / 1e6,
        first.took_s,
        per_case(first.kept),
        per_case(PEAK.load(Ordering::Relaxed))
    );
}

/// Tells when a sweep's first block begins, and stops the sweep.
struct First {
    begun: Instant,
    stop: PathBuf,
    took_s: f64,
    /// Bytes of memory then.
    kept: isize,
}

impl BlockExecutor for First {
    fn run(&mut self, _: &Plan, _: BlockRequest) -> BlockResult {
        self.took_s = self.begun.elapsed().as_secs_f64();
        self.kept = LIVE.load(Ordering::Relaxed);
        fs::write(&self.stop, "").expect("room on the disk");
        BlockResult {
            outcome: Err(EngineError::Refused("the goal is measured".into())),
            records: None,
        }
    }
}

/// Rounds that the growth of memory is measured over, and their cases.
const ROUNDS: usize = 6;
const FEWER_CASES: usize = 10_000;

pub fn rounds() {
    println!(
        "\n## {FEWER_CASES} cases in {ROUNDS} rounds of blocks: memory; goal: it does not grow from round to round\n"
    );
    let shared_memory = Path::new("/dev/shm");
    // Where there is no disk to wait for.
    let folder = match shared_memory.is_dir() {
        true => tempfile::tempdir_in(shared_memory),
        false => tempfile::tempdir(),
    };
    let folder = folder.expect("a folder");
    let plan = plan(
        FEWER_CASES / 1_000,
        &format!(
            "steps_per_block = {STEPS}\nblocks_min = {ROUNDS}\nblocks_max = {ROUNDS}\ninterval_percent = 0\n\
         warmup_steps_max = 1\nbudget_seconds = 1e9"
        ),
    );
    let launches = [Launch::now()];
    let provenance = Provenance::new(&plan, Launch::now());
    let mut store = Store::create(&folder.path().join("run"), &provenance).expect("a folder");
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut growing = Growing { before, blocks: 0, begun: Instant::now() };
    let progress = ProgressBar::hidden();
    println!("| when | bytes a case | at most | seconds |");
    println!("|---|---|---|---|");
    run(
        &plan,
        &mut store,
        Earlier::default(),
        &launches,
        &Course::default(),
        &mut growing,
        &progress,
    )
    .expect("a sweep that ends");
    growing.tell("its end");
}

/// Returns at once, and tells how memory grows.
struct Growing {
    before: isize,
    blocks: usize,
    begun: Instant,
}

impl Growing {
    fn tell(&self, when: &str) {
        let per_case = |bytes: &AtomicIsize| {
            (bytes.load(Ordering::Relaxed) - self.before) as f64 / FEWER_CASES as f64
        };
        println!(
            "| {when} | {:.0} | {:.0} | {:.0} |",
            per_case(&LIVE),
            per_case(&PEAK),
            self.begun.elapsed().as_secs_f64()
        );
    }
}

impl BlockExecutor for Growing {
    fn run(&mut self, plan: &Plan, request: BlockRequest) -> BlockResult {
        if self.blocks.is_multiple_of(FEWER_CASES) {
            self.tell(&format!("before round {}", self.blocks / FEWER_CASES));
        }
        self.blocks += 1;
        let steps = request.warmup_steps + plan.config.measure.steps_per_block;
        let time = |step: usize| Duration::from_micros((80_000 + self.blocks % 97 + step) as u64);
        let log = RankLog {
            steps: (0..steps)
                .map(|step| RankStep { time: time(step), ..RankStep::default() })
                .collect(),
            messages: (0..steps * MESSAGES)
                .map(|at| RankMessage {
                    step: at / MESSAGES,
                    tensors: 5,
                    elements: 819_200,
                    time: time(0) / 64,
                })
                .collect(),
            cycles: (0..steps * 97)
                .map(|at| RankCycle {
                    step: Some(at / 97),
                    negotiation: time(0) / 1_000,
                    messages: at % 3,
                })
                .collect(),
            refused: Vec::new(),
        };
        let ranks = plan.cases[request.index].case.topology.ranks();
        let outcome =
            Outcome { ranks: vec![log; ranks], negotiated: true, wrong: Wrong::default() };
        BlockResult { outcome: Ok(outcome), records: None }
    }
}
