//! Rank 0's information on each process, and the decision which of them is at fault.

use std::time::{Duration, Instant};

use algorithms::topology::Rank;

use super::activity::Activity;
use super::diagnosis::Diagnosis;

/// A process that was silent, or made no progress, for this long is at fault if another gives up meanwhile. Many
/// times the interval between heartbeats.
const SUSPICIOUS: Duration = Duration::from_secs(1);
/// Time from the first process that gives up to the diagnosis: a connection that closes meanwhile explains it.
const GRACE: Duration = Duration::from_millis(300);

/// How long processes may be silent or idle.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A process that sends no heartbeat for so long has failed.
    pub timeout: Duration,
    /// The job has failed if no process makes progress for this long; none where waits have their own timeouts.
    pub standstill: Option<Duration>,
}

/// A report about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is alive, and does this.
    Heartbeat(Activity),
    /// It cannot continue.
    GaveUp {
        /// Why.
        reason: String,
        /// A wait has exceeded its timeout, and the process does not know which other process is at fault.
        is_timeout: bool,
    },
    /// It has finished.
    Left,
    /// Its connection has closed.
    Disconnected,
    /// It has sent something that is no message.
    Protocol(String),
}

/// Why a process gave up, and when.
#[derive(Clone, Debug)]
struct Failure {
    at: Instant,
    reason: String,
    is_timeout: bool,
}

/// Information on one process.
#[derive(Clone, Debug)]
struct Known {
    last_heartbeat: Instant,
    activity: Activity,
    /// Since when its activity has not changed.
    unchanged_since: Instant,
    failure: Option<Failure>,
    protocol_error: Option<String>,
    has_left: bool,
    is_disconnected: bool,
}

impl Known {
    fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_heartbeat)
    }

    fn unchanged(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.unchanged_since)
    }

    /// Its connection has closed without a message that explains it.
    fn is_lost(&self) -> bool {
        self.is_disconnected && !self.has_left && self.failure.is_none()
    }

    fn should_send_heartbeats(&self) -> bool {
        !self.has_left && !self.is_disconnected && self.failure.is_none()
    }
}

/// Information on all processes.
pub struct Suspicions {
    limits: Limits,
    known: Vec<Known>,
    last_look: Instant,
    /// When rank 0 was last suspended, and for how long.
    pause: Option<(Instant, Duration)>,
}

impl Suspicions {
    /// All processes are alive now.
    pub fn new(ranks: usize, limits: Limits, now: Instant) -> Suspicions {
        let known = Known {
            last_heartbeat: now,
            activity: Activity::default(),
            unchanged_since: now,
            failure: None,
            protocol_error: None,
            has_left: false,
            is_disconnected: false,
        };
        Suspicions { limits, known: vec![known; ranks], last_look: now, pause: None }
    }

    /// Rank 0 is about to record received messages. If it has not done so for long, it was suspended itself, and
    /// the silence of the others is ignored.
    pub fn begin_look(&mut self, now: Instant) {
        let pause = now.saturating_duration_since(self.last_look);
        self.last_look = now;
        if pause > SUSPICIOUS {
            self.pause = Some((now, pause));
            for known in &mut self.known {
                known.last_heartbeat = now;
            }
        }
    }

    /// Records a report of a process.
    pub fn record(&mut self, rank: Rank, report: Report, now: Instant) {
        let known = &mut self.known[rank];
        match report {
            Report::Disconnected => known.is_disconnected = true,
            Report::Protocol(error) => {
                known.protocol_error.get_or_insert(error);
                known.is_disconnected = true;
            }
            Report::Left => known.has_left = true,
            Report::GaveUp { reason, is_timeout } => {
                known.failure.get_or_insert(Failure { at: now, reason, is_timeout });
            }
            Report::Heartbeat(activity) => {
                if activity != known.activity {
                    (known.activity, known.unchanged_since) = (activity, now);
                }
                known.last_heartbeat = now;
            }
        }
    }

