//! Proves that a schedule is an allreduce, by running it on sets of contributors.
//!
//! Instead of numbers, each chunk of each rank holds the set of ranks whose part it contains. A
//! reduction unites two sets, which must be disjoint; a copy replaces one. At the end every chunk of
//! every rank must hold everybody; ranks that only serve others ([`Schedule::contributes`]) begin with
//! empty sets, and may end with any. On the way the two ends of each transfer must agree, no chunk is
//! written twice in a step unless both writes are reductions, and each rank must move exactly the
//! volume that the algorithm's header promises. The idea is that of msccl-tools' checker.
//!
//! Matched steps imply freedom from deadlock for an executor that posts a whole step before it
//! waits. The executor here posts further ahead, so [`algorithm`] also rehearses the compiled
//! programs under rendezvous semantics, see [`crate::rehearsal`].

use std::fmt;
use std::ops::Range;

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::combine::Pipelined;
use crate::program::{MOST_RANKS_WITH_PUTS, Program};
use crate::rehearsal;
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// What a proof has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Steps of the schedule.
    pub steps: usize,
    /// Transfers between two ranks, over all steps.
    pub transfers: usize,
    /// Chunks sent by the rank that sends most.
    pub sent_most: usize,
}

/// Why a schedule is refused. Its text names step, rank and chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named and Display says what they mean")]
pub enum Violation {
    /// There is no schedule for this topology.
    Unsupported(Unsupported),
    /// A move names itself, or a rank or chunk that does not exist.
    Nonsense { step: usize, rank: Rank, entry: Move, ranks: usize, chunks: usize },
    /// A send whose receiver expects nothing (more).
    NotExpected { step: usize, from: Rank, to: Rank, sent: Move },
    /// A receive whose sender sends nothing (more).
    NotSent { step: usize, from: Rank, to: Rank, expected: Move },
    /// The two ends of a transfer disagree.
    Disagree { step: usize, from: Rank, to: Rank, sent: Move, expected: Move },
    /// Two transfers of a step write one chunk, and not both are reductions.
    WrittenTwice { step: usize, rank: Rank, chunk: usize },
    /// A reduction adds somebody a second time.
    AddedTwice { step: usize, from: Rank, rank: Rank, chunk: usize, part: Rank },
    /// Somebody's part never arrived.
    Lacking { steps: usize, rank: Rank, chunk: usize, part: Rank },
    /// The result is right, but costs something else than promised.
    Volume { rank: Rank, promised: Volume, found: Volume },
    /// A program overwrites a chunk that another rank may still be reading.
    Overwritten { step: usize, rank: Rank, by: Rank, chunk: usize },
    /// A program puts a chunk into a rank that has not handed it over.
    NotHandedOver { step: usize, rank: Rank, by: Rank, chunk: usize },
    /// The result is right, but takes another number of steps than promised.
    Steps { promised: usize, found: usize },
    /// The compiled programs wait for one another.
    Blocked { step: usize, rank: Rank, peer: Rank, chunks: Range<usize>, sending: bool },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Unsupported(why) => why.fmt(f),
            Violation::Nonsense { step, rank, entry, ranks, chunks } => write!(
                f,
                "step {step}: rank {rank} names rank {} and {} in a world of {ranks} ranks and \
                 {chunks} chunks",
                entry.peer,
                Chunks(entry.chunks()),
            ),
            Violation::NotExpected { step, from, to, sent } => write!(
                f,
                "step {step}: rank {from} sends {} to rank {to}, which does not expect it",
                Chunks(sent.chunks())
            ),
            Violation::NotSent { step, from, to, expected } => write!(
                f,
                "step {step}: rank {to} expects {} from rank {from}, which does not send it",
                Chunks(expected.chunks())
            ),
            Violation::Disagree { step, from, to, sent, expected } => write!(
                f,
                "step {step}: rank {from} sends {} to rank {to} to {}, which expects {} to {}",
                Chunks(sent.chunks()),
                verb(sent.action),
                Chunks(expected.chunks()),
                verb(expected.action),
            ),
            Violation::WrittenTwice { step, rank, chunk } => write!(
                f,
                "step {step}: rank {rank} has chunk {chunk} written twice, in no defined order"
            ),
            Violation::AddedTwice { step, from, rank, chunk, part } => write!(
                f,
                "step {step}: rank {rank} adds rank {part}'s part of chunk {chunk} twice, \
                 the second time from rank {from}"
            ),
            Violation::Lacking { steps, rank, chunk, part } => write!(
                f,
                "after the last of {steps} steps: rank {rank} lacks rank {part}'s part of chunk \
                 {chunk}"
            ),
            Violation::Volume { rank, promised, found } => write!(
                f,
                "rank {rank} sends {} chunks and receives {}, but the algorithm promises {} and {}",
                found.sent, found.received, promised.sent, promised.received
            ),
            Violation::Overwritten { step, rank, by, chunk } => write!(
                f,
                "step {step}: rank {by} overwrites chunk {chunk} of rank {rank}, which somebody may \
                 still be reading"
            ),
            Violation::NotHandedOver { step, rank, by, chunk } => write!(
                f,
                "step {step}: rank {by} puts chunk {chunk} into rank {rank}, which has not sent it \
                 the chunk since it was last written"
            ),
            Violation::Steps { promised, found } => {
                write!(f, "it takes {found} steps, but the algorithm promises {promised}")
            }
            Violation::Blocked { step, rank, peer, chunks, sending } => {
                let chunks = Chunks(chunks.clone());
                match sending {
                    true => write!(
                        f,
                        "step {step}: rank {rank} waits for ever for rank {peer} to take {chunks}"
                    ),
                    false => write!(
                        f,
                        "step {step}: rank {rank} waits for ever for {chunks} from rank {peer}"
                    ),
                }
            }
        }
    }
}

