//! Training that a clock replays, on gradients in memory, reduced over a transport.

use std::thread::Scope;
use std::time::{Duration, Instant};

use algorithms::control::TensorId;
use algorithms::topology::Rank;

use crate::engine::RankMemory;
use crate::job::Job;
use crate::messages::Messages;
use crate::optimizer::Optimizer;
use crate::outcome::EngineError;
use crate::trainer::{EndedStep, Place, Reduced, Trainer, is_lost};
use algorithms::control::Reduction;
use transports::allreduce::AllReduce;
use transports::memory::Memory;
use transports::transport::NonblockingBarrier;
use workloads::groups::{Assembly, Missing};
use workloads::replay::{Arrival, Replay};

/// One rank's training. An allreduce blocks the loop, as it does in Horovod on the CPU.
pub struct Host<'scope, 'env, 'a> {
    job: &'a Job<'a>,
    rank: Rank,
    scope: &'scope Scope<'scope, 'env>,
    replay: Replay,
    optimizer: Optimizer,
    assembly: Assembly<'a>,
    gradients: Place<'scope>,
    messages: Messages<'a>,
    arrivals: Vec<Arrival>,
}

impl<'scope, 'env, 'a: 'scope> Host<'scope, 'env, 'a> {
    /// A rank that has not begun, with everything made ready for its messages.
    pub fn new(
        scope: &'scope Scope<'scope, 'env>,
        job: &'a Job<'a>,
        rank: Rank,
        all_reduce: impl FnOnce(Memory) -> Box<dyn AllReduce + 'a>,
        memory: RankMemory,
    ) -> Self {
        let RankMemory { mut gradients, fusion_buffer, .. } = memory;
        gradients.fit(job);
        let messages = Messages::new(job, &mut gradients, all_reduce(fusion_buffer));
        Host {
            job,
            rank,
            scope,
            replay: Replay::new(job.workload, job.times, job.framework.backward_passes_per_step),
            optimizer: Optimizer::new(job),
            assembly: Assembly::new(job.groups, job.workload.gradients.len()),
            gradients: Place::Stale(gradients),
            messages,
            arrivals: Vec::new(),
        }
    }

    /// The framework has these gradients back.
    fn give_back(&mut self, tensors: &[TensorId]) {
        for &tensor in tensors {
            self.optimizer.give_back(tensor, self.gradients.here());
        }
        self.replay.reduced(tensors.len());
    }

    /// The memory, to be used again.
    pub fn into_memory(mut self) -> RankMemory {
        let gradients = std::mem::take(self.gradients.here());
        let fusion_buffer = self.messages.into_fusion_buffer();
        RankMemory { gradients, fusion_buffer, ..RankMemory::default() }
    }
}

impl<'scope, 'a: 'scope> Trainer for Host<'scope, '_, 'a> {
    fn begin(&mut self, start: Instant) -> Result<(), EngineError> {
        self.replay.begin(start);
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.replay.is_waiting()
    }

    fn begin_last_step(
        &mut self,
        barrier: &mut impl NonblockingBarrier,
    ) -> Result<bool, EngineError> {
        if self.written().is_some() {
            let begun = barrier.begun();
            if let Some(begun) = begun {
                self.begin(begun)?;
            }
            return Ok(begun.is_some());
        }
        let gradients = std::mem::take(&mut self.gradients);
        self.gradients = gradients.advance(self.scope, self.job, self.rank);
        if self.written().is_some() {
            barrier.arrive();
        }
        Ok(false)
    }

    fn written(&self) -> Option<Instant> {
        self.gradients.written()
    }

    fn begun(&self) -> Option<Instant> {
        self.replay.begun()
    }

    fn ready_at(&self, gradient: TensorId) -> Option<Instant> {
        self.replay.ready_at(gradient)
    }

    fn take_ready(
        &mut self,
        now: Instant,
        hand_over: &mut Vec<TensorId>,
    ) -> Result<Duration, EngineError> {
        self.arrivals.clear();
        self.replay.ready_until(now, &mut self.arrivals);
        self.arrivals.retain(|arrival| !is_lost(self.job, self.rank, arrival.gradient));
        let last_pass = self.job.framework.backward_passes_per_step - 1;
        let mut waited = Duration::ZERO;
        for &Arrival { pass, gradient, at } in &self.arrivals {
            self.replay.work(self.optimizer.take(pass, gradient, self.gradients.here()));
            if pass == last_pass {
                self.assembly.ready(gradient, hand_over);
                waited += now.saturating_duration_since(at);
            }
        }
        Ok(waited)
    }

    fn until_next(&self, now: Instant) -> Option<Duration> {
        self.replay.until_next(now)
    }

    fn backward_end(&self) -> Option<Instant> {
        self.replay.backward_end()
    }

    fn missing(&self) -> Option<Missing> {
        self.assembly.missing()
    }

    fn reduce(
        &mut self,
        start: Instant,
        tensors: &[TensorId],
        reduction: Reduction,
    ) -> Result<(), EngineError> {
        let gradients = self.gradients.here().travelling();
        self.messages.reduce(start, gradients, tensors, reduction)?;
        self.give_back(tensors);
        Ok(())
    }

    fn refuse(&mut self, tensors: &[TensorId]) {
        self.give_back(tensors);
    }

    fn reduced(&mut self) -> Result<Option<Reduced>, EngineError> {
        Ok(self.messages.reduced())
    }

    /// Nothing is in flight while the loop sleeps.
    fn nap(&self) -> Option<Duration> {
        None
    }

    fn ended(&mut self, now: Instant, goes_on: bool) -> Result<Option<EndedStep>, EngineError> {
        let Some(time) = self.replay.ended(now) else { return Ok(None) };
        self.assembly.begin();
        if !goes_on {
            self.replay.wait();
        }
        Ok(Some(EndedStep { time, device: None, work: self.optimizer.end_step() }))
    }
}
