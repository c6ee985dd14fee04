//! Every message by itself, in the order of time: what a node's ranks share is passed one message after
//! another, first come, first served.
//!
//! One event per message that shares nothing, three per message that does: it comes to what its sender's
//! node shares, to what its receiver's node shares, and to its receiver. Events at the same time have an
//! order (receiver, step, distance of the sender, position), so a run repeats to the last digit.

use super::clock::{Clock, Load};
use super::machine::{Level, Machine};
use super::paths::Paths;
use super::radix_heap::RadixHeap;
use super::{Blocked, Moment, Outcome, Waiting, chunk_bytes};
use crate::schedule::{Action, Part, Schedule};

/// As [`super::rounds::simulate`], message by message.
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
    for rank in 0..schedule.ranks() {
        world.advance(rank);
    }
    while let Some((at_s, event)) = world.queue.pop() {
        world.handle(at_s, event);
    }
    world.outcome()
}

struct World<'w> {
    schedule: &'w dyn Schedule,
    machine: &'w Machine,
    chunk_bytes: f64,
    steps: usize,
    lag: usize,
    ranks: Vec<Rank>,
    locations: Vec<Location>,
    paths: Vec<Paths>,
    capacities: Vec<f64>,
    /// When each capacity of each node becomes free.
    free_s: Vec<f64>,
    queue: RadixHeap<Event>,
    messages: Vec<Message>,
    /// Free indices in `messages`.
    spare: Vec<u32>,
    part: Part,
    transfers: usize,
}

/// The progress of one rank.
struct Rank {
    /// The step whose messages it receives.
    step: usize,
    /// Steps whose messages it has sent.
    sent: usize,
    expected: usize,
    received: usize,
    clock: Clock,
    /// Messages for later steps, in the order of arrival.
    early: Vec<u32>,
}

/// The location of a rank.
#[derive(Clone, Copy)]
struct Location {
    node: u32,
    local: u32,
}

/// The location of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At its receiver; handled before others at the same time.
    Receiver = 0,
    /// At the shared capacities of the sender's node.
    Out = 1,
    /// At the shared capacities of the receiver's node.
    In = 2,
}

/// A message arrives at a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// At the same time: receiver and step, then distance of the sender, position and place.
    order: [u64; 2],
    message: u32,
}

impl Event {
    fn new(message: u32, of: &Message, place: Place, ranks: u32) -> Event {
        let distance = (of.from + ranks - of.to) % ranks;
        let joined = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let last = of.position << 2 | place as u32;
        Event { order: [joined(of.to, of.step), joined(distance, last)], message }
    }

    /// The receiver and the step, without access to the message.
    fn receiver(self) -> [usize; 2] {
        [(self.order[0] >> 32) as usize, self.order[0] as u32 as usize]
    }

    fn place(self) -> Place {
        match self.order[1] & 3 {
            0 => Place::Receiver,
            1 => Place::Out,
            _ => Place::In,
        }
    }
}

#[derive(Clone, Copy)]
struct Message {
    step: u32,
    from: u32,
    to: u32,
    position: u32,
    /// It takes as long as it would alone on the slowest capacity that it passes.
    load: Load,
    alpha_s: f64,
    /// When it is here, and what that time consists of.
    moment: Moment,
}

