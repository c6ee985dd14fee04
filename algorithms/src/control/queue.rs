//! What is ready on a rank and not yet carried out.

use std::sync::Arc;

use super::error::ControlError;
use super::tensor::TensorId;
use super::tensors::Tensors;

/// Tensors in the order in which they became ready; Horovod's tensor queue and tensor table.
pub(super) struct Queue {
    tensors: Arc<Tensors>,
    waiting: Vec<u32>,
    /// Of each name: the tensor that is ready and not yet carried out.
    pending: Vec<u32>,
    /// How many of them there are.
    count: usize,
}

const NOTHING: u32 = u32::MAX;

impl Queue {
    pub(super) fn new(tensors: Arc<Tensors>) -> Queue {
        let pending = vec![NOTHING; tensors.names()];
        Queue { tensors, waiting: Vec::new(), pending, count: 0 }
    }

    /// Adds all of these tensors, or none: where Horovod keeps those before a duplicate, an error leaves
    /// the queue as it was.
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

    /// Takes everything out into `into`, whose memory is kept for the next time.
    pub(super) fn drain(&mut self, into: &mut Vec<u32>) {
        into.clear();
        std::mem::swap(&mut self.waiting, into);
    }

    /// Puts back, at the end, what this cycle could not settle.
    pub(super) fn put_back(&mut self, id: TensorId) {
        self.waiting.push(id as u32);
    }

    /// The tensor of that name that is ready.
    pub(super) fn pending(&self, name: usize) -> Option<TensorId> {
        Some(self.pending[name]).filter(|&id| id != NOTHING).map(|id| id as TensorId)
    }

    /// These tensors are carried out, and may become ready anew.
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

    /// All that is ready and was not carried out.
    pub(super) fn unfinished(&self) -> Vec<TensorId> {
        (0..self.pending.len()).filter_map(|name| self.pending(name)).collect()
    }
}
