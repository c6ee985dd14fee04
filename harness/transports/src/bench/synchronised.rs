//! Blocks that start at named moments where clocks allow it, and after a barrier where they do not.

use std::time::Duration;

use algorithms::topology::Rank;
use thiserror::Error;

use super::start::MOST_AHEAD_S;
use super::{Bench, Ended, Start};
use crate::clock::Clock;
use crate::transport::{MessageChannel, TransportError};

/// The clocks of ranks may be off by this share of a repetition. A barrier lets ranks go within less than the time of an
/// allreduce, so that clocks beyond this share say less.
pub const MOST_SHARE: f64 = 0.5;

/// Why ranks do not start at named moments: the clocks of some are not known well enough.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}; ranks start after a barrier instead", self.said())]
pub struct Unsynchronised {
    /// The ranks, in their order.
    pub ranks: Vec<Rank>,
    /// The largest bound of their errors, in seconds; infinite where answers contradict each other.
    pub error_s: f64,
    /// The largest bound that is accepted, in seconds.
    pub most_s: f64,
    /// What that is.
    pub of: &'static str,
}

/// The largest bounds before a block, and after it.
const BEFORE: &str = "the furthest that a moment is named ahead";
const AFTER: &str = "half of a repetition";

impl Unsynchronised {
    fn said(&self) -> String {
        let Unsynchronised { ranks, error_s, most_s, of } = self;
        let named: Vec<String> = ranks.iter().map(Rank::to_string).collect();
        let (whose, rest) = match &named[..] {
            [] => return "no clock is off".into(),
            [only] => ("the clock of rank", only.clone()),
            [others @ .., last] => {
                ("the clocks of ranks", format!("{} and {last}", others.join(", ")))
            }
        };
        let found = if error_s.is_finite() {
            format!("may be {:.1} us off rank 0's", error_s * 1e6)
        } else {
            "cannot be compared with rank 0's, as the answers contradict each other".into()
        };
        format!("{whose} {rest} {found}, expected at most {:.1} us ({of})", most_s * 1e6)
    }
}

/// A rank's part in a block, and how it started.
pub struct Synchronised {
    /// The part.
    pub ended: Ended,
    /// How ranks started.
    pub start: Start,
    /// Why not as the bench says; the same on all ranks.
    pub why: Option<Unsynchronised>,
}

/// One rank's part in a block of ranks with clocks of their own, which they compare first. If these are not known well
/// enough, the block starts after a barrier; if that turns out at its end, it is run again after a barrier. `run` runs it
/// once. All ranks must call it, and send nothing else over the channel meanwhile.
///
/// # Errors
/// When a rank does not answer.
pub fn synchronised(
    bench: &Bench,
    (rank, ranks): (Rank, usize),
    clock: &mut Clock,
    control: &mut impl MessageChannel,
    run: &mut dyn FnMut(&Bench, &Clock) -> Result<Ended, TransportError>,
) -> Result<Synchronised, TransportError> {
    let mut why = None;
    if bench.start != Start::Barrier {
        clock.compare(control, (rank, ranks))?;
        let error_s = clock.error_s(clock.now_s());
        let agreed = agree(control, (rank, ranks), (error_s, MOST_AHEAD_S), BEFORE)?;
        if agreed.is_none() {
            let ended = run(bench, clock)?;
            let mut times: Vec<Duration> = ended.times.times.clone();
            times.sort_unstable();
            let median_s = times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64);
            let error_s = ended.times.clock_error.as_secs_f64();
            why = agree(control, (rank, ranks), (error_s, MOST_SHARE * median_s), AFTER)?;
            if why.is_none() {
                return Ok(Synchronised { ended, start: bench.start, why });
            }
        }
        why = why.or(agreed);
    }
    let ended = run(&Bench { start: Start::Barrier, ..*bench }, clock)?;
    Ok(Synchronised { ended, start: Start::Barrier, why })
}

