//! Records of ranks with clocks of their own on rank 0's clock.
//!
//! Each rank compares its clock with rank 0's before a block and after it ([`transports::clock`]), and reads it beside the
//! beginning of its records: one anchor for the block. Where answers contradict each other, a rank's records begin with
//! rank 0's.

use std::time::Duration;

use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};

use super::record::{Record, Recorder};
use transports::clock::Clock;

/// How often the clock is read for an anchor; the shortest reading counts.
const READINGS: usize = 10;

/// The beginning of a rank's records by its clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Anchor {
    begun_s: f64,
    error_s: f64,
}

/// One rank's records, since `begun_ns` of rank 0's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Anchored {
    begun_ns: Option<i64>,
    records: Vec<Record>,
}

impl Anchor {
    /// Of records that have begun, by a clock of [`std::time::Instant`], such as [`Clock::monotonic`].
    pub fn of(recorder: &Recorder, clock: &Clock) -> Anchor {
        let reading = |_| {
            let before_s = clock.now_s();
            let since_s = recorder.begun().elapsed().as_secs_f64();
            let after_s = clock.now_s();
            let begun_s = (before_s + after_s) / 2.0 - since_s;
            Anchor { begun_s, error_s: (after_s - before_s) / 2.0 }
        };
        let shortest =
            |one: Anchor, other: Anchor| if other.error_s < one.error_s { other } else { one };
        let first = reading(0);
        (1..READINGS).map(reading).fold(first, shortest)
    }

    /// A rank's records on rank 0's clock, with the bound of the errors of their times as an event.
    pub fn anchored(self, clock: &Clock, rank: Rank, recorder: Recorder) -> Anchored {
        let now_s = self.begun_s + recorder.begun().elapsed().as_secs_f64();
        let own_s = recorder.times(rank).into_iter().map(|time| self.begun_s + time.as_secs_f64());
        let moments_s = [self.begun_s, now_s].into_iter().chain(own_s);
        let error_s = moments_s.map(|own_s| clock.error_s(own_s)).fold(0.0, f64::max);
        let error = Duration::try_from_secs_f64(error_s + self.error_s).unwrap_or(Duration::MAX);
        recorder.may_be_off(rank, error);
        let mut records = recorder.into_records().swap_remove(rank);
        let begun_ns = error_s.is_finite().then(|| (clock.rank0_s(self.begun_s) * 1e9) as i64);
        let rate = clock.rank0_rate();
        for record in &mut records {
            record.time_ns = (record.time_ns as f64 * rate).round() as u64;
        }
        Anchored { begun_ns, records }
    }
}

/// The records of all ranks since the beginning of the first; ranks that do not know theirs begin with rank 0.
pub fn together(ranks: Vec<Anchored>) -> Vec<Vec<Record>> {
    let first_ns = ranks.iter().filter_map(|rank| rank.begun_ns).min().unwrap_or(0);
    let rank0_ns = ranks.first().and_then(|rank| rank.begun_ns).unwrap_or(first_ns);
    let shifted = |rank: Anchored| {
        let later_ns = rank.begun_ns.unwrap_or(rank0_ns).abs_diff(first_ns);
        let shift = |record: Record| Record { time_ns: record.time_ns + later_ns, ..record };
        rank.records.into_iter().map(shift).collect()
    };
    ranks.into_iter().map(shifted).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::timeline::record::Event;
    use transports::threads::{ControlChannel, Links, run_ranks};

    const RANKS: usize = 3;

    /// All ranks begin a step at one moment, by clocks that are seconds apart and drift.
    #[test]
    fn records_of_one_moment_are_at_one_time() {
        let start = Instant::now();
        let clocks = [(100.0, 0.0), (7.0, 5e-6), (-3000.0, -3e-6)].map(|(by_s, drift)| {
            let read = move || by_s + (1.0 + drift) * start.elapsed().as_secs_f64();
            Clock::new(None, read)
        });
        let links: Vec<Arc<Links>> =
            (0..2).map(|_| Links::new(RANKS, Duration::from_secs(20))).collect();
        let moment = Instant::now() + Duration::from_secs(5);
        let anchored = run_ranks(&links.iter().collect::<Vec<_>>(), |rank| {
            let mut clock = clocks[rank].clone();
            let mut control = ControlChannel::new(links[0].join(rank));
            clock.compare(&mut control, (rank, RANKS))?;
            let recorder = Recorder::new(RANKS, 4);
            let anchor = Anchor::of(&recorder, &clock);
            recorder.track(rank).cycle(moment, Some(moment), std::iter::empty());
            let mut control = ControlChannel::new(links[1].join(rank));
            clock.compare(&mut control, (rank, RANKS))?;
            Ok::<_, transports::transport::TransportError>(anchor.anchored(&clock, rank, recorder))
        });
        let ranks = together(anchored.unwrap());
        let at = |rank: usize| {
            let step = ranks[rank].iter().find(|record| record.event == Event::Step).unwrap();
            step.time_ns
        };
        let error_ns = |rank: usize| match ranks[rank][0].event {
            Event::Clock { error_ns } => error_ns,
            _ => 0,
        };
        for rank in 1..RANKS {
            assert!(error_ns(rank) > error_ns(0) && error_ns(rank) < u64::MAX);
            // The records are timed by a clock that does not drift, unlike these.
            let drift_ns = 5e-6 * at(0) as f64;
            let most_ns = (error_ns(rank) + error_ns(0)) as f64 + drift_ns + 2.0;
            let off_ns = at(rank).abs_diff(at(0)) as f64;
            assert!(off_ns <= most_ns, "{off_ns} ns: {ranks:?}");
        }
    }

    #[test]
    fn ranks_without_a_clock_begin_with_rank_0() {
        let rank = |begun_ns, time_ns| Anchored {
            begun_ns,
            records: vec![Record { time_ns, event: Event::Cycle }],
        };
        let ranks = together(vec![
            rank(Some(5_000), 100),
            rank(Some(-4_000), 100),
            rank(None, 300),
            Anchored::default(),
        ]);
        let times: Vec<Vec<u64>> = ranks
            .iter()
            .map(|records| records.iter().map(|record| record.time_ns).collect())
            .collect();
        assert_eq!(times, [vec![9_100], vec![100], vec![9_300], vec![]]);
        assert_eq!(together(vec![rank(None, 1), rank(None, 2)])[1][0].time_ns, 2);
    }

    /// Its times are as they were, and the bound says that it is none.
    #[test]
    fn a_clock_that_makes_no_sense_is_told() {
        let links = Links::new(2, Duration::from_secs(20));
        let anchored = run_ranks(&[&links], |rank| {
            let start = Instant::now();
            let mut clock = match rank {
                0 => Clock::new(None, move || start.elapsed().as_secs_f64()),
                _ => Clock::new(None, || f64::NAN),
            };
            clock.compare(&mut ControlChannel::new(links.join(rank)), (rank, 2))?;
            let recorder = Recorder::new(2, 4);
            let anchor = Anchor::of(&recorder, &clock);
            Ok::<_, transports::transport::TransportError>(anchor.anchored(&clock, rank, recorder))
        });
        let anchored = anchored.unwrap();
        assert_eq!(anchored[1].begun_ns, None);
        assert_eq!(
            anchored[1].records,
            [Record { time_ns: 0, event: Event::Clock { error_ns: u64::MAX } }]
        );
        assert!(anchored[0].begun_ns.is_some());
    }
}
