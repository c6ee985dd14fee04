//! Rows as a sweep would write them: ResNet-50 on 4 ranks, emulating 2 nodes of 2.
#![allow(dead_code)] // Each test binary uses its part.

mod compared;
mod simulated;

use std::collections::BTreeMap;

pub use compared::*;
pub use simulated::*;

/// A row as column and field.
#[derive(Debug, Clone)]
pub struct Row(BTreeMap<String, String>);

impl Row {
    /// The same row with one field set.
    pub fn with(&self, column: &str, field: &str) -> Row {
        let mut row = self.clone();
        row.0.insert(column.to_string(), field.to_string());
        row
    }

    /// The same row with a median and its interval set.
    pub fn with_estimate(&self, column: &str, value: f64, half: f64) -> Row {
        let low = value - half * 0.9;
        let high = value + half * 1.1;
        self.with(column, &format!("{value:.3}"))
            .with(&format!("{column}_low"), &format!("{low:.3}"))
            .with(&format!("{column}_high"), &format!("{high:.3}"))
    }
}

/// The rows as CSV, with kolo's columns first and any others behind them.
pub fn table(rows: &[Row]) -> String {
    let mut columns: Vec<String> = COLUMNS.split_whitespace().map(str::to_string).collect();
    for column in rows.iter().flat_map(|row| row.0.keys()) {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
    }
    let mut text = columns.join(",") + "\n";
    for row in rows {
        let fields: Vec<&str> =
            columns.iter().map(|column| row.0.get(column).map_or("", String::as_str)).collect();
        text += &(fields.join(",") + "\n");
    }
    text
}

/// One training step: slower with short cycles, little fusion and a coordinator.
pub fn step(algorithm: &str, plane: &str, threshold_mib: f64, cycle_ms: f64) -> Row {
    let noise = noise(&format!("{algorithm} {plane} {threshold_mib} {cycle_ms}"));
    let factor = match algorithm {
        "ring" => 1.0,
        "tree" => 1.35,
        "hierarchical" => 1.06,
        _ => 1.13,
    };
    let plane_cost = if plane == "coordinator" { 5.0 } else { 1.0 };
    let cycles = 90.0 / (cycle_ms + 0.4) + 2.0;
    let messages = (161.0 / (1.0 + threshold_mib * 0.35))
        .max(103.0 / (threshold_mib + 0.6))
        .max(161.0 / (1.0 + cycle_ms * 1.2))
        + 2.0;
    let negotiation_us = cycles * (60.0 + 40.0 * plane_cost) * (1.0 + 0.1 * noise);
    let time_us =
        1e3 * (96.0 * factor + messages * 0.21 + cycle_ms * 1.3 + 2.0 * noise) + negotiation_us;
    row("step", algorithm)
        .with("control_plane", plane)
        .with("fusion_threshold_bytes", &format!("{}", threshold_mib * 1048576.0))
        .with("cycle_time_ms", &format!("{cycle_ms}"))
        .with("cache_capacity", "1024")
        .with("segment_bytes", "524288")
        .with("packing_bytes", "0")
        .with("in_place", "true")
        .with_estimate("time_us_p50", time_us, 900.0 + 700.0 * noise.abs())
        .with_estimate("negotiation_us_p50", negotiation_us, negotiation_us * 0.06)
        .with_estimate("messages_p50", messages.round(), messages * 0.04)
}

/// One allreduce alone with its time and reference, or the fused messages of one octave of size.
pub fn message(kind: &str, algorithm: &str, size_bytes: f64) -> Row {
    let (latency_us, peak) = match algorithm {
        "ring" => (14.0, 6.1),
        "tree" => (6.0, 3.2),
        "hierarchical" => (11.0, 5.2),
        _ => (18.0, 5.6),
    };
    let noise = noise(&format!("{kind} {algorithm} {size_bytes}"));
    let moved = 1.5 * size_bytes / 1e3;
    let busbw = moved / (latency_us + moved / peak);
    let message = row(kind, algorithm)
        .with("size_bytes", &format!("{size_bytes}"))
        .with("in_place", "true")
        .with_estimate("busbw_gb_s", busbw * (1.0 + 0.04 * noise), busbw * 0.07);
    if kind != "allreduce" {
        return message;
    }
    let time_us = moved / busbw * (1.0 - 0.04 * noise);
    message
        .with_estimate("time_us_p50", time_us, time_us * 0.07)
        .with("bound_us", &format!("{:.3}", 1.5 + moved / 7.0))
}

