//! Which configuration is tuned or measured next, where a hypervisor moves the processors of this virtual machine.
//!
//! A promise holds for processors as far apart as they were during its rounds. So a round of its blocks begins when they are that
//! far apart again: the latest promise that fits comes first. If none does, time passes before the next configuration is tuned.
//! Promises that need many blocks get the rest of them when all configurations are tuned. On another machine every promise fits,
//! and its blocks follow at once.

use results::core_to_core::are_alike;

use crate::plan::{Plan, Turn};

/// A setting has at most so many times its number of blocks. In runs with at most four times as many, the interval of
/// Horovod's gain was at most half as wide as the promised one in 7 of 19 cases (`promises-11` and `promises-12`).
const MOST: usize = 8;

/// A setting has at most so many times its number of blocks before the next configuration is tuned.
const AT_ONCE: usize = 2;

/// How often a run waits until a promise fits before the next configuration is tuned. A host was seen to move idle processors
/// back within 40 s.
const WAITS_BEFORE_TUNING: usize = 40;

/// How often it waits when all are tuned.
const MOST_WAITS: usize = 600;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask the tuners for this configuration.
    Tune(usize),
    /// Measure a round of this configuration.
    Measure(usize, Vec<Turn>),
    /// Look again in a second.
    Wait,
    /// Nothing.
    End,
}

/// What has not been tuned or measured.
pub struct Agenda {
    configs: usize,
    tuned: usize,
    pending: Vec<Pending>,
    waits: usize,
    /// The waits since something was tuned or measured.
    latest_waits: usize,
}

/// A promise, some of whose blocks are missing.
struct Pending {
    origin: usize,
    core_to_core_ns: Option<f64>,
    turns: Vec<Turn>,
    /// Rounds that every promise has, and those that were measured.
    rounds: usize,
    measured: usize,
}

impl Agenda {
    /// Nothing has been tuned of so many configurations.
    pub fn new(configs: usize) -> Agenda {
        Agenda { configs, tuned: 0, pending: Vec::new(), waits: 0, latest_waits: 0 }
    }

    /// A configuration has been tuned, with processors that far apart.
    pub fn add(&mut self, plan: &Plan, origin: usize, core_to_core_ns: Option<f64>) {
        let turns = plan.order_of(origin);
        let rounds = turns.iter().map(|turn| turn.block + 1).max().unwrap_or_default();
        self.pending.push(Pending { origin, core_to_core_ns, turns, rounds, measured: 0 });
    }

    /// The next step, with processors this far apart.
    pub fn next(&mut self, here_ns: Option<f64>) -> Next {
        let fits = |it: &&Pending| {
            it.core_to_core_ns.zip(here_ns).is_none_or(|(then, now)| are_alike(then, now))
        };
        let are_tuned = self.tuned == self.configs;
        let is_due = |it: &&Pending| are_tuned || it.measured < AT_ONCE * it.rounds;
        if let Some(it) = self.pending.iter().rev().filter(is_due).find(fits) {
            self.latest_waits = 0;
            let of_round = |turn: &&Turn| turn.block == it.measured;
            return Next::Measure(it.origin, it.turns.iter().filter(of_round).copied().collect());
        }
        if !are_tuned {
            let is_one_due = self.pending.iter().any(|it| is_due(&it));
            if is_one_due && self.latest_waits < WAITS_BEFORE_TUNING {
                self.latest_waits += 1;
                return Next::Wait;
            }
            (self.tuned, self.latest_waits) = (self.tuned + 1, 0);
            return Next::Tune(self.tuned - 1);
        }
        self.waits += 1;
        if self.pending.is_empty() || self.waits > MOST_WAITS { Next::End } else { Next::Wait }
    }

    /// A round of a configuration was measured; these cases get one more.
    pub fn measured(&mut self, plan: &Plan, origin: usize, again: Vec<usize>) {
        let Some(at) = self.pending.iter().position(|it| it.origin == origin) else { return };
        let it = &mut self.pending[at];
        it.measured += 1;
        if it.measured < it.rounds {
            return;
        }
        if again.is_empty() || it.measured >= MOST * it.rounds {
            self.pending.remove(at);
        } else {
            it.turns.extend(plan.again(again, it.measured));
        }
    }
}
