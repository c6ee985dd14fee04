//! Groups of columns that several kinds of rows share.

use super::STRONG;
use super::flat::{Columns, Empty, Field, Flat};
use crate::statistics::Summary;
use crate::units::bus_factor;

/// Defines a group of columns: other groups (`parts`) and its own columns. A type without `Option` means that the
/// column is never empty. `None` is unknown, or comes from a version of kolo without the column.
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $name:ident {
            $(parts { $($part:ident: $group:ty),* $(,)? })?
            $(columns { $($column:ident: $type:ty),* $(,)? })?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "results/README.md explains each column")]
        pub struct $name {
            $($(pub $part: $group,)*)?
            $($(pub $column: $type,)*)?
        }

        impl Columns for $name {
            fn read(flat: &Flat) -> Result<$name, Empty> {
                Ok($name {
                    $($($part: Columns::read(flat)?,)*)?
                    $($($column: Field::from_file(&flat.$column, stringify!($column))?,)*)?
                })
            }

            fn write(&self, flat: &mut Flat) {
                $($(self.$part.write(flat);)*)?
                $($(flat.$column = self.$column.clone().into_file();)*)?
            }
        }
    };
}

pub(super) use columns;

columns! {
    /// Columns of every row: the case, its ranks and its data.
    #[derive(Default)]
    Key {
        columns {
            case: String,
            nodes: usize,
            local_size: Option<usize>,
            ranks: usize,
            dtype: String,
            op: String,
            in_place: bool,
            size_bytes: usize,
        }
    }
}

impl Key {
    /// With strong scaling: on more ranks each rank has less work.
    pub fn is_strong(&self) -> bool {
        self.case.rsplit('/').next() == Some(STRONG)
    }
}

columns! {
    /// The place and program of a measurement.
    #[derive(Default)]
    Run {
        columns {
            emulated: bool,
            oversubscribed: bool,
            pinned: bool,
            host: String,
            commit: String,
            started: String,
            seed: u64,
            transport: String,
        }
    }
}

columns! {
    /// How often a case was measured, and how its data compared.
    #[derive(Default)]
    Effort {
        columns {
            samples: usize,
            blocks: usize,
            launches: usize,
            stop_reason: String,
            checked: usize,
            wrong: Option<usize>,
            first_wrong: String,
        }
    }
}

columns! {
    /// Statistics of the time of a step or of an allreduce.
    #[derive(Default)]
    Times {
        columns {
            time_us_p50: f64,
            time_us_p50_low: Option<f64>,
            time_us_p50_high: Option<f64>,
            time_us_mean: f64,
            time_us_min: f64,
            time_us_max: f64,
            time_us_p90: Option<f64>,
            time_us_p99: Option<f64>,
        }
    }
}

columns! {
    /// What the interval of a step's median rests on, and the step over the fastest of the same run.
    #[derive(Default)]
    Confidence {
        columns {
            interval_over: String,
            speed_change_percent: Option<f64>,
            samples_effective: Option<f64>,
            over_best: Option<f64>,
            over_best_low: Option<f64>,
        }
    }
}

columns! {
    /// Bandwidths of an allreduce, as nccl-tests defines them.
    #[derive(Default)]
    Bandwidths {
        columns {
            algbw_gb_s: f64,
            busbw_gb_s: f64,
            busbw_gb_s_low: Option<f64>,
            busbw_gb_s_high: Option<f64>,
        }
    }
}

columns! {
    /// The control plane's work in a step: medians over steps.
    #[derive(Default)]
    Negotiation {
        columns {
            slow_cycles_p50: Option<f64>,
            hits_p50: Option<f64>,
            misses_p50: Option<f64>,
            invalid_p50: Option<f64>,
            evictions_p50: Option<f64>,
            rank0_sent_p50: Option<f64>,
            rank0_received_p50: Option<f64>,
            control_messages_p50: Option<f64>,
            rank0_bytes_wire_p50: Option<f64>,
            bytes_wire_p50: Option<f64>,
            bytes_horovod_p50: Option<f64>,
            bits_bytes_p50: Option<f64>,
        }
    }
}

columns! {
    /// The parts of a simulated transfer's time.
    #[derive(Default)]
    Transfer {
        columns {
            part_latency_us: f64,
            part_bandwidth_us: f64,
            part_contention_us: f64,
            part_reduction_us: f64,
        }
    }
}

impl Times {
    /// From times in microseconds.
    pub fn of(time_us: &Summary) -> Times {
        let (time_us_p50_low, time_us_p50_high) = ends(time_us);
        Times {
            time_us_p50: time_us.p50,
            time_us_p50_low,
            time_us_p50_high,
            time_us_mean: time_us.mean,
            time_us_min: time_us.min,
            time_us_max: time_us.max,
            time_us_p90: time_us.p90,
            time_us_p99: time_us.p99,
        }
    }

    /// The same without the interval of the median.
    pub fn without_interval(self) -> Times {
        Times { time_us_p50_low: None, time_us_p50_high: None, ..self }
    }

    /// Median and interval, in microseconds.
    pub fn median(&self) -> Summary {
        Summary {
            p50: self.time_us_p50,
            p50_interval: self.time_us_p50_low.zip(self.time_us_p50_high),
            ..Summary::default()
        }
    }
}

impl Bandwidths {
    /// From `size_bytes` reduced by `ranks` ranks in a median time in microseconds; none if that is zero.
    pub fn of(size_bytes: usize, ranks: usize, time_us: &Summary) -> Option<Bandwidths> {
        let gb_s = |time_us: f64| (time_us > 0.0).then(|| size_bytes as f64 / time_us / 1e3);
        let algbw_gb_s = gb_s(time_us.p50)?;
        let factor = bus_factor(ranks);
        let (low, high) = ends(time_us);
        let bus = |time_us: Option<f64>| time_us.and_then(gb_s).map(|gb_s| gb_s * factor);
        Some(Bandwidths {
            algbw_gb_s,
            busbw_gb_s: algbw_gb_s * factor,
            busbw_gb_s_low: bus(high),
            busbw_gb_s_high: bus(low),
        })
    }
}

/// The ends of a median's interval, if it has one.
pub fn ends(summary: &Summary) -> (Option<f64>, Option<f64>) {
    (summary.p50_interval.map(|ends| ends.0), summary.p50_interval.map(|ends| ends.1))
}
