//! A tensor as a control plane knows it: what ranks must agree on before they reduce it.

/// A tensor's number on this rank: its position in [`super::Tensors`].
pub type TensorId = usize;

/// Element types, with Horovod's codes on the wire where Horovod has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DataType {
    U8,
    I32,
    I64,
    F16,
    F32,
    F64,
    BF16,
}

impl DataType {
    /// Every element type.
    pub const ALL: [DataType; 7] = [
        DataType::F32,
        DataType::F64,
        DataType::F16,
        DataType::BF16,
        DataType::I32,
        DataType::I64,
        DataType::U8,
    ];

    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            DataType::U8 => "u8",
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
            DataType::U8 => 1,
            DataType::F16 | DataType::BF16 => 2,
            DataType::I32 | DataType::F32 => 4,
            DataType::I64 | DataType::F64 => 8,
        }
    }

    /// True for integers.
    pub fn is_integer(self) -> bool {
        matches!(self, DataType::U8 | DataType::I32 | DataType::I64)
    }

    /// Horovod's code; bfloat16, which Horovod lacks, is 10.
    pub fn code(self) -> u8 {
        match self {
            DataType::U8 => 0,
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

/// A reduction operation, with Horovod's codes.
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

/// The collective operation on a tensor. Planes negotiate both; the engine executes allreduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Every rank gets the reduction of all ranks' tensors.
    AllReduce,
    /// Every rank gets all ranks' tensors, one after the other.
    AllGather,
}

impl Operation {
    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "allreduce",
            Operation::AllGather => "allgather",
        }
    }
}

/// Where a tensor lies. There is one process per device, so it has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// In the memory of the host.
    Cpu,
    /// In the memory of the process's GPU.
    Gpu,
}

impl Device {
    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            Device::Cpu => "CPU",
            Device::Gpu => "GPU",
        }
    }
}

/// The properties of a tensor on which ranks must agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Unique among the tensors that are ready on a rank; identifies the tensor on all ranks.
    pub name: String,
    /// The collective operation.
    pub operation: Operation,
    /// Element type.
    pub dtype: DataType,
    /// Reduction operation.
    pub op: ReduceOp,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Factor applied before the reduction.
    pub prescale: f64,
    /// Factor applied after the reduction.
    pub postscale: f64,
    /// Where it lies.
    pub device: Device,
}

impl Tensor {
    /// A tensor in the host's memory that is to be reduced, without scale factors.
    pub fn new(name: impl Into<String>, dtype: DataType, op: ReduceOp, shape: &[u64]) -> Tensor {
        Tensor {
            name: name.into(),
            operation: Operation::AllReduce,
            dtype,
            op,
            shape: shape.to_vec(),
            prescale: 1.0,
            postscale: 1.0,
            device: Device::Cpu,
        }
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
