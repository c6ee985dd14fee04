//! Simulation tests of control planes: small worlds under a virtual clock and a network that delays
//! messages and reorders them between pairs of ranks, in which tensors mismatch or never become ready, and
//! ranks shut down or die. A seed determines all of it, so a failure is reproduced by its seed. (Worlds
//! are drawn at random, not enumerated: this is no model check.)
//!
//! What must hold:
//! - All ranks execute the same messages in the same order.
//! - Each tensor is reduced once a step, in a message that the threshold and the groups allow.
//! - There is an error exactly where ranks disagree, with the same text on every rank, which names both.
//! - Caches are equal after every cycle.
//! - No rank hangs. After a death every rank that waits, waits for the dead rank, directly or through
//!   others.
//! - After a shutdown nothing is lost or done twice.

mod checks;
mod plan;
mod random;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use plan::{Fault, Plan};
pub use random::Random;

use super::mutation::Mutations;
use super::plane::{Bitwise, ControlPlane, Effect, Event};
use super::registry::find;
use super::response::Response;
use super::tensor::TensorId;
use crate::topology::Rank;

/// What happened in a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldSummary {
    /// Events delivered to planes.
    pub events: usize,
    /// Messages executed on rank 0.
    pub messages: usize,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The plane, ranks and fault of its world.
    pub world: String,
    /// What was found, and what was expected.
    pub what: String,
}

/// Something that must hold in a world does not: what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Violation(String);

fn violated(what: impl Into<String>) -> Result<(), Violation> {
    Err(Violation(what.into()))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} ({}): {}", self.seed, self.world, self.what)
    }
}

impl std::error::Error for Failure {}

/// Runs the world of a seed. `mutations` gives the mutation of each rank's plane.
///
/// # Errors
/// The first violation that is found.
pub fn run_world(
    seed: u64,
    mutations: impl Fn(Rank) -> Mutations,
) -> Result<WorldSummary, Failure> {
    let mut random = Random::new(seed);
    let plan = Plan::new(&mut random);
    let mut world = World::new(&plan, random, mutations);
    let ended = world.run().and_then(|()| world.compare());
    let summary = WorldSummary { events: world.events, messages: world.ranks[0].log.len() };
    ended.map(|()| summary).map_err(|what| Failure {
        seed,
        world: format!("{}, {} ranks, {:?}", plan.plane, plan.ranks, plan.fault),
        what: what.0,
    })
}

/// Virtual time, in microseconds.
type Time = u64;

/// From the beginning of one cycle to that of the next.
const CYCLE: Time = 1000;

/// A world in which no rank executes anything for this long hangs.
const HANG_TIMEOUT: Time = 300 * CYCLE;

/// What happens next, and on which rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Occurrence {
    /// The next tensors of its step become ready on a rank.
    Ready(Rank),
    Cycle(Rank),
    Combined(Rank),
    /// The oldest message from one rank to another arrives.
    Arrives(Rank, Rank),
}

/// One message that was executed: names, and the error.
type Executed = (Vec<usize>, Option<Arc<str>>);

struct SimulatedRank {
    plane: Box<dyn ControlPlane>,
    /// Name and version of each of the rank's tensors.
    numbering: Vec<(usize, usize)>,
    step: usize,
    /// The tensors that are still to become ready in this step, the next first.
    coming: VecDeque<Vec<TensorId>>,
    /// Names that are ready, and those that are left in this step.
    ready: Vec<bool>,
    left: usize,
    /// Names that were ready when the rank's last cycle began.
    in_time: Vec<bool>,
    /// Cycles that were over when the rank asked for a shutdown.
    asked: Option<usize>,
    in_cycle: bool,
    log: Vec<Executed>,
    /// A hash of the state that must be equal on all ranks, after each cycle.
    agreed: Vec<u64>,
    stopped: Option<Vec<TensorId>>,
    is_dead: bool,
    /// Events that this rank has seen.
    events: usize,
    last_time: Time,
}