impl std::error::Error for Violation {}

struct Chunks(Range<usize>);

impl fmt::Display for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "chunk {}", self.0.start),
            _ => write!(f, "chunks {}..{}", self.0.start, self.0.end),
        }
    }
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Reduce => "be added",
        Action::Copy => "be copied",
    }
}

/// Proves one algorithm on one topology: an allreduce, in the promised steps and at the promised
/// volume per rank, that its compiled programs carry out without deadlock or hazard.
pub fn algorithm(algorithm: &dyn Algorithm, topology: &Topology) -> Result<Proof, Violation> {
    pipelined(algorithm, topology, 1, 1)
}

/// The same for an algorithm that is pipelined in segments, see [`Pipelined`]: as many bytes, and the
/// steps that are promised there.
pub fn pipelined(
    algorithm: &dyn Algorithm,
    topology: &Topology,
    segments: usize,
    lag: usize,
) -> Result<Proof, Violation> {
    let schedule = algorithm.schedule(topology).map_err(Violation::Unsupported)?;
    let schedule = Pipelined::with_lag(schedule, segments, lag);
    let promised = match algorithm.steps(topology) {
        0 => 0,
        steps => (steps - 1) * lag + segments,
    };
    if schedule.steps() != promised {
        return Err(Violation::Steps { promised, found: schedule.steps() });
    }
    let volume = |rank| {
        let once = algorithm.volume(topology, rank);
        Volume { sent: once.sent * segments, received: once.received * segments }
    };
    let volumes: Vec<_> = (0..topology.ranks()).map(volume).collect();
    let proof = schedule_moves(&schedule, &volumes)?;
    let ranks = topology.ranks();
    let programs: Vec<_> = (0..ranks).map(|rank| Program::compile(&schedule, rank)).collect();
    rehearsal::rehearse(&programs)?;
    if ranks <= MOST_RANKS_WITH_PUTS {
        rehearsal::rehearse(&Program::compile_world(&schedule))?;
    }
    Ok(proof)
}

/// Proves the moves of a schedule: an allreduce, at the promised volume per rank.
pub fn schedule_moves(schedule: &dyn Schedule, promised: &[Volume]) -> Result<Proof, Violation> {
    let (ranks, chunks) = (schedule.ranks(), schedule.chunks());
    let mut held = Contributors::own(ranks, chunks, |rank| schedule.contributes(rank));
    let mut found = vec![Volume { sent: 0, received: 0 }; ranks];
    let mut parts = vec![Part::default(); ranks];
    let mut proof = Proof { steps: schedule.steps(), ..Proof::default() };
    let (mut arriving, mut before) = (Vec::new(), Vec::new());
    let mut written = vec![None; ranks * chunks];
    for step in 0..schedule.steps() {
        for (rank, part) in parts.iter_mut().enumerate() {
            part.clear();
            schedule.part(rank, step, part);
            let nonsense = part.sends.iter().chain(&part.receives).find(|entry| {
                entry.peer() == rank
                    || entry.peer() >= ranks
                    || entry.first >= entry.end
                    || entry.end as usize > chunks
            });
            if let Some(&entry) = nonsense {
                return Err(Violation::Nonsense { step, rank, entry, ranks, chunks });
            }
            let count =
                |moves: &[Move]| moves.iter().map(|entry| entry.chunks().len()).sum::<usize>();
            found[rank].sent += count(&part.sends);
            found[rank].received += count(&part.receives);
        }
        arriving.clear();
        for (to, part) in parts.iter().enumerate() {
            match_receives(step, to, part, &parts)?;
            for receive in &part.receives {
                proof.transfers += 1;
                for chunk in receive.chunks() {
                    note_write(&mut written[to * chunks + chunk], step, receive.action)
                        .map_err(|()| Violation::WrittenTwice { step, rank: to, chunk })?;
                    arriving.push((receive.peer(), to, chunk, receive.action));
                }
            }
        }
        match_sends(step, &parts)?;
        // All moves of a step read the state before it.
        before.clear();
        for &(from, _, chunk, _) in &arriving {
            before.extend_from_slice(held.at(from, chunk));
        }
        for (&(from, to, chunk, action), value) in
            arriving.iter().zip(before.chunks_exact(held.words))
        {
            held.receive(to, chunk, action, value).map_err(|part| Violation::AddedTwice {
                step,
                from,
                rank: to,
                chunk,
                part,
            })?;
        }
    }
    held.complete(schedule.steps())?;
    for (rank, (&found, &promised)) in found.iter().zip(promised).enumerate() {
        if found != promised {
            return Err(Violation::Volume { rank, promised, found });
        }
    }
    proof.sent_most = found.iter().map(|volume| volume.sent).max().unwrap_or(0);
    Ok(proof)
}

