//! What is known of the processes of a job, and which of them is to blame when it does not go on.

use std::time::{Duration, Instant};

use algorithms::topology::Rank;

use super::activity::Activity;

/// A process that has said nothing for so long, while another complains, is the one to blame. Many times
/// the interval at which it should speak.
const SUSPICIOUS: Duration = Duration::from_secs(1);
/// Between a complaint and the verdict: whose connection ends meanwhile is to blame.
const HEARING: Duration = Duration::from_millis(300);

/// What a process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It lives, and does this.
    Beats(Activity),
    /// It has waited for too long.
    GivesUp(String),
    /// It is done.
    Leaves,
    /// Nothing: its connection has ended.
    Ends,
}

/// What is known of one process.
#[derive(Clone, Debug)]
struct Known {
    /// When it spoke last.
    heard: Instant,
    /// What it did then, and since when that has not changed.
    activity: Activity,
    since: Instant,
    complaint: Option<(Instant, String)>,
    has_left: bool,
    is_gone: bool,
}

/// What is known of all.
pub struct Watch {
    timeout: Duration,
    /// No job does nothing for so long.
    standstill: Duration,
    known: Vec<Known>,
    /// When the watch was last looked at, and for how long it once was not.
    looked: Instant,
    blind: Duration,
}

impl Watch {
    /// Nothing yet. A process that is silent for longer than `timeout` is given up, and all are if none
    /// gets on for `standstill`.
    pub fn new(ranks: usize, timeout: Duration, standstill: Duration, now: Instant) -> Watch {
        let fresh = Known {
            heard: now,
            activity: Activity::default(),
            since: now,
            complaint: None,
            has_left: false,
            is_gone: false,
        };
        Watch { timeout, standstill, known: vec![fresh; ranks], looked: now, blind: Duration::ZERO }
    }

    /// The watch is about to hear all. If it has not for long, it was rank 0 itself that stood still, and
    /// nobody else is to blame for having been silent meanwhile.
    pub fn look(&mut self, now: Instant) {
        let blind = now.saturating_duration_since(self.looked);
        self.looked = now;
        if blind > SUSPICIOUS {
            self.blind = blind;
            self.known.iter_mut().for_each(|known| known.heard = now);
        }
    }

    /// A process says something.
    pub fn hear(&mut self, rank: Rank, word: Word, now: Instant) {
        let known = &mut self.known[rank];
        match word {
            Word::Ends => known.is_gone = true,
            Word::Leaves => known.has_left = true,
            Word::GivesUp(why) => {
                known.heard = now;
                known.complaint.get_or_insert((now, why));
            }
            Word::Beats(activity) => {
                if activity != known.activity {
                    (known.activity, known.since) = (activity, now);
                }
                known.heard = now;
            }
        }
    }

    /// All but rank 0, which asks, are done or gone.
    pub fn all_have_left(&self) -> bool {
        self.known[1..].iter().all(|known| known.has_left || known.is_gone)
    }

    /// Why the job cannot go on, if it cannot.
    pub fn verdict(&self, now: Instant) -> Option<String> {
        let ranks = || self.known.iter().enumerate();
        let is_gone = |known: &Known| known.is_gone && !known.has_left;
        let suffers = |known: &Known| is_gone(known) || known.complaint.is_some();
        if self.blind > self.timeout || (!self.blind.is_zero() && self.known.iter().any(suffers)) {
            return Some(format!("process 0 stood still for {:.1} s", self.blind.as_secs_f64()));
        }
        if let Some((rank, _)) = ranks().find(|(_, known)| is_gone(known)) {
            return Some(format!("process {rank} is gone"));
        }
        let silent = |known: &Known| now.saturating_duration_since(known.heard);
        let (quietest, known) =
            ranks().filter(|(_, known)| !known.has_left).max_by_key(|(_, known)| silent(known))?;
        let complaint = ranks().find_map(|(rank, known)| Some((rank, known.complaint.as_ref()?)));
        let waited = complaint
            .map_or(Duration::ZERO, |(_, (since, _))| now.saturating_duration_since(*since));
        if silent(known) > self.timeout || (complaint.is_some() && silent(known) > SUSPICIOUS) {
            return Some(format!(
                "process {quietest} has said nothing for {:.1} s",
                silent(known).as_secs_f64()
            ));
        }
        if let Some((rank, (_, why))) = complaint.filter(|_| waited > HEARING) {
            return Some(match self.blamed(rank) {
                Some(blamed) => format!("process {blamed} does not go on: {why}"),
                None => why.clone(),
            });
        }
        // Nobody complains where the library waits by itself.
        let busy = || ranks().filter(|(_, known)| known.activity.is_busy);
        let still = |known: &Known| now.saturating_duration_since(known.since);
        let least = busy().map(|(_, known)| still(known)).min()?;
        (least > self.standstill).then(|| {
            let working = busy().find(|(_, known)| known.activity.waits_for.is_none());
            let who = working.or_else(|| busy().next()).map_or(0, |(rank, _)| rank);
            let seconds = least.as_secs_f64();
            format!("no process has gone on for {seconds:.1} s; process {who} waits for nobody that it names")
        })
    }

