//! How often the intervals of synthetic sweeps contain the truth.

use results::row::Bandwidths;
use results::statistics::median;
use serde::Serialize;

use super::machine::{Machine, Synthetic};
use super::{Design, SETTINGS};
use crate::sweep::Report;

/// One sweep.
pub struct Scored {
    /// What the first interval takes as independent.
    over: String,
    /// Rows with an interval, and those whose interval contains the truth.
    intervals: usize,
    covering: usize,
    /// The width of each in percent of the median.
    widths: Vec<f64>,
    /// Each median over the truth, minus 1, in percent.
    errors: Vec<f64>,
    /// Intervals of negotiation times, and those that contain the truth.
    negotiations: [usize; 2],
    /// The same of message times.
    bandwidths: [usize; 2],
    /// Settings that tie with the fastest.
    tied: usize,
    /// The truly fastest is among them.
    has_best: bool,
    /// Blocks of a setting.
    blocks: f64,
    /// The sweep says that the machine changed its speed.
    is_unsteady: bool,
}

impl Scored {
    /// Against the truth of the level that each row names.
    pub fn of(report: &Report, blocks: usize, machine: &Synthetic) -> Scored {
        let rows = &report.rows;
        let mut scored = Scored {
            over: String::new(),
            intervals: 0,
            covering: 0,
            widths: Vec::new(),
            errors: Vec::new(),
            negotiations: [0; 2],
            bandwidths: [0; 2],
            tied: 0,
            has_best: false,
            blocks: blocks as f64 / rows.len() as f64,
            is_unsteady: report.unsteady.is_some() || report.again.is_some(),
        };
        for (setting, row) in rows.iter().enumerate() {
            let result = row.outcome.right().expect("synthetic data are right");
            let over = &result.confidence.interval_over;
            let truth_us = machine.step_us(setting).over(over);
            let median_us = result.times.median();
            scored.errors.push(100.0 * (median_us.p50 / truth_us - 1.0));
            if let Some((low, high)) = median_us.p50_interval {
                scored.over = over.clone();
                scored.intervals += 1;
                scored.covering += usize::from((low..=high).contains(&truth_us));
                scored.widths.push(100.0 * (high - low) / median_us.p50);
            }
            let negotiation = result.negotiation_us_p50_low.zip(result.negotiation_us_p50_high);
            count(
                &mut scored.negotiations,
                negotiation,
                machine.negotiation_us(setting).over(over),
            );
            let is_tied = result.confidence.over_best_low.is_none_or(|low| low <= 1.0);
            scored.tied += usize::from(is_tied);
            scored.has_best |= is_tied && setting == machine.best();
        }
        for row in &report.bandwidth {
            let Bandwidths { algbw_gb_s, busbw_gb_s, .. } = row.bandwidths;
            let factor = busbw_gb_s / algbw_gb_s;
            let ends = row.bandwidths.busbw_gb_s_low.zip(row.bandwidths.busbw_gb_s_high);
            let over = &row.interval_over;
            let truth = row.key.size_bytes as f64 / machine.message_us().over(over) / 1e3;
            count(&mut scored.bandwidths, ends, factor * truth);
        }
        scored
    }
}

/// Counts an interval, if there is one, and whether it contains the truth.
fn count([intervals, covering]: &mut [usize; 2], interval: Option<(f64, f64)>, truth: f64) {
    if let Some((low, high)) = interval {
        *intervals += 1;
        *covering += usize::from((low..=high).contains(&truth));
    }
}

/// A design on a machine: a line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The machine.
    pub machine: &'static str,
    /// What its intervals assume holds there.
    pub holds: bool,
    /// See [`Design`].
    pub launches: usize,
    /// Of each launch.
    pub blocks: usize,
    /// Of each block.
    pub steps: usize,
    /// A case ends at this half width, in percent; 0: after all blocks.
    pub stop_percent: f64,
    /// Sweeps.
    pub sweeps: usize,
    /// What intervals take as independent.
    pub interval_over: String,
    /// The share of medians that have an interval, in percent: those of a machine that changed its speed have none.
    pub printed_percent: f64,
    /// The share of intervals that contain the true median, in percent.
    pub covered_percent: f64,
    /// That of negotiation times.
    pub negotiation_covered_percent: f64,
    /// That of bandwidths of messages.
    pub bandwidth_covered_percent: f64,
    /// By how much medians are longer than the truth, in percent: the mean.
    pub bias_percent: f64,
    /// The median of their widths, in percent of the median.
    pub width_percent: f64,
    /// The share of sweeps in which the truly fastest setting ties with the fastest, in percent.
    pub best_is_tied_percent: f64,
    /// Settings that tie, of twelve: the mean.
    pub tied_mean: f64,
    /// Blocks that a case took: the mean.
    pub blocks_mean: f64,
    /// The share of sweeps that say that the machine changed its speed, in percent.
    pub unsteady_percent: f64,
}

