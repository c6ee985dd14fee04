//! Schedules made of schedules: phases in sequence, a schedule on many groups of ranks, a schedule
//! pipelined in segments.

use std::ops::Range;

use crate::algorithm::Volume;
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// One phase after the other, over the same ranks and chunks.
pub struct Sequence(Vec<Box<dyn Schedule>>);

impl Sequence {
    /// These phases, in order.
    ///
    /// # Panics
    /// When there is no phase, or when phases differ in ranks or chunks.
    pub fn new(phases: Vec<Box<dyn Schedule>>) -> Sequence {
        assert!(!phases.is_empty(), "a sequence needs a phase");
        for phase in &phases[1..] {
            assert_eq!(phase.ranks(), phases[0].ranks(), "phases over different worlds");
            assert_eq!(phase.chunks(), phases[0].chunks(), "phases over different chunks");
        }
        Sequence(phases)
    }
}

impl Schedule for Sequence {
    fn ranks(&self) -> usize {
        self.0[0].ranks()
    }

    fn chunks(&self) -> usize {
        self.0[0].chunks()
    }

    fn steps(&self) -> usize {
        self.0.iter().map(|phase| phase.steps()).sum()
    }

    fn contributes(&self, rank: Rank) -> bool {
        self.0.iter().all(|phase| phase.contributes(rank))
    }

    fn part(&self, rank: Rank, mut step: usize, part: &mut Part) {
        for phase in &self.0 {
            if step < phase.steps() {
                return phase.part(rank, step, part);
            }
            step -= phase.steps();
        }
    }

    fn rotation(&self) -> usize {
        self.0.iter().fold(1, |turn, phase| least_common_multiple(turn, phase.rotation()))
    }
}

/// The same schedule inside every node. Each of its chunks is `scale` chunks of the whole schedule.
pub struct Within<S> {
    topology: Topology,
    inner: S,
    scale: usize,
}

impl<S: Schedule> Within<S> {
    /// `inner` over the local ranks of every node.
    ///
    /// # Panics
    /// When a node has another number of ranks than `inner`.
    pub fn new(topology: &Topology, inner: S, scale: usize) -> Within<S> {
        assert_eq!(topology.local_size(), Some(inner.ranks()), "nodes of another size");
        Within { topology: topology.clone(), inner, scale }
    }
}

impl<S: Schedule> Schedule for Within<S> {
    fn ranks(&self) -> usize {
        self.topology.ranks()
    }

    fn chunks(&self) -> usize {
        self.inner.chunks() * self.scale
    }

    fn steps(&self) -> usize {
        self.inner.steps()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let first_rank = rank - rank % self.inner.ranks();
        relabel(
            &self.inner,
            rank - first_rank,
            step,
            part,
            |local| first_rank + local,
            0,
            self.scale,
        );
    }

    fn rotation(&self) -> usize {
        self.inner.ranks()
    }
}

/// The same schedule across nodes, once for every local rank l: the ranks l of all nodes reduce the
/// l-th part of the buffer.
pub struct Across<S> {
    local_size: usize,
    inner: S,
}

impl<S: Schedule> Across<S> {
    /// `inner` over the nodes, for each of `local_size` local ranks.
    pub fn new(local_size: usize, inner: S) -> Across<S> {
        Across { local_size, inner }
    }
}

impl<S: Schedule> Schedule for Across<S> {
    fn ranks(&self) -> usize {
        self.local_size * self.inner.ranks()
    }

    fn chunks(&self) -> usize {
        self.local_size * self.inner.chunks()
    }

    fn steps(&self) -> usize {
        self.inner.steps()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let (node, local) = (rank / self.local_size, rank % self.local_size);
        let peer = |node: Rank| node * self.local_size + local;
        relabel(&self.inner, node, step, part, peer, local * self.inner.chunks(), 1);
    }

    fn contributes(&self, rank: Rank) -> bool {
        self.inner.contributes(rank / self.local_size)
    }

    fn rotation(&self) -> usize {
        self.inner.rotation() * self.local_size
    }
}

