//! Sweeps of synthetic machines whose truth is known: how often their intervals contain it.
//!
//! A sweep of a synthetic machine goes through the code of every other one: the order of blocks, the rule that ends a
//! case, rows and their comparison with the fastest. Only the executor is another one: it draws step times.

mod machine;
mod score;

use std::collections::{BTreeMap, BTreeSet};

use indicatif::ProgressBar;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;

use self::machine::{Drawn, Synthetic};
pub use self::machine::{MACHINES, Machine, Shape};
pub use self::score::Score;
use self::score::Scored;
use crate::config::Config;
use crate::plan::Plan;
use crate::sweep::{Course, run};
use results::block::{Block, Message, Outline};
use results::error::RecordError;
use results::provenance::Launch;
use results::record::{Earlier, Key, Output};
use results::row::{Row, StepRow};
use workloads::workload::{Gradient, Workload};

/// How a sweep measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Starts of the program.
    pub launches: usize,
    /// Blocks of each launch.
    pub blocks: usize,
    /// Steps of each block.
    pub steps: usize,
    /// A case ends when half its interval is at most this share of its median, in percent; 0: after all blocks.
    pub interval_percent: f64,
}

/// The designs that are tried.
pub const DESIGNS: [Design; 8] = [
    Design { launches: 1, blocks: 2, steps: 3, interval_percent: 0.0 },
    Design { launches: 1, blocks: 3, steps: 5, interval_percent: 0.0 },
    Design { launches: 1, blocks: 6, steps: 5, interval_percent: 0.0 },
    Design { launches: 1, blocks: 10, steps: 5, interval_percent: 0.0 },
    Design { launches: 1, blocks: 1, steps: 40, interval_percent: 0.0 },
    Design { launches: 3, blocks: 3, steps: 5, interval_percent: 0.0 },
    Design { launches: 5, blocks: 2, steps: 5, interval_percent: 0.0 },
    Design { launches: 1, blocks: 10, steps: 5, interval_percent: 3.0 },
];

/// Settings of a sweep. Each takes 2 % longer than the one before, but the first two.
const SETTINGS: usize = 12;
const APART: f64 = 0.02;

/// The fastest setting's step in seconds.
const STEP_S: f64 = 0.1;

/// Scores a design on a machine by sweeps with different seeds; the same on any number of cores.
///
/// # Errors
/// Never; sweeps keep nothing on disk.
pub fn score(machine: &Machine, design: Design, sweeps: u64) -> Result<Score, RecordError> {
    let drawn = Drawn::of(machine);
    let launch = Launch::now();
    let sweep = |seed| sweep(machine, &drawn, design, &launch, seed);
    let scored: Vec<Scored> = (0..sweeps).into_par_iter().map(sweep).collect::<Result<_, _>>()?;
    Ok(Score::of(machine, design, &scored))
}

/// What the scores say: the least of them.
pub fn in_words(scores: &[Score]) -> String {
    let least = |of: fn(&Score) -> f64, holds: bool| {
        let counts = |score: &&Score| score.holds == holds && !of(score).is_nan();
        let some = scores.iter().filter(counts);
        some.min_by(|one, other| of(one).total_cmp(&of(other))).map(|score| (of(score), score))
    };
    let mut text = String::new();
    for (holds, what) in [(true, "where the assumptions hold"), (false, "elsewhere")] {
        for (of, said) in [
            (
                (|score| score.covered_percent) as fn(&Score) -> f64,
                "of intervals contain the true median",
            ),
            (|score| score.negotiation_covered_percent, "of intervals of negotiation times do"),
            (|score| score.bandwidth_covered_percent, "of intervals of bandwidths do"),
            (
                |score| score.best_is_tied_percent,
                "of sets of ties contain the truly fastest setting",
            ),
        ] {
            if let Some((share, score)) = least(of, holds) {
                text += &format!("{what}, at least {share:.1} % {said}: {}\n", score.place());
            }
        }
    }
    let wrong =
        scores.iter().max_by(|one, other| one.wrong_percent().total_cmp(&other.wrong_percent()));
    wrong.map_or(text.clone(), |score| {
        let percent = score.wrong_percent();
        format!(
            "{text}of all medians, at most {percent:.1} % have an interval that does not contain the truth: {}\n",
            score.place()
        )
    })
}

