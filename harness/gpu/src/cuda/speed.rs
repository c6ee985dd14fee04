//! Kernels compared with the device's own copy in the same run: the share of memory bandwidth that they reach.

use algorithms::control::{DataType, ReduceOp};

use smallvec::smallvec;

use super::CudaError;
use super::packing::{Piece, Tensor, layout, pieces};
use super::streams::{Stream, Streams};
use super::work::{Address, Values, Work};
use transports::kernel::ElementOp;
use transports::pattern::Pattern;

/// The most vectors that are reduced at once.
const VECTORS: usize = 8;

/// The device is kept busy for this long before each operation, while the host enqueues it and both events.
const LEAD_NS: u64 = 20_000;

/// The measured operation.
enum Timed {
    Copy { from: Address, into: Address, size_bytes: usize },
    Kernel(Work),
}

/// One operation, and its times.
pub struct Speed {
    /// Its name.
    pub name: &'static str,
    /// Bytes that it reads and writes, together.
    pub moved_bytes: u64,
    /// The goal as a share of the copy's bandwidth; none for the copy, and for a launch alone.
    pub goal: Option<f64>,
    /// Each repetition by the device's clock; empty without one.
    pub times_us: Vec<f64>,
    /// What it needs, which is not timed.
    before: Vec<Work>,
    timed: Timed,
}

/// Memory for a list of f32 gradients, and tables for packing them.
struct Place {
    tensors: Address,
    fused: Address,
    /// The sum of two ranks' inputs.
    sum: Address,
    verdict: Address,
    /// The verdict on what is not the sum, which nobody reads.
    ignored: Address,
    clock: Address,
    elements: usize,
    /// Into the fusion buffer and back, in f32 and cast to f16: tables and their lengths.
    tables: Vec<(Address, usize)>,
    allocated: Vec<Address>,
}

/// Measures everything in rounds, on the first device, with gradients of these lengths.
///
/// # Errors
/// When there is too little memory, a driver call fails, or the kernel that checks data finds correct data wrong.
pub fn measure(
    streams: &mut impl Streams,
    gradients: &[usize],
    warmup: usize,
    repetitions: usize,
) -> Result<Vec<Speed>, CudaError> {
    let place = Place::new(streams, gradients)?;
    let on = streams.stream(0)?;
    place.prepare(streams, on)?;
    let (begin, end) = (streams.event(0, true)?, streams.event(0, true)?);
    let mut speeds = place.speeds();
    let lead = Work::Busy { from: 0, into: place.clock, length_ns: LEAD_NS, multiprocessors: 1 };
    for round in 0..warmup + repetitions {
        for speed in &mut speeds {
            speed.before.iter().try_for_each(|work| streams.launch(on, work))?;
            streams.launch(on, &lead)?;
            streams.record(on, begin)?;
            match &speed.timed {
                &Timed::Copy { from, into, size_bytes } => {
                    streams.copy(on, from, into, size_bytes)?;
                }
                Timed::Kernel(work) => streams.launch(on, work)?,
            }
            streams.record(on, end)?;
            streams.synchronize(on)?;
            if round >= warmup {
                speed.times_us.extend(streams.elapsed_us(begin, end)?);
            }
        }
    }
    let wrong = place.wrong(streams)?;
    place.allocated.into_iter().try_for_each(|address| streams.release(address))?;
    match wrong {
        0 => Ok(speeds),
        _ => Err(CudaError::Failed {
            call: "the kernel that checks data".into(),
            why: format!(
                "it counts {wrong} wrong elements in a correct sum of {elements} elements in {} checks",
                warmup + repetitions,
                elements = place.elements
            ),
        }),
    }
}