    /// The end of the chain of those who wait for each other, from a rank on, if it is another.
    fn blamed(&self, rank: Rank) -> Option<Rank> {
        let next = |at: &Rank| self.known[*at].activity.waits_for.filter(|&next| next != rank);
        let chain = std::iter::successors(next(&rank), next);
        chain.take(self.known.len()).last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn busy(waits_for: Option<Rank>, progress: u64) -> Word {
        Word::Beats(Activity { is_busy: true, waits_for, progress })
    }

    /// Four processes that have just spoken.
    fn watch() -> (Watch, Instant) {
        let now = Instant::now();
        (Watch::new(4, TIMEOUT, 2 * TIMEOUT, now), now)
    }

    fn after(now: Instant, seconds: f64) -> Instant {
        now + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn who_is_gone_is_named_at_once() {
        let (mut watch, now) = watch();
        assert_eq!(watch.verdict(now), None);
        watch.hear(3, Word::Leaves, now);
        watch.hear(3, Word::Ends, now);
        assert_eq!(watch.verdict(now), None, "it was done");
        watch.hear(2, Word::Ends, now);
        assert_eq!(watch.verdict(now).unwrap(), "process 2 is gone");
        assert!(!watch.all_have_left());
    }

    #[test]
    fn who_is_silent_is_to_blame_whoever_complains() {
        let (mut watch, now) = watch();
        let later = after(now, 5.1);
        for rank in [0, 1, 3] {
            watch.hear(rank, busy(None, 1), later);
        }
        assert_eq!(watch.verdict(after(now, 5.0)), None);
        assert_eq!(watch.verdict(later).unwrap(), "process 2 has said nothing for 5.1 s");
        let sooner = after(now, 3.0);
        watch.hear(0, Word::GivesUp("rank 0 has waited for rank 1".into()), sooner);
        assert_eq!(watch.verdict(sooner).unwrap(), "process 2 has said nothing for 3.0 s");
    }

    #[test]
    fn who_watches_may_have_stood_still_itself() {
        let (mut watch, now) = watch();
        let later = after(now, 4.0);
        watch.look(later);
        assert_eq!(watch.verdict(later), None, "nobody minded");
        watch.hear(1, Word::Ends, later);
        assert_eq!(watch.verdict(later).unwrap(), "process 0 stood still for 4.0 s");
        let (mut watch, now) = self::watch();
        watch.look(after(now, 6.0));
        assert_eq!(watch.verdict(after(now, 6.0)).unwrap(), "process 0 stood still for 6.0 s");
    }

    #[test]
    fn a_complaint_is_heard_out_and_the_end_of_the_chain_is_blamed() {
        let (mut watch, now) = watch();
        for (rank, waits_for) in [(0, Some(1)), (1, Some(2)), (2, None), (3, Some(0))] {
            watch.hear(rank, busy(waits_for, 7), now);
        }
        watch.hear(0, Word::GivesUp("rank 0 has waited 5.0 s for rank 1".into()), now);
        assert_eq!(watch.verdict(now), None, "somebody may be found gone meanwhile");
        let verdict = watch.verdict(after(now, 0.4)).unwrap();
        assert_eq!(verdict, "process 2 does not go on: rank 0 has waited 5.0 s for rank 1");
    }

    #[test]
    fn processes_that_wait_in_a_circle_are_noticed() {
        let (mut watch, now) = watch();
        for rank in 0..4 {
            watch.hear(rank, busy(Some((rank + 1) % 4), 7), now);
        }
        let later = after(now, 10.1);
        for rank in 0..4 {
            watch.hear(rank, busy(Some((rank + 1) % 4), 7), later);
        }
        assert!(watch.verdict(later).unwrap().starts_with("no process has gone on for 10.1 s"));
        watch.hear(3, busy(Some(0), 8), later);
        assert_eq!(watch.verdict(later), None, "one goes on");
    }

    #[test]
    fn idle_processes_may_stand_still() {
        let (mut watch, now) = watch();
        let later = after(now, 100.0);
        (0..4).for_each(|rank| watch.hear(rank, Word::Beats(Activity::default()), later));
        assert_eq!(watch.verdict(later), None);
    }
}