struct World<'p> {
    plan: &'p Plan,
    random: Random,
    ranks: Vec<SimulatedRank>,
    queue: BinaryHeap<Reverse<(Time, usize, Occurrence)>>,
    scheduled: usize,
    now: Time,
    progress: Time,
    /// Messages in flight from each sender to each receiver, and when the last one arrives.
    in_flight: Vec<(VecDeque<Arc<[u8]>>, Time)>,
    bits: Vec<Option<(Bitwise, Vec<u64>)>>,
    combined: Vec<VecDeque<Arc<[u64]>>>,
    warned: Vec<(String, Vec<Rank>)>,
    effects: Vec<Effect>,
    events: usize,
}

impl<'p> World<'p> {
    fn new(plan: &'p Plan, random: Random, mutations: impl Fn(Rank) -> Mutations) -> World<'p> {
        let state = |rank| {
            let (tensors, numbering) = plan.tensors(rank);
            let settings = plan.settings(rank, &numbering, mutations(rank));
            SimulatedRank {
                plane: find(&plan.plane, tensors.into(), &settings).expect("plans name planes"),
                numbering,
                step: 0,
                coming: VecDeque::new(),
                ready: vec![false; plan.versions.len()],
                left: 0,
                in_time: Vec::new(),
                asked: None,
                in_cycle: false,
                log: Vec::new(),
                agreed: Vec::new(),
                stopped: None,
                is_dead: false,
                events: 0,
                last_time: 0,
            }
        };
        let ranks = plan.ranks;
        let mut world = World {
            plan,
            random,
            ranks: (0..ranks).map(state).collect(),
            queue: BinaryHeap::new(),
            scheduled: 0,
            now: 0,
            progress: 0,
            in_flight: (0..ranks * ranks).map(|_| Default::default()).collect(),
            bits: vec![None; ranks],
            combined: vec![VecDeque::new(); ranks],
            warned: Vec::new(),
            effects: Vec::new(),
            events: 0,
        };
        for rank in 0..ranks {
            world.begin_step(rank);
            let first = world.random.below(CYCLE as usize) as Time;
            world.schedule(first, Occurrence::Cycle(rank));
        }
        world
    }

    fn schedule(&mut self, at: Time, occurrence: Occurrence) {
        self.queue.push(Reverse((at, self.scheduled, occurrence)));
        self.scheduled += 1;
    }

    /// A random delay: mostly short, at times long.
    fn delay(&mut self) -> Time {
        let most = if self.random.once_in(30) { 5 * CYCLE as usize } else { self.plan.delay };
        1 + self.random.below(most) as Time
    }

    /// Draws the tensors of a rank's next step, their order, and which become ready together.
    fn begin_step(&mut self, rank: Rank) {
        let (plan, step) = (self.plan, self.ranks[rank].step);
        let Some(names) = plan.steps.get(step) else { return };
        let never = |name| plan.fault == Fault::Stall { step, name, rank };
        let numbering = &self.ranks[rank].numbering;
        let id = |name: usize| {
            let version = plan.version(step, name, rank).expect("it takes part");
            numbering.iter().position(|&of| of == (name, version)).expect("it is registered")
        };
        let group =
            |name: usize| plan.groups.iter().flatten().position(|group| group.contains(&name));
        let mut coming: Vec<Vec<TensorId>> = Vec::new();
        let mut group_of: Vec<Option<usize>> = Vec::new();
        for &(name, _) in names.iter().filter(|(name, _)| !never(*name)) {
            let group = group(name);
            match group_of.iter().position(|other| group.is_some() && *other == group) {
                Some(at) => coming[at].push(id(name)),
                None => {
                    coming.push(vec![id(name)]);
                    group_of.push(group);
                }
            }
        }
        // Groups are handed over as one, or not at all.
        let stalled_group =
            names.iter().find(|(name, _)| never(*name)).and_then(|&(name, _)| group(name));
        if stalled_group.is_some() {
            let stays = |at: &usize| group_of[*at] != stalled_group;
            coming = (0..coming.len()).filter(stays).map(|at| coming[at].clone()).collect();
        }
        coming.reverse();
        if plan.shuffled {
            self.random.shuffle(&mut coming);
        }
        let state = &mut self.ranks[rank];
        state.left = names.len();
        state.coming = coming.into();
        if !state.coming.is_empty() {
            let at = self.now + self.delay();
            self.schedule(at, Occurrence::Ready(rank));
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        while let Some(Reverse((at, _, occurrence))) = self.queue.pop() {
            self.now = at;
            if self.is_over() {
                return Ok(());
            }
            if self.now > self.progress + HANG_TIMEOUT {
                return self.stuck();
            }
            self.handle(occurrence)?;
        }
        if self.is_over() { Ok(()) } else { self.stuck() }
    }

    /// Every rank has stopped, is dead, or has executed all steps.
    fn is_over(&self) -> bool {
        let steps = self.plan.steps.len();
        self.ranks.iter().all(|state| state.is_over() || state.step == steps)
    }

    fn handle(&mut self, occurrence: Occurrence) -> Result<(), Violation> {
        match occurrence {
            Occurrence::Ready(rank) => {
                let Some(ids) = self.ranks[rank].coming.pop_front() else { return Ok(()) };
                if self.ranks[rank].is_over() {
                    return Ok(());
                }
                for &id in &ids {
                    let (name, _) = self.ranks[rank].numbering[id];
                    self.ranks[rank].ready[name] = true;
                }
                self.deliver(rank, Event::Ready(&ids))?;
                if !self.ranks[rank].coming.is_empty() {
                    let at = self.now + if self.random.once_in(3) { 0 } else { self.delay() };
                    self.schedule(at, Occurrence::Ready(rank));
                }
                Ok(())
            }
            Occurrence::Cycle(rank) => {
                let state = &mut self.ranks[rank];
                if state.is_over() {
                    return Ok(());
                }
                state.in_cycle = true;
                state.last_time = self.now;
                state.in_time.clone_from(&state.ready);
                if let Fault::ShutDown { rank: who, after } = self.plan.fault
                    && who == rank
                    && state.events >= after
                {
                    state.asked.get_or_insert(state.agreed.len());
                    self.deliver(rank, Event::ShutDown)?;
                }
                self.deliver(rank, Event::Cycle(Duration::from_micros(self.now)))
            }
            Occurrence::Combined(rank) => {
                let words = self.combined[rank].pop_front().expect("it was scheduled with it");
                self.deliver(rank, Event::Combined(&words))
            }
            Occurrence::Arrives(from, to) => {
                let pair = from * self.plan.ranks + to;
                let message = self.in_flight[pair].0.pop_front().expect("it was scheduled with it");
                self.deliver(to, Event::Arrived { from, message: &message })
            }
        }
    }

    /// Delivers one event to one rank and performs the effects.
    fn deliver(&mut self, rank: Rank, event: Event) -> Result<(), Violation> {
        let state = &mut self.ranks[rank];
        if let Fault::Death { rank: who, after } = self.plan.fault
            && who == rank
            && state.events >= after
        {
            state.is_dead = true;
        }
        if state.is_dead || state.stopped.is_some() {
            return Ok(());
        }
        state.events += 1;
        self.events += 1;
        let mut effects = std::mem::take(&mut self.effects);
        let result = state.plane.on(event, &mut effects);
        if let Err(error) = result {
            return violated(format!("rank {rank} refuses to go on: {error}"));
        }
        for effect in effects.drain(..) {
            self.perform(rank, effect)?;
        }
        self.effects = effects;
        Ok(())
    }

    fn perform(&mut self, rank: Rank, effect: Effect) -> Result<(), Violation> {
        if !self.ranks[rank].in_cycle {
            return violated(format!("rank {rank} acts outside a cycle: {effect:?}"));
        }
        match effect {
            Effect::Send { to, message } => self.send(rank, to, message),
            Effect::Broadcast(message) => {
                for to in (0..self.plan.ranks).filter(|&to| to != rank) {
                    self.send(rank, to, message.clone());
                }
            }
            Effect::Bitwise(bitwise, words) => return self.begin_bitwise(rank, bitwise, words),
            Effect::Execute(response) => return self.execute(rank, &response),
            Effect::Warn(stalled) => self.warned.push((stalled.name, stalled.missing)),
            Effect::Stop(unfinished) => {
                self.progress = self.now;
                self.ranks[rank].stopped = Some(unfinished);
            }
            Effect::EndCycle => self.end_cycle(rank),
        }
        Ok(())
    }

    fn send(&mut self, from: Rank, to: Rank, message: Arc<[u8]>) {
        let delay = self.delay();
        let (in_flight, last) = &mut self.in_flight[from * self.plan.ranks + to];
        // Messages of a pair arrive in their order.
        *last = (*last).max(self.now + delay);
        let at = *last;
        in_flight.push_back(message);
        self.schedule(at, Occurrence::Arrives(from, to));
    }

    fn begin_bitwise(
        &mut self,
        rank: Rank,
        bitwise: Bitwise,
        words: Vec<u64>,
    ) -> Result<(), Violation> {
        if self.bits[rank].replace((bitwise, words)).is_some() {
            return violated(format!("rank {rank} asks for a second collective within the first"));
        }
        if self.bits.iter().any(Option::is_none) {
            return Ok(());
        }
        let mut all = self.bits.iter_mut().map(|bits| bits.take().expect("all have asked"));
        let (first, mut combined) = all.next().expect("there is a rank");
        for (other, words) in all {
            if (other, words.len()) != (first, combined.len()) {
                return violated("ranks ask for different collectives");
            }
            for (word, more) in combined.iter_mut().zip(words) {
                match first {
                    Bitwise::And => *word &= more,
                    Bitwise::Or => *word |= more,
                }
            }
        }
        let combined: Arc<[u64]> = combined.into();
        for rank in 0..self.plan.ranks {
            self.combined[rank].push_back(combined.clone());
            let at = self.now + self.delay();
            self.schedule(at, Occurrence::Combined(rank));
        }
        Ok(())
    }

    fn execute(&mut self, rank: Rank, response: &Response) -> Result<(), Violation> {
        self.progress = self.now;
        let (plan, state) = (self.plan, &mut self.ranks[rank]);
        let of = |&id: &TensorId| state.numbering[id];
        let names: Vec<usize> = response.tensors.iter().map(of).map(|(name, _)| name).collect();
        for (name, version) in response.tensors.iter().map(of) {
            if !std::mem::take(&mut state.ready[name]) {
                return violated(format!("rank {rank} reduces name {name}, which is not ready"));
            }
            if plan.version(state.step, name, rank) != Some(version) {
                return violated(format!("rank {rank} reduces another version of name {name}"));
            }
            if response.error.is_some() != plan.is_mismatched(state.step, name) {
                return violated(format!("name {name}: error {:?}", response.error));
            }
        }
        if let Some(error) = &response.error {
            let numbers = error.match_indices("rank ").count();
            if numbers != 2 || !error.contains(&format!("layer{}.weight", names[0])) {
                return violated(format!(
                    "an error that does not name tensor and both ranks: {error}"
                ));
            }
        }
        self.check_size(rank, response, &names)?;
        let state = &mut self.ranks[rank];
        state.left -= names.len();
        state.log.push((names, response.error.clone()));
        if state.left == 0 {
            state.step += 1;
            self.begin_step(rank);
        }
        Ok(())
    }

    fn end_cycle(&mut self, rank: Rank) {
        let state = &mut self.ranks[rank];
        state.in_cycle = false;
        let numbering = &state.numbering;
        let mut hash = 0_u64;
        for (bit, id) in state.plane.agreed() {
            let (name, version) = numbering[id];
            for part in [bit, name, version] {
                hash = (hash.rotate_left(7) ^ part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        state.agreed.push(hash);
        let next = if state.plane.is_paced() { CYCLE } else { CYCLE / 10 };
        let late = state.last_time + next;
        let jitter = self.random.below(50) as Time;
        self.schedule(late.max(self.now + 1) + jitter, Occurrence::Cycle(rank));
    }
}

impl SimulatedRank {
    /// It has stopped or is dead.
    fn is_over(&self) -> bool {
        self.is_dead || self.stopped.is_some()
    }
}
