//! The bit-vector response cache: once ranks have agreed on a tensor, a bit stands for it, and one
//! bitwise AND over all ranks finds what is ready everywhere.
//!
//! Each cycle every rank sets the bits of its cached, ready tensors. Three status bits in front are
//! stored negated, so that the same AND also tells whether *any* rank wants to shut down, has
//! something uncached, or something invalid: cached under this name, but in another shape or type. Only
//! then a second collective, an OR, finds the invalid entries, which all ranks erase. Without uncached
//! tensors rank 0 is not involved: all ranks fuse the common bits, in ascending order, by themselves.
//! Otherwise the cycle continues as the coordinator's, with the common cached tensors first.
//!
//! The first contribution of Romero et al., "Accelerating Collective Communication in Data Parallel
//! Training across Deep Learning Frameworks", NSDI 2022; Horovod v0.16.2 (pull request 902).

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::cache::ResponseCache;
use super::error::ControlError;
use super::hash::FastMap;
use super::mutation::{Mutation, Mutations};
use super::negotiation::Negotiation;
use super::plane::{Bitwise, ControlPlane, Effect, Event};
use super::queue::Queue;
use super::report::Report;
use super::response::Response;
use super::settings::Settings;
use super::shutdown::Shutdown;
use super::stall::StallCheck;
use super::tensor::TensorId;
use super::tensors::Tensors;
use crate::fusion::{Candidate, Fusion};
use crate::topology::Rank;

/// Its name in configurations and CSV files.
pub const NAME: &str = "bitvector";

/// Status bits at the head of the vector, each 1 when the condition is FALSE on this rank.
const STATUS_BITS: usize = 3;
const NO_SHUT_DOWN: u64 = 1;
const NO_UNCACHED: u64 = 1 << 1;
const NO_INVALID: u64 = 1 << 2;
const ALL_CLEAR: u64 = (1 << STATUS_BITS) - 1;

/// Negotiates cached tensors by bit vectors, and new ones by rank 0.
pub struct BitVector {
    tensors: Arc<Tensors>,
    queue: Queue,
    cache: ResponseCache,
    negotiation: Negotiation,
    fusion: Fusion,
    shutdown: Shutdown,
    stage: Stage,
    now: Duration,
    /// Settings that all ranks must have, compared in the first cycle.
    settings: [(&'static str, usize); 2],
    is_first: bool,
    /// The tensors drained in this cycle; of these, the ones without a bit, and the bits that are invalid.
    drained: Vec<u32>,
    uncached: Vec<u32>,
    invalid: Vec<usize>,
    /// The words of this rank in the AND.
    words: Vec<u64>,
    waiting: Waiting,
    memo: Memo,
    mutations: Mutations,
}

/// What the plane waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The next cycle, or rank 0's answer.
    Idle,
    And,
    /// The OR, after an AND with this outcome.
    Or(Vec<u64>),
}

/// Cached tensors that ranks wait for, by name, and since when.
struct Waiting {
    since: FastMap<usize, Duration>,
    check: Option<StallCheck>,
}

impl Waiting {
    /// True for a tensor that has waited for so long that rank 0 must negotiate it.
    #[inline]
    fn is_stalled(&self, name: usize, now: Duration) -> bool {
        if self.since.is_empty() {
            return false;
        }
        let since = self.since.get(&name).zip(self.check);
        since.is_some_and(|(since, check)| *since + check.warn_after < now)
    }
}

/// The messages of the last cycle without rank 0. Training steps repeat: the same bits of the same cache
/// give the same messages.
#[derive(Default)]
struct Memo {
    words: Vec<u64>,
    responses: Vec<Response>,
    /// The use count of the cache after these messages, if they were its last uses.
    uses: u64,
}

impl BitVector {
    /// The plane of one rank.
    pub fn new(tensors: Arc<Tensors>, settings: &Settings) -> BitVector {
        let Settings { cache_capacity, fusion_threshold_bytes, mutations, .. } = *settings;
        BitVector {
            queue: Queue::new(tensors.clone()),
            cache: ResponseCache::new(cache_capacity, tensors.names(), mutations),
            negotiation: Negotiation::new(tensors.clone(), settings, None),
            fusion: Fusion::new(fusion_threshold_bytes, settings.groups.clone(), mutations),
            shutdown: Shutdown::new(mutations),
            stage: Stage::Idle,
            now: Duration::ZERO,
            settings: [
                ("cache capacity", cache_capacity),
                ("fusion threshold in bytes", fusion_threshold_bytes),
            ],
            is_first: true,
            drained: Vec::new(),
            uncached: Vec::new(),
            invalid: Vec::new(),
            words: Vec::new(),
            waiting: Waiting { since: FastMap::default(), check: settings.stall_check },
            memo: Memo::default(),
            tensors,
            mutations,
        }
    }

