//! Rows as a simulation of Summit would write them. Every number is made up, in a likely order of
//! magnitude: nothing was measured, and nothing simulated.

use super::{Row, noise, row};

/// Ranks in nodes of six.
pub const RANKS: [u32; 13] = [6, 12, 24, 48, 96, 192, 384, 768, 1536, 3072, 6000, 12288, 27600];

pub const POLICIES: [&str; 6] = [
    "horovod-bitvector",
    "horovod-coordinator",
    "horovod-grouped",
    "ddp",
    "tf-distribute",
    "byteps",
];

pub const WORKLOADS: [&str; 4] = ["resnet50", "vgg16", "bert_large", "stemdl_fc_densenet"];

/// Training steps of every workload, policy and number of ranks.
pub fn scaling(workloads: &[&str], policies: &[&str], ranks: &[u32]) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in workloads {
        for name in policies {
            rows.extend(ranks.iter().map(|&ranks| policy(workload, name, ranks)));
        }
    }
    rows
}

/// A training step: what a coordinator costs grows with ranks, anything else with their logarithm.
pub fn policy(workload: &str, policy: &str, ranks: u32) -> Row {
    let batch = if workload == "bert_large" { 8.0 } else { 64.0 };
    let at = |ranks| parts_us(workload, policy, ranks);
    let time_us = |parts: [f64; 8]| parts.iter().sum::<f64>();
    let (parts, time, base_time) = (at(ranks), time_us(at(ranks)), time_us(at(6)));
    let throughput = f64::from(ranks) * batch / time * 1e6;
    let half = 0.004 + 0.02 * noise(&format!("{workload} {policy} {ranks}")).abs();
    let of_parts = PARTS.iter().zip(parts);
    let row = row("step", "hierarchical")
        .with("nodes", &(ranks / 6).to_string())
        .with("local_size", "6")
        .with("ranks", &ranks.to_string())
        .with("workload", workload)
        .with("policy", policy)
        .with("batch", &batch.to_string())
        .with("control_plane", policy.strip_prefix("horovod-").unwrap_or(policy))
        .with_estimate("time_us_p50", time, time * half)
        .with_estimate("throughput_samples_s_p50", throughput, throughput * half)
        .with_estimate("efficiency_p50", base_time / time, base_time / time * half)
        .with("efficiency_base_ranks", "6");
    let row = of_parts.fold(row, |row, (part, us)| row.with(part, &format!("{us:.3}")));
    simulated(row)
}

const PARTS: [&str; 8] = [
    "part_compute_us",
    "part_jitter_us",
    "part_cycle_us",
    "part_negotiation_us",
    "part_latency_us",
    "part_bandwidth_us",
    "part_contention_us",
    "part_reduction_us",
];

fn parts_us(workload: &str, policy: &str, ranks: u32) -> [f64; 8] {
    let (compute, bytes) = match workload {
        "resnet50" => (175e3, 102e6),
        "vgg16" => (290e3, 553e6),
        "bert_large" => (410e3, 1340e6),
        _ => (600e3, 880e6),
    };
    let ranks = f64::from(ranks);
    let doublings = (ranks / 6.0).log2();
    let (cycle, negotiation, messages) = match policy {
        "horovod-coordinator" => (600.0, 28.0 * ranks, 12.0),
        "horovod-bitvector" => (600.0, 150.0 * doublings, 9.0),
        "horovod-grouped" => (300.0, 80.0 * doublings, 5.0),
        "ddp" => (0.0, 0.0, 14.0),
        "tf-distribute" => (0.0, 60.0 * doublings, 30.0),
        _ => (0.0, 10.0 * doublings, 40.0),
    };
    let bandwidth = if policy == "byteps" { 2.0 } else { 1.0 } * bytes / 10e3;
    let between = if ranks > 6.0 { 1.0 } else { 0.1 };
    let jitter = compute * 0.004 * doublings;
    let latency = messages * 14.0 * (1.0 + doublings);
    let contention = bandwidth * 0.05 * doublings;
    let parts =
        [jitter, cycle, negotiation, latency, bandwidth * between, contention, bytes / 400e3];
    let mut all = [compute; 8];
    all[1..].copy_from_slice(&parts);
    all
}

/// An allreduce alone: trees are fast with small messages and rings with large ones.
pub fn allreduce(algorithm: &str, ranks: u32, size_bytes: f64) -> Row {
    let world = f64::from(ranks);
    let levels = world.log2();
    let (steps, moved) = match algorithm {
        "ring" => (2.0 * (world - 1.0), 2.0),
        "hierarchical" => (8.0 + 2.0 * (world / 6.0), 1.7),
        "double-tree" => (2.2 * levels, 2.4),
        "halving-doubling" => (2.0 * levels, 3.1),
        "recursive-doubling" => (levels, levels * 1.1),
        _ => (1.5 * levels, 2.0 * levels),
    };
    let time_us = steps * 4.0 + moved * size_bytes / 12e3;
    let row = row("allreduce", algorithm)
        .with("nodes", &(ranks / 6).to_string())
        .with("local_size", "6")
        .with("ranks", &ranks.to_string())
        .with("workload", "")
        .with("in_place", "true")
        .with("size_bytes", &size_bytes.to_string())
        .with("time_us_p50", &format!("{time_us:.3}"));
    let unsupported = algorithm == "halving-doubling" && !(ranks / 6).is_power_of_two();
    let row = simulated(row).with("seeds", "").with("samples", "0");
    if unsupported { row.with("status", "unsupported").with("time_us_p50", "") } else { row }
}

/// Allreduces of every algorithm, number of ranks and size.
pub fn allreduces(algorithms: &[&str], ranks: &[u32], powers: std::ops::Range<i32>) -> Vec<Row> {
    let mut rows = Vec::new();
    for algorithm in algorithms {
        for &ranks in ranks {
            rows.extend(powers.clone().map(|power| allreduce(algorithm, ranks, 2f64.powi(power))));
        }
    }
    rows
}

fn simulated(row: Row) -> Row {
    row.with("source", "simulated")
        .with("emulated", "false")
        .with("oversubscribed", "false")
        .with("transport", "")
        .with("host", "")
        .with("machine", "summit")
        .with("engine", "rounds")
        .with("driven", "all")
        .with("seeds", "10")
        .with("samples", "100")
}
