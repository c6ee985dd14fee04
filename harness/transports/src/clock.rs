//! One time for all ranks: how far a rank's clock is ahead of rank 0's, and how fast it runs away from it.
//!
//! A comparison: rank 0 asks another rank for the time repeatedly, and the shortest round trip is used. The answer was read
//! at some point within it, so that half of the round trip bounds the error of the difference. A line through the
//! comparisons, by least squares, gives difference and drift: J. Jones and G. Koenig, "Clock synchronization in high-end
//! computing environments: a strategy for minimizing clock variance at runtime", 2013 (online 2012).
//!
//! The bound of the error at a moment is half of the round trip of a comparison, its distance from the line, and the time
//! from it to the moment times the uncertainty of the drift. Any comparison gives a bound, and the least one is used.
//!
//! Processes of one system read one clock, so that rank 0 compares its clock with one rank of each other system only.
//! There is no tree as in S. Hunold and A. Carpen-Amarie, "Hierarchical Clock Synchronization in MPI" (HCA3), 2018: it
//! compares in log2(n) rounds instead of n - 1, but the errors of its levels add up.
//!
//! Clocks are `CLOCK_MONOTONIC_RAW`, where there is one: NTP does not slew it, so that its drift is constant between
//! comparisons. What is timed by [`std::time::Instant`], which is `CLOCK_MONOTONIC`, needs that one ([`Clock::monotonic`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use algorithms::topology::Rank;
use nix::time::{ClockId, clock_gettime};

use crate::transport::{MessageChannel, TransportError};

/// Number of requests in a comparison.
const QUESTIONS: usize = 50;

/// Clocks that have never been compared are compared so many times, so far apart: the drift is known from the beginning.
const FIRST: usize = 10;
const APART: Duration = Duration::from_millis(20);

/// The latest comparisons are kept: so many, and of so long a time if that leaves two, since the drift changes with
/// temperature.
const KEPT: usize = 32;
const SPAN_S: f64 = 30.0;

/// The fastest drift in seconds per second. NTP corrects clocks that are up to 500 ppm fast or slow (RFC 5905), so that two
/// of them drift apart by twice as much.
const MOST_DRIFT: f64 = 1e-3;

/// The least error of a comparison for its weight, in seconds.
const LEAST_ERROR_S: f64 = 1e-9;

/// One comparison of this rank's clock with rank 0's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Compared {
    /// By this rank's clock.
    at_s: f64,
    /// How far this rank's clock is ahead.
    by_s: f64,
    /// Half of the round trip.
    error_s: f64,
}

/// The line through the comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Line {
    /// Where it is `by_s`, by this rank's clock.
    at_s: f64,
    by_s: f64,
    /// Seconds by which this clock gains on rank 0's in a second.
    drift: f64,
    /// By how much that may be wrong.
    drift_error: f64,
}

/// A rank's clock, and rank 0's time by it.
#[derive(Clone)]
pub struct Clock {
    read: Arc<dyn Fn() -> f64 + Send + Sync>,
    /// The system whose clock it is. Ranks of one system have one clock.
    system: Option<u64>,
    /// How often ranks have compared their clocks.
    comparisons: usize,
    /// The oldest first; none if rank 0 reads the same clock.
    compared: Vec<Compared>,
    line: Line,
    /// The last comparison made no sense.
    is_lost: bool,
}

impl Default for Clock {
    /// This system's clock that nobody corrects.
    fn default() -> Clock {
        Clock::new(system(), || read_s(UNCORRECTED))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        let Clock { system, compared, line, is_lost, .. } = self;
        let mut fields = to.debug_struct("Clock");
        fields.field("system", system).field("compared", compared);
        fields.field("line", line).field("is_lost", is_lost).finish_non_exhaustive()
    }
}

