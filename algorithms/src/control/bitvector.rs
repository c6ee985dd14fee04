//! The bit-vector response cache: once ranks have agreed on a tensor, a bit stands for it, and one
//! bitwise AND over all ranks finds what is ready everywhere.
//!
//! Each cycle every rank sets the bits of its cached, ready tensors. Three status bits in front are
//! stored negated, so that the same AND also tells whether *any* rank wants to shut down, has
//! something uncached, or something invalid. Without uncached tensors rank 0 is not involved: all
//! ranks fuse the common bits, in ascending order, by themselves. Otherwise the cycle goes on as the
//! coordinator's does, with the common cached tensors in front.
//!
//! The first contribution of Romero et al., "Accelerating Collective Communication in Data Parallel
//! Training across Deep Learning Frameworks", NSDI 2022; Horovod v0.16.2 (pull request 902).

use std::sync::Arc;

use super::cache::ResponseCache;
use super::coordinator::{Negotiation, Queue};
use super::{ControlError, ControlPlane, Effect, Event, Response, Settings, TensorId, Tensors};
use crate::fusion::{Candidate, fuse};

/// Its name in configurations and CSV files.
pub const NAME: &str = "bitvector";

/// Status bits at the head of the vector, each 1 when the condition is FALSE on this rank. Nothing
/// raises shutdown or invalid yet.
const STATUS_BITS: usize = 3;
const NO_UNCACHED: u64 = 1 << 1;
const ALL_CLEAR: u64 = (1 << STATUS_BITS) - 1;

/// ANDs bits; asks rank 0 only for what is new.
pub struct BitVector {
    queue: Queue,
    cache: ResponseCache,
    tensors: Arc<Tensors>,
    negotiation: Negotiation,
    fusion_threshold_bytes: usize,
    /// What this rank put into the AND that is under way.
    asked: Option<Asked>,
}

struct Asked {
    hits: Vec<TensorId>,
    uncached: Vec<TensorId>,
    words: usize,
}

impl BitVector {
    /// The plane of one rank.
    pub fn new(tensors: Arc<Tensors>, settings: &Settings) -> BitVector {
        BitVector {
            queue: Queue::new(tensors.clone()),
            cache: ResponseCache::new(settings.cache_capacity, tensors.len()),
            negotiation: Negotiation::new(tensors.clone(), settings),
            fusion_threshold_bytes: settings.fusion_threshold_bytes,
            tensors,
            asked: None,
        }
    }

    /// Sorts what became ready into cached and uncached, and asks all ranks for their bits.
    fn ask(&mut self, out: &mut Vec<Effect>) {
        let (hits, uncached): (Vec<_>, Vec<_>) =
            self.queue.drain().into_iter().partition(|&id| self.cache.bit(id).is_some());
        let mut words = vec![0; (self.cache.len() + STATUS_BITS).div_ceil(64)];
        words[0] = if uncached.is_empty() { ALL_CLEAR } else { ALL_CLEAR & !NO_UNCACHED };
        for &id in &hits {
            let bit = self.cache.bit(id).expect("a hit has a bit") + STATUS_BITS;
            words[bit / 64] |= 1 << (bit % 64);
        }
        self.asked = Some(Asked { hits, uncached, words: words.len() });
        out.push(Effect::AllAnd(words));
    }

    /// Acts on the AND: returns what all ranks do now, or goes on to ask rank 0.
    fn settle(
        &mut self,
        words: &[u64],
        out: &mut Vec<Effect>,
    ) -> Result<Option<Vec<Response>>, ControlError> {
        let rank = self.negotiation.rank();
        let asked = self.asked.take().ok_or(self.negotiation.unexpected("AllAnded"))?;
        if words.len() != asked.words {
            let (expected_words, found_words) = (asked.words, words.len());
            return Err(ControlError::CachesDiffer { rank, expected_words, found_words });
        }
        let is_set = |bit: usize| words[bit / 64] >> (bit % 64) & 1 == 1;
        let is_common = |bit: usize| is_set(bit + STATUS_BITS);
        for id in asked.hits {
            if !self.cache.bit(id).is_some_and(is_common) {
                self.queue.put_back(id);
            }
        }
        let common: Vec<usize> = (0..self.cache.len()).filter(|&bit| is_common(bit)).collect();
        let ready = common.iter().map(|&bit| Candidate::reduce(self.cache.tensor(bit))).collect();
        if words[0] & NO_UNCACHED == 0 {
            return self.negotiation.request(&asked.uncached, ready, out);
        }
        common.iter().for_each(|&bit| self.cache.touch(bit));
        Ok(Some(fuse(ready, &self.tensors, self.fusion_threshold_bytes)))
    }
}

impl ControlPlane for BitVector {
    fn name(&self) -> &'static str {
        NAME
    }

    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError> {
        let answer = match event {
            Event::Ready(id) => return self.queue.push(id),
            // Horovod with HOROVOD_CACHE_CAPACITY=0: rank 0 is asked in every cycle.
            Event::Cycle if self.cache.capacity() == 0 => {
                let answer = self.negotiation.request(&self.queue.drain(), Vec::new(), out)?;
                self.remember(answer)
            }
            Event::Cycle if self.asked.is_some() || self.negotiation.running => {
                return Err(self.negotiation.unexpected("Cycle"));
            }
            Event::Cycle => {
                self.ask(out);
                return Ok(());
            }
            Event::AllAnded(words) => {
                let fast = words.first().is_some_and(|word| word & NO_UNCACHED != 0);
                let answer = self.settle(words, out)?;
                if fast { answer } else { self.remember(answer) }
            }
            Event::Arrived { from, message } => {
                let answer = self.negotiation.arrived(from, message, out)?;
                self.remember(answer)
            }
        };
        let Some(responses) = answer else {
            return Ok(());
        };
        self.queue.carry_out(responses, out);
        Ok(())
    }
}

impl BitVector {
    /// Caches what rank 0 answered, in the order of the answer; errors are not remembered.
    fn remember(&mut self, answer: Option<Vec<Response>>) -> Option<Vec<Response>> {
        for response in answer.iter().flatten().filter(|response| response.error.is_none()) {
            response.tensors.iter().for_each(|&id| self.cache.put(id));
        }
        answer
    }
}
