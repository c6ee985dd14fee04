//! One rank's gradients: the sums of backward passes, and the data on the wire.

use algorithms::control::{DataType, TensorId};
use algorithms::topology::Rank;

use crate::job::Job;
use transports::cast;
use transports::for_dtype;
use transports::kernel::{add, scale};
use transports::memory::Memory;
use transports::pattern::{Pattern, Wrong, turn};
use workloads::workload::Workload;

/// The memory of one rank's gradients.
#[derive(Default)]
pub struct Gradients {
    /// The sums of a step's passes, which also receive the result.
    sums: Vec<Memory>,
    /// Gradients of passes after the first; empty if there is only one. The passes share this memory, see
    /// [`turn`].
    later: Vec<Memory>,
    /// Data on the wire, if their type is narrower; otherwise empty.
    wire: Vec<Memory>,
}

impl Gradients {
    /// Makes room for a job, unless it is there.
    pub fn fit(&mut self, job: &Job) {
        let room = |memories: &mut Vec<Memory>, needed: bool, dtype: DataType| {
            let gradients = job.workload.gradients.iter().filter(|_| needed);
            let sizes = gradients.map(|gradient| gradient.elements() * dtype.size_bytes());
            if !sizes.clone().eq(memories.iter().map(Memory::size_bytes)) {
                *memories = sizes.map(Memory::new).collect();
            }
        };
        room(&mut self.sums, true, job.dtype);
        room(&mut self.later, job.framework.backward_passes_per_step > 1, job.dtype);
        room(&mut self.wire, job.wire() != job.dtype, job.wire());
    }

    /// Writes the gradients of all passes of the step that will be checked.
    pub fn fill(&mut self, job: &Job, rank: Rank) {
        let pattern = pattern(job);
        for (index, first) in first_elements(job.workload).enumerate() {
            for_dtype!(job.dtype, T => {
                pattern.fill::<T>(rank, first, &mut self.sums[index]);
                if let Some(later) = self.later.get_mut(index) {
                    pattern.fill_later::<T>(rank, first, later);
                }
            });
        }
        self.wire.iter_mut().for_each(Memory::poison);
    }

    /// Adds the gradient of a pass after the first.
    pub fn add(&mut self, index: usize, pass: usize, dtype: DataType) {
        let (sum, later) = (&mut self.sums[index], &self.later[index]);
        for_dtype!(dtype, T => {
            let (sum, later) = (sum.elements_mut::<T>(), later.elements::<T>());
            let (end, beginning) = later.split_at(turn(pass, later.len()));
            let (first, rest) = sum.split_at_mut(beginning.len());
            add(first, beginning);
            add(rest, end);
        });
    }

    /// Casts a gradient to the type on the wire.
    pub fn compress(&mut self, index: usize, dtype: DataType, wire: DataType) {
        cast::compress(&self.sums[index], dtype, &mut self.wire[index], wire);
    }

    /// Casts a result back.
    pub fn decompress(&mut self, index: usize, dtype: DataType, wire: DataType) {
        cast::decompress(&self.wire[index], wire, &mut self.sums[index], dtype);
    }

    /// Divides a result by a number of passes.
    pub fn divide(&mut self, index: usize, passes: usize, dtype: DataType) {
        let factor = 1.0 / passes as f64;
        for_dtype!(dtype, T => scale(self.sums[index].elements_mut::<T>(), factor));
    }

    /// Sums of passes and results, one memory per gradient.
    pub fn sums(&self) -> &[Memory] {
        &self.sums
    }

    /// The same, to be written.
    pub fn sums_mut(&mut self) -> &mut [Memory] {
        &mut self.sums
    }

    /// Gradients of passes after the first; empty if there is only one.
    pub fn later(&self) -> &[Memory] {
        &self.later
    }

    /// Data on the wire, one memory per gradient.
    pub fn travelling(&mut self) -> &mut [Memory] {
        if self.wire.is_empty() { &mut self.sums } else { &mut self.wire }
    }
}

/// Compares every element of every gradient on these ranks, but for those that were refused.
pub fn check<'g>(
    job: &Job,
    ranks: impl Iterator<Item = (Rank, &'g Gradients)> + Clone,
    is_refused: impl Fn(TensorId) -> bool,
) -> Wrong {
    let reduced = first_elements(job.workload).enumerate().filter(|(index, _)| !is_refused(*index));
    let gradients = reduced.map(|(index, first)| {
        let of_rank = |(rank, gradients): (Rank, &'g Gradients)| (rank, &gradients.sums[index]);
        let of_all: Vec<_> = ranks.clone().map(of_rank).collect();
        wrong(job, first, &of_all)
    });
    gradients.fold(Wrong::default(), Wrong::and)
}

/// Compares the elements of one gradient, the first of which has that index.
fn wrong(job: &Job, first: usize, of_all: &[(Rank, &Memory)]) -> Wrong {
    for_dtype!(job.dtype, T => pattern(job).check::<T>(first, of_all))
}

fn pattern(job: &Job) -> Pattern {
    crate::job::pattern(job.framework, job.topology.ranks(), job.dtype, job.op, job.seed)
}

/// Index of each gradient's first element in the pattern.
fn first_elements(workload: &Workload) -> impl Iterator<Item = usize> + '_ {
    workload.gradients.iter().scan(0, |next, gradient| {
        let first = *next;
        *next += gradient.elements();
        Some(first)
    })
}
