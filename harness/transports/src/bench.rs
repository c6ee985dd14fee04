//! An allreduce alone: repeated, timed, checked.

use std::time::{Duration, Instant};

use algorithms::algorithm::Algorithm;
use algorithms::control::{DataType, ReduceOp};
use algorithms::program::Program;
use algorithms::topology::{Rank, Topology};
use algorithms::tree::Tree;

use crate::allreduce::{AllReduce, Sizes};
use crate::data_plane::DataPlane;
use crate::execute::execute;
use crate::for_dtype;
use crate::memory::{Buffer, Memory};
use crate::pattern::{Pattern, Wrong};
use crate::threads::{BITS, Endpoint, Links, run_ranks};
use crate::transport::{Transport, TransportError};
use results::usage::context_switches;

/// A rank that waits longer than this for another gives up.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// One allreduce to be measured.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// How it is done.
    pub data_plane: &'a DataPlane,
    /// Ranks on nodes.
    pub topology: &'a Topology,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub op: ReduceOp,
    /// How large buffers are cut.
    pub sizes: Sizes,
    /// Elements of each tensor of a rank; the tensors are reduced as one vector.
    pub tensors: &'a [usize],
    /// Reduce the input where it lies; otherwise the copy to the output is part of the time, as it
    /// is part of any out-of-place allreduce.
    pub in_place: bool,
    /// Repetitions that do not count.
    pub warmup: usize,
    /// Repetitions that count.
    pub repetitions: usize,
    /// Check the data of the last repetition.
    pub check: bool,
    /// Seed of the data.
    pub seed: u64,
}

impl Bench<'_> {
    /// Elements per rank.
    pub fn elements(&self) -> usize {
        self.tensors.iter().sum()
    }
}

/// What a bench brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Each repetition: the longest that any rank took, from the barrier before it.
    pub times: Vec<Duration>,
    /// The same by a GPU's clock, in microseconds, where there is one.
    pub device_us: Vec<f64>,
    /// What the host puts on GPUs' streams, where it does.
    pub enqueued: Option<Enqueued>,
    /// Context switches per repetition, over all ranks: from before the barrier of the first one that
    /// counts to the end of the last. Not known outside Linux.
    pub context_switches: Option<f64>,
    /// The check, unless it was switched off.
    pub wrong: Option<Wrong>,
}

/// What the host puts on GPUs' streams for one allreduce.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enqueued {
    /// Copies and kernels.
    pub launches: usize,
    /// Events that are recorded or waited for.
    pub events: usize,
    /// Of the graph that is launched in their place, if one is.
    pub nodes: Option<usize>,
    /// How long the host needed, in microseconds, for each repetition; none where nothing is timed.
    pub times_us: Vec<f64>,
}

impl Timed {
    /// Both together.
    pub fn and(mut self, other: Timed) -> Timed {
        let (mine, others) = (self.times.len() as f64, other.times.len() as f64);
        let mean = |(a, b)| (a * mine + b * others) / (mine + others).max(1.0);
        self.context_switches = self.context_switches.zip(other.context_switches).map(mean);
        self.wrong = self.wrong.zip(other.wrong).map(|(a, b)| a.and(b));
        self.times.extend(other.times);
        self.device_us.extend(other.device_us);
        if let (Some(mine), Some(others)) = (&mut self.enqueued, other.enqueued) {
            mine.times_us.extend(others.times_us);
        }
        self
    }
}

/// Runs a bench on threads.
///
/// # Errors
/// When a rank does not answer.
pub fn run(bench: &Bench) -> Result<Timed, TransportError> {
    let ranks = bench.topology.ranks();
    let data = Links::new(ranks, TIMEOUT);
    let bits = Links::new(ranks, TIMEOUT);
    let ended =
        run_ranks(&[&data, &bits], |rank| run_rank(bench, data.join(rank), bits.join(rank)))?;
    let results = ended.iter().map(|ended| &ended.result).enumerate().collect::<Vec<_>>();
    let wrong = bench.check.then(|| check(bench, &results));
    Ok(timed(bench, ended.iter().map(|ended| (&ended.times, ended.context_switches)), wrong))
}

/// What all ranks saw, as one: each rank's times, and its context switches.
pub fn timed<'t>(
    bench: &Bench,
    ranks: impl Iterator<Item = (&'t Vec<Duration>, Option<u64>)> + Clone,
    wrong: Option<Wrong>,
) -> Timed {
    let longest = |repetition: usize| ranks.clone().map(|(times, _)| times[repetition]).max();
    let switches: Option<u64> = ranks.clone().map(|(_, switches)| switches).sum();
    Timed {
        times: (0..bench.repetitions).filter_map(longest).collect(),
        device_us: Vec::new(),
        enqueued: None,
        context_switches: switches.map(|all| all as f64 / bench.repetitions as f64),
        wrong,
    }
}

/// What one rank brought.
pub struct Ended {
    /// Each repetition: this rank's own time.
    pub times: Vec<Duration>,
    /// Over all repetitions that count.
    pub context_switches: Option<u64>,
    /// The data of the last repetition.
    pub result: Tensors,
}

/// One rank's tensors: one, or as many as a group has.
pub struct Tensors(Vec<Memory>);

