//! The benchmark of a single allreduce: repeats it, measures it, and checks its data.

mod start;
mod synchronised;

use std::time::{Duration, Instant};

use algorithms::algorithm::Algorithm;
use algorithms::control::{DataType, ReduceOp};
use algorithms::program::Program;
use algorithms::topology::{Rank, Topology};
use algorithms::tree::Tree;
use serde::{Deserialize, Serialize};

use self::start::Moments;
pub use self::start::Start;
pub use self::synchronised::{MOST_SHARE, Synchronised, Unsynchronised, synchronised};
use crate::allreduce::{AllReduce, Sizes};
use crate::clock::Clock;
use crate::data_plane::DataPlane;
use crate::execute::execute;
use crate::for_dtype;
use crate::memory::{Buffer, Memory};
use crate::pattern::{Pattern, Wrong};
use crate::threads::{self, BITS, Endpoint, Links, run_ranks};
use crate::transport::{Transport, TransportError};
use results::nested::Nested;
use results::units::micros;
use results::usage::context_switches;

/// The timeout for waiting on another rank.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// One allreduce to measure.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// How the data are reduced.
    pub data_plane: &'a DataPlane,
    /// Ranks on nodes.
    pub topology: &'a Topology,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub op: ReduceOp,
    /// How large buffers are split.
    pub sizes: Sizes,
    /// Elements of each tensor of a rank; the tensors are reduced as one vector.
    pub tensors: &'a [usize],
    /// Reduces the input in place. Otherwise the time includes the copy from input to output, as in any
    /// out-of-place allreduce.
    pub in_place: bool,
    /// Repetitions before the measurement.
    pub warmup: usize,
    /// Measured repetitions.
    pub repetitions: usize,
    /// How ranks start a repetition together.
    pub start: Start,
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

/// What a benchmark measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed {
    /// Per repetition: the longest time of any rank, from its start.
    pub times: Vec<Duration>,
    /// How many of these times each block has, if there are several.
    pub blocks: Vec<usize>,
    /// How ranks started.
    pub start: Start,
    /// Why not as they were to.
    pub unsynchronised: Option<Unsynchronised>,
    /// Repetitions that a rank began late. They are not among the times, unless they are more than half.
    pub late: usize,
    /// The bound of the errors of the ranks' clocks; zero with [`Start::Barrier`].
    pub clock_error: Duration,
    /// The same by the GPU's clock, in microseconds; empty without a GPU.
    pub device_us: Vec<f64>,
    /// Host work on the GPUs' streams, if any.
    pub enqueued: Option<Enqueued>,
    /// Context switches per repetition over all ranks, from before the barrier of the first measured repetition to
    /// the end of the last. Unknown outside Linux.
    pub context_switches: Option<f64>,
    /// The result of the check, unless checking is off.
    pub wrong: Option<Wrong>,
}

/// Operations that the host enqueues on the GPUs' streams for one allreduce.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enqueued {
    /// Copies and kernels.
    pub launches: usize,
    /// Events recorded or waited for.
    pub events: usize,
    /// Nodes of the graph that replaces them, if a graph is launched.
    pub nodes: Option<usize>,
    /// Host time of each repetition, in microseconds; empty where nothing is measured.
    pub times_us: Vec<f64>,
}

impl Timed {
    /// The times in microseconds, by block.
    pub fn by_block(&self) -> Nested {
        let all = [self.times.len()];
        let blocks = if self.blocks.is_empty() { &all[..] } else { &self.blocks };
        let numbers = blocks.iter().enumerate().flat_map(|(block, &times)| vec![block; times]);
        numbers.zip(&self.times).map(|(block, &time)| (0, block, micros(time))).collect()
    }

