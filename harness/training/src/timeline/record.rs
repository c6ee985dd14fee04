//! One rank's records of events while the job runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use algorithms::control::TensorId;
use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};

/// Something that happened on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Nanoseconds since the recorder was created.
    pub time_ns: u64,
    /// The event.
    pub event: Event,
}

/// Recorded events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A training step begins.
    Step,
    /// It ends.
    StepEnded,
    /// The framework hands over a tensor.
    Ready(u32),
    /// A cycle begins.
    Cycle,
    /// Its negotiation begins.
    Negotiation,
    /// Its negotiation ends.
    Negotiated {
        /// Messages agreed on.
        messages: u32,
    },
    /// A message begins.
    Message,
    /// A tensor of the message that has just begun.
    Tensor(u32),
    /// The message ends.
    Reduced {
        /// Copying into the fusion buffer, in nanoseconds.
        packing_ns: u64,
        /// Copying back, in nanoseconds.
        unpacking_ns: u64,
    },
    /// The bound of the errors of this rank's times by rank 0's clock; without it both read one clock.
    Clock {
        /// Nanoseconds; the largest number where there is no bound.
        error_ns: u64,
    },
}

/// Most records of one rank for which memory is reserved.
const RESERVED_MOST: usize = 1 << 20;

/// Keeps the records of all ranks, also of a job that fails.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    ranks: Vec<Mutex<Vec<Record>>>,
    /// Of each rank, in nanoseconds.
    errors_ns: Vec<AtomicU64>,
}

impl Recorder {
    /// Time begins now. Memory is reserved for `records` records of each rank, up to 32 MiB.
    pub fn new(ranks: usize, records: usize) -> Recorder {
        let room = records.min(RESERVED_MOST);
        let errors_ns = (0..ranks).map(|_| AtomicU64::new(0)).collect();
        let ranks = (0..ranks).map(|_| Mutex::new(Vec::with_capacity(room))).collect();
        Recorder { start: Instant::now(), ranks, errors_ns }
    }

    /// When time began.
    pub fn begun(&self) -> Instant {
        self.start
    }

    /// A rank's times may be off by so much more, such as by the anchor of its GPU's clock.
    pub fn may_be_off(&self, rank: Rank, by: Duration) {
        let more_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |error_ns: u64| Some(error_ns.saturating_add(more_ns));
        let own = &self.errors_ns[rank];
        own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).expect("it always adds");
    }

    /// The track on which a rank records its events; one user at a time.
    pub fn track(&self, rank: Rank) -> Track<'_> {
        let records = self.ranks[rank].lock().expect("only this rank takes it");
        Track(Some(Recording { start: self.start, step: None, records }))
    }

    /// The times of a rank's records, once its track is no more.
    pub(super) fn times(&self, rank: Rank) -> Vec<Duration> {
        let records = self.ranks[rank].lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().map(|record| Duration::from_nanos(record.time_ns)).collect()
    }

    /// The records of each rank, with the bound of their errors first.
    pub fn into_records(self) -> Vec<Vec<Record>> {
        let records = |(rank, error_ns): (Mutex<Vec<Record>>, AtomicU64)| {
            let mut records = rank.into_inner().unwrap_or_else(PoisonError::into_inner);
            let error_ns = error_ns.into_inner();
            if error_ns > 0 {
                records.insert(0, Record { time_ns: 0, event: Event::Clock { error_ns } });
            }
            records
        };
        self.ranks.into_iter().zip(self.errors_ns).map(records).collect()
    }
}

/// One rank's track, recording or off.
#[derive(Debug)]
pub struct Track<'r>(Option<Recording<'r>>);

#[derive(Debug)]
struct Recording<'r> {
    start: Instant,
    /// Start of the last recorded step.
    step: Option<Instant>,
    records: MutexGuard<'r, Vec<Record>>,
}

impl Recording<'_> {
    fn push(&mut self, time: Instant, event: Event) {
        let time_ns = nanos(time.saturating_duration_since(self.start));
        self.records.push(Record { time_ns, event });
    }
}

