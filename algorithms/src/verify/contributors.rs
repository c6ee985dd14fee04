//! The symbolic buffers of all ranks: sets of contributors in the place of numbers.

use super::violation::Violation;
use crate::schedule::Action;
use crate::topology::Rank;

/// For each chunk of each rank: the set of ranks whose part it contains.
pub(super) struct Contributors {
    ranks: usize,
    chunks: usize,
    /// 64-bit words per set.
    pub(super) words: usize,
    /// All ranks that have a part.
    all: Vec<u64>,
    sets: Vec<u64>,
}

impl Contributors {
    /// Every rank that has a part holds its own of every chunk.
    pub(super) fn own(
        ranks: usize,
        chunks: usize,
        contributes: impl Fn(Rank) -> bool,
    ) -> Contributors {
        let words = ranks.div_ceil(64);
        let (mut all, mut sets) = (vec![0; words], vec![0; ranks * chunks * words]);
        for rank in (0..ranks).filter(|&rank| contributes(rank)) {
            let (word, bit) = (rank / 64, 1 << (rank % 64));
            all[word] |= bit;
            let own = &mut sets[rank * chunks * words..][..chunks * words];
            own.chunks_exact_mut(words).for_each(|set| set[word] = bit);
        }
        Contributors { ranks, chunks, words, all, sets }
    }

    /// The set that a chunk of a rank holds.
    pub(super) fn at(&self, rank: Rank, chunk: usize) -> &[u64] {
        &self.sets[(rank * self.chunks + chunk) * self.words..][..self.words]
    }

    /// Adds or copies a set that arrives.
    ///
    /// # Errors
    /// The rank whose part would be added twice.
    pub(super) fn receive(
        &mut self,
        rank: Rank,
        chunk: usize,
        action: Action,
        value: &[u64],
    ) -> Result<(), Rank> {
        let set = &mut self.sets[(rank * self.chunks + chunk) * self.words..][..self.words];
        for (word, (mine, &arriving)) in set.iter_mut().zip(value).enumerate() {
            match action {
                Action::Copy => *mine = arriving,
                Action::Reduce if *mine & arriving != 0 => {
                    return Err(word * 64 + (*mine & arriving).trailing_zeros() as usize);
                }
                Action::Reduce => *mine |= arriving,
            }
        }
        Ok(())
    }

    /// Checks that every rank that has a part holds all parts of every chunk.
    ///
    /// # Errors
    /// [`Violation::MissingPart`] for the first part that is missing.
    pub(super) fn complete(&self, steps: usize) -> Result<(), Violation> {
        let has_part = |rank: &Rank| self.all[rank / 64] >> (rank % 64) & 1 == 1;
        for rank in (0..self.ranks).filter(has_part) {
            for chunk in 0..self.chunks {
                let held = self.at(rank, chunk).iter().zip(&self.all).enumerate();
                let mut missing = held.map(|(word, (set, all))| (word, all & !set));
                if let Some((word, missing)) = missing.find(|(_, bits)| *bits != 0) {
                    let part = word * 64 + missing.trailing_zeros() as usize;
                    return Err(Violation::MissingPart { steps, rank, chunk, part });
                }
            }
        }
        Ok(())
    }
}
