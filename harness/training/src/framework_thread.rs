//! The framework's thread of one rank, which hands gradients over while the background loop works.
//!
//! A framework's call of Horovod takes time on the host: Python, the binding, the queue's lock. The background loop has
//! a thread of its own, so that both need a core. Where ranks have fewer cores than threads, the framework takes time
//! from the loop; and gradients that become ready at the same time are handed over one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, sleep};
use std::time::{Duration, Instant};

use results::usage::cpu_time;
use workloads::replay::releases;

use crate::job::Job;

/// The thread. It ends when this is dropped.
pub struct FrameworkThread {
    begun: Sender<Instant>,
    /// Gradients that were handed over, over all steps.
    handed_over: Arc<AtomicUsize>,
    /// Gradients of a step.
    gradients: usize,
    /// Steps that have begun.
    steps: usize,
}

impl FrameworkThread {
    /// Starts the thread; none if handing over takes no time.
    pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, job: &Job) -> Option<FrameworkThread> {
        let times = job.times;
        if times.hand_over.is_zero() && times.wake.is_zero() {
            return None;
        }
        let earlier =
            (times.forward + times.backward) * (job.framework.backward_passes_per_step - 1) as u32;
        let releases = releases(job.workload, times);
        let ready: Vec<Duration> = releases.iter().map(|&(after, _)| earlier + after).collect();
        let gradients = ready.len();
        let (begun, steps) = channel();
        let handed_over = Arc::new(AtomicUsize::new(0));
        let counted = handed_over.clone();
        let busy = Busy { wake: times.wake, hand_over: times.hand_over };
        scope.spawn(move || hand_over(&steps, &ready, &busy, &counted));
        Some(FrameworkThread { begun, handed_over, gradients, steps: 0 })
    }

    /// A step begins.
    pub fn begin(&mut self, start: Instant) {
        self.steps += 1;
        // The thread outlives this.
        let _ = self.begun.send(start);
    }

    /// How many gradients of the running step it has handed over.
    pub fn handed_over(&self) -> usize {
        let before = self.steps.saturating_sub(1) * self.gradients;
        self.handed_over.load(Ordering::Acquire).saturating_sub(before)
    }
}

/// How long the thread is busy with a gradient.
struct Busy {
    /// Before it is ready, if the thread has slept.
    wake: Duration,
    /// From then on.
    hand_over: Duration,
}

/// Hands over the gradients of each step, until nobody counts them any more.
fn hand_over(
    steps: &Receiver<Instant>,
    ready: &[Duration],
    busy: &Busy,
    counted: &Arc<AtomicUsize>,
) {
    for start in steps {
        for &after in ready {
            let begin = cpu_time();
            let left = (start + after).saturating_duration_since(Instant::now());
            if let Some(rest) = left.checked_sub(busy.wake).filter(|rest| !rest.is_zero()) {
                sleep(rest);
                occupy(begin, busy.wake);
            }
            sleep((start + after).saturating_duration_since(Instant::now()));
            occupy(cpu_time(), busy.hand_over);
            counted.fetch_add(1, Ordering::Release);
            if Arc::strong_count(counted) == 1 {
                return;
            }
        }
    }
}

/// Occupies a core until this thread has had one for that long since `begin`: falling asleep and waking up count.
fn occupy(begin: Option<Duration>, time: Duration) {
    let start = Instant::now();
    let spent = || match (begin, cpu_time()) {
        (Some(begin), Some(now)) => now - begin,
        _ => start.elapsed(),
    };
    while spent() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_hands_over_in_each_step_and_ends_when_nobody_counts() {
        let ms = Duration::from_millis;
        let (begun, steps) = channel();
        let handed_over = Arc::new(AtomicUsize::new(0));
        let counted = handed_over.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let busy = Busy { wake: ms(1) / 2, hand_over: ms(1) };
                hand_over(&steps, &[ms(1), ms(1), ms(2)], &busy, &counted);
            });
            let mut thread = FrameworkThread { begun, handed_over, gradients: 3, steps: 0 };
            assert_eq!(thread.handed_over(), 0);
            for _ in 0..2 {
                let start = Instant::now();
                thread.begin(start);
                while thread.handed_over() < 3 {
                    std::thread::yield_now();
                }
                assert!(start.elapsed() >= ms(4), "one after the other: {:?}", start.elapsed());
            }
            // A step that nobody waits for.
            thread.begin(Instant::now() + ms(1));
        });
    }
}
