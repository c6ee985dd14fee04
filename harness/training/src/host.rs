//! Training that a clock replays, on gradients in memory, reduced over a transport.

use std::thread::Scope;
use std::time::{Duration, Instant};

use algorithms::control::TensorId;
use algorithms::topology::Rank;

use crate::engine::RankMemory;
use crate::framework_thread::FrameworkThread;
use crate::job::Job;
use crate::optimizer::Optimizer;
use crate::outcome::EngineError;
use crate::trainer::{EndedStep, Place, Reduced, Trainer, lose_the_missing};
use algorithms::control::Reduction;
use transports::allreduce::AllReduce;
use transports::memory::{Buffer, Memory};
use transports::transport::NonblockingBarrier;
use workloads::groups::Missing;
use workloads::replay::{Arrival, Replay};

/// One rank's training. An allreduce blocks the loop, as it does in Horovod on the CPU.
pub struct Host<'scope, 'env, 'a> {
    job: &'a Job<'a>,
    rank: Rank,
    scope: &'scope Scope<'scope, 'env>,
    replay: Replay,
    framework: Option<FrameworkThread>,
    optimizer: Optimizer<'a>,
    gradients: Place<'scope>,
    all_reduce: Box<dyn AllReduce + 'a>,
    /// Empty between messages.
    buffer: Buffer<'static>,
    arrivals: Vec<Arrival>,
    reduced: Option<Reduced>,
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
        let RankMemory { mut gradients, fusion_buffer } = memory;
        gradients.fit(job);
        let mut all_reduce = all_reduce(fusion_buffer);
        let all = job.workload.elements() * job.wire().size_bytes();
        let largest = gradients.travelling().iter().map(Memory::size_bytes).max().unwrap_or(0);
        all_reduce.prepare(largest, all.min(job.fusion_threshold_bytes));
        Host {
            job,
            rank,
            scope,
            framework: FrameworkThread::start(scope, job),
            replay: Replay::new(job.workload, job.times, job.framework.backward_passes_per_step),
            optimizer: Optimizer::new(job),
            gradients: Place::Stale(gradients),
            all_reduce,
            buffer: Buffer::new(job.wire()),
            arrivals: Vec::new(),
            reduced: None,
        }
    }

    /// The framework has these gradients back.
    fn give_back(&mut self, tensors: &[TensorId]) {
        self.optimizer.give_back(tensors, self.gradients.here());
        self.replay.reduced(tensors.len(), Instant::now());
    }

    /// The framework's thread learns when the step begins.
    fn tell_framework(&mut self) {
        if let Some((framework, start)) = self.framework.as_mut().zip(self.replay.begun()) {
            framework.begin(start);
        }
    }

    /// The memory, to be used again.
    pub fn into_memory(mut self) -> RankMemory {
        let gradients = std::mem::take(self.gradients.here());
        RankMemory { gradients, fusion_buffer: self.all_reduce.into_fusion_buffer() }
    }
}

impl<'scope, 'a: 'scope> Trainer for Host<'scope, '_, 'a> {
    fn begin(&mut self, start: Instant) -> Result<(), EngineError> {
        self.replay.begin(start);
        self.tell_framework();
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
        if let Some(framework) = &self.framework {
            self.replay.allow(framework.handed_over());
        }
        self.replay.ready_until(now, &mut self.arrivals);
        lose_the_missing(self.job, self.rank, &mut self.arrivals);
        let last_pass = self.job.framework.backward_passes_per_step - 1;
        let last = self.arrivals.iter().filter(|arrival| arrival.pass == last_pass);
        let waited = last.map(|arrival| now.saturating_duration_since(arrival.at)).sum();
        if !self.arrivals.is_empty() {
            let time = self.optimizer.take(&self.arrivals, self.gradients.here(), hand_over);
            self.replay.work(time);
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
        self.optimizer.missing()
    }

    fn reduce(
        &mut self,
        start: Instant,
        tensors: &[TensorId],
        reduction: Reduction,
    ) -> Result<(), EngineError> {
        let gradients = self.gradients.here();
        let blank = Buffer::new(self.job.wire());
        let mut buffer = std::mem::replace(&mut self.buffer, blank).emptied();
        buffer.push_each(gradients.travelling(), tensors);
        let spent = self.all_reduce.all_reduce(&mut buffer, reduction)?;
        let time = start.elapsed();
        self.reduced = Some(Reduced {
            end: start + time,
            time,
            packing: spent.packing - spent.unpacking,
            unpacking: spent.unpacking,
            tensors: tensors.len(),
            elements: buffer.elements(),
        });
        self.buffer = buffer.emptied();
        self.give_back(tensors);
        Ok(())
    }

    fn refuse(&mut self, tensors: &[TensorId]) {
        self.give_back(tensors);
    }

    fn reduced(&mut self) -> Result<Option<Reduced>, EngineError> {
        Ok(self.reduced.take())
    }

    /// Nothing is in flight while the loop sleeps.
    fn nap(&self) -> Option<Duration> {
        None
    }

    fn ended(&mut self, now: Instant, goes_on: bool) -> Result<Option<EndedStep>, EngineError> {
        let Some(time) = self.replay.ended(now) else { return Ok(None) };
        if goes_on {
            self.tell_framework();
        } else {
            self.replay.wait();
        }
        Ok(Some(EndedStep { time, device: None, work: self.optimizer.end_step() }))
    }
}