    /// Sorts the tensors that became ready into cached, invalid and uncached, and starts the AND.
    fn begin_and(&mut self, out: &mut Vec<Effect>) {
        self.queue.drain(&mut self.drained);
        self.uncached.clear();
        self.invalid.clear();
        self.words.clear();
        self.words.resize((self.cache.len() + STATUS_BITS).div_ceil(64), 0);
        let Self { tensors, cache, waiting, words, uncached, invalid, .. } = self;
        let (now, lax) = (self.now, self.mutations.has(Mutation::InvalidTakenForHit));
        // Bits come mostly in ascending order: one word is gathered in a register.
        let (mut at, mut word) = (0, ALL_CLEAR);
        for &id in &self.drained {
            let name = tensors.name_of(id as TensorId);
            let Some(bit) = cache.bit(name) else {
                uncached.push(id);
                continue;
            };
            if (cache.tensor(bit) == id as TensorId || lax) && !waiting.is_stalled(name, now) {
                let place = (bit + STATUS_BITS) / 64;
                if place != at {
                    words[at] |= word;
                    (at, word) = (place, 0);
                }
                word |= 1 << ((bit + STATUS_BITS) % 64);
            } else {
                invalid.push(bit);
                uncached.push(id);
            }
        }
        words[at] |= word;
        let report = &mut self.negotiation.report;
        report.hits += self.drained.len() - self.uncached.len();
        report.invalid += self.invalid.len();
        report.misses += self.uncached.len() - self.invalid.len();
        let raise = |word: &mut u64, condition: bool, bit: u64| {
            if condition {
                *word &= !bit;
            }
        };
        raise(&mut self.words[0], self.shutdown.raised(), NO_SHUT_DOWN);
        raise(&mut self.words[0], !self.uncached.is_empty(), NO_UNCACHED);
        raise(&mut self.words[0], !self.invalid.is_empty(), NO_INVALID);
        if self.is_first {
            for (_, setting) in self.settings {
                self.words.extend([setting as u64, !(setting as u64)]);
            }
        }
        self.stage = Stage::And;
        self.combine(Bitwise::And, self.words.clone(), out);
    }

    fn combine(&mut self, bitwise: Bitwise, words: Vec<u64>, out: &mut Vec<Effect>) {
        self.negotiation.report.bitwise += 1;
        self.negotiation.report.bitwise_bytes += size_of_val(&words[..]);
        out.push(Effect::Bitwise(bitwise, words));
    }

    /// Handles the result of the AND, or of the OR.
    fn combined(
        &mut self,
        words: &[u64],
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, ControlError> {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => Err(self.negotiation.unexpected("Combined")),
            Stage::And => {
                self.same_length(self.words.len(), words)?;
                self.same_settings(&words[words.len() - if self.is_first { 4 } else { 0 }..])?;
                self.is_first = false;
                if words[0] & NO_INVALID != 0 || self.mutations.has(Mutation::OrSkipped) {
                    return self.settle(words, out);
                }
                let mut invalid = vec![0; self.cache.len().div_ceil(64)];
                self.invalid.iter().for_each(|&bit| set(&mut invalid, bit));
                self.stage = Stage::Or(words.to_vec());
                self.combine(Bitwise::Or, invalid, out);
                Ok(None)
            }
            Stage::Or(mut anded) => {
                self.same_length(self.cache.len().div_ceil(64), words)?;
                for bit in bits(words, 0) {
                    self.cache.erase(bit);
                    clear(&mut anded, bit + STATUS_BITS);
                }
                self.memo.words.clear();
                self.settle(&anded, out)
            }
        }
    }

