//! Synthetic machines: how launches, rounds, blocks and steps differ on them.

use std::time::Duration;

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use serde::Serialize;

use super::STEP_S;
use crate::executor::{BlockExecutor, BlockRequest, BlockResult};
use crate::plan::Plan;
use results::conditions::Counters;
use training::outcome::{Outcome, RankCycle, RankLog, RankMessage, RankStep};
use transports::pattern::Wrong;

/// How the steps of a block are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A normal logarithm.
    Normal,
    /// No step is much faster than most, some are much slower: an exponential logarithm.
    Skewed,
    /// One step in three is as much slower as four deviations.
    Bimodal,
}

/// A machine. Deviations are those of logarithms, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Between launches, for all settings alike.
    pub launch_percent: f64,
    /// Between rounds, for all settings alike.
    pub round_percent: f64,
    /// The share of a round's deviation that remains in the next.
    pub round_memory: f64,
    /// Between blocks of one setting.
    pub block_percent: f64,
    /// Between steps of a block.
    pub step_percent: f64,
    /// The share of a step's deviation that remains in the next.
    pub step_memory: f64,
    /// How steps are distributed.
    pub shape: Shape,
    /// The share of blocks that a disturbance makes half as slow again.
    pub disturbed: f64,
    /// Rounds of each launch, the first and the one after the last, that other work makes half as slow again.
    pub slow_rounds: [usize; 2],
    /// The first step of a block takes this much longer, the next half as much, and so on.
    pub cold_percent: f64,
    /// Nodes. Each draws its own steps, and the slowest counts.
    pub nodes: usize,
    /// The share of launches that get a bad node, which is 30 % slower than the others.
    pub bad_node: f64,
    /// What the intervals assume holds: units of the level that they name are independent, and alike.
    pub holds: bool,
}

const QUIET: Machine = Machine {
    name: "independent steps",
    launch_percent: 0.0,
    round_percent: 0.0,
    round_memory: 0.0,
    block_percent: 0.0,
    step_percent: 4.0,
    step_memory: 0.0,
    shape: Shape::Normal,
    disturbed: 0.0,
    slow_rounds: [0, 0],
    cold_percent: 0.0,
    nodes: 1,
    bad_node: 0.0,
    holds: true,
};

/// The machines that are tried.
pub const MACHINES: [Machine; 13] = [
    QUIET,
    Machine { name: "skewed steps", shape: Shape::Skewed, ..QUIET },
    Machine { name: "bimodal steps", shape: Shape::Bimodal, ..QUIET },
    Machine { name: "steps that follow each other", step_memory: 0.7, ..QUIET },
    Machine { name: "blocks differ", block_percent: 4.0, ..QUIET },
    Machine { name: "launches differ", launch_percent: 5.0, block_percent: 2.0, ..QUIET },
    Machine { name: "one bad node", nodes: 4, bad_node: 0.2, block_percent: 2.0, ..QUIET },
    Machine {
        name: "rounds differ",
        round_percent: 10.0,
        block_percent: 1.0,
        holds: false,
        ..QUIET
    },
    Machine {
        name: "cold first steps",
        cold_percent: 100.0,
        block_percent: 1.0,
        holds: false,
        ..QUIET
    },
    Machine { name: "drift", round_percent: 10.0, round_memory: 0.8, holds: false, ..QUIET },
    Machine {
        name: "one block in ten disturbed",
        disturbed: 0.1,
        block_percent: 2.0,
        holds: false,
        ..QUIET
    },
    Machine {
        name: "one block in four disturbed",
        disturbed: 0.25,
        block_percent: 2.0,
        holds: false,
        ..QUIET
    },
    Machine {
        name: "one round disturbed",
        slow_rounds: [1, 2],
        block_percent: 2.0,
        holds: false,
        ..QUIET
    },
];

/// A disturbed block takes this much longer.
const DISTURBANCE: f64 = 1.5;

/// A bad node takes this much longer.
const BAD_NODE: f64 = 1.3;

/// How many values describe a distribution.
const DRAWN: usize = 40_000;

/// Sorted draws of logarithms, which stand for distributions.
pub struct Drawn {
    /// Steps of a block: of launches without a bad node, and of those with one.
    steps: [Vec<f64>; 2],
    /// Steps of all blocks of a round, of the same.
    rounds: [Vec<f64>; 2],
    /// The median of all blocks of a launch of each kind.
    launch: [f64; 2],
    /// The median of all launches.
    machine: f64,
}

impl Drawn {
    pub fn of(machine: &Machine) -> Drawn {
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let sorted = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
        };
        let both = [false, true];
        let steps = both.map(|is_bad| {
            sorted((0..DRAWN).map(|_| machine.slowest(is_bad, &mut random)).collect())
        });
        let rounds = both.map(|is_bad| {
            let of_round = |_| machine.block(&mut random) + machine.slowest(is_bad, &mut random);
            sorted((0..DRAWN).map(of_round).collect())
        });
        let of_block = |is_bad: bool, random: &mut ChaCha8Rng| {
            let round = machine.round_percent / 100.0 * normal(random);
            round + machine.block(random) + machine.slowest(is_bad, random)
        };
        let launch = both.map(|is_bad| {
            sorted((0..DRAWN).map(|_| of_block(is_bad, &mut random)).collect())[DRAWN / 2]
        });
        let on_machine = (0..DRAWN).map(|_| {
            let is_bad = machine.gets_bad_node(&mut random);
            let launch = machine.launch_percent / 100.0 * normal(&mut random);
            launch + of_block(is_bad, &mut random)
        });
        Drawn { steps, rounds, launch, machine: sorted(on_machine.collect())[DRAWN / 2] }
    }
}

