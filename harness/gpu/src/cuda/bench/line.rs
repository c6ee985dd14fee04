//! One line of a table: the memory of every rank, and the operations on it.

use algorithms::control::DataType;
use algorithms::grouping::Packing;
use algorithms::topology::Rank;

use super::programs;
use crate::cuda::CudaError;
use crate::cuda::collective::{Collective, RankStream};
use crate::cuda::packing::{Piece, Tensor, layout, pieces};
use crate::cuda::streams::Streams;
use crate::cuda::work::{Address, Values, Work};
use algorithms::control::Reduction;
use transports::bench::{Bench, Enqueued};
use transports::for_dtype;
use transports::kernel::ElementOp;
use transports::memory::Memory;
use transports::pattern::{Pattern, Wrong};

/// Elements of each rank that the host checks, too, so that a faulty check kernel is detected.
const LOOKED_AT: usize = 1 << 14;

/// Bytes of the two words that a check writes.
const VERDICT_BYTES: usize = 16;

/// Bytes that are no result of any reduction: NaN, or for integers a large negative number that is even.
fn poison_of(dtype: DataType) -> u8 {
    if dtype.is_integer() { 0x80 } else { 0xFF }
}

/// How tensors become the vector that is reduced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// There is only one.
    One,
    /// They are packed into the fusion buffer.
    Fused,
    /// They are reduced in place.
    Scattered,
}

impl Kind {
    fn of(bench: &Bench) -> Kind {
        let buffer = bench.data_plane.grouping().map(|grouping| grouping.packing);
        match (bench.tensors.len(), buffer) {
            (1, _) => Kind::One,
            (_, Some(Packing::Scattered)) => Kind::Scattered,
            _ => Kind::Fused,
        }
    }
}

/// Every rank's memory for one kind of message.
pub struct Line {
    /// The rank of the first stream.
    first: Rank,
    rank_streams: Vec<RankStream>,
    /// Layout of the message: elements of each tensor, and offset from its beginning.
    tensors: Vec<(usize, usize)>,
    /// They are reduced in place.
    scattered: bool,
    /// Size of their memory.
    size_bytes: usize,
    dtype: DataType,
    pattern: Pattern,
    /// The factor of the result.
    factor: f64,
    /// Unless others reduce.
    collective: Option<Collective>,
    /// The memory of each rank.
    memories: Vec<Memories>,
}

/// One rank's.
struct Memories {
    input: Address,
    /// The output: equal to the input, if it is reduced in place.
    output: Address,
    /// The vector that the collective reduces: the output, if there is one tensor, or they are reduced in place.
    fused: Address,
    /// Tables, with their lengths, for packing tensors into the fusion buffer (or copying them to the output), and
    /// for unpacking.
    pack: (Address, usize),
    unpack: (Address, usize),
    verdict: Address,
    /// All that was allocated.
    allocated: Vec<Address>,
}

impl Line {
    /// Allocates everything for all ranks, after a check that there is room.
    ///
    /// # Errors
    /// When a CUDA call fails, for example for lack of memory.
    pub fn new(
        streams: &mut impl Streams,
        rank_streams: &[RankStream],
        bench: &Bench,
    ) -> Result<Line, CudaError> {
        let (dtype, kind) = (bench.dtype, Kind::of(bench));
        let elements = if kind == Kind::Scattered { bench.elements() } else { elements(bench) };
        let programs = programs(bench, elements * dtype.size_bytes());
        let mut streamed = Collective::plan(streams, &programs, rank_streams, elements, dtype);
        if kind == Kind::Scattered {
            streamed = streamed.scattered(bench.tensors, dtype.size_bytes());
        }
        let mut line = Line::of(streams, (0, rank_streams), bench, &streamed.aside_bytes)?;
        let combine = ElementOp::of(bench.op);
        line.collective = Some(Collective::new(streams, streamed, rank_streams, dtype, combine)?);
        Ok(line)
    }

