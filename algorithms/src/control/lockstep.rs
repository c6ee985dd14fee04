//! All ranks of a world in one thread, cycle by cycle and without I/O, to measure the cost of a control
//! plane by itself. Messages are delivered at once, in the order of ranks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::error::ControlError;
use super::plane::{Bitwise, ControlPlane, Effect, Event};
use super::report::Report;
use super::response::Response;
use super::stall::Stalled;
use super::tensor::TensorId;
use crate::topology::Rank;

/// A world of control planes.
pub struct Lockstep {
    planes: Vec<Box<dyn ControlPlane>>,
    /// The bitwise reduction of the words of the ranks so far, and the number of those ranks.
    bits: Option<(Bitwise, Vec<u64>)>,
    asked: usize,
    in_flight: VecDeque<InFlight>,
    effects: Vec<Effect>,
    has_ended: Vec<bool>,
    /// The responses that each rank executed in the last cycle.
    executed: Vec<Vec<Response>>,
    warnings: Vec<Stalled>,
    stopped: usize,
    clock: Box<dyn FnMut() -> Duration>,
    rank_0: Duration,
}

/// A message in flight, to one rank or to all others.
struct InFlight {
    from: Rank,
    to: Option<Rank>,
    message: Arc<[u8]>,
}

impl Lockstep {
    /// A world of these planes, in the order of ranks.
    pub fn new(planes: Vec<Box<dyn ControlPlane>>) -> Lockstep {
        Lockstep {
            bits: None,
            asked: 0,
            in_flight: VecDeque::new(),
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

    /// Measures the time of rank 0 by this clock.
    pub fn with_clock(mut self, clock: impl FnMut() -> Duration + 'static) -> Lockstep {
        self.clock = Box::new(clock);
        self
    }

    /// Tensors become ready on a rank.
    ///
    /// # Errors
    /// When one of them is ready already.
    pub fn ready(&mut self, rank: Rank, tensors: &[TensorId]) -> Result<(), ControlError> {
        self.deliver_timed(rank, Event::Ready(tensors))
    }

    /// A rank wants all ranks to shut down.
    ///
    /// # Errors
    /// When all ranks have shut down.
    pub fn shut_down(&mut self, rank: Rank) -> Result<(), ControlError> {
        self.deliver_timed(rank, Event::ShutDown)
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
                self.deliver_timed(rank, Event::Ready(ready))?;
            }
            self.deliver_timed(rank, Event::Cycle(now))?;
            self.deliver_all()?;
        }
        while self.asked == self.planes.len() {
            self.asked = 0;
            let (_, combined) = self.bits.take().expect("ranks have asked");
            for rank in 0..self.planes.len() {
                self.deliver_timed(rank, Event::Combined(&combined))?;
                self.deliver_all()?;
            }
        }
        match self.has_ended.iter().position(|ended| !ended) {
            None => Ok(&self.executed),
            Some(rank) => Err(ControlError::Unexpected { rank, event: "no answer" }),
        }
    }

    /// Returns and resets the report of a rank.
    pub fn take_report(&mut self, rank: Rank) -> Report {
        self.planes[rank].take_report()
    }

    /// Returns and clears the warnings.
    pub fn take_warnings(&mut self) -> Vec<Stalled> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns and resets the time of rank 0, by the clock of [`Lockstep::with_clock`].
    pub fn take_rank_0(&mut self) -> Duration {
        std::mem::take(&mut self.rank_0)
    }

    /// True once all ranks have stopped.
    pub fn has_stopped(&self) -> bool {
        self.stopped == self.planes.len()
    }

    /// Delivers all messages in flight, and those sent in response.
    fn deliver_all(&mut self) -> Result<(), ControlError> {
        // Consecutive messages to rank 0 are timed together: reading the clock may take as long as one of
        // them.
        let mut since = None;
        while let Some(InFlight { from, to, message }) = self.in_flight.pop_front() {
            let arrived = Event::Arrived { from, message: &message };
            match to {
                Some(0) => {
                    since.get_or_insert_with(&mut self.clock);
                    self.deliver_untimed(0, arrived)?;
                }
                Some(to) => self.deliver_timed(to, arrived)?,
                None => {
                    for to in (0..self.planes.len()).filter(|&to| to != from) {
                        self.deliver_timed(to, arrived)?;
                    }
                }
            }
            let goes_on = self.in_flight.front().is_some_and(|message| message.to == Some(0));
            if let Some(start) = since.take_if(|_| !goes_on) {
                self.rank_0 += (self.clock)() - start;
            }
        }
        Ok(())
    }

    fn deliver_timed(&mut self, rank: Rank, event: Event) -> Result<(), ControlError> {
        let start = (rank == 0).then(&mut self.clock);
        let result = self.deliver_untimed(rank, event);
        if let Some(start) = start {
            self.rank_0 += (self.clock)() - start;
        }
        result
    }

    fn deliver_untimed(&mut self, rank: Rank, event: Event) -> Result<(), ControlError> {
        self.planes[rank].on(event, &mut self.effects)?;
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, message } => {
                    self.in_flight.push_back(InFlight { from: rank, to: Some(to), message });
                }
                Effect::Broadcast(message) => {
                    self.in_flight.push_back(InFlight { from: rank, to: None, message });
                }
                Effect::Bitwise(bitwise, words) => self.combine(bitwise, words),
                Effect::Execute(response) => self.executed[rank].push(response),
                Effect::Warn(stalled) => self.warnings.push(stalled),
                Effect::Stop(_) => self.stopped += 1,
                Effect::EndCycle => self.has_ended[rank] = true,
            }
        }
        self.effects = effects;
        Ok(())
    }

    /// Reduces the words of a rank with those of the ranks before it.
    ///
    /// # Panics
    /// If ranks ask for different reductions.
    fn combine(&mut self, bitwise: Bitwise, words: Vec<u64>) {
        self.asked += 1;
        let Some((other, combined)) = &mut self.bits else {
            self.bits = Some((bitwise, words));
            return;
        };
        assert_eq!((bitwise, words.len()), (*other, combined.len()), "ranks out of step");
        for (word, more) in combined.iter_mut().zip(words) {
            match bitwise {
                Bitwise::And => *word &= more,
                Bitwise::Or => *word |= more,
            }
        }
    }
}
