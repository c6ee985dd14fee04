//! One rank's part of the framework's optimizer: it processes ready gradients and results. See
//! [`workloads::framework`].

use std::time::{Duration, Instant};

use algorithms::control::{DataType, TensorId};

use serde::{Deserialize, Serialize};

use workloads::replay::HostCosts;

use crate::gradients::Gradients;
use crate::job::Job;
use crate::occupy::Occupied;

/// Horovod's optimizer on one rank.
pub struct Optimizer {
    passes: usize,
    average_passes: bool,
    dtype: DataType,
    wire: DataType,
    /// Megabytes of each gradient.
    megabytes: Vec<f64>,
    host: HostCosts,
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

impl Optimizer {
    /// Nothing is ready.
    pub fn new(job: &Job) -> Optimizer {
        Optimizer {
            passes: job.framework.backward_passes_per_step,
            average_passes: job.framework.average_aggregated_gradients,
            dtype: job.dtype,
            wire: job.wire(),
            megabytes: job
                .workload
                .gradients
                .iter()
                .map(|gradient| (gradient.elements() * job.dtype.size_bytes()) as f64 / 1e6)
                .collect(),
            host: job.times.host,
            work: Work::default(),
        }
    }

    /// Processes a gradient that has become ready in a pass: adds it to those of earlier passes, and casts it in the
    /// last pass. Returns the time taken.
    pub fn take(&mut self, pass: usize, gradient: TensorId, gradients: &mut Gradients) -> Duration {
        let (dtype, wire, before) = (self.dtype, self.wire, self.work);
        let HostCosts { add_mb, cast_mb, .. } = self.host;
        let megabytes = self.megabytes[gradient];
        if pass > 0 {
            let least = add_mb.mul_f64(megabytes);
            self.work.aggregation += timed(least, || gradients.add(gradient, pass, dtype));
        }
        if pass + 1 == self.passes && wire != dtype {
            let least = cast_mb.mul_f64(megabytes);
            self.work.compression += timed(least, || gradients.compress(gradient, dtype, wire));
        }
        let Work { aggregation, compression } = self.work;
        aggregation + compression - before.aggregation - before.compression
    }

    /// Processes a result: casts it back, and optionally divides it by the number of passes.
    pub fn give_back(&mut self, result: TensorId, gradients: &mut Gradients) {
        let (dtype, wire) = (self.dtype, self.wire);
        if wire != dtype {
            let least = self.host.cast_back_mb.mul_f64(self.megabytes[result]);
            self.work.compression += timed(least, || gradients.decompress(result, dtype, wire));
        }
        if self.average_passes && self.passes > 1 {
            let least = Duration::ZERO;
            self.work.aggregation += timed(least, || gradients.divide(result, self.passes, dtype));
        }
    }

    /// The step is over; returns the work in it.
    pub fn end_step(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }
}

/// How long work takes. Its thread is busy for no less than `least`.
fn timed(least: Duration, work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    if least.is_zero() {
        work();
    } else {
        let occupied = Occupied::begin();
        work();
        occupied.until(least);
    }
    start.elapsed()
}