impl Score {
    /// From sweeps with different seeds.
    pub fn of(machine: &Machine, design: Design, sweeps: &[Scored]) -> Score {
        let count = sweeps.len() as f64;
        let sum = |of: fn(&Scored) -> usize| sweeps.iter().map(of).sum::<usize>() as f64;
        let covered = |of: fn(&Scored) -> [usize; 2]| {
            let sum = |at: usize| sweeps.iter().map(|sweep| of(sweep)[at]).sum::<usize>() as f64;
            100.0 * sum(1) / sum(0)
        };
        let widths: Vec<f64> = sweeps.iter().flat_map(|sweep| &sweep.widths).copied().collect();
        let two = |value: f64| (value * 100.0).round() / 100.0;
        Score {
            machine: machine.name,
            holds: machine.holds && !(design.launches > 1 && machine.bad_node > 0.0),
            launches: design.launches,
            blocks: design.blocks,
            steps: design.steps,
            stop_percent: design.interval_percent,
            sweeps: sweeps.len(),
            interval_over: sweeps
                .iter()
                .find(|sweep| !sweep.over.is_empty())
                .map_or(String::new(), |sweep| sweep.over.clone()),
            printed_percent: two(100.0 * sum(|sweep| sweep.intervals) / (SETTINGS as f64 * count)),
            covered_percent: two(100.0 * sum(|sweep| sweep.covering) / sum(|sweep| sweep.intervals)),
            negotiation_covered_percent: two(covered(|sweep| sweep.negotiations)),
            bandwidth_covered_percent: two(covered(|sweep| sweep.bandwidths)),
            bias_percent: two(sweeps.iter().flat_map(|sweep| &sweep.errors).sum::<f64>()
                / (SETTINGS as f64 * count)),
            width_percent: two(median(widths).unwrap_or(f64::NAN)),
            best_is_tied_percent: two(100.0 * sum(|sweep| usize::from(sweep.has_best)) / count),
            tied_mean: two(sum(|sweep| sweep.tied) / count),
            unsteady_percent: two(100.0 * sum(|sweep| usize::from(sweep.is_unsteady)) / count),
            blocks_mean: two(sweeps.iter().map(|sweep| sweep.blocks).sum::<f64>() / count),
        }
    }

    /// The share of all medians that have an interval without the truth, in percent.
    pub fn wrong_percent(&self) -> f64 {
        let missed = if self.covered_percent.is_nan() { 0.0 } else { 100.0 - self.covered_percent };
        self.printed_percent * missed / 100.0
    }

    /// The machine and the design.
    pub fn place(&self) -> String {
        format!("{}, {} x {} x {}", self.machine, self.launches, self.blocks, self.steps)
    }

    /// The header of the table in words.
    pub fn header() -> String {
        format!(
            "{:<30} {:>24} {:>9} {:>8} {:>8} {:>11} {:>9} {:>7} {:>9} {:>8} {:>9}",
            "machine",
            "launches x blocks x steps",
            "over",
            "printed",
            "covered",
            "negotiation",
            "bandwidth",
            "width",
            "best tied",
            "tied",
            "unsteady"
        )
    }

    /// A line of it.
    pub fn line(&self) -> String {
        let stop = match self.stop_percent {
            0.0 => String::new(),
            percent => format!(", stop at {percent} %"),
        };
        let design = format!("{} x {} x {}{stop}", self.launches, self.blocks, self.steps);
        format!(
            "{:<30} {design:>24} {:>9} {:>6.1} % {:>6.1} % {:>9.1} % {:>7.1} % {:>5.1} % {:>7.1} % {:>4.1} of {SETTINGS} {:>7.1} %",
            self.machine,
            self.interval_over,
            self.printed_percent,
            self.covered_percent,
            self.negotiation_covered_percent,
            self.bandwidth_covered_percent,
            self.width_percent,
            self.best_is_tied_percent,
            self.tied_mean,
            self.unsteady_percent,
        )
    }
}