    fn same_length(&self, expected_words: usize, words: &[u64]) -> Result<(), ControlError> {
        let (rank, found_words) = (self.negotiation.rank(), words.len());
        if expected_words != found_words {
            return Err(ControlError::CachesDiffer { rank, expected_words, found_words });
        }
        Ok(())
    }

    /// The AND of a value and of its complement are unchanged exactly if all ranks have the same value.
    fn same_settings(&self, words: &[u64]) -> Result<(), ControlError> {
        for ((what, own), anded) in self.settings.into_iter().zip(words.chunks(2)) {
            if anded != [own as u64, !(own as u64)] {
                let rank = self.negotiation.rank();
                return Err(ControlError::SettingsDiffer { rank, what, own });
            }
        }
        Ok(())
    }

    /// Acts on the AND: returns the responses, or starts the negotiation by rank 0.
    fn settle(
        &mut self,
        words: &[u64],
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, ControlError> {
        let common = &words[..(self.cache.len() + STATUS_BITS).div_ceil(64)];
        let has_uncached = words[0] & NO_UNCACHED == 0;
        let is_slow = if self.mutations.has(Mutation::UncachedElsewhereIgnored) {
            !self.uncached.is_empty()
        } else {
            has_uncached
        };
        let all_common = self.words.iter().zip(common).all(|(own, common)| own & !common == 0);
        if !(all_common && self.waiting.since.is_empty()) {
            self.put_back(common);
        }
        if is_slow {
            let ready = bits(common, STATUS_BITS).map(|bit| self.cache.tensor(bit));
            let ready = ready.map(Candidate::reduce).collect();
            let shut_down = words[0] & NO_SHUT_DOWN == 0;
            let (uncached, now) = (&self.uncached, self.now);
            let answer = self.negotiation.request(uncached, ready, shut_down, now, out)?;
            return Ok(self.cached(answer));
        }
        if self.memo.words != common || self.mutations.has(Mutation::BitsInOrderOfReadiness) {
            let common_bits = bits(common, STATUS_BITS);
            let mut ready: Vec<_> = common_bits.map(|bit| self.cache.tensor(bit)).collect();
            if self.mutations.has(Mutation::BitsInOrderOfReadiness) {
                ready.sort_by_key(|&id| self.drained.iter().position(|&it| it as TensorId == id));
            }
            let ready = ready.into_iter().map(Candidate::reduce).collect();
            self.memo.responses = self.fusion.messages(ready, Vec::new(), &self.tensors);
            self.memo.words.clear();
            self.memo.words.extend(common);
            self.memo.uses = 0;
        }
        // Using the same entries again in the same order changes nothing, if nothing else came between.
        if self.memo.uses != self.cache.uses() && !self.mutations.has(Mutation::HitsAreNotUses) {
            bits(common, STATUS_BITS).for_each(|bit| self.cache.touch(bit));
            self.memo.uses = self.cache.uses();
        }
        let shut_down = words[0] & NO_SHUT_DOWN == 0;
        Ok(Some(Answer { responses: self.memo.responses.clone(), shut_down }))
    }

    /// Cached tensors that are not ready everywhere wait for the next cycle; those whose entry has just
    /// been erased go to rank 0.
    fn put_back(&mut self, common: &[u64]) {
        // These come in the order in which they were drained.
        let mut without_a_bit = self.uncached.clone().into_iter().peekable();
        for &id in &self.drained {
            let name = self.tensors.name_of(id as TensorId);
            if without_a_bit.next_if_eq(&id).is_some() {
                continue;
            }
            match self.cache.bit(name) {
                None => self.uncached.push(id),
                Some(bit) if is_set(common, bit + STATUS_BITS) => {
                    self.waiting.since.remove(&name);
                }
                Some(_) if self.mutations.has(Mutation::RequeueDropped) => {}
                Some(_) => {
                    self.queue.put_back(id as TensorId);
                    self.waiting.since.entry(name).or_insert(self.now);
                }
            }
        }
        for &id in &self.uncached {
            self.waiting.since.remove(&self.tensors.name_of(id as TensorId));
        }
    }

    /// Caches the tensors of rank 0's answer, in its order. Errors are not cached.
    fn cached(&mut self, answer: Option<Answer>) -> Option<Answer> {
        let is_cached = |response: &&Response| {
            response.error.is_none() || self.mutations.has(Mutation::ErrorsRemembered)
        };
        let mut ids: Vec<TensorId> = Vec::new();
        for response in answer.as_ref()?.responses.iter().filter(is_cached) {
            ids.extend(&*response.tensors);
        }
        if self.mutations.has(Mutation::UsesInAnotherOrder) {
            ids.reverse();
        }
        ids.iter().for_each(|&id| self.cache.put(self.tensors.name_of(id), id));
        self.negotiation.report.evictions += self.cache.take_evictions();
        self.memo.words.clear();
        answer
    }
}

impl ControlPlane for BitVector {
    fn name(&self) -> String {
        NAME.into()
    }

    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError> {
        self.shutdown.check(self.negotiation.rank())?;
        let answer = match event {
            Event::Ready(ids) => return self.queue.push(ids),
            Event::ShutDown => {
                self.shutdown.is_wanted = true;
                return Ok(());
            }
            Event::Cycle(_) if self.stage != Stage::Idle || self.negotiation.running => {
                return Err(self.negotiation.unexpected("Cycle"));
            }
            Event::Cycle(now) => {
                self.negotiation.report.cycles += 1;
                self.now = now;
                self.shutdown.is_wanted |= self.negotiation.look_for_stalls(now, out);
                if self.cache.capacity() > 0 {
                    self.begin_and(out);
                    return Ok(());
                }
                // As Horovod with HOROVOD_CACHE_CAPACITY=0: rank 0 negotiates in every cycle.
                self.queue.drain(&mut self.drained);
                let wanted = self.shutdown.raised();
                self.negotiation.request(&self.drained, Vec::new(), wanted, now, out)?
            }
            Event::Combined(words) => self.combined(words, out)?,
            Event::Arrived { from, message } => {
                let answer = self.negotiation.arrived(from, message, &self.queue, out)?;
                self.cached(answer)
            }
        };
        let Some(answer) = answer else {
            return Ok(());
        };
        self.cache.renumber();
        self.shutdown.end_cycle(answer, &mut self.queue, &mut self.negotiation.report, out);
        Ok(())
    }

    fn waits_for(&self) -> Vec<Rank> {
        self.negotiation.waits_for()
    }

    fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.negotiation.report)
    }

    fn agreed(&self) -> Vec<(usize, TensorId)> {
        self.cache.contents()
    }
}

fn set(words: &mut [u64], bit: usize) {
    words[bit / 64] |= 1 << (bit % 64);
}

fn clear(words: &mut [u64], bit: usize) {
    words[bit / 64] &= !(1 << (bit % 64));
}

fn is_set(words: &[u64], bit: usize) -> bool {
    words[bit / 64] >> (bit % 64) & 1 == 1
}

/// Positions of the bits that are set, ascending, from `first` on and counted from there.
fn bits(words: &[u64], first: usize) -> impl Iterator<Item = usize> + '_ {
    let of_word = move |(at, &word): (usize, &u64)| {
        let mut left = if at == 0 { word >> first << first } else { word };
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros() as usize;
            (left != 0).then(|| {
                left &= left - 1;
                at * 64 + bit - first
            })
        })
    };
    words.iter().enumerate().flat_map(of_word)
}
