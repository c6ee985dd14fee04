//! The framework's thread of one rank, which computes gradients while the background loop reduces others.
//!
//! A framework's call of Horovod takes time on the host: Python, the binding, the queue's lock. So does what Horovod's
//! optimizer does with a gradient: it adds up several passes, casts, and casts back. The background loop has a thread of
//! its own, so that both need a core. Where ranks have fewer cores than threads, the framework takes time from the loop;
//! and gradients that become ready at the same time are handed over one after the other.
//!
//! Whoever works on a gradient owns its memory: it travels to the loop when the gradient is handed over, and back with
//! the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use algorithms::control::TensorId;
use algorithms::topology::Rank;
use transports::memory::Memory;
use workloads::replay::{HostCosts, StepTimes, releases};

use crate::gradients::Gradients;
use crate::handles::Handles;
use crate::host_work::work;
use crate::job::Job;
use crate::occupy::Occupied;
use crate::optimizer::{Optimizer, Work};

/// What the loop asks for.
pub enum Command {
    /// Write the gradients of the step that will be checked.
    Fill,
    /// Run so many steps, one right after the other.
    Run {
        /// When the first begins.
        start: Instant,
        /// How many.
        steps: usize,
    },
}

/// What the thread reports, in the order in which it happens.
pub enum Event {
    /// The gradients are written.
    Filled,
    /// A gradient is handed over.
    HandedOver {
        /// Which.
        gradient: TensorId,
        /// Since when.
        at: Instant,
        /// Its data on the wire.
        memory: Memory,
    },
    /// The framework has all results, and its optimizer has run.
    StepEnded {
        /// How long the step took.
        time: Duration,
        /// Work on gradients in it.
        work: Work,
    },
}

/// The loop has ended, and so does the thread.
struct LoopEnded;

/// The thread.
pub struct FrameworkThread<'a> {
    job: &'a Job<'a>,
    rank: Rank,
    gradients: Gradients,
    optimizer: Optimizer,
    /// Gradients with the time after the beginning of a pass at which they become ready.
    releases: Vec<(Duration, TensorId)>,
    commands: Receiver<Command>,
    events: Sender<Event>,
    /// Results of the loop, which holds this, too, until it ends.
    handles: Arc<Handles>,
    /// Gradients that were handed over, over all steps.
    handed_over: Arc<AtomicUsize>,
}

impl<'a> FrameworkThread<'a> {
    /// A thread that waits for commands. `handed_over` counts gradients over all steps.
    pub fn new(
        job: &'a Job<'a>,
        rank: Rank,
        gradients: Gradients,
        (commands, events): (Receiver<Command>, Sender<Event>),
        (handles, handed_over): (Arc<Handles>, Arc<AtomicUsize>),
    ) -> Self {
        FrameworkThread {
            job,
            rank,
            gradients,
            optimizer: Optimizer::new(job),
            releases: releases(job.workload, job.times),
            commands,
            events,
            handles,
            handed_over,
        }
    }

    /// Obeys until the loop ends; gives the gradients back.
    pub fn run(mut self) -> Gradients {
        while let Ok(command) = self.commands.recv() {
            let done = match command {
                Command::Fill => {
                    self.gradients.fill(self.job, self.rank);
                    self.report(Event::Filled)
                }
                Command::Run { start, steps } => self.run_steps(start, steps),
            };
            if done.is_err() {
                break;
            }
        }
        self.gradients
    }

    fn report(&self, event: Event) -> Result<(), LoopEnded> {
        self.events.send(event).map_err(|_| LoopEnded)
    }

    fn run_steps(&mut self, mut start: Instant, steps: usize) -> Result<(), LoopEnded> {
        for _ in 0..steps {
            self.compute(start)?;
            self.synchronize()?;
            let end = Instant::now() + self.job.times.optimizer;
            let work = self.optimizer.end_step();
            self.report(Event::StepEnded { time: end - start, work })?;
            start = end;
        }
        Ok(())
    }

    /// Forward and backward passes. Work on gradients makes them longer.
    fn compute(&mut self, start: Instant) -> Result<(), LoopEnded> {
        let StepTimes { forward, backward, host, .. } = self.job.times;
        let passes = self.job.framework.backward_passes_per_step;
        let mut pass_start = start;
        for pass in 0..passes {
            for index in 0..self.releases.len() {
                let (after, gradient) = self.releases[index];
                sleep_until(pass_start + after, host);
                pass_start += self.optimizer.take(pass, gradient, &mut self.gradients);
                if pass + 1 == passes {
                    self.hand_over(gradient)?;
                }
            }
            pass_start += forward + backward;
        }
        sleep_until(pass_start, host);
        Ok(())
    }

    fn hand_over(&mut self, gradient: TensorId) -> Result<(), LoopEnded> {
        work(self.job.times.host.hand_over);
        let memory = std::mem::take(&mut self.gradients.travelling()[gradient]);
        self.report(Event::HandedOver { gradient, at: Instant::now(), memory })?;
        self.handed_over.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Takes back all results in the order in which gradients were handed over.
    fn synchronize(&mut self) -> Result<(), LoopEnded> {
        for index in 0..self.releases.len() {
            let (_, gradient) = self.releases[index];
            let memory = self.result(gradient)?;
            self.gradients.travelling()[gradient] = memory;
            work(self.job.times.host.take_back);
            self.optimizer.give_back(gradient, &mut self.gradients);
        }
        Ok(())
    }

    /// The result of a gradient. As Horovod's `WaitAndClear`, this offers its core to others in a loop: a sleeping thread
    /// would have to be woken up by the background loop, once for each message.
    fn result(&self, gradient: TensorId) -> Result<Memory, LoopEnded> {
        loop {
            if let Some(memory) = self.handles.poll(gradient) {
                return Ok(memory);
            }
            if Arc::strong_count(&self.handles) == 1 {
                return Err(LoopEnded);
            }
            yield_now();
        }
    }
}

/// Sleeps until a moment, unless it has passed. Waking up then takes time on a core.
fn sleep_until(moment: Instant, host: HostCosts) {
    let left = moment.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        let occupied = Occupied::begin();
        sleep(left);
        occupied.until(host.wake);
    }
}
