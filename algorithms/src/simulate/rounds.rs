//! Each rank's own clock, step by step: a (max,+) recurrence over the schedule.
//!
//! Where a shift of all ranks changes nothing ([`Schedule::rotation`], in whole nodes of the machine), ranks
//! that far apart do the same at the same time, so only the ranks of one period are simulated: 6 of the
//! 27,600 ranks of a ring on nodes of 6.
//!
//! Messages share capacities with the other messages of their step. The rates are computed once for every
//! pattern of peers and sizes.

use std::collections::{HashMap, VecDeque};

use super::clock::{Clock, Load};
use super::machine::{Level, Machine, partners};
use super::sharing::{Flow, NOTHING, Sharing};
use super::{Blocked, Moment, Outcome, Waiting, chunk_bytes};
use crate::combinators::least_common_multiple;
use crate::schedule::{Part, Schedule};

/// Simulates one collective on a buffer of `size_bytes` per rank. Rank r begins at `starts_s[r]`, or at 0 if
/// `starts_s` is empty.
///
/// # Errors
/// When a rank expects messages that are never sent, or gets others.
///
/// # Panics
/// When the ranks fill neither a part of one node nor whole nodes, or `starts_s` is for other ranks.
pub fn simulate(
    schedule: &dyn Schedule,
    machine: &Machine,
    size_bytes: f64,
    starts_s: &[f64],
) -> Result<Outcome, Blocked> {
    let machine = machine.for_buffer(size_bytes);
    let mut world = World::new(schedule, &machine, size_bytes, starts_s);
    for step in 0..schedule.steps() {
        world.send(schedule, step);
        world.share();
        world.receive(step)?;
    }
    let end = world.clocks.iter().fold(Moment::default(), |last, clock| last.later(clock.now));
    let ends_s = world.clocks.iter().map(|clock| clock.now.at_s).collect();
    Ok(Outcome { end, ends_s, transfers: world.transfers })
}

struct World<'m> {
    machine: &'m Machine,
    /// The number of simulated ranks; rank r does what rank r mod `period` does.
    period: usize,
    chunk_bytes: f64,
    clocks: Vec<Clock>,
    /// The clocks after the last steps, the earliest first; empty if a step's messages depend on all steps before.
    earlier: VecDeque<Vec<Moment>>,
    capacities: Vec<f64>,
    /// The messages of the current step, in the order of senders.
    messages: Vec<Message>,
    /// For each rank: its first message, and the number that it expects.
    inboxes: Vec<Inbox>,
    /// To and from how many ranks each rank sends and receives in the current step, if that makes a difference.
    partners: Vec<[usize; 2]>,
    counts_partners: bool,
    part: Part,
    shared: Shared,
    inbox: Vec<usize>,
    transfers: usize,
}

#[derive(Clone, Copy)]
struct Inbox {
    first: u32,
    received: u32,
    expected: u32,
}

const NONE: u32 = u32::MAX;

/// A message of the current step.
#[derive(Clone, Copy)]
struct Message {
    from: u32,
    to: u32,
    /// The distance from its sender to its receiver: the same for ranks that do the same.
    distance: u32,
    /// The next message for the same rank.
    next: u32,
    load: Load,
    alpha_s: f64,
    /// When its first byte arrives, once known.
    first_byte: Moment,
}

/// The state of sharing, kept from step to step.
#[derive(Default)]
struct Shared {
    sharing: Sharing,
    flows: Vec<Flow>,
    /// The message of each flow.
    of: Vec<usize>,
    /// Messages per port, out and in.
    ports: Vec<[f32; 2]>,
    /// Cached rates of patterns.
    known: HashMap<u64, Vec<f64>>,
}

