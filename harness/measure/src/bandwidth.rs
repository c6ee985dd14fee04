//! Bus bandwidth of the messages of measured steps: that of an allreduce of their size within training steps,
//! packing included.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use crate::config::Case;
use crate::round_effect::Round;
use crate::steadiness::SpeedChange;
use results::block::Message;
use results::nested::{BLOCKS_MIN, Level, Nested};
use results::row::{Bandwidths, MessageRow, StepSetting, ends};
use results::statistics::{SAMPLES_MIN, Summary};
use results::units::bus_factor;

/// An octave with more messages keeps every second one, and so on.
const MESSAGES_MAX: usize = 200_000;

/// Collects the messages of cases that are right.
#[derive(Default)]
pub struct Bandwidth {
    groups: Vec<Group>,
    /// Blocks so far.
    blocks: usize,
    octaves: BTreeMap<(usize, u32), Octave>,
}

/// Cases of one topology and algorithm.
struct Group {
    /// The first of them.
    case: Case,
    setting: StepSetting,
}

/// Messages of about the same size.
struct Octave {
    /// Messages so far.
    count: usize,
    /// One in so many is kept.
    stride: usize,
    kept: Vec<Kept>,
}

/// A message.
#[derive(Clone, Copy)]
struct Kept {
    launch: usize,
    /// The round of blocks, and which of all blocks.
    round: usize,
    block: usize,
    size_bytes: usize,
    /// Bytes per microsecond.
    speed: f64,
}

impl Default for Octave {
    fn default() -> Octave {
        Octave { count: 0, stride: 1, kept: Vec::new() }
    }
}

impl Octave {
    fn add(&mut self, message: Kept) {
        if self.count.is_multiple_of(self.stride) {
            self.kept.push(message);
        }
        self.count += 1;
        if self.kept.len() == MESSAGES_MAX {
            self.stride *= 2;
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }

    fn rounds(&self) -> BTreeSet<Round> {
        self.kept.iter().map(|message| (message.launch, message.round)).collect()
    }

    /// Speeds by launch, and by what is independent within one, and whether that is rounds. What disturbs a round concerns all
    /// its cases, so rounds are, if there are enough of them. Blocks of different cases in fewer rounds tell about these rounds
    /// only.
    fn speeds(&self) -> (Nested, bool) {
        let by_round = self.rounds().len() >= BLOCKS_MIN;
        let unit = |message: &Kept| if by_round { message.round } else { message.block };
        let speeds: Nested = self
            .kept
            .iter()
            .map(|message| (message.launch, unit(message), message.speed))
            .collect();
        (speeds, by_round)
    }

    /// Speeds in a few numbers, and the name of what their interval is over. The median of each launch or round counts: messages
    /// of all cases together tell its speed so exactly that only launches or rounds differ. Blocks of a case have few messages.
    fn summary(&self) -> Option<(Summary, &'static str)> {
        let (speeds, by_round) = self.speeds();
        match speeds.level() {
            Level::Sample => Some((speeds.summary()?, "messages")),
            Level::Block if !by_round => Some((speeds.summary()?, "cases")),
            level => Some((speeds.of_unit_medians()?, level.plural())),
        }
    }
}

impl Bandwidth {
    /// Adds the messages of a block of a case with these settings.
    pub fn add(
        &mut self,
        case: &Case,
        setting: &StepSetting,
        (launch, round): (usize, usize),
        messages: &[Message],
    ) {
        let is_same = |group: &Group| {
            (&group.case.topology, &group.case.algorithm) == (&case.topology, &case.algorithm)
        };
        let group = self.groups.iter().position(is_same).unwrap_or_else(|| {
            self.groups.push(Group { case: case.clone(), setting: setting.clone() });
            self.groups.len() - 1
        });
        let block = self.blocks;
        self.blocks += 1;
        for &Message { size_bytes, time_us, .. } in messages {
            let octave = (size_bytes.max(1) as f64).log2().round() as u32;
            let speed = size_bytes as f64 / time_us.max(1e-3);
            let message = Kept { launch, round, block, size_bytes, speed };
            self.octaves.entry((group, octave)).or_default().add(message);
        }
    }