impl<'w> World<'w> {
    fn new(
        schedule: &'w dyn Schedule,
        machine: &'w Machine,
        size_bytes: f64,
        starts_s: &[f64],
    ) -> World<'w> {
        let ranks = schedule.ranks();
        let nodes = machine.topology(ranks).nodes();
        assert!(starts_s.is_empty() || starts_s.len() == ranks, "a start for every rank");
        let rank = |rank: usize| {
            let clock = Clock::start(starts_s.get(rank).copied().unwrap_or(0.0));
            Rank { step: 0, sent: 0, expected: 0, received: 0, clock, early: Vec::new() }
        };
        let capacities = machine.capacities();
        let (size, locals) = (machine.local_size, machine.local_size.min(ranks));
        let location =
            |rank: usize| Location { node: (rank / size) as u32, local: (rank % size) as u32 };
        World {
            steps: schedule.steps(),
            lag: schedule.lag(),
            locations: (0..ranks).map(location).collect(),
            paths: (0..locals).map(|local| Paths::new(machine, &capacities, local)).collect(),
            schedule,
            machine,
            chunk_bytes: chunk_bytes(schedule, size_bytes),
            ranks: (0..ranks).map(rank).collect(),
            free_s: vec![0.0; nodes * capacities.len()],
            capacities,
            queue: RadixHeap::new(),
            messages: Vec::new(),
            spare: Vec::new(),
            part: Part::default(),
            transfers: 0,
        }
    }

    /// A rank sends what its finished steps allow, and receives its step and the next ones until it has to wait.
    fn advance(&mut self, rank: usize) {
        let mut part = std::mem::take(&mut self.part);
        while self.ranks[rank].step < self.steps {
            let step = self.ranks[rank].step;
            while self.ranks[rank].sent < self.steps.min(step + self.lag) {
                part.clear();
                self.schedule.part(rank, self.ranks[rank].sent, &mut part);
                for (position, send) in part.sends.iter().enumerate() {
                    let bytes = self.chunk_bytes * send.chunks().len() as f64;
                    self.send(rank, send.peer(), bytes, send.action, position);
                }
                self.ranks[rank].sent += 1;
            }
            // Without sending ahead, that is the step whose messages it has just sent.
            if self.lag > 1 {
                part.clear();
                self.schedule.part(rank, step, &mut part);
            }
            self.ranks[rank].clock.step(&part);
            self.ranks[rank].expected = part.receives.len();
            self.ranks[rank].received = 0;
            self.take_early(rank);
            if self.ranks[rank].received < self.ranks[rank].expected {
                break;
            }
            self.ranks[rank].step += 1;
        }
        self.part = part;
    }

    fn send(&mut self, from: usize, to: usize, bytes: f64, action: Action, position: usize) {
        let [a, b] = [from, to].map(|rank| self.locations[rank]);
        let [a_paths, b_paths] = [a, b].map(|location| &self.paths[location.local as usize]);
        let (level, least) = if a.node != b.node {
            (Level::Network, a_paths.out.least.min(b_paths.into.least))
        } else if a_paths.socket == b_paths.socket {
            (Level::Socket, f64::INFINITY)
        } else {
            (Level::Bus, a_paths.bus.least)
        };
        let protocol = self.machine.link(level).protocol(bytes);
        let least_s = bytes / least;
        let alone_s = bytes * protocol.beta_s;
        let alpha_s = protocol.latency_s(bytes);
        let (kappa_s, shared_s) = (protocol.kappa_s, alone_s.max(least_s));
        let load = Load { level, action, bytes, kappa_s, alone_s, shared_s };
        let sender = &mut self.ranks[from];
        let begins = sender.clock.send(sender.clock.now, &load, self.machine);
        // Others may use what limits it, too, if its node has several ranks.
        let (place, moment) = if least_s > 0.0 && self.machine.local_size > 1 {
            (Place::Out, begins)
        } else {
            (Place::Receiver, begins.latency(alpha_s))
        };
        let message = Message {
            step: sender.sent as u32,
            from: from as u32,
            to: to as u32,
            position: position as u32,
            load,
            alpha_s,
            moment,
        };
        self.transfers += 1;
        let index = match self.spare.pop() {
            Some(index) => {
                self.messages[index as usize] = message;
                index
            }
            None => {
                self.messages.push(message);
                self.messages.len() as u32 - 1
            }
        };
        self.enqueue(index, place);
    }

    fn enqueue(&mut self, index: u32, place: Place) {
        let message = &self.messages[index as usize];
        let event = Event::new(index, message, place, self.ranks.len() as u32);
        self.queue.push(message.moment.at_s, event);
    }

    fn handle(&mut self, at_s: f64, event: Event) {
        let index = event.message;
        match event.place() {
            Place::Out => {
                let moment = self.pass(at_s, index, 0);
                let message = &mut self.messages[index as usize];
                message.moment = moment.latency(message.alpha_s);
                self.enqueue(index, Place::In);
            }
            Place::In => {
                self.messages[index as usize].moment = self.pass(at_s, index, 1);
                self.enqueue(index, Place::Receiver);
            }
            Place::Receiver => {
                let [rank, step] = event.receiver();
                if step != self.ranks[rank].step {
                    self.ranks[rank].early.push(index);
                    return;
                }
                self.take(rank, index);
                if self.ranks[rank].received == self.ranks[rank].expected {
                    self.ranks[rank].step += 1;
                    self.advance(rank);
                }
            }
        }
    }

    /// Passes a message through the shared capacities of a node, out (0) or in (1); returns when its first byte
    /// leaves them.
    fn pass(&mut self, at_s: f64, index: u32, direction: usize) -> Moment {
        let message = &self.messages[index as usize];
        let location = self.locations[[message.from, message.to][direction] as usize];
        let paths = &self.paths[location.local as usize];
        let Some(path) = paths.path(message.load.level, direction) else { return message.moment };
        let node = location.node as usize * self.capacities.len();
        let free = |number: usize| self.free_s[node + number];
        let begins_s = path.passes.numbers().map(free).fold(at_s, f64::max);
        for number in path.passes.numbers() {
            let bytes_s = message.load.bytes / self.capacities[number];
            self.free_s[node + number] = begins_s + bytes_s;
        }
        let mut moment = message.moment;
        moment.contention_s += begins_s - at_s;
        moment.at_s = begins_s;
        moment
    }

    /// Receives a message of the current step and reduces it.
    fn take(&mut self, rank: usize, index: u32) {
        let message = self.messages[index as usize];
        self.spare.push(index);
        let rank = &mut self.ranks[rank];
        rank.received += 1;
        rank.clock.take(message.moment, &message.load, self.machine);
    }

    /// Takes the messages that arrived early for the step that begins, in the order of arrival.
    fn take_early(&mut self, rank: usize) {
        if self.ranks[rank].early.is_empty() {
            return;
        }
        let step = self.ranks[rank].step as u32;
        let mut early = std::mem::take(&mut self.ranks[rank].early);
        early.retain(|&index| {
            let is_now = self.messages[index as usize].step == step;
            if is_now {
                self.take(rank, index);
            }
            !is_now
        });
        self.ranks[rank].early = early;
    }

    fn outcome(self) -> Result<Outcome, Blocked> {
        let steps = self.schedule.steps();
        let waiting: Vec<Waiting> = (self.ranks.iter().enumerate())
            .filter(|(_, rank)| rank.step < steps || !rank.early.is_empty())
            .map(|(index, rank)| {
                let (expected, received) = if rank.step < steps {
                    (rank.expected, rank.received)
                } else {
                    (0, rank.early.len())
                };
                Waiting { rank: index, step: rank.step, expected, received }
            })
            .collect();
        if !waiting.is_empty() {
            return Err(Blocked(waiting));
        }
        let end =
            self.ranks.iter().fold(Moment::default(), |last, rank| last.later(rank.clock.now));
        let ends_s = self.ranks.iter().map(|rank| rank.clock.now.at_s).collect();
        Ok(Outcome { end, ends_s, transfers: self.transfers })
    }
}