    /// Combines two results, of ranks that started alike.
    pub fn and(mut self, other: Timed) -> Timed {
        let (mine, others) = (self.times.len() as f64, other.times.len() as f64);
        let mean = |(a, b)| (a * mine + b * others) / (mine + others).max(1.0);
        self.context_switches = self.context_switches.zip(other.context_switches).map(mean);
        let blocks_of = |timed: &Timed| match &timed.blocks[..] {
            [] => vec![timed.times.len()],
            blocks => blocks.to_vec(),
        };
        self.blocks = [blocks_of(&self), blocks_of(&other)].concat();
        self.wrong = self.wrong.zip(other.wrong).map(|(a, b)| a.and(b));
        self.unsynchronised = self.unsynchronised.or(other.unsynchronised);
        self.late += other.late;
        self.clock_error = self.clock_error.max(other.clock_error);
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
///
/// # Panics
/// When a library reduces: threads have none.
pub fn run(bench: &Bench) -> Result<Timed, TransportError> {
    let ranks = bench.topology.ranks();
    let schedules = bench.data_plane.schedules(threads::NAME).expect("one of our algorithms");
    let data = Links::new(ranks, TIMEOUT);
    let bits = Links::new(ranks, TIMEOUT);
    let ended = run_ranks(&[&data, &bits], |rank| {
        let all_reduce = schedules.on(data.join(rank), bench.sizes, Memory::default());
        // Threads have one clock.
        run_rank(bench, rank, all_reduce, (bits.join(rank), &Clock::default()))
    })?;
    let results = ended.iter().map(|ended| &ended.result).enumerate().collect::<Vec<_>>();
    let wrong = bench.check.then(|| check(bench, &results));
    Ok(timed(bench, ended.iter().map(|ended| &ended.times), wrong))
}

/// Combines the times of all ranks. Repetitions that a rank began late are left out, unless they are more than half.
pub fn timed<'t>(
    bench: &Bench,
    ranks: impl Iterator<Item = &'t RankTimes> + Clone,
    wrong: Option<Wrong>,
) -> Timed {
    let longest = |repetition: &usize| ranks.clone().map(|rank| rank.times[*repetition]).max();
    let is_late = |repetition: &usize| ranks.clone().any(|rank| rank.late[*repetition]);
    let (late, begun): (Vec<usize>, Vec<usize>) = (0..bench.repetitions).partition(is_late);
    let all: Vec<usize> = (0..bench.repetitions).collect();
    let counted = if late.len() > begun.len() { &all } else { &begun };
    let switches: Option<u64> = ranks.clone().map(|rank| rank.context_switches).sum();
    Timed {
        start: bench.start,
        times: counted.iter().filter_map(longest).collect(),
        late: late.len(),
        clock_error: ranks.map(|rank| rank.clock_error).max().unwrap_or_default(),
        context_switches: switches.map(|all| all as f64 / bench.repetitions as f64),
        wrong,
        ..Timed::default()
    }
}

/// One rank's repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    /// Per repetition: this rank's own time.
    pub times: Vec<Duration>,
    /// Whether it began each later than the others.
    pub late: Vec<bool>,
    /// The bound of its clock's error.
    pub clock_error: Duration,
    /// Over all measured repetitions.
    pub context_switches: Option<u64>,
}

/// The result of one rank.
pub struct Ended {
    /// Its repetitions.
    pub times: RankTimes,
    /// The data of the last repetition.
    pub result: Tensors,
}

/// One rank's tensors: one, or one per tensor of a group.
pub struct Tensors(Vec<Memory>);

impl Tensors {
    /// All elements in one tensor.
    pub fn whole(bench: &Bench) -> Tensors {
        Tensors(vec![Memory::new(bench.elements() * bench.dtype.size_bytes())])
    }

    /// No tensors.
    pub fn none() -> Tensors {
        Tensors(Vec::new())
    }

    /// The address of the first tensor.
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

/// Compares the results of some ranks with the exact values.
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

/// What the benchmark loop repeats: an allreduce by one rank, or by all ranks of a process.
pub trait Repeated {
    /// The time of one repetition.
    type Time;

    /// The error that ends the loop.
    type Error;

    /// Writes the input of the next repetition, where needed. The last repetition, whose result is checked, runs
    /// on fresh data.
    ///
    /// # Errors
    /// When a device call fails.
    fn fill(&mut self, is_last: bool) -> Result<(), Self::Error>;

    /// The warm-up is over: the next repetition is measured.
    fn warmed_up(&mut self) {}

    /// Waits until all ranks have reached this point.
    ///
    /// # Errors
    /// When a rank does not arrive.
    fn meet(&mut self) -> Result<(), Self::Error>;

    /// One allreduce.
    ///
    /// # Errors
    /// When a rank does not answer, or a call of a device or library fails.
    fn once(&mut self) -> Result<Self::Time, Self::Error>;
}

/// The benchmark loop of every back end. Returns the times of the measured repetitions.
///
/// # Errors
/// The first error of a repetition.
pub fn repeat<R: Repeated>(bench: &Bench, repeated: &mut R) -> Result<Vec<R::Time>, R::Error> {
    let mut times = Vec::with_capacity(bench.repetitions);
    let repetitions = bench.warmup + bench.repetitions;
    for repetition in 0..repetitions {
        repeated.fill(repetition + 1 == repetitions)?;
        if repetition == bench.warmup {
            repeated.warmed_up();
        }
        repeated.meet()?;
        let time = repeated.once()?;
        if repetition >= bench.warmup {
            times.push(time);
        }
    }
    Ok(times)
}

/// One rank with its data in host memory.
struct Host<'b, B> {
    bench: &'b Bench<'b>,
    rank: Rank,
    all_reduce: Box<dyn AllReduce + 'b>,
    barrier: Barrier<B>,
    moments: Option<Moments<'b>>,
    input: Tensors,
    output: Tensors,
    is_filled: bool,
    switches_before: Option<u64>,
}

