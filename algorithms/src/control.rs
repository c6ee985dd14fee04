//! Control planes: how ranks agree which tensors to reduce next, and in which order.
//!
//! Gradients become ready in another order on every rank, but all ranks must run the same
//! collectives in the same order. A control plane settles that, cycle by cycle. It is a state
//! machine without I/O: events come in, effects go out, and whoever drives it (a test, a simulator,
//! the engine over a transport) performs the effects.
//!
//! ```text
//! Ready(tensor) ...          tensors that became ready since the last cycle
//! Cycle                 ->   AllAnd | Send ...            the driver performs these
//! AllAnded | Arrived    ->   ... Execute ... EndCycle     until the cycle is over
//! ```

pub mod bitvector;
pub mod cache;
pub mod coordinator;
pub mod message;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::topology::Rank;

/// A tensor's number on this rank: its position in [`Tensors`].
pub type TensorId = usize;

/// Element types, with Horovod's codes on the wire where Horovod has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DataType {
    I32,
    I64,
    F16,
    F32,
    F64,
    BF16,
}

impl DataType {
    /// Every element type.
    pub const ALL: [DataType; 6] =
        [DataType::F32, DataType::F64, DataType::F16, DataType::BF16, DataType::I32, DataType::I64];

    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            DataType::I32 => "i32",
            DataType::I64 => "i64",
            DataType::F16 => "f16",
            DataType::F32 => "f32",
            DataType::F64 => "f64",
            DataType::BF16 => "bf16",
        }
    }

    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            DataType::F16 | DataType::BF16 => 2,
            DataType::I32 | DataType::F32 => 4,
            DataType::I64 | DataType::F64 => 8,
        }
    }

    /// True for integers.
    pub fn is_integer(self) -> bool {
        matches!(self, DataType::I32 | DataType::I64)
    }

    /// Horovod's code; bfloat16, which Horovod lacks, is 10.
    pub fn code(self) -> u8 {
        match self {
            DataType::I32 => 4,
            DataType::I64 => 5,
            DataType::F16 => 6,
            DataType::F32 => 7,
            DataType::F64 => 8,
            DataType::BF16 => 10,
        }
    }

    /// The type of a code.
    pub fn from_code(code: u8) -> Option<DataType> {
        DataType::ALL.into_iter().find(|dtype| dtype.code() == code)
    }
}

/// How parts are combined, with Horovod's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ReduceOp {
    /// The sum, then one multiplication by 1 / world size.
    Average,
    Sum,
    Min,
    Max,
    Product,
}

impl ReduceOp {
    /// Every operation.
    pub const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product];

    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Average => "average",
            ReduceOp::Sum => "sum",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Product => "product",
        }
    }

    /// Horovod's code.
    pub fn code(self) -> u8 {
        match self {
            ReduceOp::Average => 0,
            ReduceOp::Sum => 1,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Product => 5,
        }
    }

    /// The operation of a code.
    pub fn from_code(code: u8) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| op.code() == code)
    }
}

/// What a rank knows of a tensor before it is ready: all that ranks must agree on.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Unique on the rank; ties the tensors of different ranks together.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub op: ReduceOp,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Factor applied before the reduction.
    pub prescale: f64,
    /// Factor applied after the reduction.
    pub postscale: f64,
}

impl Tensor {
    /// A tensor without scale factors.
    pub fn new(name: impl Into<String>, dtype: DataType, op: ReduceOp, shape: &[u64]) -> Tensor {
        let shape = shape.to_vec();
        Tensor { name: name.into(), dtype, op, shape, prescale: 1.0, postscale: 1.0 }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }
}

/// The tensors of one rank, registered once; from then on they go by number.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    list: Vec<Tensor>,
    by_name: HashMap<String, TensorId>,
    /// Of each tensor: its size in bytes, and the number of its kind; tensors of one kind may be
    /// reduced by one and the same call.
    sizes: Vec<(usize, usize)>,
}

impl Tensors {
    /// Registers tensors in order. An error names a tensor that comes twice.
    pub fn new(list: Vec<Tensor>) -> Result<Tensors, ControlError> {
        let mut by_name = HashMap::with_capacity(list.len());
        for (id, tensor) in list.iter().enumerate() {
            if by_name.insert(tensor.name.clone(), id).is_some() {
                return Err(ControlError::RegisteredTwice { name: tensor.name.clone() });
            }
        }
        let mut kinds = HashMap::new();
        let mut kind = |tensor: &Tensor| {
            let scales = (tensor.prescale.to_bits(), tensor.postscale.to_bits());
            let next = kinds.len();
            *kinds.entry((tensor.dtype, tensor.op, scales)).or_insert(next)
        };
        let sizes = list.iter().map(|tensor| (tensor.size_bytes(), kind(tensor))).collect();
        Ok(Tensors { list, by_name, sizes })
    }