impl Clock {
    /// A clock that `read` reads in seconds. Ranks that name the same `system` read the same clock.
    pub fn new(system: Option<u64>, read: impl Fn() -> f64 + Send + Sync + 'static) -> Clock {
        Clock {
            read: Arc::new(read),
            system,
            comparisons: 0,
            compared: Vec::new(),
            line: Line::default(),
            is_lost: false,
        }
    }

    /// This system's clock of [`std::time::Instant`]. NTP corrects it by slewing it.
    pub fn monotonic() -> Clock {
        Clock::new(system(), || read_s(ClockId::CLOCK_MONOTONIC))
    }

    /// The time by this clock in seconds.
    pub fn now_s(&self) -> f64 {
        (self.read)()
    }

    /// This clock's time at a moment of rank 0's, in seconds.
    pub fn own_s(&self, rank0_s: f64) -> f64 {
        let Line { at_s, by_s, drift, .. } = self.line;
        at_s + (rank0_s + by_s - at_s) / (1.0 - drift)
    }

    /// Rank 0's time at a moment of this clock's, in seconds.
    pub fn rank0_s(&self, own_s: f64) -> f64 {
        own_s - self.line.by_s(own_s)
    }

    /// Seconds of rank 0's clock in a second of this one's.
    pub fn rank0_rate(&self) -> f64 {
        1.0 - self.line.drift
    }

    /// By how much [`Clock::rank0_s`] may be wrong at a moment of this clock's, in seconds: zero where both are one clock,
    /// infinite where the last comparison made no sense. It holds for a drift that is constant since the oldest comparison
    /// that is kept.
    pub fn error_s(&self, own_s: f64) -> f64 {
        if self.is_lost {
            return f64::INFINITY;
        }
        let by_one = |one: &Compared| {
            let from_line_s = (one.by_s - self.line.by_s(one.at_s)).abs();
            one.error_s + from_line_s + self.line.drift_error * (own_s - one.at_s).abs()
        };
        self.compared.iter().map(by_one).reduce(f64::min).unwrap_or(0.0)
    }

