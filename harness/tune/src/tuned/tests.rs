//! The tuner on synthetic machines whose truth is known, through the code that measures blocks and writes results.

use std::ops::Range;
use std::time::Duration;

use indicatif::ProgressBar;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::*;
use crate::answer::{Shift, Verdict};
use crate::space::{Pins, axes};
use measure::config::{Config, Data, Host, Measure, Scaling, Step};
use measure::executor::{BlockExecutor, BlockRequest, BlockResult};
use measure::plan::Plan;
use results::conditions::Counters;
use results::provenance::{Launch, Provenance};
use results::record::Store;
use training::outcome::{Outcome, RankCycle, RankLog, RankMessage, RankStep};
use transports::data_plane::MPI_ALLREDUCE;
use transports::pattern::Wrong;
use workloads::framework::Framework;
use workloads::workload::{Gradient, Workload};

/// Blocks of a search.
const BLOCKS: usize = 120;

/// Steps take 80 ms with 8 MiB and 1 ms, and half as long again while other work runs.
struct Machine {
    random: ChaCha8Rng,
    /// How much longer steps take with twice or half the threshold. Horovod's defaults are four times that.
    octave_ms: f64,
    blocks: usize,
    other_work: Range<usize>,
}

/// How much longer steps take beside other work.
const OTHER_WORK: f64 = 1.5;

impl BlockExecutor for Machine {
    fn run(&mut self, plan: &Plan, request: BlockRequest) -> BlockResult {
        let case = &plan.cases[request.index].case;
        let octaves = |value: f64, best: f64| (value.max(0.1) / best).log2().abs();
        let mib = case.fusion_threshold_bytes as f64 / f64::from(1 << 20);
        let truth_ms =
            80.0 + self.octave_ms * octaves(mib, 8.0) + 2.0 * octaves(case.cycle_time_ms(), 1.0);
        let beside = if self.other_work.contains(&self.blocks) { OTHER_WORK } else { 1.0 };
        self.blocks += 1;
        let mut noise = || -> f64 { StandardNormal.sample(&mut self.random) };
        let block = truth_ms * beside * (0.01 * noise()).exp();
        let elements = plan.workload.elements();
        let mut log = RankLog::default();
        for step in 0..request.warmup_steps + plan.config.measure.steps_per_block {
            let time = Duration::from_secs_f64(block * (0.005 * noise()).exp() / 1e3);
            log.steps.push(RankStep { time, ..RankStep::default() });
            let message = RankMessage { step, tensors: 1, elements, time: time / 10 };
            log.messages.push(message);
            let negotiation = Duration::from_micros(50);
            log.cycles.push(RankCycle { step: Some(step), negotiation, messages: 1 });
        }
        let ranks = vec![log; case.topology.ranks()];
        let outcome = Outcome { ranks, negotiated: true, wrong: Wrong::default() };
        BlockResult { outcome: Ok(outcome), records: None }
    }

    fn counters(&self) -> Option<Counters> {
        None
    }
}

/// Steps take 96 ms with Horovod's defaults.
fn tuned(seed: u64, other_work: Range<usize>) -> Tuned {
    tuned_for(false, seed, 4.0, other_work)
}

fn tuned_for(horovod: bool, seed: u64, octave_ms: f64, other_work: Range<usize>) -> Tuned {
    let gradient = Gradient { name: "weight".into(), shape: vec![8 << 20], ready_fraction: 0.5 };
    let workload = Workload {
        name: "one".into(),
        gradients: vec![gradient],
        ready_order: vec![0],
        ready_assumed: false,
    };
    let config = Config {
        workload: "synthetic".into(),
        step: Step {
            forward_ms: 0.0,
            backward_ms: 50.0,
            optimizer_ms: 0.0,
            scaling: Scaling::Weak,
        },
        host: Host::default(),
        data: Data::default(),
        framework: Framework::default(),
        sweep: axes("threads", "1x2", 32 << 20, &Pins::default()).unwrap(),
        also: Vec::new(),
        measure: Measure { seed, warmup_steps: 1, ..Measure::default() },
    };
    let all = Plan::new(config.clone(), workload.clone());
    let mut grid = Grid::new(&all, Plan::new(config, workload), None);
    if horovod {
        let cases = grid.plan.cases.iter_mut();
        cases.for_each(|planned| planned.case.algorithm = MPI_ALLREDUCE.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::now();
    let provenance = Provenance::new(&all, launch);
    let mut store = Store::create(&folder.path().join("tuned"), &provenance).unwrap();
    let random = ChaCha8Rng::seed_from_u64(seed);
    let mut site = Site {
        all: &all,
        executor: &mut Machine { random, octave_ms, blocks: 0, other_work },
        store: &mut store,
        launches: &provenance.launches,
        progress: &ProgressBar::hidden(),
        blocks: 0,
    };
    let budget = Budget { time: Duration::from_secs(3600), blocks: BLOCKS };
    Tuned::measure(&grid, &mut site, budget, None).unwrap()
}

#[test]
fn a_quiet_machine_has_an_answer() {
    let tuned = tuned(1, 0..0);
    let answer = tuned.answer.unwrap();
    assert_eq!((answer.verdict, answer.shift), (Verdict::Change, None));
    assert_eq!(tuned.unsteady, None);
}

/// Horovod's gains are a few percent from promised ones.
#[test]
fn a_small_gain_is_not_sure_in_horovod() {
    let verdict = |horovod: bool, octave_ms: f64| {
        let answer = tuned_for(horovod, 1, octave_ms, 0..0).answer.unwrap();
        assert!(answer.others.values().any(|ratio| ratio.low > 1.0), "{:?}", answer.others);
        answer.verdict
    };
    assert_eq!(verdict(true, 4.0), Verdict::Change);
    assert_eq!(verdict(true, 1.5), Verdict::Lean);
    assert_eq!(verdict(false, 1.5), Verdict::Change, "for the engine alone");
}

/// Fresh rounds are all slow, so that nothing in them tells of it.
#[test]
fn other_work_that_begins_when_the_search_is_over_leaves_no_answer() {
    for seed in 1..4 {
        let quiet = tuned(seed, 0..0);
        let fresh: usize = quiet.found.fresh.iter().map(BTreeMap::len).sum();
        let tuned = tuned(seed, quiet.blocks - fresh..usize::MAX);
        let answer = tuned.answer.unwrap();
        assert_eq!(answer.verdict, Verdict::Unknown, "{:?}", answer.others);
        let Some(Shift::Since(change)) = answer.shift else { panic!("{:?}", answer.shift) };
        assert!((0.4..0.6).contains(&change), "{change}");
        let said = tuned.unsteady.unwrap().to_string();
        assert!(said.starts_with("the machine changed its speed: of "), "{said}");
    }
}

/// The blocks of the answer are of the quiet machine.
#[test]
fn other_work_that_is_over_before_the_answer_is_told() {
    for seed in 1..4 {
        let tuned = tuned(seed, 25..45);
        let answer = tuned.answer.unwrap();
        assert_eq!((answer.verdict, answer.shift), (Verdict::Change, None));
        assert!(tuned.unsteady.is_some());
    }
}
