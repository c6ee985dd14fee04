//! Training by a framework's thread beside the loop, on gradients in memory, reduced over a transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use algorithms::control::{Reduction, TensorId};
use algorithms::topology::Rank;
use transports::allreduce::AllReduce;
use transports::memory::Memory;
use transports::transport::NonblockingBarrier;
use workloads::groups::{Assembly, Missing};
use workloads::replay::releases;

use crate::engine::RankMemory;
use crate::framework_thread::{Command, Event, FrameworkThread};
use crate::gradients::Gradients;
use crate::handles::Handles;
use crate::job::Job;
use crate::messages::Messages;
use crate::outcome::EngineError;
use crate::trainer::{EndedStep, Reduced, Trainer, is_lost};

/// How often to look for what the thread does at a time that is not known.
const LOOK: Duration = Duration::from_micros(100);

/// How often to look whether the framework has taken back the results of a step.
const LOOK_FOR_END: Duration = Duration::from_millis(2);

/// One rank's training. An allreduce blocks the loop, as it does in Horovod on the CPU.
pub struct ThreadedHost<'scope, 'a> {
    job: &'a Job<'a>,
    rank: Rank,
    commands: Sender<Command>,
    events: Receiver<Event>,
    handles: Arc<Handles>,
    /// Gradients that the thread has handed over, over all steps; and those that the loop has received.
    handed_over: Arc<AtomicUsize>,
    received: usize,
    thread: ScopedJoinHandle<'scope, Gradients>,
    /// Data on the wire of gradients that the loop has; those of others are empty.
    travelling: Vec<Memory>,
    assembly: Assembly<'a>,
    messages: Messages<'a>,
    /// After the beginning of a step, when each gradient of the last pass becomes ready if no work delays it.
    releases: Vec<Duration>,
    /// When gradients of the running step were handed over.
    ready_at: Vec<Option<Instant>>,
    /// Start of the running step; none while the job waits for data.
    start: Option<Instant>,
    /// Gradients of the running step that have not been received, and that have not been given back.
    not_ready: usize,
    not_reduced: usize,
    last_step: LastStep,
}

/// The data of the last step.
enum LastStep {
    NotBegun,
    Writing,
    Written(Instant),
}

impl<'scope, 'a: 'scope> ThreadedHost<'scope, 'a> {
    /// A rank whose thread waits, with everything made ready for its messages.
    pub fn new(
        scope: &'scope Scope<'scope, '_>,
        job: &'a Job<'a>,
        rank: Rank,
        all_reduce: impl FnOnce(Memory) -> Box<dyn AllReduce + 'a>,
        memory: RankMemory,
    ) -> Self {
        let RankMemory { mut gradients, fusion_buffer, .. } = memory;
        gradients.fit(job);
        let messages = Messages::new(job, &mut gradients, all_reduce(fusion_buffer));
        let count = job.workload.gradients.len();
        let (commands, obeyed) = channel();
        let (reported, events) = channel();
        let handed_over = Arc::new(AtomicUsize::new(0));
        let handles = Arc::new(Handles::new(count));
        let shared = (handles.clone(), handed_over.clone());
        let thread = FrameworkThread::new(job, rank, gradients, (obeyed, reported), shared);
        let earlier_passes = job.framework.backward_passes_per_step as u32 - 1;
        let earlier = (job.times.forward + job.times.backward) * earlier_passes;
        ThreadedHost {
            job,
            rank,
            commands,
            events,
            handles,
            handed_over,
            received: 0,
            thread: scope.spawn(|| thread.run()),
            travelling: std::iter::repeat_with(Memory::default).take(count).collect(),
            assembly: Assembly::new(job.groups, count),
            messages,
            releases: releases(job.workload, job.times)
                .into_iter()
                .map(|(after, _)| earlier + after)
                .collect(),
            ready_at: vec![None; count],
            start: None,
            not_ready: 0,
            not_reduced: 0,
            last_step: LastStep::NotBegun,
        }
    }

    fn command(&self, command: Command) {
        self.commands.send(command).expect("the framework's thread obeys until the loop ends");
    }

    fn begin_step(&mut self, start: Instant) {
        self.start = Some(start);
        self.not_ready = self.job.workload.gradients.len();
        self.not_reduced = self.not_ready;
        self.ready_at.fill(None);
        self.assembly.begin();
    }

    /// The framework gets these gradients back.
    fn give_back(&mut self, tensors: &[TensorId]) {
        self.not_reduced -= tensors.len();
        for &id in tensors {
            self.handles.mark_done(id, std::mem::take(&mut self.travelling[id]));
        }
    }

    /// The memory, to be used again.
    pub fn into_memory(self) -> RankMemory {
        drop((self.commands, self.handles));
        let gradients = self.thread.join().expect("the framework's thread panicked");
        let fusion_buffer = self.messages.into_fusion_buffer();
        RankMemory { gradients, fusion_buffer, ..RankMemory::default() }
    }
}

