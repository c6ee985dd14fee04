//! The tensors that are ready on a rank and not yet executed.

use std::sync::Arc;

use super::error::ControlError;
use super::tensor::TensorId;
use super::tensors::Tensors;

/// Tensors in the order in which they became ready; Horovod's tensor queue and tensor table.
pub(super) struct Queue {
    tensors: Arc<Tensors>,
    waiting: Vec<u32>,
    /// For each name: the tensor that is ready and not yet executed.
    pending: Vec<u32>,
    /// The number of such tensors.
    count: usize,
}

const NOTHING: u32 = u32::MAX;

impl Queue {
    pub(super) fn new(tensors: Arc<Tensors>) -> Queue {
        let pending = vec![NOTHING; tensors.names()];
        Queue { tensors, waiting: Vec::new(), pending, count: 0 }
    }

    /// Adds all of these tensors, or none: an error leaves the queue unchanged. (Horovod keeps those before a
    /// duplicate.)
    pub(super) fn push(&mut self, ids: &[TensorId]) -> Result<(), ControlError> {
        for (at, &id) in ids.iter().enumerate() {
            let place = &mut self.pending[self.tensors.name_of(id)];
            if *place == NOTHING {
                *place = id as u32;
                self.count += 1;
                continue;
            }
            ids[..at].iter().for_each(|&id| self.finish(self.tensors.name_of(id)));
            return Err(ControlError::ReadyTwice { name: self.tensors.get(id).name.clone() });
        }
        self.waiting.extend(ids.iter().map(|&id| id as u32));
        Ok(())
    }

    /// Moves all waiting tensors to `into`, whose memory is reused.
    pub(super) fn drain(&mut self, into: &mut Vec<u32>) {
        into.clear();
        std::mem::swap(&mut self.waiting, into);
    }

    /// Puts back, at the end, a tensor that this cycle did not settle.
    pub(super) fn put_back(&mut self, id: TensorId) {
        self.waiting.push(id as u32);
    }

    /// The tensor of that name that is ready.
    pub(super) fn pending(&self, name: usize) -> Option<TensorId> {
        Some(self.pending[name]).filter(|&id| id != NOTHING).map(|id| id as TensorId)
    }

    /// These tensors are executed, and may become ready again.
    pub(super) fn finish_all(&mut self, ids: &[TensorId]) {
        if ids.len() == self.count {
            self.pending.fill(NOTHING);
            self.count = 0;
            return;
        }
        ids.iter().for_each(|&id| self.finish(self.tensors.name_of(id)));
    }

    fn finish(&mut self, name: usize) {
        self.pending[name] = NOTHING;
        self.count -= 1;
    }

    /// All tensors that are ready and not executed.
    pub(super) fn unfinished(&self) -> Vec<TensorId> {
        (0..self.pending.len()).filter_map(|name| self.pending(name)).collect()
    }
}
