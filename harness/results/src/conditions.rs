//! What the system did besides while a block was measured, as Linux counts it on the nodes of the block's ranks.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core_to_core::core_to_core_ns;

/// The conditions of one block of one case; a field is empty where the system does not tell. Of a block on several nodes,
/// each value from `others_share` to `numa_misses` is that of the node where it is worst.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// The case's name.
    pub case: String,
    /// The block, from 0: each case is measured once in it.
    pub block: usize,
    /// Runs of the program that have worked on this folder, from 1.
    pub launch: usize,
    /// When the block began, in seconds since 1970 UTC.
    pub began_s: f64,
    /// How long it took, with its start and warm-up.
    pub elapsed_s: f64,
    /// Time of other programs on all processors, as a share of the processors' time. Programs of the same name as this
    /// one, such as other ranks, do not count.
    pub others_share: Option<f64>,
    /// Time that the hypervisor gave to other machines, as a share of the processors' time.
    pub steal_share: Option<f64>,
    /// The processors' mean frequency at the end of the block.
    pub frequency_mhz: Option<f64>,
    /// How often a processor was slowed down because of heat.
    pub throttled: Option<u64>,
    /// Page faults of this process that were served from a disk.
    pub major_faults: Option<u64>,
    /// How often a thread of this process had to leave its core, per second.
    pub preempted_per_s: Option<f64>,
    /// Pages that a node of the memory had to give to processors of another one.
    pub numa_misses: Option<u64>,
    /// Latency between the first two processors of rank 0's node in nanoseconds, before the block. Virtual machines only: their
    /// processors move.
    pub core_to_core_ns: Option<f64>,
    /// The same after the block.
    pub core_to_core_ns_after: Option<f64>,
    /// Nodes of the job that have told, that of rank 0 among them.
    pub nodes: usize,
    /// Of these, the one where others and the hypervisor took the largest share of the processors' time, from 0.
    pub worst_node: Option<usize>,
}

impl Conditions {
    /// How far apart processors were, before the block and after it.
    pub fn core_to_core(&self) -> Vec<f64> {
        self.core_to_core_ns.into_iter().chain(self.core_to_core_ns_after).collect()
    }

    /// The worst of these and of those of other nodes, by the places of the nodes in the job.
    fn and_of(self, others: &[(usize, Conditions)]) -> Conditions {
        let all = || [(0, &self)].into_iter().chain(others.iter().map(|(node, it)| (*node, it)));
        let most = |value: fn(&Conditions) -> Option<f64>| {
            all().filter_map(|(_, it)| value(it)).max_by(f64::total_cmp)
        };
        let count =
            |value: fn(&Conditions) -> Option<u64>| all().filter_map(|(_, it)| value(it)).max();
        let taken = |it: &Conditions| Some(it.others_share? + it.steal_share.unwrap_or(0.0));
        let by_share = all().filter_map(|(node, it)| Some((node, taken(it)?)));
        // Where nodes are alike, the first of them.
        let worst = by_share.reduce(|worst, next| if next.1 > worst.1 { next } else { worst });
        Conditions {
            others_share: most(|it| it.others_share),
            steal_share: most(|it| it.steal_share),
            frequency_mhz: all().filter_map(|(_, it)| it.frequency_mhz).min_by(f64::total_cmp),
            throttled: count(|it| it.throttled),
            major_faults: count(|it| it.major_faults),
            preempted_per_s: most(|it| it.preempted_per_s),
            numa_misses: count(|it| it.numa_misses),
            nodes: all().count(),
            worst_node: worst.map(|(node, _)| node),
            ..self.clone()
        }
    }
}

/// What other nodes of a job tell of a block that all of them measure.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere(Arc<Mutex<Vec<(usize, Conditions)>>>);

impl Elsewhere {
    /// What a node tells, by its place in the job.
    pub fn tell(&self, node: usize, conditions: Conditions) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((node, conditions));
    }

    /// What was told since this was called last.
    fn take(&self) -> Vec<(usize, Conditions)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The counters of the system at one moment.
#[derive(Clone, Debug)]
pub struct Counters {
    at: Instant,
    since_1970: Duration,
    /// Ticks of all processors: busy, stolen, all.
    processors: Option<[u64; 3]>,
    /// Ticks of processes of this name, user and system.
    own: Option<u64>,
    throttled: Option<u64>,
    major_faults: Option<u64>,
    preempted: Option<u64>,
    numa_misses: Option<u64>,
    core_to_core_ns: Option<f64>,
    elsewhere: Elsewhere,
}

