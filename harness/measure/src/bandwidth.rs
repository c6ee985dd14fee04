//! Bus bandwidth of the messages of measured steps: that of an allreduce of their size within training steps,
//! packing included.

use std::collections::BTreeMap;

use algorithms::topology::Topology;

use crate::config::Case;
use results::block::Message;
use results::row::{Bandwidths, MessageRow, StepSetting, ends};
use results::statistics::Summary;
use results::units::bus_factor;

/// A case whose messages are right, if it has any.
pub struct Messages<'a> {
    /// The case.
    pub case: &'a Case,
    /// The settings of its row.
    pub setting: &'a StepSetting,
    /// From all its blocks.
    pub messages: Vec<&'a Message>,
}

/// Messages of about the same size.
#[derive(Default)]
struct Octave {
    sizes: Vec<usize>,
    /// In bytes per microsecond.
    speeds: Vec<f64>,
}

/// A row per topology, algorithm and octave of size. Octaves with fewer than 6 messages are left out, since they
/// have no interval.
pub fn rows(cases: &[Messages]) -> Vec<MessageRow> {
    let mut groups: Vec<(&Topology, &str)> = Vec::new();
    let mut octaves: BTreeMap<(usize, u32), Octave> = BTreeMap::new();
    for Messages { case, messages, .. } in cases {
        let key = (&case.topology, case.algorithm.as_str());
        let group = groups.iter().position(|group| *group == key).unwrap_or_else(|| {
            groups.push(key);
            groups.len() - 1
        });
        for message in messages {
            let octave = (message.size_bytes.max(1) as f64).log2().round() as u32;
            let octave = octaves.entry((group, octave)).or_default();
            octave.sizes.push(message.size_bytes);
            octave.speeds.push(message.size_bytes as f64 / message.time_us.max(1e-3));
        }
    }
    let row = |((group, log2), octave): ((usize, u32), Octave)| {
        let is_of = |one: &&Messages| groups[group] == (&one.case.topology, &one.case.algorithm);
        row(cases.iter().find(is_of)?, log2, octave)
    };
    octaves.into_iter().filter_map(row).collect()
}

/// The row of an octave; `first` is the first case of its topology and algorithm.
fn row(first: &Messages, log2: u32, Octave { mut sizes, speeds }: Octave) -> Option<MessageRow> {
    let Messages { case: Case { transport, topology, algorithm, .. }, setting, .. } = first;
    let StepSetting { mut key, run, training, framework, .. } = (*setting).clone();
    let speed = Summary::of(&speeds).filter(|speed| speed.p50_interval.is_some())?;
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
    let samples = speed.samples;
    Some(MessageRow { key, run, training, framework, bandwidths, samples }.rounded())
}