    /// Size of a tensor in bytes.
    pub fn size_bytes(&self, id: TensorId) -> usize {
        self.sizes[id].0
    }

    /// True if two tensors may be reduced by one and the same call: same type, reduction and factors.
    pub fn may_fuse(&self, a: TensorId, b: TensorId) -> bool {
        self.sizes[a].1 == self.sizes[b].1
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The tensor of a number.
    pub fn get(&self, id: TensorId) -> &Tensor {
        &self.list[id]
    }

    /// The number of a name.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.by_name.get(name).copied()
    }
}

/// What all ranks do together: reduce these tensors as one message, or report this error for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The tensors, in the order in which they are packed.
    pub tensors: Vec<TensorId>,
    /// Why they cannot be reduced; the same text on every rank.
    pub error: Option<String>,
}

/// What happens to a control plane.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// This rank's tensor may be reduced.
    Ready(TensorId),
    /// A cycle begins; the only notion of time.
    Cycle,
    /// The bitwise AND, over all ranks, of what each asked for with [`Effect::AllAnd`].
    AllAnded(&'a [u64]),
    /// A message from another rank.
    Arrived {
        /// Its sender.
        from: Rank,
        /// Its bytes.
        message: &'a [u8],
    },
}

/// What a control plane wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bring this message to a rank.
    Send {
        /// The receiver.
        to: Rank,
        /// Its bytes.
        message: Vec<u8>,
    },
    /// Bring this message to every other rank.
    Broadcast(Arc<[u8]>),
    /// Take the bitwise AND of these words over all ranks and give it back as
    /// [`Event::AllAnded`].
    AllAnd(Vec<u64>),
    /// Do this now; the same on every rank.
    Execute(Response),
    /// The cycle is over for this rank.
    EndCycle,
}

/// One rank's part in agreeing what is reduced next.
pub trait ControlPlane: Send {
    /// The one spelling of its name.
    fn name(&self) -> &'static str;

    /// Takes one event and appends what is to be done. `out` is the driver's, to be reused.
    ///
    /// # Errors
    /// When a message is malformed, names an unknown tensor, or when the driver breaks the rules
    /// (a tensor ready twice). The plane is of no use afterwards.
    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError>;
}

/// Names of the control planes, as in configurations and CSV files.
pub const NAMES: [&str; 2] = [coordinator::NAME, bitvector::NAME];

/// What every control plane is told at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This rank.
    pub rank: Rank,
    /// World size.
    pub ranks: usize,
    /// Fused messages hold at most this many bytes, unless a single tensor is larger; 0 turns
    /// fusion off. See [`crate::fusion::effective_threshold_bytes`].
    pub fusion_threshold_bytes: usize,
    /// Responses that the bit-vector plane remembers.
    pub cache_capacity: usize,
}

/// The control plane of that name for one rank, or `None` for an unknown name.
pub fn find(
    name: &str,
    tensors: Arc<Tensors>,
    settings: &Settings,
) -> Option<Box<dyn ControlPlane>> {
    match name {
        coordinator::NAME => Some(Box::new(coordinator::Coordinator::new(tensors, settings))),
        bitvector::NAME => Some(Box::new(bitvector::BitVector::new(tensors, settings))),
        _ => None,
    }
}

/// Why a control plane cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named and Display says what they mean")]
pub enum ControlError {
    /// Two tensors of one rank have the same name.
    RegisteredTwice { name: String },
    /// A tensor became ready again before it was reduced.
    ReadyTwice { name: String },
    /// A message cannot be read.
    Malformed { from: Rank, malformed: message::Malformed },
    /// A response names a tensor that this rank never registered.
    UnknownTensor { rank: Rank, name: String },
    /// The bit vectors of different ranks have different lengths: their caches differ.
    CachesDiffer { rank: Rank, expected_words: usize, found_words: usize },
    /// An event that makes no sense now.
    Unexpected { rank: Rank, event: &'static str },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::RegisteredTwice { name } => {
                write!(f, "tensor \"{name}\" is registered twice; names must be unique on a rank")
            }
            ControlError::ReadyTwice { name } => write!(
                f,
                "tensor \"{name}\" became ready again before it was reduced; wait for its \
                 completion, or use another name"
            ),
            ControlError::Malformed { from, malformed } => {
                write!(f, "message from rank {from}: {malformed}")
            }
            ControlError::UnknownTensor { rank, name } => write!(
                f,
                "rank {rank} is told to reduce tensor \"{name}\", which it never registered; all \
                 ranks must register the same tensors"
            ),
            ControlError::CachesDiffer { rank, expected_words, found_words } => write!(
                f,
                "rank {rank} expected a bit vector of {expected_words} words and got \
                 {found_words}: the response caches differ between ranks; give all the same \
                 capacity"
            ),
            ControlError::Unexpected { rank, event } => {
                write!(f, "rank {rank} got {event} outside a cycle that waits for it")
            }
        }
    }
}

impl std::error::Error for ControlError {}
