//! Kernels and their launches: the host side of `kernels/kernels.cu`.

use algorithms::control::{DataType, ReduceOp};
use smallvec::{SmallVec, smallvec};

use super::CudaError;
use algorithms::control::Reduction;
use transports::for_dtype;
use transports::kernel::ElementOp;
use transports::pattern::Pattern;

/// An address in the memory of a GPU or of an emulated device.
pub type Address = u64;

/// The most vectors of one launch, including this rank's own.
pub const MOST_SOURCES: usize = 9;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Blocks of a grid for each multiprocessor, at most: more of them balance the work, and each costs its beginning.
/// Eight are on a multiprocessor at once.
const MOST_BLOCKS: usize = 32;

/// The same for packing, whose blocks move one piece after the other.
const MOST_PACKING_BLOCKS: usize = 64;

/// The same for checking. Three are on a multiprocessor at once, with four lines of every thread under way.
const MOST_CHECKING_BLOCKS: usize = 6;

/// Bytes that a thread moves at once.
const LINE_BYTES: usize = 16;

/// The work of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Combines vectors in order into one, which may be the first of them.
    Reduce {
        /// Element type.
        dtype: DataType,
        /// How; not AND and OR, which are for words of control planes.
        combine: ElementOp,
        /// The address of the result.
        into: Address,
        /// The vectors, at most [`MOST_SOURCES`].
        from: SmallVec<[Address; MOST_SOURCES]>,
        /// Elements of each.
        elements: usize,
    },
    /// Copies pieces, casts them, and multiplies them by a factor in the narrower type.
    Pack {
        /// Element type of the source.
        from: DataType,
        /// Element type of the destination.
        into: DataType,
        /// The address of a table of [`super::packing::Piece`].
        pieces: Address,
        /// Its length.
        count: usize,
        /// 1 for integers.
        factor: f64,
    },
    /// Keeps multiprocessors busy for a time: replays a pass over a model.
    Busy {
        /// The address of the start time on the device's clock; 0 for now.
        from: Address,
        /// The address for the end time, another 64-bit word.
        into: Address,
        /// How long.
        length_ns: u64,
        /// Multiprocessors, with a block of [`THREADS`] on each, small enough that NCCL's kernels (of up to 640
        /// threads with 96 registers) fit beside it.
        multiprocessors: usize,
    },
    /// Writes a rank's input, as [`transports::pattern`] does.
    Fill {
        /// Element type.
        dtype: DataType,
        /// The destination.
        into: Address,
        /// The values.
        values: Values,
        /// The rank.
        rank: usize,
    },
    /// Compares a result with the expected one.
    Check {
        /// Element type.
        dtype: DataType,
        /// The address of the result.
        got: Address,
        /// The address of the error count and the lowest wrong offset: two 64-bit words.
        wrong: Address,
        /// The inputs.
        values: Values,
        /// The factor of the combined inputs.
        factor: f64,
    },
}

/// Inputs of one pass without casts, see [`transports::pattern::Pattern`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    /// Index of the first element.
    pub first: usize,
    /// How many.
    pub elements: usize,
    /// Seed of the data.
    pub seed: u64,
    /// World size.
    pub ranks: usize,
    /// How they are combined.
    pub op: ReduceOp,
    /// Bits of each value.
    pub bits: u32,
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Name of the kernel.
    pub entry: String,
    /// Blocks of the grid.
    pub blocks: u32,
    /// The kernel's argument structure, in 64-bit words.
    pub arguments: SmallVec<[u64; 12]>,
}

impl Work {
    /// The launch on a device with so many multiprocessors; none if there is no work.
    ///
    /// # Errors
    /// When an address is not aligned for such elements.
    pub fn launch(&self, multiprocessors: usize) -> Result<Option<Launch>, CudaError> {
        let grid = |dtype, elements, most| blocks(dtype, elements).min(multiprocessors * most);
        let (elements, blocks) = match self {
            Work::Reduce { dtype, elements, .. } => {
                (*elements, grid(*dtype, *elements, MOST_BLOCKS))
            }
            Work::Busy { multiprocessors, .. } => (*multiprocessors, *multiprocessors),
            Work::Pack { count, .. } => {
                (*count, (*count).min(multiprocessors * MOST_PACKING_BLOCKS))
            }
            Work::Fill { dtype, values, .. } => {
                (values.elements, grid(*dtype, values.elements, MOST_BLOCKS))
            }
            Work::Check { dtype, values, .. } => {
                (values.elements, grid(*dtype, values.elements, MOST_CHECKING_BLOCKS))
            }
        };
        if elements == 0 {
            return Ok(None);
        }
        let blocks = blocks as u32;
        Ok(Some(Launch { entry: self.entry(), blocks, arguments: self.arguments()? }))
    }

    /// Name of the kernel.
    fn entry(&self) -> String {
        match self {
            Work::Reduce { dtype, combine, .. } => {
                format!("reduce_{}_{}", combine_name(*combine), dtype.name())
            }
            Work::Busy { .. } => "busy".into(),
            Work::Pack { from, into, .. } => format!("pack_{}_{}", from.name(), into.name()),
            Work::Fill { dtype, .. } => format!("fill_{}", dtype.name()),
            Work::Check { dtype, .. } => format!("check_{}", dtype.name()),
        }
    }