impl<'scope, 'a: 'scope> Trainer for ThreadedHost<'scope, 'a> {
    fn begin(&mut self, start: Instant) -> Result<(), EngineError> {
        let steps = if self.written().is_some() { 1 } else { self.job.steps - 1 };
        self.begin_step(start);
        self.command(Command::Run { start, steps });
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.start.is_none()
    }

    fn begin_last_step(
        &mut self,
        barrier: &mut impl NonblockingBarrier,
    ) -> Result<bool, EngineError> {
        match self.last_step {
            LastStep::NotBegun => {
                self.command(Command::Fill);
                self.last_step = LastStep::Writing;
            }
            LastStep::Writing => {
                if let Ok(Event::Filled) = self.events.try_recv() {
                    self.last_step = LastStep::Written(Instant::now());
                    barrier.arrive();
                }
            }
            LastStep::Written(_) => {
                let begun = barrier.begun();
                if let Some(begun) = begun {
                    self.begin(begun)?;
                }
                return Ok(begun.is_some());
            }
        }
        Ok(false)
    }

    fn written(&self) -> Option<Instant> {
        match self.last_step {
            LastStep::Written(written) => Some(written),
            _ => None,
        }
    }

    fn begun(&self) -> Option<Instant> {
        self.start
    }

    fn ready_at(&self, gradient: TensorId) -> Option<Instant> {
        self.ready_at[gradient]
    }

    fn take_ready(
        &mut self,
        now: Instant,
        hand_over: &mut Vec<TensorId>,
    ) -> Result<Duration, EngineError> {
        let mut waited = Duration::ZERO;
        // While gradients are missing the thread reports nothing else.
        while self.not_ready > 0 {
            let Ok(Event::HandedOver { gradient, at, memory }) = self.events.try_recv() else {
                break;
            };
            self.received += 1;
            self.not_ready -= 1;
            self.travelling[gradient] = memory;
            if is_lost(self.job, self.rank, gradient) {
                continue;
            }
            self.ready_at[gradient] = Some(at);
            self.assembly.ready(gradient, hand_over);
            waited += now.saturating_duration_since(at);
        }
        Ok(waited)
    }

    fn until_next(&self, now: Instant) -> Option<Duration> {
        let start = self.start.filter(|_| self.not_ready > 0);
        let Some(start) = start else { return Some(LOOK) };
        if self.handed_over.load(Ordering::Acquire) > self.received {
            return None;
        }
        let received = self.job.workload.gradients.len() - self.not_ready;
        let planned = self.releases.get(received).map(|&after| start + after);
        Some(planned.map_or(LOOK, |planned| planned.saturating_duration_since(now).max(LOOK)))
    }

    /// If no work on gradients made it longer.
    fn backward_end(&self) -> Option<Instant> {
        let passes = self.job.framework.backward_passes_per_step as u32;
        self.start.map(|start| start + (self.job.times.forward + self.job.times.backward) * passes)
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
        self.messages.reduce(start, &mut self.travelling, tensors, reduction)?;
        self.give_back(tensors);
        Ok(())
    }

    fn refuse(&mut self, tensors: &[TensorId]) {
        self.give_back(tensors);
    }

    fn reduced(&mut self) -> Result<Option<Reduced>, EngineError> {
        Ok(self.messages.reduced())
    }

    fn nap(&self) -> Option<Duration> {
        (self.start.is_some() && self.not_reduced == 0).then_some(LOOK_FOR_END)
    }

    fn ended(&mut self, _now: Instant, goes_on: bool) -> Result<Option<EndedStep>, EngineError> {
        let Some(start) = self.start.filter(|_| self.not_reduced == 0) else { return Ok(None) };
        // After the last result the thread reports nothing else.
        let Ok(Event::StepEnded { time, work }) = self.events.try_recv() else { return Ok(None) };
        if goes_on {
            self.begin_step(start + time);
        } else {
            self.start = None;
        }
        Ok(Some(EndedStep { time, device: None, work }))
    }
}