impl Place {
    fn new(streams: &mut impl Streams, gradients: &[usize]) -> Result<Place, CudaError> {
        const F32: DataType = DataType::F32;
        let (starts, elements) = layout(gradients.iter().copied(), F32);
        let size_bytes = elements * F32.size_bytes();
        let (need, free) = (3 * size_bytes as u64, streams.free_bytes(0)?);
        if need > free {
            let mb = |bytes: u64| bytes / 1_000_000;
            let (size_mb, need_mb, free_mb) = (mb(size_bytes as u64), mb(need), mb(free));
            return Err(CudaError::OutOfMemory { device: 0, ranks: 1, size_mb, need_mb, free_mb });
        }
        let mut allocated = Vec::new();
        let mut allocate = |streams: &mut _, size_bytes| {
            let address = Streams::allocate(streams, 0, size_bytes)?;
            allocated.push(address);
            Ok::<Address, CudaError>(address)
        };
        let size_bytes = size_bytes.max(16);
        let (tensors, fused) = (allocate(streams, size_bytes)?, allocate(streams, size_bytes)?);
        let sum = allocate(streams, size_bytes)?;
        let (verdict, clock) = (allocate(streams, 16)?, allocate(streams, 16)?);
        let ignored = allocate(streams, 16)?;
        for verdict in [verdict, ignored] {
            streams.write(verdict, [0, u64::MAX].map(u64::to_ne_bytes).as_flattened())?;
        }
        let mut tables = Vec::new();
        for (from, into, packs) in [
            (F32, F32, true),
            (F32, F32, false),
            (F32, DataType::F16, true),
            (DataType::F16, F32, false),
        ] {
            let pairs = gradients.iter().zip(&starts).map(|(&elements, &start)| {
                let at =
                    |base: Address, dtype: DataType| base + (start * dtype.size_bytes()) as u64;
                let (read, written) = if packs { (tensors, fused) } else { (fused, tensors) };
                (Tensor { address: at(read, from), elements }, at(written, into))
            });
            let pieces = pieces(pairs, from, into)?;
            let words: Vec<u8> =
                pieces.iter().flat_map(Piece::words).flat_map(u64::to_ne_bytes).collect();
            let address = allocate(streams, words.len())?;
            if !words.is_empty() {
                streams.write(address, &words)?;
            }
            tables.push((address, pieces.len()));
        }
        Ok(Place { tensors, fused, sum, verdict, ignored, clock, elements, tables, allocated })
    }

    /// Inputs of two ranks.
    fn values(&self) -> Values {
        Values::of(&Pattern::of(2, ReduceOp::Sum, 1), DataType::F32, 0, self.elements)
    }

    /// Writes the sum that is checked.
    fn prepare(&self, streams: &mut impl Streams, on: Stream) -> Result<(), CudaError> {
        let &Place { tensors, sum, elements, .. } = self;
        let (dtype, values, combine) = (DataType::F32, self.values(), ElementOp::Sum);
        for (into, rank) in [(sum, 0), (tensors, 1)] {
            streams.launch(on, &Work::Fill { dtype, into, values, rank })?;
        }
        let from = smallvec![sum, tensors];
        streams.launch(on, &Work::Reduce { dtype, combine, into: sum, from, elements })
    }