impl<'m> World<'m> {
    fn new(
        schedule: &dyn Schedule,
        machine: &'m Machine,
        size_bytes: f64,
        starts_s: &[f64],
    ) -> World<'m> {
        let ranks = schedule.ranks();
        let local_size = machine.topology(ranks).node(0).len();
        assert!(starts_s.is_empty() || starts_s.len() == ranks, "a start for every rank");
        let period = match starts_s {
            [] => least_common_multiple(schedule.rotation(), local_size).min(ranks),
            _ => ranks,
        };
        let start = |rank: usize| Clock::start(starts_s.get(rank).copied().unwrap_or(0.0));
        let clocks: Vec<Clock> = (0..period).map(start).collect();
        let starts = clocks.iter().map(|clock| clock.now).collect();
        let earlier = match schedule.lag() {
            1 => VecDeque::new(),
            lag => VecDeque::from(vec![starts; lag]),
        };
        World {
            machine,
            period,
            chunk_bytes: chunk_bytes(schedule, size_bytes),
            clocks,
            earlier,
            capacities: machine.capacities(),
            messages: Vec::new(),
            inboxes: vec![Inbox { first: NONE, received: 0, expected: 0 }; period],
            partners: vec![[1; 2]; period],
            counts_partners: machine.counts_partners(),
            part: Part::default(),
            shared: Shared::default(),
            inbox: Vec::new(),
            transfers: 0,
        }
    }

    /// Collects the messages of a step.
    fn send(&mut self, schedule: &dyn Schedule, step: usize) {
        self.messages.clear();
        if self.counts_partners {
            for rank in 0..self.period {
                self.part.clear();
                schedule.part(rank, step, &mut self.part);
                self.partners[rank] = [partners(&self.part.sends), partners(&self.part.receives)];
            }
        }
        for rank in 0..self.period {
            self.part.clear();
            schedule.part(rank, step, &mut self.part);
            self.clocks[rank].step(&self.part);
            self.inboxes[rank].expected = self.part.receives.len() as u32;
            for send in &self.part.sends {
                let level = self.machine.level(rank, send.peer());
                let bytes = self.chunk_bytes * send.chunks().len() as f64;
                let protocol = self.machine.link(level).protocol(bytes);
                let [sending, receiving] =
                    [self.partners[rank][0], self.partners[send.peer() % self.period][1]];
                let alone_s = protocol.bytes_s(bytes, sending.max(receiving));
                self.messages.push(Message {
                    from: rank as u32,
                    to: send.peer,
                    distance: ((rank + schedule.ranks() - send.peer()) % schedule.ranks()) as u32,
                    next: NONE,
                    load: Load {
                        level,
                        action: send.action,
                        bytes,
                        kappa_s: protocol.kappa_s,
                        alone_s,
                        shared_s: alone_s,
                    },
                    alpha_s: protocol.latency_s(bytes),
                    first_byte: Moment::default(),
                });
            }
        }
        self.transfers += self.messages.len();
    }

    /// Slows down the messages that share a capacity.
    fn share(&mut self) {
        let (machine, period) = (self.machine, self.period);
        let per_node = self.capacities.len();
        let is_limited = self.capacities.iter().any(|capacity| capacity.is_finite());
        if !is_limited || period == 1 {
            return;
        }
        let Shared { sharing, flows, of, ports, known } = &mut self.shared;
        flows.clear();
        of.clear();
        ports.clear();
        ports.resize(period, [0.0; 2]);
        let mut pattern = 0;
        for (index, message) in self.messages.iter().enumerate() {
            if message.load.level == Level::Socket || message.load.bytes == 0.0 {
                continue;
            }
            of.push(index);
            ports[message.from as usize][0] += 1.0;
            ports[message.to as usize % period][1] += 1.0;
            let ends = u64::from(message.from) << 32 | u64::from(message.to);
            pattern = mixed(mixed(pattern, ends), message.load.bytes.to_bits());
        }
        if of.is_empty() {
            return;
        }
        let rates = known.entry(pattern).or_insert_with(|| {
            for &index in of.iter() {
                let message = &self.messages[index];
                let (from, to) = (message.from as usize, message.to as usize);
                let [out, into] = machine.passes(from, to, message.load.level);
                let (mut passes, mut weights) = ([NOTHING; 4], [0.0; 4]);
                let out = out.numbers().map(|number| (from, 0, number));
                let into = into.numbers().map(|number| (to % period, 1, number));
                let all =
                    out.chain(into).filter(|(.., number)| self.capacities[*number].is_finite());
                for (place, (rank, direction, number)) in all.enumerate() {
                    passes[place] = (rank / machine.local_size * per_node + number) as u32;
                    weights[place] = 1.0 / ports[rank][direction];
                }
                let limit = message.load.bytes / message.load.alone_s;
                flows.push(Flow { limit, passes, weights });
            }
            let nodes = period.div_ceil(machine.local_size);
            let capacity = |number: usize| self.capacities[number % per_node];
            let mut rates = Vec::new();
            sharing.rates(flows, nodes * per_node, capacity, &mut rates);
            rates
        });
        for (&index, rate) in of.iter().zip(&*rates) {
            let load = &mut self.messages[index].load;
            load.shared_s = load.bytes / rate;
        }
    }

    /// Sends the messages of a step and lets their receivers reduce them.
    fn receive(&mut self, step: usize) -> Result<(), Blocked> {
        for index in 0..self.messages.len() {
            let message = &mut self.messages[index];
            let sender = &mut self.clocks[message.from as usize];
            let ready = self.earlier.front().map_or(sender.now, |at| at[message.from as usize]);
            let begins = sender.send(ready, &message.load, self.machine);
            message.first_byte = begins.latency(message.alpha_s);
            let inbox = &mut self.inboxes[message.to as usize % self.period];
            inbox.received += 1;
            message.next = std::mem::replace(&mut inbox.first, index as u32);
        }
        let mut waiting = Vec::new();
        for rank in 0..self.period {
            let Inbox { first, received, expected } = self.inboxes[rank];
            self.inboxes[rank] = Inbox { first: NONE, received: 0, expected: 0 };
            if received != expected {
                let (expected, received) = (expected as usize, received as usize);
                waiting.push(Waiting { rank, step, expected, received });
            }
            let next = |index: u32| self.messages.get(index as usize).map(|message| message.next);
            self.inbox.clear();
            self.inbox.extend(
                std::iter::successors((first != NONE).then_some(first), |&index| next(index))
                    .take_while(|&index| index != NONE)
                    .map(|index| index as usize),
            );
            if received > 1 {
                // As they arrive; at once: the nearest sender ahead first.
                let messages = &self.messages;
                self.inbox.sort_unstable_by(|&a, &b| {
                    let at = |index: usize| messages[index].first_byte.at_s;
                    let distance = |index: usize| messages[index].distance;
                    at(a).total_cmp(&at(b)).then(distance(a).cmp(&distance(b))).then(a.cmp(&b))
                });
            }
            let clock = &mut self.clocks[rank];
            for &index in &self.inbox {
                let message = &self.messages[index];
                clock.take(message.first_byte, &message.load, self.machine);
            }
        }
        if let Some(mut at) = self.earlier.pop_front() {
            at.iter_mut().zip(&self.clocks).for_each(|(at, clock)| *at = clock.now);
            self.earlier.push_back(at);
        }
        if waiting.is_empty() { Ok(()) } else { Err(Blocked(waiting)) }
    }
}

/// Adds a word to the fingerprint of a pattern.
fn mixed(pattern: u64, word: u64) -> u64 {
    (pattern.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
