//! The tensors of one rank, each with a number and with its encoded request.

use std::collections::HashMap;
use std::ops::Range;

use super::error::ControlError;
use super::hash::FastMap;
use super::message;
use super::tensor::{Tensor, TensorId};

/// The tensors of one rank, registered once and then known by number. A name may be registered several
/// times, with different shapes or types: only one of them can be ready at a time.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    list: Vec<Tensor>,
    numbers: FastMap<String, u32>,
    /// For each name: its tensors.
    versions: Vec<Vec<TensorId>>,
    /// For each tensor: the number of its name, its size in bytes, its kind, and its request. Tensors of
    /// one kind may be fused.
    names: Vec<u32>,
    sizes: Vec<usize>,
    kinds: Vec<u32>,
    requests: Vec<Range<u32>>,
    /// The requests of all tensors, back to back.
    bytes: Vec<u8>,
}

impl Tensors {
    /// Registers tensors in order.
    ///
    /// # Errors
    /// [`ControlError::RegisteredTwice`] when two tensors are equal in everything.
    pub fn new(list: Vec<Tensor>) -> Result<Tensors, ControlError> {
        let mut tensors = Tensors::default();
        let mut kinds = HashMap::new();
        for (id, tensor) in list.iter().enumerate() {
            let next = tensors.versions.len() as u32;
            let name = *tensors.numbers.entry(tensor.name.clone()).or_insert(next);
            tensors.versions.resize_with(tensors.numbers.len(), Vec::new);
            let versions = &mut tensors.versions[name as usize];
            if versions.iter().any(|&other| list[other] == *tensor) {
                return Err(ControlError::RegisteredTwice { name: tensor.name.clone() });
            }
            versions.push(id);
            let scales = (tensor.prescale.to_bits(), tensor.postscale.to_bits());
            let kind = (tensor.operation, tensor.dtype, tensor.op, scales, tensor.device);
            let next = kinds.len() as u32;
            tensors.kinds.push(*kinds.entry(kind).or_insert(next));
            tensors.names.push(name);
            tensors.sizes.push(tensor.size_bytes());
            let start = tensors.bytes.len() as u32;
            message::encode_request(&mut tensors.bytes, tensor);
            tensors.requests.push(start..tensors.bytes.len() as u32);
        }
        Ok(Tensors { list, ..tensors })
    }

    /// Size of a tensor in bytes.
    pub fn size_bytes(&self, id: TensorId) -> usize {
        self.sizes[id]
    }

    /// True if two tensors may be fused: same operation, type, reduction, factors and device.
    pub fn may_fuse(&self, a: TensorId, b: TensorId) -> bool {
        self.kinds[a] == self.kinds[b]
    }

    /// The number of a tensor's kind, from 0.
    pub fn kind(&self, id: TensorId) -> usize {
        self.kinds[id] as usize
    }

    /// The number of tensors.
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

    /// The number of names.
    pub fn names(&self) -> usize {
        self.versions.len()
    }

    /// The tensors of a name.
    pub fn versions(&self, name: usize) -> &[TensorId] {
        &self.versions[name]
    }

    /// The number of a tensor's name.
    #[inline]
    pub fn name_of(&self, id: TensorId) -> usize {
        self.names[id] as usize
    }

    /// The number of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).map(|&number| number as usize)
    }

    /// A tensor's encoded request.
    #[inline]
    pub fn request(&self, id: TensorId) -> &[u8] {
        let Range { start, end } = self.requests[id];
        &self.bytes[start as usize..end as usize]
    }
}