    /// The wrong elements that were counted.
    fn wrong(&self, streams: &mut impl Streams) -> Result<u64, CudaError> {
        let mut count = [0; 8];
        streams.read(self.verdict, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }

    fn speeds(&self) -> Vec<Speed> {
        let &Place { tensors, fused, sum, verdict, ignored, elements, .. } = self;
        let (f32, f16) = (DataType::F32, DataType::F16);
        let size_bytes = elements * f32.size_bytes();
        let speed = |name, eighths: u64, goal, timed| {
            let moved_bytes = size_bytes as u64 * eighths / 8;
            Speed { name, moved_bytes, goal, times_us: Vec::new(), before: Vec::new(), timed }
        };
        let pack = |table: usize, from, into| {
            let (pieces, count) = self.tables[table];
            Timed::Kernel(Work::Pack { from, into, pieces, count, factor: 1.0 })
        };
        // The result overwrites the first of some parts of the tensors.
        let reduce = |vectors: usize, elements: usize| {
            let part = |vector: usize| tensors + (vector * elements * f32.size_bytes()) as u64;
            let (from, combine) = ((0..vectors).map(part).collect(), ElementOp::Sum);
            Timed::Kernel(Work::Reduce { dtype: f32, combine, into: tensors, from, elements })
        };
        let values = self.values();
        let fill = Work::Fill { dtype: f32, into: fused, values, rank: 0 };
        let check = |got, wrong| Work::Check { dtype: f32, got, wrong, values, factor: 1.0 };
        // It reads other memory, after which the cache has no bytes of earlier kernels to write back.
        let before = vec![check(fused, ignored)];
        let (most, good) = (Some(0.9), Some(0.85));
        // Parts begin on whole lines.
        let (half, eighth) = (elements / 2 / 4 * 4, elements / VECTORS / 4 * 4);
        vec![
            speed("copy", 16, None, Timed::Copy { from: tensors, into: fused, size_bytes }),
            speed("pack", 16, most, pack(0, f32, f32)),
            speed("unpack", 16, most, pack(1, f32, f32)),
            speed("pack as f16", 12, most, pack(2, f32, f16)),
            speed("unpack f16", 12, most, pack(3, f16, f32)),
            speed("reduce 2", 12, good, reduce(2, half)),
            speed("reduce 8", 9, good, reduce(VECTORS, eighth)),
            speed("fill", 8, most, Timed::Kernel(fill)),
            Speed { before, ..speed("check 2 ranks", 8, most, Timed::Kernel(check(sum, verdict))) },
            speed("a launch alone", 0, None, reduce(1, 1)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::emulated::{Emulated, Turns};

    /// Everything is carried out within its memory, given back, and has no time without a clock.
    #[test]
    fn kernels_run_on_any_list_of_gradients() {
        for gradients in [&[1000, 1, 0, 70_001][..], &[3], &[]] {
            let mut streams = Emulated::new(1, true, Turns::Lot, 1);
            let speeds = measure(&mut streams, gradients, 1, 2).unwrap();
            assert!(speeds.iter().all(|speed| speed.times_us.is_empty()));
            assert_eq!(streams.allocated(), 0);
        }
    }

    /// The check is made of what it expects, and notices an element that is not.
    #[test]
    fn a_check_that_finds_correct_data_wrong_is_an_error() {
        let mut streams = Emulated::new(1, true, Turns::Lot, 1);
        let place = Place::new(&mut streams, &[1000]).unwrap();
        let on = streams.stream(0).unwrap();
        let speeds = place.speeds();
        let check = speeds.iter().find(|speed| speed.name == "check 2 ranks").unwrap();
        let Timed::Kernel(work) = &check.timed else { panic!("a copy") };
        place.prepare(&mut streams, on).unwrap();
        streams.launch(on, work).unwrap();
        streams.synchronize(on).unwrap();
        assert_eq!(place.wrong(&mut streams).unwrap(), 0);
        streams.write(place.sum + 4, &7_f32.to_ne_bytes()).unwrap();
        streams.launch(on, work).unwrap();
        streams.synchronize(on).unwrap();
        assert_eq!(place.wrong(&mut streams).unwrap(), 1);
    }

    #[test]
    fn bytes_are_those_that_are_read_and_written() {
        let mut streams = Emulated::new(1, true, Turns::Lot, 1);
        let speeds = measure(&mut streams, &[1024], 0, 1).unwrap();
        let moved = |name| speeds.iter().find(|speed| speed.name == name).unwrap().moved_bytes;
        assert_eq!([moved("copy"), moved("pack as f16"), moved("fill")], [8192, 6144, 4096]);
        // 512 elements each of two, and of the result; 128 of eight.
        assert_eq!([moved("reduce 2"), moved("reduce 8")], [3 * 2048, 9 * 512]);
    }
}