    /// The same for some ranks, the first one and its neighbours, whose vectors others reduce with ranks
    /// elsewhere. Each also needs `aside_bytes` of staging memory.
    ///
    /// # Errors
    /// When a CUDA call fails, for example for lack of memory.
    pub fn of(
        streams: &mut impl Streams,
        (first, rank_streams): (Rank, &[RankStream]),
        bench: &Bench,
        aside_bytes: &[usize],
    ) -> Result<Line, CudaError> {
        let (dtype, ranks) = (bench.dtype, bench.topology.ranks());
        room(streams, rank_streams, bench, aside_bytes)?;
        let size_bytes = elements(bench) * dtype.size_bytes();
        let factor = Reduction::from(bench.op).factor_after(ranks);
        let (starts, _) = layout(bench.tensors.iter().copied(), dtype);
        let tensors: Vec<_> = bench.tensors.iter().copied().zip(starts).collect();
        let mut memories = Vec::new();
        for rank_stream in rank_streams {
            let scales = factor != 1.0;
            memories.push(Memories::new(
                streams,
                rank_stream,
                bench,
                &tensors,
                size_bytes,
                scales,
            )?);
        }
        let (rank_streams, pattern) =
            (rank_streams.to_vec(), Pattern::of(ranks, bench.op, bench.seed));
        let (collective, scattered) = (None, Kind::of(bench) == Kind::Scattered);
        Ok(Line {
            first,
            rank_streams,
            tensors,
            scattered,
            size_bytes,
            dtype,
            pattern,
            factor,
            collective,
            memories,
        })
    }

    /// The address of each rank's vector, and its length in elements.
    pub fn fused(&self) -> (Vec<Address>, usize) {
        let places = self.memories.iter().map(|memories| memories.fused).collect();
        (places, self.size_bytes / self.dtype.size_bytes())
    }

    /// The operations that the host enqueues for it.
    pub fn enqueued(&self) -> Enqueued {
        let packs = self.memories.iter().flat_map(|memories| [memories.pack, memories.unpack]);
        let packs = packs.filter(|(_, count)| *count > 0).count();
        let is_copied = self.tensors.len() == 1 && self.size_bytes > 0;
        let copies =
            self.memories.iter().filter(|one| is_copied && one.input != one.output).count();
        let (launches, events) = self.collective.as_ref().map_or((0, 0), Collective::counts);
        Enqueued { launches: launches + packs + copies, events, ..Enqueued::default() }
    }