/// A schedule for a power of two on a world of any size: of each pair of ranks in excess of the power of
/// two only one takes part.
///
/// With q = 2^floor(log2 n) there are n - q pairs (0, 1), (2, 3), .... The odd rank of a pair first gets the
/// sum of both, and sends the result to the even one at the end. The odd ranks and those without a
/// partner are the q ranks of the inner schedule.
pub struct Fold<S> {
    ranks: usize,
    inner: S,
    halves: bool,
}

impl<S: Schedule> Fold<S> {
    /// `inner`, a schedule for [`Self::active`] ranks, on a world of any size. The even rank of a pair
    /// sends its whole buffer, and the odd one adds: one step before the inner schedule.
    ///
    /// # Panics
    /// When `inner` is for another number of ranks.
    pub fn new(ranks: usize, inner: S) -> Fold<S> {
        assert_eq!(inner.ranks(), Self::active(ranks), "a schedule for another world");
        Fold { ranks, inner, halves: false }
    }

    /// The same, but a pair exchanges halves, each of the two adds one, and the even rank sends its
    /// sum: two steps before the inner schedule, in which half as much is added one after another.
    ///
    /// # Panics
    /// When `inner` is for another number of ranks.
    pub fn in_halves(ranks: usize, inner: S) -> Fold<S> {
        Fold { halves: true, ..Fold::new(ranks, inner) }
    }

    /// The largest power of two up to `ranks`.
    pub fn active(ranks: usize) -> usize {
        1 << ranks.ilog2()
    }

    fn pairs(&self) -> usize {
        self.ranks - self.inner.ranks()
    }

    /// Steps before the inner schedule.
    fn before(&self) -> usize {
        match (self.pairs(), self.halves) {
            (0, _) => 0,
            (_, false) => 1,
            (_, true) => 2,
        }
    }

    /// Chunks for each of the inner schedule's: halves need an even number.
    fn scale(&self) -> usize {
        if self.before() == 2 && !self.inner.chunks().is_multiple_of(2) { 2 } else { 1 }
    }

    /// The chunks that the even rank of a pair sends to the odd one, and the odd one to the even one, in a
    /// step before or after the inner schedule.
    fn within_pair(&self, step: usize) -> (Range<usize>, Range<usize>, Action) {
        let all = self.chunks();
        match step {
            _ if step >= self.before() => (0..0, 0..all, Action::Copy),
            0 if self.halves => (all / 2..all, 0..all / 2, Action::Reduce),
            0 => (0..all, 0..0, Action::Reduce),
            _ => (0..all / 2, 0..0, Action::Copy),
        }
    }
}

impl<S: Schedule> Schedule for Fold<S> {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn chunks(&self) -> usize {
        self.inner.chunks() * self.scale()
    }

    fn steps(&self) -> usize {
        self.before() + self.inner.steps() + usize::from(self.pairs() > 0)
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let (pairs, before) = (self.pairs(), self.before());
        let (paired, is_even) = (rank < 2 * pairs, rank.is_multiple_of(2));
        if (before..before + self.inner.steps()).contains(&step) {
            if !paired || !is_even {
                let member = if paired { rank / 2 } else { rank - pairs };
                let peer =
                    |member: Rank| if member < pairs { 2 * member + 1 } else { member + pairs };
                relabel(&self.inner, member, step - before, part, peer, 0, self.scale());
            }
        } else if paired {
            let (to_odd, to_even, action) = self.within_pair(step);
            let (out, back) = if is_even { (to_odd, to_even) } else { (to_even, to_odd) };
            let moves = |chunks: Range<usize>| {
                (!chunks.is_empty()).then(|| Move::new(rank ^ 1, chunks, action))
            };
            part.sends.extend(moves(out));
            part.receives.extend(moves(back));
        }
    }
}

/// The volume of a rank in a folded schedule of `chunks` chunks whose active ranks each move `inner`.
pub fn folded_volume(ranks: usize, rank: Rank, chunks: usize, inner: Volume) -> Volume {
    let pairs = ranks - (1 << ranks.ilog2());
    match (rank < 2 * pairs, rank.is_multiple_of(2)) {
        (true, true) => Volume { sent: chunks, received: chunks },
        (true, false) => Volume { sent: inner.sent + chunks, received: inner.received + chunks },
        (false, _) => inner,
    }
}

/// The number of steps of a folded schedule whose inner schedule has `inner` steps.
pub fn folded_steps(ranks: usize, inner: usize) -> usize {
    inner + if ranks.is_power_of_two() { 0 } else { 2 }
}

