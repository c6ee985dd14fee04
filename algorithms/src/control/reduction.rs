//! How a tensor is reduced.

use super::{ReduceOp, Tensor};

/// How parts are combined, and what they are multiplied by before and afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// How they are combined.
    pub op: ReduceOp,
    /// Every part is multiplied by it first, and rounded.
    pub prescale: f64,
    /// The result is multiplied by it, and rounded.
    pub postscale: f64,
}

impl Reduction {
    /// What the control plane knows of a tensor.
    pub fn of(tensor: &Tensor) -> Reduction {
        let &Tensor { op, prescale, postscale, .. } = tensor;
        Reduction { op, prescale, postscale }
    }

    /// What the result is multiplied by: an average's share is part of it, so that it is rounded
    /// once, as in Horovod.
    pub fn factor_after(&self, ranks: usize) -> f64 {
        match self.op {
            ReduceOp::Average => self.postscale / ranks as f64,
            _ => self.postscale,
        }
    }
}

impl From<ReduceOp> for Reduction {
    /// Without factors.
    fn from(op: ReduceOp) -> Reduction {
        Reduction { op, prescale: 1.0, postscale: 1.0 }
    }
}