    /// Compares this rank's clock with rank 0's once more. All ranks must call it, and send nothing else meanwhile.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn compare(
        &mut self,
        post: &mut impl MessageChannel,
        (rank, ranks): (Rank, usize),
    ) -> Result<(), TransportError> {
        let is_first = self.comparisons == 0;
        self.comparisons += 1;
        if rank > 0 { self.answer(post) } else { self.ask(post, ranks, is_first) }
    }

    /// Of ranks other than rank 0: answers until rank 0 has no more to say.
    fn answer(&mut self, post: &mut impl MessageChannel) -> Result<(), TransportError> {
        let mut message = Vec::new();
        loop {
            post.receive(0, &mut message)?;
            match (message[0], &message[1..]) {
                (WHO, _) => post.send(0, self.system.unwrap_or(0).to_ne_bytes().to_vec().into())?,
                (QUESTION, _) => post.send(0, self.now_s().to_ne_bytes().to_vec().into())?,
                (COMPARED, values) => {
                    let (at_s, rest) = values.split_at(size_of::<f64>());
                    let (by_s, error_s) = rest.split_at(size_of::<f64>());
                    let [at_s, by_s, error_s] = [at_s, by_s, error_s].map(seconds);
                    self.add(Compared { at_s, by_s, error_s });
                }
                (LOST, _) => self.lose(),
                _ => return post.flush(),
            }
        }
    }

    /// Of rank 0: asks one rank of each other system, and tells all ranks of the system what it has found.
    fn ask(
        &self,
        post: &mut impl MessageChannel,
        ranks: usize,
        is_first: bool,
    ) -> Result<(), TransportError> {
        let mut message = Vec::new();
        let mut systems: Vec<Option<u64>> = vec![None; ranks];
        (1..ranks).try_for_each(|other| post.send(other, [WHO].into()))?;
        for other in 1..ranks {
            let from = post.receive(other, &mut message)?;
            let bytes = message[..].try_into().expect("8 bytes");
            systems[from] = Some(u64::from_ne_bytes(bytes)).filter(|&system| system != 0);
        }
        let is_own = |other: Rank| systems[other].is_some() && systems[other] == self.system;
        let others: Vec<Rank> = (1..ranks).filter(|&other| !is_own(other)).collect();
        // Ranks of a system that nobody knows stand for themselves.
        let leader = |other: Rank| match systems[other] {
            None => other,
            system => *others.iter().find(|&&rank| systems[rank] == system).expect("itself"),
        };
        let rounds = match is_first {
            _ if others.is_empty() => 0,
            true => FIRST,
            false => 1,
        };
        for round in 0..rounds {
            if round > 0 {
                std::thread::sleep(APART);
            }
            for &asked in others.iter().filter(|&&other| leader(other) == other) {
                let found = self.ask_one(post, asked)?;
                let told: Arc<[u8]> = match found {
                    None => [LOST].into(),
                    Some(Compared { at_s, by_s, error_s }) => {
                        let values = [at_s, by_s, error_s].map(f64::to_ne_bytes);
                        [&[COMPARED], values.as_flattened()].concat().into()
                    }
                };
                for &other in others.iter().filter(|&&other| leader(other) == asked) {
                    post.send(other, told.clone())?;
                }
            }
        }
        (1..ranks).try_for_each(|other| post.send(other, [DONE].into()))?;
        post.flush()
    }

    /// Rank 0's comparison with a rank; none if the answers contradict each other.
    fn ask_one(
        &self,
        post: &mut impl MessageChannel,
        other: Rank,
    ) -> Result<Option<Compared>, TransportError> {
        let mut message = Vec::new();
        let mut asked = [Trip::default(); QUESTIONS];
        for trip in &mut asked {
            trip.asked_s = self.now_s();
            post.send(other, [QUESTION].into())?;
            post.receive(other, &mut message)?;
            trip.answered_s = self.now_s();
            trip.own_s = seconds(&message);
        }
        Ok(shortest(&asked))
    }

    fn lose(&mut self) {
        self.compared.clear();
        self.line = Line::default();
        self.is_lost = true;
    }

    fn add(&mut self, one: Compared) {
        self.is_lost = false;
        self.compared.push(one);
        let all = &mut self.compared;
        let is_old = |other: &Compared| one.at_s - other.at_s > SPAN_S;
        while all.len() > KEPT || all.len() > 2 && is_old(&all[0]) {
            all.remove(0);
        }
        // Comparisons that no drift explains are forgotten, the oldest first: the clock was slewed or set.
        let (low, high) = loop {
            let (low, high) = drifts(all);
            if low <= high {
                break (low, high);
            }
            all.remove(0);
        };
        self.line = Line::through(all, (low, high));
    }
}

impl Line {
    /// By weighted least squares, with a drift within the range; without drift if comparisons say little about it.
    fn through(all: &[Compared], (low, high): (f64, f64)) -> Line {
        let weight = |one: &Compared| one.error_s.max(LEAST_ERROR_S).powi(-2);
        let last = all[all.len() - 1];
        let total: f64 = all.iter().map(weight).sum();
        // From the last one on, as clocks count from the start of a system.
        let mean = |of: &dyn Fn(&Compared) -> f64| {
            all.iter().map(|one| weight(one) * of(one)).sum::<f64>() / total
        };
        let [since, gained] =
            [mean(&|one| one.at_s - last.at_s), mean(&|one| one.by_s - last.by_s)];
        let from_mean =
            |one: &Compared| (one.at_s - last.at_s - since, one.by_s - last.by_s - gained);
        let square = mean(&|one| from_mean(one).0.powi(2));
        let product = mean(&|one| from_mean(one).0 * from_mean(one).1);
        let is_known = high - low < MOST_DRIFT && square > 0.0;
        let drift = if is_known { (product / square).clamp(low, high) } else { 0.0 };
        Line {
            at_s: last.at_s + since,
            by_s: last.by_s + gained,
            drift,
            drift_error: (drift - low).abs().max((high - drift).abs()),
        }
    }