    /// No process besides rank 0 is left to wait for: all have finished, or are beyond hope.
    pub fn have_all_left(&self, now: Instant) -> bool {
        let is_done = |known: &Known| {
            known.has_left || known.is_disconnected || known.silence(now) > self.limits.timeout
        };
        self.known[1..].iter().all(is_done)
    }

    /// Why the job cannot continue, if it cannot.
    pub fn diagnose(&self, now: Instant) -> Option<Diagnosis> {
        let failure = self.first_failure();
        self.suspended(now)
            .or_else(|| self.lost())
            .or_else(|| self.silent(now, failure.is_some()))
            .or_else(|| {
                let (rank, failure) = failure?;
                let is_due = now.saturating_duration_since(failure.at) > GRACE;
                is_due.then(|| self.explain(rank, failure, now))
            })
            .or_else(|| self.standstill(now))
    }

    fn ranks(&self) -> impl Iterator<Item = (Rank, &Known)> {
        self.known.iter().enumerate()
    }

    /// An error explains more than a timeout.
    fn first_failure(&self) -> Option<(Rank, &Failure)> {
        let failures =
            self.ranks().filter_map(|(rank, known)| Some((rank, known.failure.as_ref()?)));
        failures.min_by_key(|(rank, failure)| (failure.is_timeout, *rank))
    }

    fn suspended(&self, now: Instant) -> Option<Diagnosis> {
        let (end, pause) = self.pause?;
        let has_consequences =
            self.known.iter().any(|known| known.is_lost() || known.failure.is_some());
        let is_recent = now.saturating_duration_since(end) < self.limits.timeout;
        let is_at_fault = pause > self.limits.timeout || (is_recent && has_consequences);
        is_at_fault.then_some(Diagnosis::Suspended { pause })
    }

    fn lost(&self) -> Option<Diagnosis> {
        let (rank, known) = self.ranks().find(|(_, known)| known.is_lost())?;
        let protocol = |error| Diagnosis::Protocol { rank, error };
        Some(known.protocol_error.clone().map_or(Diagnosis::Lost { rank }, protocol))
    }

    fn silent(&self, now: Instant, has_failure: bool) -> Option<Diagnosis> {
        let limit =
            if has_failure { SUSPICIOUS.min(self.limits.timeout) } else { self.limits.timeout };
        let candidates = self.ranks().filter(|(_, known)| known.should_send_heartbeats());
        let (rank, known) = candidates.max_by_key(|(_, known)| known.silence(now))?;
        let silence = known.silence(now);
        (silence > limit).then_some(Diagnosis::Silent { rank, silence })
    }

    /// The process that is at fault when `rank` gives up.
    fn explain(&self, rank: Rank, failure: &Failure, now: Instant) -> Diagnosis {
        let reason = failure.reason.clone();
        let stuck = self
            .end_of_chain(rank)
            .or_else(|| failure.is_timeout.then(|| self.without_progress(rank, now)).flatten());
        match stuck {
            Some(stuck) => Diagnosis::Stuck { rank: stuck, reason },
            None => Diagnosis::GaveUp { rank, reason },
        }
    }

    /// The end of the chain of processes that wait for each other, from one on, if it is another.
    fn end_of_chain(&self, rank: Rank) -> Option<Rank> {
        let next = |at: &Rank| {
            self.known
                .get(*at)?
                .activity
                .waits_for
                .filter(|&next| next != rank && next < self.known.len())
        };
        std::iter::successors(next(&rank), next).take(self.known.len()).last()
    }

    /// The busy process that has not done anything for longest, other than one that has given up.
    fn without_progress(&self, rank: Rank, now: Instant) -> Option<Rank> {
        let is_candidate = |(other, known): &(Rank, &Known)| {
            *other != rank
                && known.should_send_heartbeats()
                && known.activity.is_busy
                && known.unchanged(now) > SUSPICIOUS
        };
        let candidates = self.ranks().filter(is_candidate);
        candidates.max_by_key(|(_, known)| known.unchanged(now)).map(|(rank, _)| rank)
    }