/// A step of a control plane alone, ResNet-50's tensors on so many ranks: the star grows with ranks.
pub fn control(plane: &str, ranks: u32) -> Row {
    let rank0_us = match plane {
        "coordinator" => 161.0 * 0.02 * f64::from(ranks),
        "bitvector" => 3.0,
        "ddp" => 2.0,
        _ => 40.0 + plane.len() as f64,
    };
    let levels = f64::from(ranks).log2().ceil();
    let network_us = match plane {
        "coordinator" => 6.0 * levels + f64::from(ranks),
        "ddp" => 0.0,
        _ => 3.0 * levels,
    };
    row("control", "")
        .with("emulated", "false")
        .with("oversubscribed", "false")
        .with("transport", "lockstep")
        .with("control_plane", plane)
        .with("nodes", "1")
        .with("local_size", &ranks.to_string())
        .with("ranks", &ranks.to_string())
        .with("tensors", "161")
        .with("cache_capacity", "1024")
        .with("ready_order", "same")
        .with("miss_share", "0")
        .with("invalid_share", "0")
        .with_estimate("rank0_us_p50", rank0_us, rank0_us * 0.05)
        .with("network_source", "assumed")
        .with("network_alpha_us", "1.5")
        .with("network_message_us", "0.5")
        .with("network_bandwidth_gb_s", "23")
        .with("network_us_p50", &format!("{network_us:.3}"))
}

/// Four algorithms, two control planes, three thresholds, two cycle times, and message sizes.
pub fn sweep() -> Vec<Row> {
    let mut rows =
        grid(&["ring", "tree", "hierarchical", "grouped"], &[0.0, 64.0, 128.0], &[1.0, 5.0]);
    for algorithm in ["ring", "tree", "hierarchical", "grouped"] {
        for power in 10..=26 {
            rows.push(message("allreduce", algorithm, f64::from(1 << power)));
        }
        for power in 12..=27 {
            rows.push(message("message", algorithm, f64::from(1 << power)));
        }
    }
    rows
}

/// Training steps of every setting under both control planes.
pub fn grid(algorithms: &[&str], thresholds_mib: &[f64], cycles_ms: &[f64]) -> Vec<Row> {
    let mut rows = Vec::new();
    for algorithm in algorithms {
        for plane in ["coordinator", "bitvector"] {
            for threshold in thresholds_mib {
                for cycle in cycles_ms {
                    rows.push(step(algorithm, plane, *threshold, *cycle));
                }
            }
        }
    }
    rows
}

fn row(kind: &str, algorithm: &str) -> Row {
    let fields = [
        ("schema", "1"),
        ("kind", kind),
        ("status", "ok"),
        ("source", "measured"),
        ("emulated", "true"),
        ("oversubscribed", "true"),
        ("host", "saturn"),
        ("commit", "0123456789abcdef0123456789abcdef01234567"),
        ("started", "2026-03-02T10:20:30Z"),
        ("workload", "resnet50"),
        ("transport", "threads"),
        ("algorithm", algorithm),
        ("nodes", "2"),
        ("local_size", "2"),
        ("ranks", "4"),
        ("dtype", "float32"),
        ("op", "average"),
        ("samples", "30"),
    ];
    Row(fields.iter().map(|(column, field)| (column.to_string(), field.to_string())).collect())
}

/// A number from -1 to 1 that depends on the text alone (FNV-1a).
fn noise(text: &str) -> f64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 40) as f64 / f64::from(1 << 23) - 1.0
}

const COLUMNS: &str = "schema kind case status reason source emulated oversubscribed pinned host commit \
    started workload transport control_plane algorithm groups nodes local_size ranks dtype op \
    in_place size_bytes tensors fusion_threshold_bytes cycle_time_ms cache_capacity segment_bytes packing_bytes forward_ms \
    backward_ms optimizer_ms warmup samples blocks launches stop_reason checked wrong first_wrong \
    time_us_p50 time_us_p50_low time_us_p50_high time_us_mean time_us_min time_us_max time_us_p99 \
    bound_us exposed_us_p50 negotiation_us_p50 negotiation_us_p50_low negotiation_us_p50_high \
    negotiation_cycle_us_p50 negotiation_cycle_us_p99 cycles_p50 idle_cycles_p50 messages_p50 \
    messages_p50_low messages_p50_high tensors_per_message_mean control_bytes_p50 inside_bytes \
    between_bytes algbw_gb_s busbw_gb_s busbw_gb_s_low busbw_gb_s_high";
