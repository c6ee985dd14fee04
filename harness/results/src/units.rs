//! Units, and factors between them.

use std::time::Duration;

/// Bytes of a MiB.
pub const MIB: f64 = 1024.0 * 1024.0;

/// Bytes in MiB, to at most four decimals.
pub fn mib(bytes: usize) -> String {
    let text = format!("{:.4}", bytes as f64 / MIB);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Bus bandwidth over algorithm bandwidth for an allreduce: 2 (n - 1) / n, whatever the algorithm,
/// as nccl-tests defines it; 0 for one rank.
pub fn bus_factor(ranks: usize) -> f64 {
    2.0 * (ranks as f64 - 1.0) / ranks as f64
}

/// A time in microseconds, to nanoseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