    /// Where a library waits internally, no process gives up.
    fn standstill(&self, now: Instant) -> Option<Diagnosis> {
        let busy = || self.ranks().filter(|(_, known)| known.activity.is_busy);
        let duration = busy().map(|(_, known)| known.unchanged(now)).min()?;
        let works = busy().find(|(_, known)| known.activity.waits_for.is_none());
        let (rank, _) = works.or_else(|| busy().next())?;
        (duration > self.limits.standstill?).then_some(Diagnosis::Standstill { rank, duration })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn busy(waits_for: Option<Rank>, progress: u64) -> Report {
        Report::Heartbeat(Activity { is_busy: true, waits_for, progress })
    }

    fn gave_up(reason: &str, is_timeout: bool) -> Report {
        Report::GaveUp { reason: reason.into(), is_timeout }
    }

    /// Four processes that have just sent a heartbeat.
    fn suspicions() -> (Suspicions, Instant) {
        let (now, limits) =
            (Instant::now(), Limits { timeout: TIMEOUT, standstill: Some(2 * TIMEOUT) });
        (Suspicions::new(4, limits, now), now)
    }

    fn after(now: Instant, seconds: f64) -> Instant {
        now + Duration::from_secs_f64(seconds)
    }

    #[track_caller]
    fn assert_diagnosis(suspicions: &Suspicions, now: Instant, words: &str) {
        assert_eq!(suspicions.diagnose(now).map(|diagnosis| diagnosis.to_string()).unwrap(), words);
    }

    #[test]
    fn a_closed_connection_is_noticed_at_once() {
        let (mut suspicions, now) = suspicions();
        assert_eq!(suspicions.diagnose(now), None);
        suspicions.record(3, Report::Left, now);
        suspicions.record(3, Report::Disconnected, now);
        assert_eq!(suspicions.diagnose(now), None, "it had finished");
        suspicions.record(2, Report::Disconnected, now);
        assert_eq!(suspicions.diagnose(now), Some(Diagnosis::Lost { rank: 2 }));
        assert_diagnosis(&suspicions, now, "process 2 is gone");
        assert!(!suspicions.have_all_left(now));
        suspicions.record(1, Report::Left, now);
        assert!(suspicions.have_all_left(now));
    }

    #[test]
    fn a_broken_message_is_reported_with_its_sender() {
        let (mut suspicions, now) = suspicions();
        suspicions.record(1, Report::Protocol("it is too long".into()), now);
        assert_diagnosis(&suspicions, now, "process 1 broke the protocol: it is too long");
    }

    #[test]
    fn a_process_that_gave_up_and_ended_is_not_lost() {
        let (mut suspicions, now) = suspicions();
        suspicions.record(1, gave_up("rank 1: out of memory", false), now);
        suspicions.record(1, Report::Disconnected, now);
        assert_eq!(suspicions.diagnose(now), None);
        assert_diagnosis(&suspicions, after(now, 0.4), "rank 1: out of memory");
    }

    #[test]
    fn a_silent_process_is_at_fault_whichever_gives_up() {
        let (mut suspicions, now) = suspicions();
        let later = after(now, 5.1);
        for rank in [0, 1, 3] {
            suspicions.record(rank, busy(None, 1), later);
        }
        assert_eq!(suspicions.diagnose(after(now, 5.0)), None);
        assert_diagnosis(&suspicions, later, "process 2 has sent no heartbeat for 5.1 s");
        let sooner = after(now, 3.0);
        suspicions.record(0, gave_up("rank 0 has waited for rank 1", false), sooner);
        assert_diagnosis(&suspicions, sooner, "process 2 has sent no heartbeat for 3.0 s");
    }

    #[test]
    fn rank_0_may_have_been_suspended() {
        let (mut suspicions, now) = suspicions();
        let later = after(now, 4.0);
        suspicions.begin_look(later);
        assert_eq!(suspicions.diagnose(later), None, "without consequences");
        suspicions.record(1, Report::Disconnected, later);
        assert_diagnosis(&suspicions, later, "process 0 was suspended for 4.0 s");
        let (mut suspicions, now) = self::suspicions();
        suspicions.begin_look(after(now, 6.0));
        assert_diagnosis(&suspicions, after(now, 6.0), "process 0 was suspended for 6.0 s");
    }

    #[test]
    fn a_pause_long_ago_explains_nothing() {
        let (mut suspicions, now) = suspicions();
        suspicions.begin_look(after(now, 4.0));
        for tenths in 41..=100 {
            suspicions.begin_look(after(now, f64::from(tenths) / 10.0));
        }
        let later = after(now, 10.0);
        (0..4).for_each(|rank| suspicions.record(rank, busy(None, 1), later));
        suspicions.record(1, Report::Disconnected, later);
        assert_diagnosis(&suspicions, later, "process 1 is gone");
    }

    #[test]
    fn the_end_of_a_chain_of_waiting_processes_is_at_fault() {
        let (mut suspicions, now) = suspicions();
        for (rank, waits_for) in [(0, Some(1)), (1, Some(2)), (2, None), (3, Some(0))] {
            suspicions.record(rank, busy(waits_for, 7), now);
        }
        suspicions.record(0, gave_up("rank 0 has waited 5.0 s for rank 1", false), now);
        assert_eq!(suspicions.diagnose(now), None, "a connection may close meanwhile");
        let words = "process 2 makes no progress: rank 0 has waited 5.0 s for rank 1";
        assert_diagnosis(&suspicions, after(now, 0.4), words);
    }

    #[test]
    fn a_chain_that_leads_nowhere_ends() {
        let (mut suspicions, now) = suspicions();
        suspicions.record(0, busy(Some(1), 7), now);
        suspicions.record(1, busy(Some(usize::MAX), 7), now);
        suspicions.record(0, gave_up("rank 0 has waited", false), now);
        let diagnosis = suspicions.diagnose(after(now, 0.4)).unwrap();
        assert_eq!(diagnosis, Diagnosis::Stuck { rank: 1, reason: "rank 0 has waited".into() });
    }

    #[test]
    fn a_timeout_is_the_fault_of_a_process_without_progress() {
        let (mut suspicions, now) = suspicions();
        let later = after(now, 3.0);
        suspicions.record(1, busy(None, 1), now);
        for (rank, progress) in [(0, 9), (1, 1), (2, 9), (3, 9)] {
            suspicions.record(rank, busy(None, progress), later);
        }
        let due = after(later, 0.4);
        suspicions.record(0, gave_up("rank 0 has waited", true), later);
        suspicions.record(2, gave_up("rank 2 has waited", true), later);
        assert_eq!(suspicions.diagnose(due).unwrap().rank(), 1);
        suspicions.record(3, gave_up("rank 3: an error", false), later);
        assert_diagnosis(&suspicions, due, "rank 3: an error");
        suspicions.record(1, busy(None, 2), due);
        let (mut suspicions, now) = self::suspicions();
        suspicions.record(0, gave_up("rank 0 has waited", true), now);
        assert_diagnosis(&suspicions, after(now, 0.4), "rank 0 has waited");
    }

    #[test]
    fn processes_that_wait_in_a_circle_are_noticed() {
        let (mut suspicions, now) = suspicions();
        for rank in 0..4 {
            suspicions.record(rank, busy(Some((rank + 1) % 4), 7), now);
        }
        let later = after(now, 10.1);
        for rank in 0..4 {
            suspicions.record(rank, busy(Some((rank + 1) % 4), 7), later);
        }
        let diagnosis = suspicions.diagnose(later).unwrap().to_string();
        assert!(diagnosis.starts_with("no process has made progress for 10.1 s"), "{diagnosis}");
        suspicions.record(3, busy(Some(0), 8), later);
        assert_eq!(suspicions.diagnose(later), None, "one makes progress");
    }

    #[test]
    fn idle_processes_may_do_nothing() {
        let (mut suspicions, now) = suspicions();
        let later = after(now, 100.0);
        for rank in 0..4 {
            suspicions.record(rank, Report::Heartbeat(Activity::default()), later);
        }
        assert_eq!(suspicions.diagnose(later), None);
    }
}
