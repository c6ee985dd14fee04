//! A schedule as a list of moves, for small worlds: to inspect, to change, to test with.

use crate::schedule::{Part, Schedule};
use crate::topology::Rank;

/// A whole world's schedule as a list.
#[derive(Clone)]
pub struct Listed {
    /// World size.
    pub ranks: usize,
    /// Into how many chunks the buffer is cut.
    pub chunks: usize,
    /// Moves as `steps[step][rank]`.
    pub steps: Vec<Vec<Part>>,
}

impl Listed {
    /// The moves of another schedule.
    pub fn of(schedule: &dyn Schedule) -> Listed {
        let (ranks, chunks) = (schedule.ranks(), schedule.chunks());
        let part = |step, rank| {
            let mut part = Part::default();
            schedule.part(rank, step, &mut part);
            part
        };
        let steps = (0..schedule.steps())
            .map(|step| (0..ranks).map(|rank| part(step, rank)).collect())
            .collect();
        Listed { ranks, chunks, steps }
    }

    /// Every transfer as (step, sender, position in the sender's list, receiver, position there).
    ///
    /// # Panics
    /// When a send has no receive; see [`crate::verify`].
    pub fn transfers(&self) -> Vec<(usize, Rank, usize, Rank, usize)> {
        let mut transfers = Vec::new();
        for (step, parts) in self.steps.iter().enumerate() {
            for (from, part) in parts.iter().enumerate() {
                for (index, send) in part.sends.iter().enumerate() {
                    let nth = part.sends[..index].iter().filter(|m| m.peer == send.peer).count();
                    let to = send.peer();
                    let at = (parts[to].receives.iter().enumerate())
                        .filter(|(_, receive)| receive.peer() == from)
                        .nth(nth)
                        .expect("a valid schedule matches its sends")
                        .0;
                    transfers.push((step, from, index, to, at));
                }
            }
        }
        transfers
    }
}

impl Schedule for Listed {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn chunks(&self) -> usize {
        self.chunks
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        part.sends.extend(&self.steps[step][rank].sends);
        part.receives.extend(&self.steps[step][rank].receives);
    }
}