impl Counters {
    /// Reads them.
    pub fn now() -> Counters {
        let core_to_core_ns = core_to_core_ns();
        Counters { core_to_core_ns, ..Counters::read() }
    }

    fn read() -> Counters {
        let usage = usage();
        Counters {
            at: Instant::now(),
            since_1970: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            processors: fs::read_to_string("/proc/stat").ok().as_deref().and_then(processors),
            own: own_ticks(),
            throttled: sum("/sys/devices/system/cpu", "cpu", |path| {
                number(&format!("{path}/thermal_throttle/core_throttle_count"))
            }),
            major_faults: usage.map(|(faults, _)| faults),
            preempted: usage.map(|(_, preempted)| preempted),
            numa_misses: sum("/sys/devices/system/node", "node", |path| {
                let text = fs::read_to_string(format!("{path}/numastat")).ok()?;
                text.lines().find_map(|line| line.strip_prefix("numa_miss "))?.parse().ok()
            }),
            core_to_core_ns: None,
            elsewhere: Elsewhere::default(),
        }
    }

    /// The same for a block that other nodes measure as well, which tell by `elsewhere` what happened there. What they told
    /// of earlier blocks is forgotten.
    #[must_use]
    pub fn beside(self, elsewhere: &Elsewhere) -> Counters {
        elsewhere.take();
        Counters { elsewhere: elsewhere.clone(), ..self }
    }

    /// What has happened since, here and where other nodes have told.
    pub fn until_now(&self) -> Conditions {
        // What measures the latency is not part of the block.
        let now = Counters::read();
        let now = Counters { core_to_core_ns: core_to_core_ns(), ..now };
        self.until(&now).and_of(&self.elsewhere.take())
    }

    fn until(&self, now: &Counters) -> Conditions {
        let elapsed = now.at - self.at;
        let more = |before: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(before?));
        let processors = self.processors.zip(now.processors);
        let ticks = |at: usize| processors.map(|(before, now)| now[at].saturating_sub(before[at]));
        let share = |part: Option<u64>| {
            let all = ticks(2).filter(|&all| all > 0)?;
            Some(rounded(part? as f64 / all as f64))
        };
        let own = more(self.own, now.own);
        Conditions {
            began_s: rounded(self.since_1970.as_secs_f64()),
            elapsed_s: rounded(elapsed.as_secs_f64()),
            others_share: share(ticks(0).zip(own).map(|(busy, own)| busy.saturating_sub(own))),
            steal_share: share(ticks(1)),
            frequency_mhz: frequency_mhz(),
            throttled: more(self.throttled, now.throttled),
            major_faults: more(self.major_faults, now.major_faults),
            preempted_per_s: more(self.preempted, now.preempted)
                .map(|count| rounded(count as f64 / elapsed.max(LEAST).as_secs_f64())),
            numa_misses: more(self.numa_misses, now.numa_misses),
            core_to_core_ns: self.core_to_core_ns,
            core_to_core_ns_after: now.core_to_core_ns,
            ..Conditions::default()
        }
    }
}

/// Rates are of at least so long.
const LEAST: Duration = Duration::from_millis(1);

fn rounded(value: f64) -> f64 {
    (1e4 * value).round() / 1e4
}

/// Busy, stolen and all ticks of all processors, from `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal;
/// guests are counted in user.
fn processors(stat: &str) -> Option<[u64; 3]> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> =
        line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let &[user, nice, system, idle, iowait, irq, softirq, steal] = &ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some([busy, steal, busy + steal + idle + iowait])
}

/// Ticks of all processes that have the name of this one, those of other ranks among them.
fn own_ticks() -> Option<u64> {
    let (name, _) = name_and_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let processes = fs::read_dir("/proc").ok()?.flatten().filter(|entry| {
        entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())
    });
    let texts = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let ticks = texts.filter_map(|text| {
        name_and_ticks(&text).filter(|(other, _)| *other == name).map(|(_, ticks)| ticks)
    });
    Some(ticks.sum())
}

/// A process's name, and its ticks on a core, from its `stat`.
fn name_and_ticks(stat: &str) -> Option<(String, u64)> {
    let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat[end + 1..].split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((stat[begin + 1..end].into(), user + system))
}