    /// A row per topology, algorithm and octave of size, with intervals that the machine's change of speed leaves. Octaves
    /// with fewer than 6 messages are left out.
    pub fn rows(self, change: &SpeedChange) -> Vec<MessageRow> {
        let Bandwidth { groups, octaves, .. } = self;
        let octaves: Vec<((usize, u32), Octave)> =
            octaves.into_iter().filter(|(_, octave)| octave.count >= SAMPLES_MIN).collect();
        let row = |((group, log2), octave)| row(&groups[group], log2, octave, change);
        octaves.into_par_iter().filter_map(row).collect()
    }
}

/// The row of an octave.
fn row(group: &Group, log2: u32, octave: Octave, change: &SpeedChange) -> Option<MessageRow> {
    let Case { transport, topology, algorithm, .. } = &group.case;
    let StepSetting { mut key, run, training, framework, .. } = group.setting.clone();
    let (speed, level) = octave.summary()?;
    let stays = |interval| change.interval(level, speed.p50, interval, octave.rounds());
    let speed = Summary { p50_interval: speed.p50_interval.and_then(stays), ..speed };
    let interval_over = speed.p50_interval.map_or("", |_| level);
    let mut sizes: Vec<usize> = octave.kept.iter().map(|message| message.size_bytes).collect();
    sizes.sort_unstable();
    let factor = bus_factor(topology.ranks()) / 1e3;
    let (low, high) = ends(&speed);
    key.case = format!("{transport}/{topology}/{algorithm}/2^{log2}B");
    key.size_bytes = sizes[sizes.len() / 2];
    let bandwidths = Bandwidths {
        algbw_gb_s: speed.p50 / 1e3,
        busbw_gb_s: speed.p50 * factor,
        busbw_gb_s_low: low.map(|speed| speed * factor),
        busbw_gb_s_high: high.map(|speed| speed * factor),
    };
    let (samples, interval_over) = (octave.count, interval_over.into());
    let row = MessageRow { key, run, training, framework, bandwidths, samples, interval_over };
    Some(row.rounded())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(launch: usize, round: usize, block: usize, speed: f64) -> Kept {
        Kept { launch, round, block, size_bytes: 1, speed }
    }

    #[test]
    fn an_octave_of_many_messages_keeps_an_even_part() {
        let mut octave = Octave::default();
        (0..3 * MESSAGES_MAX).for_each(|at| octave.add(message(1, 0, 0, at as f64)));
        assert_eq!((octave.count, octave.stride), (3 * MESSAGES_MAX, 4));
        let expected = (0..octave.kept.len()).map(|at| (4 * at) as f64);
        assert!(octave.kept.iter().map(|message| message.speed).eq(expected));
    }

    /// Messages of a block are alike, and blocks of a round may be.
    #[test]
    fn rounds_are_independent_or_blocks_if_there_are_few_rounds() {
        let octave = |rounds: usize| {
            let mut octave = Octave::default();
            for (round, case) in (0..rounds).flat_map(|round| [(round, 0), (round, 1)]) {
                let speed = 1.0 + round as f64 + 0.1 * case as f64;
                (0..10).for_each(|_| octave.add(message(1, round, 2 * round + case, speed)));
            }
            (octave.speeds().0, octave.summary().unwrap().1)
        };
        let (two, four, five) = (octave(2), octave(4), octave(5));
        assert_eq!((two.0.rounds().len(), two.1), (4, "messages"));
        assert_eq!((four.0.rounds().len(), four.1), (8, "cases"));
        assert_eq!((five.0.rounds().len(), five.1), (5, "blocks"));
        // One launch of four is slow in most of its messages: the others tell what a launch reaches.
        let mut octave = Octave::default();
        for launch in 0..4 {
            let speed =
                |at: usize| if launch == 3 && at > 0 { 1.0 } else { 10.0 + 0.1 * launch as f64 };
            (0..10).for_each(|at| octave.add(message(launch, launch, launch, speed(at))));
        }
        let (speed, over) = octave.summary().unwrap();
        assert_eq!((speed.p50, over), (10.05, "launches"));
    }
}