/// Remembers that a chunk is written in this step; refuses a second write unless both reduce.
fn note_write(last: &mut Option<(usize, Action)>, step: usize, action: Action) -> Result<(), ()> {
    match last.replace((step, action)) {
        Some((before, other)) if before == step => {
            if action == Action::Reduce && other == Action::Reduce { Ok(()) } else { Err(()) }
        }
        _ => Ok(()),
    }
}

/// Each receive of `to` meets the send of the same position between the two ranks.
fn match_receives(step: usize, to: Rank, part: &Part, parts: &[Part]) -> Result<(), Violation> {
    for (index, receive) in part.receives.iter().enumerate() {
        let from = receive.peer();
        let position =
            part.receives[..index].iter().filter(|earlier| earlier.peer() == from).count();
        let mut sends = parts[from].sends.iter().filter(|send| send.peer() == to);
        let Some(&sent) = sends.nth(position) else {
            return Err(Violation::NotSent { step, from, to, expected: *receive });
        };
        if (sent.chunks(), sent.action) != (receive.chunks(), receive.action) {
            return Err(Violation::Disagree { step, from, to, sent, expected: *receive });
        }
    }
    Ok(())
}

/// No send is left over once all receives have met theirs.
fn match_sends(step: usize, parts: &[Part]) -> Result<(), Violation> {
    for (from, part) in parts.iter().enumerate() {
        for (index, sent) in part.sends.iter().enumerate() {
            let to = sent.peer();
            let position = part.sends[..index].iter().filter(|send| send.peer() == to).count();
            let expected =
                parts[to].receives.iter().filter(|receive| receive.peer() == from).count();
            if position >= expected {
                return Err(Violation::NotExpected { step, from, to, sent: *sent });
            }
        }
    }
    Ok(())
}

/// The set of ranks whose part each chunk of each rank contains.
pub(crate) struct Contributors {
    ranks: usize,
    chunks: usize,
    /// 64-bit words per set.
    pub(crate) words: usize,
    /// Everybody whose part counts.
    all: Vec<u64>,
    sets: Vec<u64>,
}

impl Contributors {
    /// Every rank that has a part holds its own of every chunk.
    pub(crate) fn own(
        ranks: usize,
        chunks: usize,
        contributes: impl Fn(Rank) -> bool,
    ) -> Contributors {
        let words = ranks.div_ceil(64);
        let (mut all, mut sets) = (vec![0; words], vec![0; ranks * chunks * words]);
        for rank in (0..ranks).filter(|&rank| contributes(rank)) {
            let (word, bit) = (rank / 64, 1 << (rank % 64));
            all[word] |= bit;
            let own = &mut sets[rank * chunks * words..][..chunks * words];
            own.chunks_exact_mut(words).for_each(|set| set[word] = bit);
        }
        Contributors { ranks, chunks, words, all, sets }
    }

    /// The set that a chunk of a rank holds.
    pub(crate) fn at(&self, rank: Rank, chunk: usize) -> &[u64] {
        &self.sets[(rank * self.chunks + chunk) * self.words..][..self.words]
    }

    /// Adds or copies what arrives; an error names the rank that would be added twice.
    pub(crate) fn receive(
        &mut self,
        rank: Rank,
        chunk: usize,
        action: Action,
        value: &[u64],
    ) -> Result<(), Rank> {
        let set = &mut self.sets[(rank * self.chunks + chunk) * self.words..][..self.words];
        for (word, (mine, &arriving)) in set.iter_mut().zip(value).enumerate() {
            match action {
                Action::Copy => *mine = arriving,
                Action::Reduce if *mine & arriving != 0 => {
                    return Err(word * 64 + (*mine & arriving).trailing_zeros() as usize);
                }
                Action::Reduce => *mine |= arriving,
            }
        }
        Ok(())
    }

    /// Everybody who has a part holds everything, or the first thing that somebody lacks.
    pub(crate) fn complete(&self, steps: usize) -> Result<(), Violation> {
        let has_part = |rank: &Rank| self.all[rank / 64] >> (rank % 64) & 1 == 1;
        for rank in (0..self.ranks).filter(has_part) {
            for chunk in 0..self.chunks {
                let held = self.at(rank, chunk).iter().zip(&self.all).enumerate();
                let mut missing = held.map(|(word, (set, all))| (word, all & !set));
                if let Some((word, missing)) = missing.find(|(_, bits)| *bits != 0) {
                    let part = word * 64 + missing.trailing_zeros() as usize;
                    return Err(Violation::Lacking { steps, rank, chunk, part });
                }
            }
        }
        Ok(())
    }
}