    /// Each tensor of a rank: index of its first element, its address in memory from there, its length.
    fn each(&self, base: Address) -> impl Iterator<Item = (usize, Address, usize)> + '_ {
        self.tensors.iter().scan(0, move |first, &(elements, start)| {
            let this = (*first, base + (start * self.dtype.size_bytes()) as u64, elements);
            *first += elements;
            Some(this)
        })
    }

    /// Writes inputs, and values that are no valid result to the outputs.
    ///
    /// # Errors
    /// When a CUDA call fails.
    pub fn fill(&self, streams: &mut impl Streams) -> Result<(), CudaError> {
        for (rank, (rank_stream, memories)) in
            self.rank_streams.iter().zip(&self.memories).enumerate()
        {
            for place in [memories.output, memories.fused] {
                if place != memories.input {
                    poison(streams, rank_stream, place, self.size_bytes, poison_of(self.dtype))?;
                }
            }
            for (first, into, elements) in self.each(memories.input) {
                let (dtype, pattern) = (self.dtype, &self.pattern);
                let values = Values::of(pattern, dtype, first, elements);
                let rank = self.first + rank;
                streams.launch(rank_stream.stream, &Work::Fill { dtype, into, values, rank })?;
            }
        }
        Ok(())
    }

    /// Puts one allreduce on the streams.
    ///
    /// # Errors
    /// When a CUDA call fails.
    pub fn enqueue(&self, streams: &mut impl Streams) -> Result<(), CudaError> {
        self.pack(streams)?;
        if let Some(collective) = &self.collective {
            let bases = self.fused().0.into_iter();
            let data: Vec<Address> = if self.scattered {
                bases.flat_map(|base| self.each(base).map(|(_, at, _)| at)).collect()
            } else {
                bases.collect()
            };
            collective.enqueue(streams, &data)?;
        }
        self.unpack(streams)
    }

    /// The part before the reduction.
    ///
    /// # Errors
    /// When a CUDA call fails.
    pub fn pack(&self, streams: &mut impl Streams) -> Result<(), CudaError> {
        for (rank_stream, memories) in self.rank_streams.iter().zip(&self.memories) {
            if self.tensors.len() > 1 {
                streams.launch(rank_stream.stream, &self.moved(memories.pack, 1.0))?;
            } else if memories.input != memories.output {
                streams.copy(
                    rank_stream.stream,
                    memories.input,
                    memories.output,
                    self.size_bytes,
                )?;
            }
        }
        Ok(())
    }

    /// The part after the reduction.
    ///
    /// # Errors
    /// When a CUDA call fails.
    pub fn unpack(&self, streams: &mut impl Streams) -> Result<(), CudaError> {
        for (rank_stream, memories) in self.rank_streams.iter().zip(&self.memories) {
            streams.launch(rank_stream.stream, &self.moved(memories.unpack, self.factor))?;
        }
        Ok(())
    }

    /// Tensors that are moved, and multiplied.
    fn moved(&self, (pieces, count): (Address, usize), factor: f64) -> Work {
        Work::Pack { from: self.dtype, into: self.dtype, pieces, count, factor }
    }

    /// Compares every rank's result with the exact one.
    ///
    /// # Errors
    /// When a CUDA call fails.
    pub fn check(&self, streams: &mut impl Streams) -> Result<Wrong, CudaError> {
        let mut wrong = Wrong::default();
        for (rank, (rank_stream, memories)) in
            self.rank_streams.iter().zip(&self.memories).enumerate()
        {
            self.check_kernel(streams, rank_stream, memories)?;
            for (first, got, elements) in self.each(memories.output) {
                let [count, at] =
                    self.verdict(streams, rank_stream, memories.verdict, (first, got, elements))?;
                let rank = self.first + rank;
                let by_host = self.look(streams, (first, got, elements), rank)?;
                let name = |number: String| {
                    format!("rank {rank}, element {}: got {number}", first as u64 + at)
                };
                let first = match (count, by_host.count) {
                    (0, 0) => None,
                    (0, _) => {
                        by_host.first.map(|text| format!("{text} (the GPU's check accepted it)"))
                    }
                    _ => Some(name(self.number(streams, got, at)?)),
                };
                let count = (count as usize).max(by_host.count);
                wrong = wrong.and(Wrong { count, first });
            }
        }
        Ok(wrong)
    }

    /// The check kernel's result for a tensor: the number of wrong elements, and the first.
    fn verdict(
        &self,
        streams: &mut impl Streams,
        rank_stream: &RankStream,
        wrong: Address,
        (first, got, elements): (usize, Address, usize),
    ) -> Result<[u64; 2], CudaError> {
        streams.write(wrong, [0, u64::MAX].map(u64::to_ne_bytes).as_flattened())?;
        let (dtype, factor) = (self.dtype, self.factor);
        let values = Values::of(&self.pattern, dtype, first, elements);
        streams.launch(rank_stream.stream, &Work::Check { dtype, got, wrong, values, factor })?;
        streams.synchronize(rank_stream.stream)?;
        let mut words = [0; VERDICT_BYTES];
        streams.read(wrong, &mut words)?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| words[at + byte]));
        Ok([word(0), word(8)])
    }

    /// Tests that the check kernel finds errors in unwritten memory.
    fn check_kernel(
        &self,
        streams: &mut impl Streams,
        rank_stream: &RankStream,
        memories: &Memories,
    ) -> Result<(), CudaError> {
        let elements = LOOKED_AT.min(self.size_bytes / self.dtype.size_bytes());
        if elements == 0 {
            return Ok(());
        }
        let (size_bytes, byte) = (elements * self.dtype.size_bytes(), poison_of(self.dtype));
        let probe = streams.allocate(rank_stream.device, size_bytes)?;
        let poisoned = poison(streams, rank_stream, probe, size_bytes, byte);
        let found = poisoned.and_then(|()| {
            self.verdict(streams, rank_stream, memories.verdict, (0, probe, elements))
        });
        streams.release(probe)?;
        // The processor's check of the same: a byte may be right by chance.
        let mut unwritten = Memory::new(size_bytes);
        unwritten.elements_mut::<u8>().fill(byte);
        let own = [(0, &unwritten)];
        let wrong = for_dtype!(self.dtype, T => self.pattern.check::<T>(0, &own)).count;
        match found? {
            [count, first] if count == wrong as u64 && (first == 0 || wrong < elements) => Ok(()),
            [count, _] => Err(CudaError::Failed {
                call: "the kernel that checks".into(),
                why: format!(
                    "it reports {count} of {elements} unwritten elements as wrong, expected {wrong}"
                ),
            }),
        }
    }

    /// Compares the first elements of a tensor on the host.
    fn look(
        &self,
        streams: &mut impl Streams,
        (first, got, elements): (usize, Address, usize),
        rank: usize,
    ) -> Result<Wrong, CudaError> {
        let mut memory = Memory::new(elements.min(LOOKED_AT) * self.dtype.size_bytes());
        if elements > 0 {
            streams.read(got, memory.elements_mut())?;
        }
        let results = [(rank, &memory)];
        Ok(for_dtype!(self.dtype, T => self.pattern.check::<T>(first, &results)))
    }

    fn number(
        &self,
        streams: &mut impl Streams,
        base: Address,
        at: u64,
    ) -> Result<String, CudaError> {
        let mut memory = Memory::new(self.dtype.size_bytes());
        streams.read(base + at * self.dtype.size_bytes() as u64, memory.elements_mut())?;
        Ok(for_dtype!(self.dtype, T => memory.elements::<T>()[0].to_string()))
    }

    /// Gives everything back.
    ///
    /// # Errors
    /// When a CUDA call fails.
    pub fn release(self, streams: &mut impl Streams) -> Result<(), CudaError> {
        self.collective.map_or(Ok(()), |collective| collective.release(streams))?;
        let allocated = self.memories.into_iter().flat_map(|memories| memories.allocated);
        allocated.into_iter().try_for_each(|address| streams.release(address))
    }
}