impl Tensors {
    /// All elements in one tensor.
    pub fn whole(bench: &Bench) -> Tensors {
        Tensors(vec![Memory::new(bench.elements() * bench.dtype.size_bytes())])
    }

    /// No tensor.
    pub fn none() -> Tensors {
        Tensors(Vec::new())
    }

    /// Where the first tensor lies.
    pub fn address(&mut self) -> *mut u8 {
        self.0[0].elements_mut::<u8>().as_mut_ptr()
    }

    fn new(bench: &Bench) -> Tensors {
        let size = bench.dtype.size_bytes();
        Tensors(bench.tensors.iter().map(|elements| Memory::new(elements * size)).collect())
    }

    fn buffer(&mut self, dtype: DataType) -> Buffer<'_> {
        let mut buffer = Buffer::new(dtype);
        self.0.iter_mut().for_each(|memory| buffer.push(memory));
        buffer
    }

    /// Copies everything into a buffer of blocks of the same lengths.
    fn copy_to(&self, buffer: &mut Buffer<'_>) {
        buffer.copy_from(self.0.iter().map(Memory::elements::<u8>));
    }
}

fn pattern(bench: &Bench) -> Pattern {
    Pattern::of(bench.topology.ranks(), bench.op, bench.seed)
}

/// Writes a rank's input.
pub fn fill(bench: &Bench, rank: Rank, tensors: &mut Tensors) {
    let mut first = 0;
    for memory in &mut tensors.0 {
        for_dtype!(bench.dtype, T => pattern(bench).fill::<T>(rank, first, memory));
        first += memory.size_bytes() / bench.dtype.size_bytes();
    }
}

/// Compares the results of some ranks with what they must be.
pub fn check(bench: &Bench, results: &[(Rank, &Tensors)]) -> Wrong {
    let mut first = 0;
    let mut wrong = Wrong::default();
    for (index, elements) in bench.tensors.iter().enumerate() {
        let of_all: Vec<_> =
            results.iter().map(|(rank, result)| (*rank, &result.0[index])).collect();
        for_dtype!(bench.dtype, T => {
            wrong = wrong.and(pattern(bench).check::<T>(first, &of_all));
        });
        first += elements;
    }
    wrong
}

/// One rank's repetitions: data over one transport, barriers over another.
///
/// # Errors
/// When a rank does not answer.
pub fn run_rank<D: Transport, B: Transport>(
    bench: &Bench,
    data: D,
    bits: B,
) -> Result<Ended, TransportError> {
    let rank = data.rank();
    let mut all_reduce = bench.data_plane.on(data, bench.sizes, Memory::default());
    let bytes = |elements: usize| elements * bench.dtype.size_bytes();
    let fused_bytes = if bench.tensors.len() > 1 { bytes(bench.elements()) } else { 0 };
    all_reduce.prepare(bytes(bench.tensors.iter().copied().max().unwrap_or(0)), fused_bytes);
    let mut barrier = Barrier::new(bits);
    let mut input = Tensors::new(bench);
    fill(bench, rank, &mut input);
    let mut output = if bench.in_place { Tensors(Vec::new()) } else { Tensors::new(bench) };
    let mut times = Vec::with_capacity(bench.repetitions);
    let mut switches_before = None;
    let repetitions = bench.warmup + bench.repetitions;
    for repetition in 0..repetitions {
        // What is checked is the last repetition, on data that no earlier one has touched.
        // Products in place would overflow, and slow down, if they were multiplied on and on.
        if repetition + 1 == repetitions {
            output.0.iter_mut().for_each(Memory::poison);
        }
        if bench.in_place && (repetition + 1 == repetitions || bench.op == ReduceOp::Product) {
            fill(bench, rank, &mut input);
        }
        let (tensors, copy_from) =
            if bench.in_place { (&mut input, None) } else { (&mut output, Some(&input)) };
        let mut buffer = tensors.buffer(bench.dtype);
        if repetition == bench.warmup {
            switches_before = context_switches();
        }
        barrier.wait()?;
        let start = Instant::now();
        if let Some(input) = copy_from {
            input.copy_to(&mut buffer);
        }
        all_reduce.all_reduce(&mut buffer, bench.op.into())?;
        let time = start.elapsed();
        if repetition >= bench.warmup {
            times.push(time);
        }
    }
    let context_switches = context_switches().zip(switches_before).map(|(now, then)| now - then);
    Ok(Ended { times, context_switches, result: if bench.in_place { input } else { output } })
}

/// All ranks meet: an allreduce of one word over a tree, on links of its own.
pub struct Barrier<T = Endpoint> {
    endpoint: T,
    program: Program,
    word: Memory,
}

impl<T: Transport> Barrier<T> {
    /// One rank's part, on links that nothing else uses.
    pub fn new(endpoint: T) -> Barrier<T> {
        let tree = Tree.schedule(&Topology::flat(endpoint.ranks()));
        let program = Program::compile(&*tree.expect("a tree fits every world"), endpoint.rank());
        Barrier { endpoint, program, word: Memory::new(size_of::<u64>()) }
    }

    /// Waits until all ranks have come.
    ///
    /// # Errors
    /// When a rank does not come.
    pub fn wait(&mut self) -> Result<(), TransportError> {
        let (dtype, and) = BITS;
        execute(&mut self.endpoint, &self.program, &mut Buffer::of(dtype, &mut self.word), and)
    }
}