/// The median of sorted values each of which is added to each of these.
fn median_of_sums(sorted: &[f64], added: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let all = (sorted.len() * added.len()) as f64;
    let share_below = |value: f64| {
        let below = |added: f64| sorted.partition_point(|one| one + added < value);
        added.clone().map(below).sum::<usize>() as f64 / all
    };
    let (mut low, mut high) = (-10.0, 10.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if share_below(middle) < 0.5 { low = middle } else { high = middle }
    }
    low
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(random)
}

impl Machine {
    /// The logarithm of a step in its block.
    fn step(&self, random: &mut ChaCha8Rng) -> f64 {
        let deviation = self.step_percent / 100.0;
        match self.shape {
            Shape::Normal => deviation * normal(random),
            Shape::Skewed => deviation * random.sample::<f64, _>(Exp1),
            Shape::Bimodal => {
                let slower = if random.random_bool(1.0 / 3.0) { 4.0 } else { 0.0 };
                deviation * (normal(random) + slower)
            }
        }
    }

    /// World size. One rank alone would have no bus bandwidth: two are alike on one node.
    pub fn ranks(&self) -> usize {
        self.nodes.max(2)
    }

    /// By how much a node's logarithms are larger.
    fn node(&self, node: usize, is_bad: bool) -> f64 {
        if is_bad && node + 1 == self.nodes { BAD_NODE.ln() } else { 0.0 }
    }

    /// The logarithm of a step of the slowest node.
    fn slowest(&self, is_bad: bool, random: &mut ChaCha8Rng) -> f64 {
        let nodes = (0..self.nodes).map(|node| self.node(node, is_bad) + self.step(random));
        nodes.fold(f64::MIN, f64::max)
    }

    fn gets_bad_node(&self, random: &mut ChaCha8Rng) -> bool {
        self.bad_node > 0.0 && random.random_bool(self.bad_node)
    }

    /// The logarithm of a block of one setting.
    fn block(&self, random: &mut ChaCha8Rng) -> f64 {
        let disturbed = self.disturbed > 0.0 && random.random_bool(self.disturbed);
        self.block_percent / 100.0 * normal(random) + if disturbed { DISTURBANCE.ln() } else { 0.0 }
    }
}

/// How long a message takes without noise.
const MESSAGE_US: f64 = 1e3;

/// Its elements.
const ELEMENTS: usize = 1 << 18;

/// How long a step negotiates.
const NEGOTIATION_US: f64 = 100.0;

/// A true median: of the blocks that were measured, of all blocks of their rounds, of all blocks of their launch, and of all
/// launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    pub blocks: f64,
    pub rounds: f64,
    pub launch: f64,
    pub machine: f64,
}

impl Truth {
    fn times(self, factor: f64) -> Truth {
        let Truth { blocks, rounds, launch, machine } = self;
        Truth {
            blocks: factor * blocks,
            rounds: factor * rounds,
            launch: factor * launch,
            machine: factor * machine,
        }
    }

    /// What an interval over these is about. A median whose interval was withheld is about what the machine does.
    pub fn over(self, level: &str) -> f64 {
        match level {
            "steps" | "messages" => self.blocks,
            "cases" => self.rounds,
            "blocks" => self.launch,
            _ => self.machine,
        }
    }
}

/// Executes blocks of a synthetic machine.
pub struct Synthetic<'m> {
    machine: &'m Machine,
    drawn: &'m Drawn,
    /// Each setting's time over the first one's.
    settings: Vec<f64>,
    random: ChaCha8Rng,
    /// Logarithm of the launch that is running.
    launch: f64,
    /// It has a bad node.
    is_bad: bool,
    /// Blocks of a setting before this launch.
    begun: usize,
    /// Logarithms of rounds.
    rounds: Vec<f64>,
    /// The blocks of each setting.
    blocks: Vec<Vec<Block>>,
}

/// Logarithms of a block.
#[derive(Clone, Copy)]
struct Block {
    /// Of its launch and round.
    round: f64,
    /// Its own, too.
    all: f64,
}

