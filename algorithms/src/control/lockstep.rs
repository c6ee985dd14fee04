//! All ranks of a world in one thread, cycle by cycle and without I/O: what a control plane costs by
//! itself, up to whole machines. Messages are delivered at once, in the order of ranks.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Bitwise, ControlError, ControlPlane, Effect, Event, Report, Response, Stalled, TensorId,
};
use crate::topology::Rank;

/// A world of control planes.
pub struct Lockstep {
    planes: Vec<Box<dyn ControlPlane>>,
    /// What each rank asks to be combined.
    bits: Vec<(Bitwise, Vec<u64>)>,
    mail: Vec<Mail>,
    effects: Vec<Effect>,
    has_ended: Vec<bool>,
    /// What each rank executed in the last cycle.
    executed: Vec<Vec<Response>>,
    warnings: Vec<Stalled>,
    stopped: usize,
    clock: Box<dyn FnMut() -> Duration>,
    rank_0: Duration,
}

/// A message under way; to a rank, or to all others.
struct Mail {
    from: Rank,
    to: Option<Rank>,
    message: Arc<[u8]>,
}

impl Lockstep {
    /// A world of these planes, rank by rank.
    pub fn new(planes: Vec<Box<dyn ControlPlane>>) -> Lockstep {
        Lockstep {
            bits: Vec::with_capacity(planes.len()),
            mail: Vec::new(),
            effects: Vec::new(),
            has_ended: vec![false; planes.len()],
            executed: vec![Vec::new(); planes.len()],
            warnings: Vec::new(),
            stopped: 0,
            clock: Box::new(|| Duration::ZERO),
            rank_0: Duration::ZERO,
            planes,
        }
    }

    /// A world that measures by this clock how long rank 0 takes.
    pub fn with_clock(mut self, clock: impl FnMut() -> Duration + 'static) -> Lockstep {
        self.clock = Box::new(clock);
        self
    }

    /// Tensors become ready on a rank.
    ///
    /// # Errors
    /// When one of them is ready already.
    pub fn ready(&mut self, rank: Rank, tensors: &[TensorId]) -> Result<(), ControlError> {
        self.give(rank, Event::Ready(tensors))
    }

    /// A rank wants all to stop.
    ///
    /// # Errors
    /// When they have.
    pub fn shut_down(&mut self, rank: Rank) -> Result<(), ControlError> {
        self.give(rank, Event::ShutDown)
    }

    /// One cycle of all ranks; returns what each executes.
    ///
    /// # Errors
    /// That of the first plane that refuses to go on.
    pub fn cycle(&mut self, now: Duration) -> Result<&[Vec<Response>], ControlError> {
        self.cycle_with(now, |_| &[])
    }

    /// One cycle of all ranks, at whose beginning these tensors become ready on each; returns what each
    /// executes.
    ///
    /// # Errors
    /// That of the first plane that refuses to go on.
    pub fn cycle_with<'r>(
        &mut self,
        now: Duration,
        ready: impl Fn(Rank) -> &'r [TensorId],
    ) -> Result<&[Vec<Response>], ControlError> {
        self.executed.iter_mut().for_each(Vec::clear);
        self.has_ended.fill(false);
        for rank in 0..self.planes.len() {
            let ready = ready(rank);
            if !ready.is_empty() {
                self.give(rank, Event::Ready(ready))?;
            }
            self.give(rank, Event::Cycle(now))?;
        }
        loop {
            if self.bits.len() == self.planes.len() {
                let combined = combine(&mut self.bits);
                for rank in 0..self.planes.len() {
                    self.give(rank, Event::Combined(&combined))?;
                }
            }
            let mail = std::mem::take(&mut self.mail);
            if mail.is_empty() && self.bits.is_empty() {
                break;
            }
            for Mail { from, to, message } in mail {
                let message = &*message;
                match to {
                    Some(to) => self.give(to, Event::Arrived { from, message })?,
                    None => {
                        for to in (0..self.planes.len()).filter(|&to| to != from) {
                            self.give(to, Event::Arrived { from, message })?;
                        }
                    }
                }
            }
        }
        match self.has_ended.iter().position(|ended| !ended) {
            None => Ok(&self.executed),
            Some(rank) => Err(ControlError::Unexpected { rank, event: "no answer" }),
        }
    }

    /// What a rank did since this was last asked.
    pub fn take_report(&mut self, rank: Rank) -> Report {
        self.planes[rank].take_report()
    }

    /// Warnings since this was last asked.
    pub fn take_warnings(&mut self) -> Vec<Stalled> {
        std::mem::take(&mut self.warnings)
    }

    /// Time that rank 0 took since this was last asked, by the clock that was given.
    pub fn take_rank_0(&mut self) -> Duration {
        std::mem::take(&mut self.rank_0)
    }

    /// True once all ranks have stopped.
    pub fn has_stopped(&self) -> bool {
        self.stopped == self.planes.len()
    }

    fn give(&mut self, rank: Rank, event: Event) -> Result<(), ControlError> {
        let start = (rank == 0).then(&mut self.clock);
        let given = self.planes[rank].on(event, &mut self.effects);
        if let Some(start) = start {
            self.rank_0 += (self.clock)() - start;
        }
        given?;
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Send { to, message } => {
                    self.mail.push(Mail { from: rank, to: Some(to), message });
                }
                Effect::Broadcast(message) => {
                    self.mail.push(Mail { from: rank, to: None, message });
                }
                Effect::Bitwise(bitwise, words) => self.bits.push((bitwise, words)),
                Effect::Execute(response) => self.executed[rank].push(response),
                Effect::Warn(stalled) => self.warnings.push(stalled),
                Effect::Stop(_) => self.stopped += 1,
                Effect::EndCycle => self.has_ended[rank] = true,
            }
        }
        Ok(())
    }
}

/// Combines what all ranks gave.
///
/// # Panics
/// If ranks ask for different things: planes that run in step do not.
fn combine(bits: &mut Vec<(Bitwise, Vec<u64>)>) -> Vec<u64> {
    let mut all = bits.drain(..);
    let (bitwise, mut combined) = all.next().expect("one per rank");
    for (other, words) in all {
        assert_eq!((other, words.len()), (bitwise, combined.len()), "ranks out of step");
        for (word, more) in combined.iter_mut().zip(words) {
            match bitwise {
                Bitwise::And => *word &= more,
                Bitwise::Or => *word |= more,
            }
        }
    }
    combined
}
