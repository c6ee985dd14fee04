//! Every message by itself, in the order of time: what a node's ranks share is passed one message after
//! another, first come, first served.
//!
//! One event per message that shares nothing, three per message that does: it comes to what its sender's
//! node shares, to what its receiver's node shares, and to its receiver. A message that is announced has two more:
//! its announcement comes to its receiver, and the answer to its sender. Events at the same time have an
//! order (receiver, step, distance of the sender, position), so a run repeats to the last digit.

use std::collections::HashMap;

use super::clock::{Clock, Load};
use super::machine::{Level, Machine, partners};
use super::paths::Paths;
use super::radix_heap::RadixHeap;
use super::{Blocked, Moment, Outcome, Waiting, chunk_bytes};
use crate::schedule::{Move, Part, Schedule};

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
    /// When all messages so far from one rank to another have left, where announcements wait for them.
    left_s: HashMap<(u32, u32), f64>,
    queue: RadixHeap<Event>,
    messages: Vec<Message>,
    /// Free indices in `messages`.
    spare: Vec<u32>,
    part: Part,
    /// Another rank's part.
    others: Part,
    counts_partners: bool,
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
    /// Announced messages of steps for which it does not wait yet.
    announced: Vec<u32>,
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
    /// At its receiver, as an announcement.
    Announced = 3,
    /// At its sender, whom the receiver has answered.
    Answered = 4,
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
        let last = of.position << 3 | place as u32;
        Event { order: [joined(of.to, of.step), joined(distance, last)], message }
    }

    /// The receiver and the step, without access to the message.
    fn receiver(self) -> [usize; 2] {
        [(self.order[0] >> 32) as usize, self.order[0] as u32 as usize]
    }

    fn place(self) -> Place {
        match self.order[1] & 7 {
            0 => Place::Receiver,
            1 => Place::Out,
            2 => Place::In,
            3 => Place::Announced,
            _ => Place::Answered,
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
    /// It is announced before it is sent.
    is_announced: bool,
    /// The share of other data that announcements wait for.
    behind_data: f64,
    /// The latency of its announcement, and of the answer; 0 if it is not announced.
    answered_s: f64,
    /// Others may use what limits it, too.
    is_shared: bool,
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
            Rank {
                step: 0,
                sent: 0,
                expected: 0,
                received: 0,
                clock,
                early: Vec::new(),
                announced: Vec::new(),
            }
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
            left_s: HashMap::new(),
            capacities,
            queue: RadixHeap::new(),
            messages: Vec::new(),
            spare: Vec::new(),
            part: Part::default(),
            others: Part::default(),
            counts_partners: machine.counts_partners(),
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
                let sending = partners(&part.sends);
                for (position, send) in part.sends.iter().enumerate() {
                    let partners = sending.max(self.sources(send.peer(), self.ranks[rank].sent));
                    self.send(rank, send, position, partners);
                }
                self.ranks[rank].sent += 1;
                self.answer_announced(rank);
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

    /// From how many ranks a rank receives in a step, if that makes a difference.
    fn sources(&mut self, rank: usize, step: usize) -> usize {
        if !self.counts_partners {
            return 1;
        }
        self.others.clear();
        self.schedule.part(rank, step, &mut self.others);
        partners(&self.others.receives)
    }

    fn send(&mut self, from: usize, send: &Move, position: usize, partners: usize) {
        let (to, action) = (send.peer(), send.action);
        let bytes = self.chunk_bytes * send.chunks().len() as f64;
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
        let alone_s = protocol.bytes_s(bytes, partners);
        // The announcement, the answer and the message have a third of the latency each.
        let is_announced = protocol.announces(bytes);
        let answered_s = if is_announced { protocol.alpha_s / 3.0 } else { 0.0 };
        let alpha_s = protocol.latency_s(bytes) - 2.0 * answered_s;
        let (kappa_s, shared_s) = (protocol.kappa_s, alone_s.max(least_s));
        let load = Load { level, action, bytes, kappa_s, alone_s, shared_s };
        let sender = &self.ranks[from];
        let message = Message {
            step: sender.sent as u32,
            from: from as u32,
            to: to as u32,
            position: position as u32,
            load,
            alpha_s,
            is_announced,
            behind_data: protocol.behind_data,
            answered_s,
            // If its node has several ranks.
            is_shared: least_s > 0.0 && self.machine.local_size > 1,
            moment: sender.clock.now,
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
        if message.is_announced {
            self.messages[index as usize].moment = self.behind(message, message.from, message.to);
            self.enqueue(index, Place::Announced);
        } else {
            self.begin(index);
        }
    }

    /// A message begins to leave, after those before it.
    fn begin(&mut self, index: u32) {
        let message = &mut self.messages[index as usize];
        let sender = &mut self.ranks[message.from as usize];
        let begins = sender.clock.send(message.moment, &message.load, self.machine);
        if message.behind_data > 0.0 {
            let left_s = begins.at_s + message.load.alone_s;
            self.left_s.insert((message.from, message.to), left_s);
        }
        let place = if message.is_shared {
            message.moment = begins;
            Place::Out
        } else {
            message.moment = begins.latency(message.alpha_s);
            Place::Receiver
        };
        self.enqueue(index, place);
    }

    /// When the announcement or the answer of a message, which goes `from` a rank `to` another, is there.
    fn behind(&self, message: Message, from: u32, to: u32) -> Moment {
        let mut moment = message.moment;
        let left_s = self.left_s.get(&(from, to)).copied().unwrap_or(0.0);
        let waits_s = message.behind_data * (left_s - moment.at_s).max(0.0);
        moment.at_s += waits_s;
        moment.contention_s += waits_s;
        moment.latency(message.answered_s)
    }

    /// The receiver of an announced message answers, if it waits for messages of that step.
    fn answer(&mut self, at_s: f64, index: u32) {
        let message = &mut self.messages[index as usize];
        let receiver = &mut self.ranks[message.to as usize];
        if receiver.sent <= message.step as usize {
            receiver.announced.push(index);
            return;
        }
        let waited_s = at_s - message.moment.at_s;
        message.moment.at_s = at_s;
        message.moment.contention_s += waited_s;
        let message = *message;
        self.messages[index as usize].moment = self.behind(message, message.to, message.from);
        self.enqueue(index, Place::Answered);
    }

    /// A rank answers messages that were announced before it waited for them.
    fn answer_announced(&mut self, rank: usize) {
        if self.ranks[rank].announced.is_empty() {
            return;
        }
        let at_s = self.ranks[rank].clock.now.at_s;
        for index in std::mem::take(&mut self.ranks[rank].announced) {
            self.answer(at_s, index);
        }
    }

    fn enqueue(&mut self, index: u32, place: Place) {
        let message = &self.messages[index as usize];
        let event = Event::new(index, message, place, self.ranks.len() as u32);
        self.queue.push(message.moment.at_s, event);
    }

    fn handle(&mut self, at_s: f64, event: Event) {
        let index = event.message;
        match event.place() {
            Place::Announced => self.answer(at_s, index),
            Place::Answered => self.begin(index),
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