impl<'m> Synthetic<'m> {
    pub fn new(
        machine: &'m Machine,
        drawn: &'m Drawn,
        settings: Vec<f64>,
        random: ChaCha8Rng,
    ) -> Synthetic<'m> {
        let blocks = vec![Vec::new(); settings.len()];
        Synthetic {
            machine,
            drawn,
            settings,
            random,
            launch: 0.0,
            is_bad: false,
            begun: 0,
            rounds: Vec::new(),
            blocks,
        }
    }

    /// Begins the next launch.
    pub fn launch(&mut self) {
        self.begun = self.blocks.iter().map(Vec::len).max().unwrap_or(0);
        self.launch = self.machine.launch_percent / 100.0 * normal(&mut self.random);
        self.is_bad = self.machine.gets_bad_node(&mut self.random);
    }

    /// Forgets the blocks of a setting but for these, in the order of its runs.
    pub fn only(&mut self, setting: usize, runs: &[usize]) {
        self.blocks[setting] = runs.iter().map(|&run| self.blocks[setting][run]).collect();
    }

    fn round(&mut self, round: usize) -> f64 {
        let Machine { round_percent, round_memory, .. } = *self.machine;
        while self.rounds.len() <= round {
            let fresh = round_percent / 100.0 * normal(&mut self.random);
            let next = self.rounds.last().map_or(fresh, |last| {
                round_memory * last + (1.0 - round_memory * round_memory).sqrt() * fresh
            });
            self.rounds.push(next);
        }
        self.rounds[round]
    }

    /// The true median of what takes a microsecond without noise: of a setting's blocks that were measured, of their rounds, of
    /// its launch, and of the machine.
    fn truth(&self, blocks: &[Block]) -> Truth {
        let kind = usize::from(self.is_bad);
        let (steps, in_rounds) = (&self.drawn.steps[kind], &self.drawn.rounds[kind]);
        let of_launch = self.launch + self.drawn.launch[kind];
        Truth {
            blocks: median_of_sums(steps, blocks.iter().map(|block| block.all)).exp(),
            rounds: median_of_sums(in_rounds, blocks.iter().map(|block| block.round)).exp(),
            launch: of_launch.exp(),
            machine: self.drawn.machine.exp(),
        }
    }

    /// A setting's true median in microseconds.
    pub fn step_us(&self, setting: usize) -> Truth {
        self.truth(&self.blocks[setting]).times(1e6 * STEP_S * self.settings[setting])
    }

    /// That of the time which a step negotiates.
    pub fn negotiation_us(&self, setting: usize) -> Truth {
        self.truth(&self.blocks[setting]).times(NEGOTIATION_US)
    }

    /// That of its messages, which are alike in all settings.
    /// Of launches, it is what the median one reaches.
    pub fn message_us(&self) -> Truth {
        // Fewer than half of the launches have a bad node.
        let machine = self.drawn.launch[0].exp();
        Truth { machine, ..self.truth(&self.blocks.concat()) }.times(MESSAGE_US)
    }

    /// The setting with the shortest steps.
    pub fn best(&self) -> usize {
        let least =
            |one: &usize, other: &usize| self.settings[*one].total_cmp(&self.settings[*other]);
        (0..self.settings.len()).min_by(least).expect("there are settings")
    }
}

impl BlockExecutor for Synthetic<'_> {
    fn run(&mut self, plan: &Plan, request: BlockRequest) -> BlockResult {
        let BlockRequest { index, warmup_steps, .. } = request;
        let count = self.blocks[index].len();
        let [first, end] = self.machine.slow_rounds;
        let is_slow = (self.begun + first..self.begun + end).contains(&count);
        let other_work = if is_slow { DISTURBANCE.ln() } else { 0.0 };
        let round = self.launch + self.round(count) + other_work;
        let block = round + self.machine.block(&mut self.random);
        self.blocks[index].push(Block { round, all: block });
        let steps = warmup_steps + plan.config.measure.steps_per_block;
        let mut ranks = vec![RankLog::default(); self.machine.ranks()];
        let memory = self.machine.step_memory;
        let mut deviations: Vec<f64> =
            (0..self.machine.nodes).map(|_| self.machine.step(&mut self.random)).collect();
        for step in 0..steps {
            let cold = 1.0 + self.machine.cold_percent / 100.0 * 0.5_f64.powi(step as i32);
            let noise = |(node, deviation): (usize, &f64)| {
                block + self.machine.node(node, self.is_bad) + deviation
            };
            let noises: Vec<f64> = deviations.iter().enumerate().map(noise).collect();
            let slowest = noises.iter().copied().fold(f64::MIN, f64::max);
            let takes =
                |us: f64, noise: f64| Duration::from_secs_f64(us / 1e6 * cold * noise.exp());
            for (log, &noise) in ranks.iter_mut().zip(noises.iter().cycle()) {
                let time = takes(1e6 * STEP_S * self.settings[index], noise);
                log.steps.push(RankStep { time, ..RankStep::default() });
                let time = takes(MESSAGE_US, noise);
                log.messages.push(RankMessage { step, tensors: 1, elements: ELEMENTS, time });
                let negotiation = takes(NEGOTIATION_US, slowest);
                log.cycles.push(RankCycle { step: Some(step), negotiation, messages: 1 });
            }
            for deviation in &mut deviations {
                let fresh = self.machine.step(&mut self.random);
                *deviation = memory * *deviation + (1.0 - memory * memory).sqrt() * fresh;
            }
        }
        let outcome = Outcome { ranks, negotiated: true, wrong: Wrong::default() };
        BlockResult { outcome: Ok(outcome), records: None }
    }

    fn counters(&self) -> Option<Counters> {
        None
    }
}
