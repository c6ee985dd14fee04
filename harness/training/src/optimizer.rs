//! One rank's part of the framework's optimizer: it processes ready gradients and results. See
//! [`workloads::framework`].

use std::time::{Duration, Instant};

use algorithms::control::{DataType, TensorId};

use serde::{Deserialize, Serialize};

use crate::gradients::Gradients;
use crate::job::Job;
use workloads::groups::{Assembly, Missing};
use workloads::replay::Arrival;

/// Horovod's optimizer on one rank.
pub struct Optimizer<'a> {
    passes: usize,
    average_passes: bool,
    dtype: DataType,
    wire: DataType,
    assembly: Assembly<'a>,
    work: Work,
}

/// Work that was done on gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Adding up the gradients of several backward passes, and dividing the result.
    pub aggregation: Duration,
    /// Casting gradients and results.
    pub compression: Duration,
}

impl<'a> Optimizer<'a> {
    /// Nothing is ready.
    pub fn new(job: &Job<'a>) -> Optimizer<'a> {
        Optimizer {
            passes: job.framework.backward_passes_per_step,
            average_passes: job.framework.average_aggregated_gradients,
            dtype: job.dtype,
            wire: job.wire(),
            assembly: Assembly::new(job.groups, job.workload.gradients.len()),
            work: Work::default(),
        }
    }

    /// Processes gradients that have become ready: adds them to those of earlier passes; in the last pass casts
    /// them and appends those that are ready for negotiation. Returns the time taken.
    pub fn take(
        &mut self,
        arrivals: &[Arrival],
        gradients: &mut Gradients,
        hand_over: &mut Vec<TensorId>,
    ) -> Duration {
        let (dtype, wire, before) = (self.dtype, self.wire, self.work);
        for &Arrival { pass, gradient, .. } in arrivals {
            if pass > 0 {
                self.work.aggregation += timed(|| gradients.add(gradient, pass, dtype));
            }
            if pass + 1 == self.passes {
                if wire != dtype {
                    self.work.compression += timed(|| gradients.compress(gradient, dtype, wire));
                }
                self.assembly.ready(gradient, hand_over);
            }
        }
        let Work { aggregation, compression } = self.work;
        aggregation + compression - before.aggregation - before.compression
    }

    /// Processes results: casts them back, and optionally divides them by the number of passes.
    pub fn give_back(&mut self, results: &[TensorId], gradients: &mut Gradients) {
        let (dtype, wire) = (self.dtype, self.wire);
        for &result in results {
            if wire != dtype {
                self.work.compression += timed(|| gradients.decompress(result, dtype, wire));
            }
            if self.average_passes && self.passes > 1 {
                self.work.aggregation += timed(|| gradients.divide(result, self.passes, dtype));
            }
        }
    }

    /// The step is over; returns the work in it.
    pub fn end_step(&mut self) -> Work {
        self.assembly.begin();
        std::mem::take(&mut self.work)
    }

    /// Gradients that the step still waits for, see [`Assembly::missing`].
    pub fn missing(&self) -> Option<Missing> {
        self.assembly.missing()
    }
}

/// How long something takes.
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