impl Memories {
    fn new(
        streams: &mut impl Streams,
        rank_stream: &RankStream,
        bench: &Bench,
        tensors: &[(usize, usize)],
        size_bytes: usize,
        scales: bool,
    ) -> Result<Memories, CudaError> {
        let mut allocated = Vec::new();
        let mut allocate = |streams: &mut _, size_bytes| {
            let address = Streams::allocate(streams, rank_stream.device, size_bytes)?;
            allocated.push(address);
            Ok::<Address, CudaError>(address)
        };
        let input = allocate(streams, size_bytes)?;
        let output = if bench.in_place { input } else { allocate(streams, size_bytes)? };
        let kind = Kind::of(bench);
        let fused = if kind == Kind::Fused { allocate(streams, size_bytes)? } else { output };
        let verdict = allocate(streams, VERDICT_BYTES)?;
        let mut table = |from: Address, into: Address| {
            let bytes = bench.dtype.size_bytes();
            let pairs = tensors.iter().map(|&(elements, start)| {
                let offset = (start * bytes) as u64;
                (Tensor { address: from + offset, elements }, into + offset)
            });
            let pieces = pieces(pairs, bench.dtype, bench.dtype)?;
            let words: Vec<u8> =
                pieces.iter().flat_map(Piece::words).flat_map(u64::to_ne_bytes).collect();
            let address = allocate(streams, words.len())?;
            if !words.is_empty() {
                streams.write(address, &words)?;
            }
            Ok::<_, CudaError>((address, pieces.len()))
        };
        let packs = kind != Kind::One && fused != input;
        let pack = if packs { table(input, fused)? } else { (0, 0) };
        // Data that are already in place may still need a factor.
        let unpack = if fused != output || scales { table(fused, output)? } else { (0, 0) };
        Ok(Memories { input, output, fused, pack, unpack, verdict, allocated })
    }
}

/// Overwrites memory: a little from the host, and the rest from there.
fn poison(
    streams: &mut impl Streams,
    rank_stream: &RankStream,
    place: Address,
    size_bytes: usize,
    byte: u8,
) -> Result<(), CudaError> {
    let mut done = size_bytes.min(64 << 10);
    if done > 0 {
        streams.write(place, &vec![byte; done])?;
    }
    while done < size_bytes {
        let next = done.min(size_bytes - done);
        streams.copy(rank_stream.stream, place, place + done as u64, next)?;
        done += next;
    }
    Ok(())
}

/// Elements of the vector that is reduced: of the only tensor, or of all in a fusion buffer.
pub fn elements(bench: &Bench) -> usize {
    match bench.tensors {
        [one] => *one,
        tensors => layout(tensors.iter().copied(), bench.dtype).1,
    }
}

/// Checks that every device has room for its ranks: the buffers of each, and staging memory.
///
/// # Errors
/// When there is too little memory, or a CUDA call fails.
pub fn room(
    streams: &mut impl Streams,
    rank_streams: &[RankStream],
    bench: &Bench,
    aside_bytes: &[usize],
) -> Result<(), CudaError> {
    const TABLES_BYTES: u64 = 1 << 20;
    let size_bytes = elements(bench) * bench.dtype.size_bytes();
    let is_fused = bench.tensors.len() != 1;
    let buffers = 1 + usize::from(!bench.in_place) + usize::from(is_fused);
    for device in 0..streams.devices().len() {
        let here = || {
            rank_streams
                .iter()
                .zip(aside_bytes)
                .filter(|(rank_stream, _)| rank_stream.device == device)
        };
        let of_one = (buffers * size_bytes) as u64 + TABLES_BYTES;
        let need = here().map(|(_, &aside)| of_one + aside as u64).sum::<u64>();
        let free = streams.free_bytes(device)?;
        if need > free {
            return Err(CudaError::OutOfMemory {
                device,
                ranks: here().count(),
                size_mb: size_bytes as u64 / 1_000_000,
                need_mb: need / 1_000_000,
                free_mb: free / 1_000_000,
            });
        }
    }
    Ok(())
}
