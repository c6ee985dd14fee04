//! How an allreduce combines and scales a tensor.

use super::tensor::{ReduceOp, Tensor};

/// The operation that combines the ranks' tensors, and the factors before and after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// The operation.
    pub op: ReduceOp,
    /// Every rank's elements are multiplied by this factor first, and rounded.
    pub prescale: f64,
    /// The result is multiplied by this factor, and rounded.
    pub postscale: f64,
}

impl Reduction {
    /// The reduction that a tensor was registered with.
    pub fn of(tensor: &Tensor) -> Reduction {
        let &Tensor { op, prescale, postscale, .. } = tensor;
        Reduction { op, prescale, postscale }
    }

    /// The factor for the result on `ranks` ranks. It includes the division by the number of ranks of
    /// an average, so that the result is rounded once, as in Horovod.
    pub fn factor_after(&self, ranks: usize) -> f64 {
        match self.op {
            ReduceOp::Average => self.postscale / ranks as f64,
            _ => self.postscale,
        }
    }
}

impl From<ReduceOp> for Reduction {
    /// The operation with both factors 1.
    fn from(op: ReduceOp) -> Reduction {
        Reduction { op, prescale: 1.0, postscale: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::DataType;

    #[test]
    fn a_tensor_keeps_its_operation_and_factors() {
        let tensor = Tensor {
            prescale: 0.5,
            postscale: 4.0,
            ..Tensor::new("weight", DataType::F32, ReduceOp::Max, &[3])
        };
        let reduction = Reduction::of(&tensor);
        assert_eq!(reduction, Reduction { op: ReduceOp::Max, prescale: 0.5, postscale: 4.0 });
    }

    #[test]
    fn only_an_average_divides_by_the_number_of_ranks() {
        for op in ReduceOp::ALL {
            let plain = Reduction::from(op);
            assert_eq!((plain.op, plain.prescale, plain.postscale), (op, 1.0, 1.0));
            let expected = if op == ReduceOp::Average { 0.5 } else { 2.0 };
            let scaled = Reduction { prescale: 3.0, postscale: 2.0, ..plain };
            assert_eq!(scaled.factor_after(4), expected, "{op:?}");
        }
    }
}