impl<B: Transport> Repeated for Host<'_, B> {
    type Time = Duration;
    type Error = TransportError;

    fn fill(&mut self, is_last: bool) -> Result<(), TransportError> {
        let Host { bench, rank, input, output, is_filled, .. } = self;
        if is_last {
            output.0.iter_mut().for_each(Memory::poison);
        }
        // Repeated products in place would overflow and become slow.
        if !*is_filled || bench.in_place && (is_last || bench.op == ReduceOp::Product) {
            fill(bench, *rank, input);
            *is_filled = true;
        }
        Ok(())
    }

    fn warmed_up(&mut self) {
        self.switches_before = context_switches();
    }

    fn meet(&mut self) -> Result<(), TransportError> {
        match &mut self.moments {
            Some(moments) => moments.wait(self.rank, &mut self.barrier),
            None => self.barrier.wait(),
        }
    }

    fn once(&mut self) -> Result<Duration, TransportError> {
        let Host { bench, all_reduce, moments, input, output, .. } = self;
        let in_place = bench.in_place;
        let (tensors, copy_from) = if in_place { (input, None) } else { (output, Some(&*input)) };
        let mut buffer = tensors.buffer(bench.dtype);
        let start = Instant::now();
        if let Some(input) = copy_from {
            input.copy_to(&mut buffer);
        }
        all_reduce.all_reduce(&mut buffer, bench.op.into())?;
        Ok(match moments {
            Some(moments) => moments.elapsed(),
            None => start.elapsed(),
        })
    }
}

/// One rank's repetitions, with its data in host memory; barriers use `bits`, and starts without a barrier the clock.
///
/// # Errors
/// When a rank does not answer.
pub fn run_rank<'b, B: Transport>(
    bench: &'b Bench<'b>,
    rank: Rank,
    mut all_reduce: Box<dyn AllReduce + 'b>,
    (bits, clock): (B, &'b Clock),
) -> Result<Ended, TransportError> {
    let bytes = |elements: usize| elements * bench.dtype.size_bytes();
    let fused_bytes = if bench.tensors.len() > 1 { bytes(bench.elements()) } else { 0 };
    all_reduce.prepare(bytes(bench.tensors.iter().copied().max().unwrap_or(0)), fused_bytes);
    let mut host = Host {
        bench,
        rank,
        all_reduce,
        barrier: Barrier::new(bits),
        moments: Moments::new(bench.start, clock),
        input: Tensors::new(bench),
        output: if bench.in_place { Tensors::none() } else { Tensors::new(bench) },
        is_filled: false,
        switches_before: None,
    };
    let times = repeat(bench, &mut host)?;
    let switches = context_switches().zip(host.switches_before).map(|(now, then)| now - then);
    let (late, clock_error) = match host.moments {
        Some(moments) => {
            // It grows from the comparison on.
            let error = Duration::try_from_secs_f64(clock.error_s(clock.now_s()));
            (moments.late(bench.warmup), error.unwrap_or(Duration::MAX))
        }
        None => (vec![false; times.len()], Duration::ZERO),
    };
    let result = if bench.in_place { host.input } else { host.output };
    Ok(Ended { times: RankTimes { times, late, clock_error, context_switches: switches }, result })
}

/// A barrier of all ranks: an allreduce of one word over a tree, on links of its own.
pub struct Barrier<T = Endpoint> {
    endpoint: T,
    program: Program,
    word: Memory,
}

impl<T: Transport> Barrier<T> {
    /// One rank's part, on links used by nothing else.
    pub fn new(endpoint: T) -> Barrier<T> {
        let tree = Tree.schedule(&Topology::flat(endpoint.ranks()));
        let program = Program::compile(&*tree.expect("a tree fits every world"), endpoint.rank());
        Barrier { endpoint, program, word: Memory::new(size_of::<u64>()) }
    }

    /// Waits until all ranks have arrived.
    ///
    /// # Errors
    /// When a rank does not arrive.
    pub fn wait(&mut self) -> Result<(), TransportError> {
        self.agree(0).map(drop)
    }

    /// The same, and returns the bits that are set in every rank's word.
    ///
    /// # Errors
    /// When a rank does not arrive.
    pub fn agree(&mut self, word: u64) -> Result<u64, TransportError> {
        let (dtype, and) = BITS;
        self.word.elements_mut::<u64>()[0] = word;
        execute(&mut self.endpoint, &self.program, &mut Buffer::of(dtype, &mut self.word), and)?;
        Ok(self.word.elements::<u64>()[0])
    }
}
