//! Proves that a schedule is an allreduce, by running it on sets of contributors.
//!
//! Instead of numbers, each chunk of each rank holds the set of ranks whose part it contains. A
//! reduction unites two sets, which must be disjoint; a copy replaces one. At the end every chunk of
//! every rank must hold all ranks. Ranks that do not contribute ([`Schedule::contributes`]) begin with
//! empty sets, and may end with any. In every step the two ends of each transfer must agree, no chunk is
//! written twice unless both writes are reductions, and each rank must move exactly the volume that the
//! algorithm promises. The idea is that of msccl-tools' checker.
//!
//! Matched steps imply freedom from deadlock for an executor that posts a whole step before it
//! waits. The executor here posts further ahead, so [`algorithm`] also runs the compiled programs under
//! rendezvous semantics and in adversarial orders, see [`programs`].

mod contributors;
mod execution;
mod violation;

pub use execution::programs;
pub use violation::Violation;

use crate::algorithm::{Algorithm, Volume};
use crate::combinators::Pipelined;
use crate::program::{MAX_RANKS_WITH_PUTS, Program};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};
use contributors::Contributors;

/// The size of a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Steps of the schedule.
    pub steps: usize,
    /// Transfers between two ranks, over all steps.
    pub transfers: usize,
    /// Chunks sent by the rank that sends most.
    pub sent_most: usize,
}

/// Proves one algorithm on one topology: an allreduce, in the promised steps and at the promised
/// volume per rank, that its compiled programs carry out without deadlock or hazard.
///
/// # Errors
/// The first violation that is found; [`Violation::Unsupported`] if there is no schedule.
pub fn algorithm(algorithm: &dyn Algorithm, topology: &Topology) -> Result<Proof, Violation> {
    pipelined(algorithm, topology, 1, 1)
}

/// The same for an algorithm that is pipelined in segments: the same bytes, in the number of steps that
/// [`Pipelined`] promises.
///
/// # Errors
/// As [`algorithm`].
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
    execution::programs(&programs)?;
    if ranks <= MAX_RANKS_WITH_PUTS {
        execution::programs(&Program::compile_world(&schedule))?;
    }
    Ok(proof)
}

/// Proves the moves of a schedule: an allreduce, at the promised volume per rank.
///
/// # Errors
/// The first violation that is found.
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
            let invalid = part.sends.iter().chain(&part.receives).find(|entry| {
                entry.peer() == rank
                    || entry.peer() >= ranks
                    || entry.first >= entry.end
                    || entry.end as usize > chunks
            });
            if let Some(&entry) = invalid {
                return Err(Violation::InvalidMove { step, rank, entry, ranks, chunks });
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
            held.receive(to, chunk, action, value).map_err(|part| Violation::ReducedTwice {
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

/// Records that a chunk is written in this step. A second write is an error unless both reduce.
fn note_write(last: &mut Option<(usize, Action)>, step: usize, action: Action) -> Result<(), ()> {
    match last.replace((step, action)) {
        Some((before, other)) if before == step => {
            if action == Action::Reduce && other == Action::Reduce { Ok(()) } else { Err(()) }
        }
        _ => Ok(()),
    }
}

/// Checks that each receive of `to` matches the send of the same position between the two ranks.
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

/// Checks that no send is without a receive.
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