    fn by_s(&self, at_s: f64) -> f64 {
        self.by_s + self.drift * (at_s - self.at_s)
    }
}

/// The least and the largest drift with which all comparisons are within their errors; the least is larger if there is none.
fn drifts(all: &[Compared]) -> (f64, f64) {
    let (mut low, mut high) = (-MOST_DRIFT, MOST_DRIFT);
    for (index, later) in all.iter().enumerate() {
        for earlier in &all[..index] {
            let apart_s = later.at_s - earlier.at_s;
            let (gained_s, error_s) = (later.by_s - earlier.by_s, later.error_s + earlier.error_s);
            // Two comparisons at one moment tell nothing of the drift, if they are not too far from each other.
            if apart_s > 0.0 {
                low = low.max((gained_s - error_s) / apart_s);
                high = high.min((gained_s + error_s) / apart_s);
            } else if apart_s < 0.0 || gained_s.abs() > error_s {
                return (f64::INFINITY, f64::NEG_INFINITY);
            }
        }
    }
    (low, high)
}

/// A question and its answer, in seconds: by rank 0's clock, and by the other rank's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Trip {
    asked_s: f64,
    answered_s: f64,
    own_s: f64,
}

impl Trip {
    /// By how much the other clock is ahead, at least and at most.
    fn by_s(&self) -> [f64; 2] {
        [self.own_s - self.answered_s, self.own_s - self.asked_s]
    }
}

/// The comparison of the shortest round trip; none if a clock runs backwards, or an answer is from before its question or
/// from after its arrival by the clocks of the shortest one.
fn shortest(trips: &[Trip]) -> Option<Compared> {
    let took_s = |trip: &Trip| trip.answered_s - trip.asked_s;
    let best = trips.iter().min_by(|one, other| took_s(one).total_cmp(&took_s(other)))?;
    let [least_s, most_s] = best.by_s();
    let is_right = |trip: &Trip| {
        let [low_s, high_s] = trip.by_s();
        let apart_s = trip.answered_s.max(best.answered_s) - trip.asked_s.min(best.asked_s);
        let room_s = MOST_DRIFT * apart_s;
        trip.own_s.is_finite()
            && trip.asked_s <= trip.answered_s
            && low_s <= most_s + room_s
            && least_s <= high_s + room_s
    };
    let in_order = trips.windows(2).all(|pair| pair[0].own_s <= pair[1].own_s);
    let found =
        Compared { at_s: best.own_s, by_s: (least_s + most_s) / 2.0, error_s: took_s(best) / 2.0 };
    (in_order && trips.iter().all(is_right)).then_some(found)
}

/// First bytes of rank 0's messages: questions about the system and the time, a comparison, contradictory answers, the end.
const WHO: u8 = 0;
const QUESTION: u8 = 1;
const COMPARED: u8 = 2;
const LOST: u8 = 3;
const DONE: u8 = 4;

fn seconds(bytes: &[u8]) -> f64 {
    f64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

/// The clock that NTP does not slew, where the system has one.
#[cfg(target_os = "linux")]
const UNCORRECTED: ClockId = ClockId::CLOCK_MONOTONIC_RAW;
#[cfg(not(target_os = "linux"))]
const UNCORRECTED: ClockId = ClockId::CLOCK_MONOTONIC;

/// Seconds of a clock that all processes of the system share.
fn read_s(clock: ClockId) -> f64 {
    let now = clock_gettime(clock).expect("every system has this clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9
}

/// Identifies the system whose clocks this process reads: this boot of the kernel, and the namespace of its time.
fn system() -> Option<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(results::inputs::fnv1a(format!("{boot} {}", namespace.display()).as_bytes()))
}

#[cfg(test)]
mod tests;