/// Page faults served from a disk, and forced context switches, of this process.
fn usage() -> Option<(u64, u64)> {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::resource::{UsageWho, getrusage};
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        let count = |value: i64| u64::try_from(value).ok();
        Some((count(usage.major_page_faults())?, count(usage.involuntary_context_switches())?))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// The mean over processors; none where the kernel does not tell, as in most virtual machines.
fn frequency_mhz() -> Option<f64> {
    let khz = |path: &str| number(&format!("{path}/cpufreq/scaling_cur_freq"));
    let all = numbered("/sys/devices/system/cpu", "cpu");
    let all: Vec<u64> = all.iter().filter_map(|path| khz(path)).collect();
    let mean_khz = all.iter().sum::<u64>() as f64 / all.len() as f64;
    (!all.is_empty()).then(|| (mean_khz / 1e3).round())
}

/// The sum of a number over the folders `name0`, `name1`, ...; none if no folder has it.
fn sum(folder: &str, name: &str, value: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let values: Vec<u64> = numbered(folder, name).iter().filter_map(|path| value(path)).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn numbered(folder: &str, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_numbered = |file: &str| {
        let number = file.strip_prefix(name);
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let files = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    files.filter(|file| is_numbered(file)).map(|file| format!("{folder}/{file}")).collect()
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_processors() {
        let before = "cpu  100 0 50 1000 10 0 0 5 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let after = "cpu  160 0 60 1120 10 0 0 15 0 0\n";
        let counters = |stat: &str, own: u64| Counters {
            at: Instant::now(),
            since_1970: Duration::ZERO,
            processors: processors(stat),
            own: Some(own),
            throttled: None,
            major_faults: Some(3),
            preempted: Some(own),
            numa_misses: None,
            core_to_core_ns: Some(own as f64),
            elsewhere: Elsewhere::default(),
        };
        let first = counters(before, 20);
        let second = Counters { at: first.at + Duration::from_secs(2), ..counters(after, 50) };
        let conditions = first.until(&second);
        // 70 of 200 ticks are busy, 30 of them with this program; 10 are stolen.
        assert_eq!(conditions.others_share, Some(0.2));
        assert_eq!(conditions.steal_share, Some(0.05));
        assert_eq!((conditions.elapsed_s, conditions.preempted_per_s), (2.0, Some(15.0)));
        assert_eq!((conditions.major_faults, conditions.throttled), (Some(0), None));
        assert_eq!(conditions.core_to_core(), [20.0, 50.0]);
    }

    /// Each value is that of the node where it is worst, and what a node told of an earlier block does not count.
    #[test]
    fn the_worst_of_all_nodes_counts() {
        let of = |others_share, steal_share, frequency_mhz, throttled| Conditions {
            others_share: Some(others_share),
            steal_share,
            frequency_mhz: Some(frequency_mhz),
            throttled,
            began_s: 7.0,
            ..Conditions::default()
        };
        let here = of(0.1, Some(0.05), 3000.0, None);
        let others = [(1, of(0.2, None, 2000.0, Some(3))), (2, of(0.12, Some(0.1), 2500.0, None))];
        let all = here.clone().and_of(&others);
        assert_eq!((all.others_share, all.steal_share), (Some(0.2), Some(0.1)));
        assert_eq!((all.frequency_mhz, all.throttled), (Some(2000.0), Some(3)));
        assert_eq!((all.nodes, all.worst_node), (3, Some(2)));
        let alone = here.clone().and_of(&[]);
        let expected = Conditions { nodes: 1, worst_node: Some(0), ..here };
        assert_eq!(alone, expected);
        assert_eq!(Conditions::default().and_of(&[]).worst_node, None);

        let elsewhere = Elsewhere::default();
        elsewhere.tell(1, of(0.9, None, 1.0, None));
        let counters = Counters::now().beside(&elsewhere);
        assert_eq!(counters.until_now().nodes, 1, "it was told before the block");
        elsewhere.tell(3, of(2.0, None, 1.0, Some(7)));
        let told = counters.until_now();
        assert_eq!((told.nodes, told.throttled, told.others_share), (2, Some(7), Some(2.0)));
        assert!(told.began_s > 7.0, "the moment is that of rank 0");
        assert_eq!(counters.until_now().nodes, 1);
    }

    #[test]
    fn names_of_processes_may_have_spaces_and_parentheses() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 100 0 0 0 11 22 0 0 20 0 1 0 5 6 7";
        assert_eq!(name_and_ticks(stat), Some(("a) b".into(), 33)));
        assert_eq!(name_and_ticks("7"), None);
        assert_eq!(processors("cpu  1 2 3\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_system_tells_how_busy_it_is() {
        let conditions = Counters::now().until_now();
        assert!(conditions.major_faults.is_some() && conditions.preempted_per_s.is_some());
        assert!(conditions.elapsed_s < 60.0);
        assert!(own_ticks().is_some() && Counters::now().processors.is_some());
    }
}