/// The same schedule on `segments` segments of the buffer, each a step behind the one before. A step
/// works on a segment that is still in the cache, and one segment is sent while another is reduced.
///
/// The next step of a segment comes `lag` steps later. With a lag above 1 ranks send other segments while
/// they wait for one.
///
/// Segment k is chunks `k * c .. (k + 1) * c`, where c is the number of chunks of `inner`: ranges of
/// chunks stay contiguous.
pub struct Pipelined<S> {
    inner: S,
    segments: usize,
    lag: usize,
}

impl<S: Schedule> Pipelined<S> {
    /// `inner` on each of `segments` segments: s steps become s + `segments` - 1.
    ///
    /// # Panics
    /// When there is no segment.
    pub fn new(inner: S, segments: usize) -> Pipelined<S> {
        Pipelined::with_lag(inner, segments, 1)
    }

    /// With another lag than 1: s steps become (s - 1) `lag` + `segments`.
    ///
    /// # Panics
    /// When there is no segment, or the lag is 0.
    pub fn with_lag(inner: S, segments: usize, lag: usize) -> Pipelined<S> {
        assert!(segments > 0 && lag > 0, "a pipeline needs a segment and a lag");
        Pipelined { inner, segments, lag }
    }
}

impl<S: Schedule> Schedule for Pipelined<S> {
    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn chunks(&self) -> usize {
        self.inner.chunks() * self.segments
    }

    fn steps(&self) -> usize {
        match self.inner.steps() {
            0 => 0,
            steps => (steps - 1) * self.lag + self.segments,
        }
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        // Segment k is in step (step - k) / lag of `inner`, if that divides.
        let (steps, chunks) = (self.inner.steps(), self.inner.chunks());
        let first = (step + 1).saturating_sub(self.segments).div_ceil(self.lag);
        for inner_step in (first..steps.min(step / self.lag + 1)).rev() {
            let offset = (step - inner_step * self.lag) * chunks;
            relabel(&self.inner, rank, inner_step, part, |peer| peer, offset, 1);
        }
    }

    fn contributes(&self, rank: Rank) -> bool {
        self.inner.contributes(rank)
    }

    fn rotation(&self) -> usize {
        self.inner.rotation()
    }

    fn lag(&self) -> usize {
        self.inner.lag() * self.lag
    }
}

/// A schedule behind a pointer is a schedule.
macro_rules! delegate {
    ($($pointer:ty),*) => { $(
        impl Schedule for $pointer {
            fn ranks(&self) -> usize {
                (**self).ranks()
            }

            fn chunks(&self) -> usize {
                (**self).chunks()
            }

            fn steps(&self) -> usize {
                (**self).steps()
            }

            fn part(&self, rank: Rank, step: usize, part: &mut Part) {
                (**self).part(rank, step, part);
            }

            fn contributes(&self, rank: Rank) -> bool {
                (**self).contributes(rank)
            }

            fn rotation(&self) -> usize {
                (**self).rotation()
            }

            fn lag(&self) -> usize {
                (**self).lag()
            }
        }
    )* };
}
delegate!(&dyn Schedule, Box<dyn Schedule>);

/// Appends `inner`'s part for `member`, with peers renamed.
pub(crate) fn renamed(
    inner: &dyn Schedule,
    member: Rank,
    step: usize,
    part: &mut Part,
    peer: impl Fn(Rank) -> Rank,
) {
    relabel(inner, member, step, part, peer, 0, 1);
}

/// Appends `inner`'s part for `member`, with peers renamed and chunks moved to
/// `offset + scale * chunk`.
fn relabel(
    inner: &dyn Schedule,
    member: Rank,
    step: usize,
    part: &mut Part,
    peer: impl Fn(Rank) -> Rank,
    offset: usize,
    scale: usize,
) {
    let (sends, receives) = (part.sends.len(), part.receives.len());
    inner.part(member, step, part);
    for entry in part.sends[sends..].iter_mut().chain(&mut part.receives[receives..]) {
        entry.peer = peer(entry.peer()) as u32;
        entry.first = (offset + scale * entry.first as usize) as u32;
        entry.end = (offset + scale * entry.end as usize) as u32;
    }
}

pub(crate) fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