impl Track<'_> {
    /// A track that records nothing.
    pub fn off() -> Self {
        Track(None)
    }

    /// A cycle begins in a step, or in none, with tensors that have become ready when.
    pub fn cycle(
        &mut self,
        begin: Instant,
        step: Option<Instant>,
        ready: impl Iterator<Item = (Instant, TensorId)>,
    ) {
        let Some(recording) = &mut self.0 else { return };
        if let Some(step) = step.filter(|_| step != recording.step) {
            recording.step = Some(step);
            recording.push(step, Event::Step);
        }
        for (time, tensor) in ready {
            recording.push(time, Event::Ready(tensor as u32));
        }
        recording.push(begin, Event::Cycle);
    }

    /// The rank has collected ready tensors, and negotiation begins.
    pub fn negotiation(&mut self, begin: Instant) {
        let Some(recording) = &mut self.0 else { return };
        recording.push(begin, Event::Negotiation);
    }

    /// All ranks have agreed on this many messages.
    pub fn negotiated(&mut self, time: Instant, messages: usize) {
        let Some(recording) = &mut self.0 else { return };
        recording.push(time, Event::Negotiated { messages: messages as u32 });
    }

    /// An allreduce of these tensors begins.
    pub fn message(&mut self, begin: Instant, tensors: &[TensorId]) {
        let Some(recording) = &mut self.0 else { return };
        recording.push(begin, Event::Message);
        for &tensor in tensors {
            recording.push(begin, Event::Tensor(tensor as u32));
        }
    }

    /// A message ends; `packing` and `unpacking` are the times of copying into and out of the fusion buffer.
    pub fn reduced(&mut self, end: Instant, packing: Duration, unpacking: Duration) {
        let Some(recording) = &mut self.0 else { return };
        let (packing_ns, unpacking_ns) = (nanos(packing), nanos(unpacking));
        recording.push(end, Event::Reduced { packing_ns, unpacking_ns });
    }

    /// The step that was noted last has taken so long.
    pub fn step_ended(&mut self, time: Duration) {
        let Some(recording) = &mut self.0 else { return };
        if let Some(begin) = recording.step {
            recording.push(begin + time, Event::StepEnded);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Two cycles of one step.
    fn note(track: &mut Track, t0: Instant) {
        track.cycle(t0 + 9 * US, Some(t0 + US), [(t0 + 5 * US, 3), (t0 + 6 * US, 0)].into_iter());
        track.negotiation(t0 + 10 * US);
        track.negotiated(t0 + 11 * US, 1);
        track.message(t0 + 12 * US, &[3, 0]);
        track.reduced(t0 + 20 * US, 2 * US, US);
        track.cycle(t0 + 21 * US, Some(t0 + US), std::iter::empty());
        track.negotiation(t0 + 21 * US);
        track.negotiated(t0 + 22 * US, 0);
        track.step_ended(24 * US);
    }

    #[test]
    fn what_happens_is_kept_in_order() {
        let recorder = Recorder::new(2, 4);
        note(&mut recorder.track(1), recorder.start);
        let ranks = recorder.into_records();
        assert_eq!(ranks[0], []);
        let seen: Vec<_> = ranks[1].iter().map(|r| (r.time_ns / 1000, r.event)).collect();
        let expected = [
            (1, Event::Step),
            (5, Event::Ready(3)),
            (6, Event::Ready(0)),
            (9, Event::Cycle),
            (10, Event::Negotiation),
            (11, Event::Negotiated { messages: 1 }),
            (12, Event::Message),
            (12, Event::Tensor(3)),
            (12, Event::Tensor(0)),
            (20, Event::Reduced { packing_ns: 2000, unpacking_ns: 1000 }),
            (21, Event::Cycle),
            (21, Event::Negotiation),
            (22, Event::Negotiated { messages: 0 }),
            (25, Event::StepEnded),
        ];
        assert_eq!(seen, expected);
        assert_eq!(size_of::<Record>(), 32, "the documentation of Recorder::new says 32 MiB");
    }

    #[test]
    fn errors_of_clocks_add_up() {
        let recorder = Recorder::new(3, 4);
        recorder.may_be_off(1, 2 * US);
        recorder.may_be_off(1, 3 * US);
        recorder.may_be_off(2, US);
        recorder.may_be_off(2, Duration::MAX);
        let clock = |error_ns| vec![Record { time_ns: 0, event: Event::Clock { error_ns } }];
        assert_eq!(recorder.into_records(), [vec![], clock(5000), clock(u64::MAX)]);
    }

    #[test]
    fn a_track_that_is_off_notes_nothing() {
        let mut track = Track::off();
        note(&mut track, Instant::now());
        assert!(track.0.is_none());
    }
}