/// One sweep, launch by launch.
fn sweep(
    machine: &Machine,
    drawn: &Drawn,
    design: Design,
    launch: &Launch,
    seed: u64,
) -> Result<Scored, RecordError> {
    let plan = plan(design, machine.ranks(), seed);
    let mut executor = Synthetic::new(machine, drawn, settings(), ChaCha8Rng::seed_from_u64(seed));
    let mut kept = Kept::default();
    let mut launches = Vec::new();
    loop {
        launches.push(launch.clone());
        executor.launch();
        let earlier = Earlier { blocks: kept.earlier(), ..Earlier::default() };
        let hidden = ProgressBar::hidden();
        let course = Course::default();
        let report = run(&plan, &mut kept, earlier, &launches, &course, &mut executor, &hidden)?;
        if !report.wants_launch {
            for (setting, planned) in plan.cases.iter().enumerate() {
                executor.only(setting, &kept.runs(&planned.case.to_string()));
            }
            return Ok(Scored::of(&report, kept.blocks.len(), &executor));
        }
    }
}

/// The true median of each setting over that of the first, without noise.
fn settings() -> Vec<f64> {
    (0..SETTINGS).map(|setting| (1.0 + APART).powi(setting.saturating_sub(1) as i32)).collect()
}

fn plan(design: Design, ranks: usize, seed: u64) -> Plan {
    let Design { launches, blocks, steps, interval_percent } = design;
    let thresholds: Vec<String> = (1..=SETTINGS).map(|mib| mib.to_string()).collect();
    let config = format!(
        "workload = \"one\"\n[step]\nbackward_ms = 0\n[sweep]\ntopology = [\"1x{ranks}\"]\ncontrol_plane = [\"bitvector\"]\nalgorithm = [\"ring\"]\n\
         fusion_threshold_mib = [{}]\ncycle_time_ms = [1]\n[measure]\nwarmup_steps = 0\nsteps_per_block = {steps}\n\
         launches = {launches}\nblocks_min = {}\nblocks_max = {blocks}\ninterval_percent = {interval_percent}\n\
         budget_seconds = 1e6\nseed = {seed}",
        thresholds.join(", "),
        blocks.min(2),
    );
    let config: Config = toml::from_str(&config).expect("a configuration");
    let gradient = Gradient { name: "one".into(), shape: vec![1], ready_fraction: 1.0 };
    let workload = Workload {
        name: "one".into(),
        gradients: vec![gradient],
        ready_order: vec![0],
        ready_assumed: false,
    };
    Plan::new(config, workload)
}

/// Keeps blocks in memory.
#[derive(Default)]
struct Kept {
    blocks: BTreeMap<Key, Block>,
    /// Which run of its case each of them is.
    run_of: BTreeMap<Key, usize>,
    /// How often each case ran.
    runs: BTreeMap<String, usize>,
    rows: Vec<Row>,
}

impl Kept {
    fn earlier(&self) -> BTreeMap<Key, Outline> {
        self.blocks.iter().map(|(key, block)| (key.clone(), Outline::from(block))).collect()
    }

    /// The runs of a case whose blocks were not set aside.
    fn runs(&self, case: &str) -> Vec<usize> {
        let key = |block| (case.to_string(), block);
        self.run_of.range(key(0)..key(usize::MAX)).map(|(_, &run)| run).collect()
    }
}

impl Output for Kept {
    fn append_block(&mut self, block: &Block) -> Result<(), RecordError> {
        let first = &block.samples[0];
        // Latencies of cycles have no interval.
        let kept = Block {
            samples: block.samples.clone(),
            messages: block.messages.clone(),
            ranks: block.ranks.clone(),
            ..Block::default()
        };
        let key = (first.case.clone(), first.block);
        let runs = self.runs.entry(first.case.clone()).or_default();
        self.run_of.insert(key.clone(), *runs);
        *runs += 1;
        self.blocks.insert(key, kept);
        Ok(())
    }

    fn append_row(&mut self, row: StepRow) -> Result<(), RecordError> {
        self.rows.push(Row::Step(row));
        Ok(())
    }

    fn rows(&mut self) -> Result<Vec<Row>, RecordError> {
        Ok(self.rows.clone())
    }

    fn block(&self, key: &Key) -> Result<Block, RecordError> {
        Ok(self.blocks[key].clone())
    }

    fn outline(&self, key: &Key) -> Result<Outline, RecordError> {
        Ok(Outline::from(&self.blocks[key]))
    }

    fn messages(&self, key: &Key) -> Result<Vec<Message>, RecordError> {
        Ok(self.blocks[key].messages.clone())
    }

    fn set_aside(&mut self, aside: &BTreeSet<Key>, rows: &[Row]) -> Result<(), RecordError> {
        self.rows = rows.to_vec();
        self.blocks.retain(|key, _| !aside.contains(key));
        self.run_of.retain(|key, _| !aside.contains(key));
        Ok(())
    }

    fn replace_rows(&mut self, rows: &[Row]) -> Result<(), RecordError> {
        self.rows = rows.to_vec();
        Ok(())
    }

    fn write_timeline(
        &self,
        _: &str,
        _: &mut dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()>,
    ) -> Result<(), RecordError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