/// What all ranks conclude of the bounds of their clocks' errors: none if each is at most the largest `most_s` of any rank.
fn agree(
    control: &mut impl MessageChannel,
    (rank, ranks): (Rank, usize),
    (error_s, most_s): (f64, f64),
    of: &'static str,
) -> Result<Option<Unsynchronised>, TransportError> {
    let encoded = |values: &[f64]| -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    };
    let decoded = |bytes: &[u8]| -> Vec<f64> {
        let value = |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        bytes.chunks(size_of::<f64>()).map(value).collect()
    };
    // A clock that names no time has no bound.
    let error_s = if error_s.is_nan() { f64::INFINITY } else { error_s };
    let mut message = Vec::new();
    let mut bounds_s = vec![error_s; ranks];
    let mut most_s = most_s;
    if rank > 0 {
        control.send(0, encoded(&[error_s, most_s]).into())?;
        control.receive(0, &mut message)?;
        bounds_s = decoded(&message);
        most_s = bounds_s.pop().expect("what is accepted");
    } else {
        for expecting in 1..ranks {
            let from = control.receive(expecting, &mut message)?;
            let reported = decoded(&message);
            bounds_s[from] = reported[0];
            most_s = most_s.max(reported[1]);
        }
        let told = encoded(&[&bounds_s[..], &[most_s]].concat());
        (1..ranks).try_for_each(|other| control.send(other, told.clone().into()))?;
    }
    control.flush()?;
    let off: Vec<Rank> = (0..ranks).filter(|&rank| bounds_s[rank] > most_s).collect();
    let error_s = off.iter().map(|&rank| bounds_s[rank]).fold(0.0, f64::max);
    Ok((!off.is_empty()).then_some(Unsynchronised { ranks: off, error_s, most_s, of }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::time::Instant;

    use algorithms::control::{DataType, ReduceOp};
    use algorithms::ring::Ring;
    use algorithms::topology::Topology;

    use super::*;
    use crate::allreduce::Sizes;
    use crate::bench::run_rank;
    use crate::data_plane::DataPlane;
    use crate::memory::Memory;
    use crate::threads::{self, ControlChannel, Links, run_ranks};

    const RANKS: usize = 3;

    /// A block of ranks with these clocks: how it started on each rank, and how often it ran there.
    fn block(
        start: Start,
        clock: impl Fn(Rank) -> Clock + Sync,
    ) -> Vec<(Start, Option<Unsynchronised>, usize)> {
        let topology = Topology::flat(RANKS);
        let plane = DataPlane::ours(Arc::new(Ring), &topology).unwrap();
        let bench = Bench {
            data_plane: &plane,
            topology: &topology,
            dtype: DataType::F32,
            op: ReduceOp::Sum,
            sizes: Sizes { segment_bytes: 0, packing_bytes: 0 },
            tensors: &[16],
            in_place: true,
            warmup: 1,
            repetitions: 5,
            start,
            check: false,
            seed: 1,
        };
        let schedules = plane.schedules(threads::NAME).unwrap();
        let links = || Links::new(RANKS, Duration::from_secs(20));
        let control = links();
        // Of each run, as it comes.
        let (data, bits) = ([links(), links()], [links(), links()]);
        let all: Vec<&Arc<Links>> = [&control].into_iter().chain(&data).chain(&bits).collect();
        let ended = run_ranks(&all, |rank| {
            let mut clock = clock(rank);
            let runs = AtomicUsize::new(0);
            let mut run = |bench: &Bench, clock: &Clock| {
                let at = runs.fetch_add(1, Ordering::SeqCst);
                let own = schedules.on(data[at].join(rank), bench.sizes, Memory::default());
                let ended = run_rank(bench, rank, own, (bits[at].join(rank), clock))?;
                Ok(ended)
            };
            let mut channel = ControlChannel::new(control.join(rank));
            let place = (rank, RANKS);
            let done = synchronised(&bench, place, &mut clock, &mut channel, &mut run)?;
            assert_eq!(done.ended.times.times.len(), 5);
            let runs = runs.load(Ordering::SeqCst);
            Ok::<_, TransportError>((done.start, done.why, runs))
        });
        ended.unwrap()
    }

    #[test]
    fn clocks_that_are_known_need_no_barrier() {
        for start in [Start::Window, Start::RoundTime] {
            let ended = block(start, |_| Clock::new(Some(1), real_s()));
            assert_eq!(ended, vec![(start, None, 1); RANKS]);
        }
        let ended = block(Start::Barrier, |_| Clock::new(None, || f64::NAN));
        assert_eq!(ended, vec![(Start::Barrier, None, 1); RANKS], "it needs no clock");
    }

    /// The machine's time.
    fn real_s() -> impl Fn() -> f64 + Send + Sync {
        let start = Instant::now();
        move || start.elapsed().as_secs_f64()
    }

    /// A clock that names another day at each question has no bound: its rank is named, and nothing is run twice.
    #[test]
    fn clocks_without_a_bound_are_told_before_the_block() {
        for start in [Start::Window, Start::RoundTime] {
            let ended = block(start, |rank| match rank {
                0 => Clock::new(Some(1), real_s()),
                1 => Clock::new(Some(2), || f64::NAN),
                _ => {
                    let calls = AtomicUsize::new(0);
                    Clock::new(Some(3), move || {
                        -86_400.0 * calls.fetch_add(1, Ordering::SeqCst) as f64
                    })
                }
            });
            for (start, why, runs) in ended {
                assert_eq!((start, runs), (Start::Barrier, 1));
                assert_eq!(
                    why.unwrap().to_string(),
                    "the clocks of ranks 1 and 2 cannot be compared with rank 0's, as the answers contradict each \
                     other, expected at most 10000.0 us (the furthest that a moment is named ahead); ranks start after \
                     a barrier instead"
                );
            }
        }
    }

    /// Time passes only while somebody looks at a clock: 16 ms each time that rank 0 looks while it compares clocks, and
    /// 1 us at any other time. Half of a round trip is 8 ms; that is less than the furthest moment, but a repetition takes
    /// little longer than these 8 ms by which ranks start apart.
    #[test]
    fn a_block_by_clocks_that_are_off_is_run_again_after_a_barrier() {
        const LOOKS: usize = 2 * 50 * 10 * (RANKS - 1);
        for start in [Start::Window, Start::RoundTime] {
            let now_us = Arc::new(AtomicU64::new(0));
            let ended = block(start, |rank| {
                let (looks, now_us) = (AtomicUsize::new(0), now_us.clone());
                Clock::new(None, move || {
                    let compares = looks.fetch_add(1, Ordering::SeqCst) < LOOKS;
                    let passes_us = match rank {
                        0 if compares => 16_000,
                        _ => 1,
                    };
                    (now_us.fetch_add(passes_us, Ordering::SeqCst) + passes_us) as f64 * 1e-6
                })
            });
            for (start, why, runs) in ended {
                let Unsynchronised { ranks, error_s, most_s, of } = why.unwrap();
                assert_eq!((start, runs, ranks, of), (Start::Barrier, 2, vec![1, 2], AFTER));
                assert!(error_s >= 8e-3 && most_s < error_s, "{error_s} of {most_s}");
            }
        }
    }

    #[test]
    fn ranks_agree_on_which_clocks_are_off() {
        let control = Links::new(RANKS, Duration::from_secs(20));
        // The bounds 1, 7 and 9 us, and medians of 4, 12 and 8 us.
        let [errors_s, medians_s] = [[1e-6, 7e-6, 9e-6], [4e-6, 12e-6, 8e-6]];
        let agreed = run_ranks(&[&control], |rank| {
            let mut channel = ControlChannel::new(control.join(rank));
            let bound = (errors_s[rank], MOST_SHARE * medians_s[rank]);
            let first = agree(&mut channel, (rank, RANKS), bound, AFTER)?;
            let none = agree(&mut channel, (rank, RANKS), (errors_s[rank], 9e-6), AFTER)?;
            let one = agree(&mut channel, (rank, RANKS), (errors_s[rank], 8e-6), AFTER)?;
            let own_s = [0.0, f64::NAN, 0.0][rank];
            let unknown = agree(&mut channel, (rank, RANKS), (own_s, 1.0), BEFORE)?;
            Ok::<_, TransportError>([first, none, one, unknown])
        });
        for [first, none, one, unknown] in agreed.unwrap() {
            assert_eq!(
                first.unwrap().to_string(),
                "the clocks of ranks 1 and 2 may be 9.0 us off rank 0's, expected at most 6.0 us (half of a \
                 repetition); ranks start after a barrier instead"
            );
            assert_eq!(none, None);
            assert_eq!(one.unwrap().ranks, [2]);
            let unknown = unknown.unwrap();
            assert_eq!((unknown.ranks, unknown.error_s), (vec![1], f64::INFINITY));
        }
    }
}
