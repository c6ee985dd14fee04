//! Rows of control planes alone.

use super::columns::{Effort, Key, Negotiation, Run, Times, columns};
use super::flat::{Columns, Empty, Field, Flat};
use super::outcome::CaseOutcome;

columns! {
    /// Steps of a control plane alone, measured.
    ControlRow {
        parts { key: Key, run: Run, outcome: CaseOutcome<ControlResult> }
        columns {
            workload: String,
            control_plane: String,
            tensors: usize,
            fusion_threshold_bytes: usize,
            cache_capacity: usize,
            warmup: usize,
            ready_order: String,
            miss_share: f64,
            invalid_share: f64,
        }
    }
}

columns! {
    /// The result of measured steps of a control plane: medians over steps.
    ControlResult {
        parts { effort: Effort, clock: Clock, negotiation: Negotiation, network: AssumedNetwork }
        columns {
            context_switches_mean: Option<f64>,
            cycles_p50: f64,
            idle_cycles_p50: f64,
            messages_p50: f64,
        }
    }
}

/// The measured time.
#[derive(Clone, Debug, PartialEq)]
pub enum Clock {
    /// Each rank by itself, all in one thread.
    Lockstep(RankTimes),
    /// Steps of ranks on threads.
    Threads(ThreadTimes),
}

columns! {
    /// Times of ranks that run one after the other.
    #[derive(Default)]
    RankTimes {
        columns {
            rank0_us_p50: f64,
            rank0_us_p50_low: Option<f64>,
            rank0_us_p50_high: Option<f64>,
            rank_us_mean: f64,
            first_rank0_us: Option<f64>,
        }
    }
}

columns! {
    /// Times of steps on threads.
    #[derive(Default)]
    ThreadTimes {
        parts { times: Times }
        columns {
            first_time_us: Option<f64>,
            negotiation_cycle_us_p50: Option<f64>,
            negotiation_cycle_us_p99: Option<f64>,
        }
    }
}

columns! {
    /// Time on a network with assumed parameters.
    #[derive(Default)]
    AssumedNetwork {
        columns {
            network_source: String,
            network_alpha_us: f64,
            network_message_us: Option<f64>,
            network_bandwidth_gb_s: f64,
            network_us_p50: f64,
        }
    }
}

impl Columns for Clock {
    fn read(flat: &Flat) -> Result<Clock, Empty> {
        match RankTimes::read(flat) {
            Ok(times) => Ok(Clock::Lockstep(times)),
            Err(_) => ThreadTimes::read(flat).map(Clock::Threads),
        }
    }

    fn write(&self, flat: &mut Flat) {
        match self {
            Clock::Lockstep(times) => times.write(flat),
            Clock::Threads(times) => times.write(flat),
        }
    }
}

impl Clock {
    /// Times of ranks, if measured.
    pub fn ranks(&self) -> Option<&RankTimes> {
        match self {
            Clock::Lockstep(times) => Some(times),
            Clock::Threads(_) => None,
        }
    }

    /// Whether the median has an interval.
    pub fn has_interval(&self) -> bool {
        match self {
            Clock::Lockstep(times) => times.rank0_us_p50_low.is_some(),
            Clock::Threads(threads) => threads.times.time_us_p50_low.is_some(),
        }
    }

    /// Times of steps, if measured.
    pub fn steps(&self) -> Option<&Times> {
        match self {
            Clock::Lockstep(_) => None,
            Clock::Threads(threads) => Some(&threads.times),
        }
    }
}