    /// The structures of the same names in `kernels.cu`, with their memory layout.
    fn arguments(&self) -> Result<SmallVec<[u64; 12]>, CudaError> {
        Ok(match self {
            Work::Reduce { dtype, into, from, elements, .. } => {
                assert!((1..=MOST_SOURCES).contains(&from.len()), "{} vectors at once", from.len());
                let mut words = smallvec![aligned(*into, *dtype)?];
                for &from in from {
                    words.push(aligned(from, *dtype)?);
                }
                words.resize(1 + MOST_SOURCES, 0);
                words.extend([*elements as u64, from.len() as u64]);
                words
            }
            &Work::Busy { from, into, length_ns, .. } => smallvec![from, into, length_ns],
            &Work::Pack { pieces, count, factor, .. } => {
                smallvec![pieces, count as u64, factor.to_bits()]
            }
            Work::Fill { dtype, into, values, rank } => {
                let mut words = smallvec![aligned(*into, *dtype)?];
                words.extend(values.words());
                words.push(*rank as u64);
                words
            }
            Work::Check { dtype, got, wrong, values, factor } => {
                let mut words = smallvec![aligned(*got, *dtype)?, *wrong];
                words.extend(values.words());
                words.push(factor.to_bits());
                words
            }
        })
    }

    /// Every kernel that the host may launch.
    pub fn entries() -> Vec<String> {
        let mut entries = vec!["busy".to_string()];
        for dtype in DataType::ALL {
            for combine in [ElementOp::Sum, ElementOp::Min, ElementOp::Max, ElementOp::Product] {
                entries.push(format!("reduce_{}_{}", combine_name(combine), dtype.name()));
            }
            entries.push(format!("fill_{}", dtype.name()));
            entries.push(format!("check_{}", dtype.name()));
            for into in DataType::ALL.into_iter().filter(|&into| casts(dtype, into)) {
                entries.push(format!("pack_{}_{}", dtype.name(), into.name()));
            }
        }
        entries
    }
}

impl Values {
    /// The inputs of a pattern without passes, casts or factors, from the element `first` on.
    pub fn of(pattern: &Pattern, dtype: DataType, first: usize, elements: usize) -> Values {
        let bits = for_dtype!(dtype, T => pattern.drawn_bits::<T>());
        let &Pattern { ranks, reduction: Reduction { op, .. }, seed, .. } = pattern;
        Values { first, elements, seed, ranks, op, bits }
    }

    fn words(&self) -> [u64; 5] {
        let combine: u64 = match ElementOp::of(self.op) {
            ElementOp::Min => 1,
            ElementOp::Max => 2,
            ElementOp::Product => 3,
            _ => 0,
        };
        // Two halves of a 64-bit word; the first is the lower one.
        let ranks = self.ranks as u64 | u64::from(self.bits) << 32;
        [self.first as u64, self.elements as u64, self.seed, ranks, combine]
    }
}

/// Whether there is a kernel that casts while packing.
pub fn casts(from: DataType, into: DataType) -> bool {
    let is_half = |dtype| matches!(dtype, DataType::F16 | DataType::BF16);
    let is_full = |dtype| matches!(dtype, DataType::F32 | DataType::F64);
    from == into || (is_half(from) && is_full(into)) || (is_full(from) && is_half(into))
}

/// An address of such elements.
///
/// # Errors
/// When it is not aligned.
pub fn aligned(address: Address, dtype: DataType) -> Result<Address, CudaError> {
    let size_bytes = dtype.size_bytes();
    match address % size_bytes as u64 {
        0 => Ok(address),
        _ => Err(CudaError::Unaligned { address, size_bytes }),
    }
}

/// Blocks of which each thread moves one line.
fn blocks(dtype: DataType, elements: usize) -> usize {
    let lines = (elements * dtype.size_bytes()).div_ceil(LINE_BYTES);
    lines.div_ceil(THREADS as usize).max(1)
}

fn combine_name(combine: ElementOp) -> &'static str {
    match combine {
        ElementOp::Sum => "sum",
        ElementOp::Min => "min",
        ElementOp::Max => "max",
        ElementOp::Product => "product",
        ElementOp::And | ElementOp::Or => unreachable!("bits are never combined on a GPU"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_named_and_as_large_as_its_work() {
        let reduce = |into, elements| Work::Reduce {
            dtype: DataType::F16,
            combine: ElementOp::Max,
            into,
            from: smallvec![into, 32],
            elements,
        };
        assert_eq!(reduce(16, 0).launch(1).unwrap(), None);
        let launch = reduce(16, 8 * 256 + 1).launch(1).unwrap().unwrap();
        assert_eq!((launch.entry.as_str(), launch.blocks), ("reduce_max_f16", 2));
        assert_eq!(launch.arguments[..], [16, 16, 32, 0, 0, 0, 0, 0, 0, 0, 2049, 2]);
        assert_eq!(reduce(16, 1 << 40).launch(132).unwrap().unwrap().blocks, 132 * 8 * 4);
        let refused = reduce(17, 1).launch(1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a tensor begins at 0x11, which is not a multiple of the 2 bytes of its elements"
        );
    }
}
