//! Into how many segments a large buffer is cut, and how far ahead they are sent.

use crate::combinators::Pipelined;
use crate::schedule::{Part, Schedule};

/// The most operations of a program; a longer one costs more to walk through than its segments gain.
const MOST_OPS: usize = 8192;

/// A schedule for a buffer of that size, in segments of about `segment_bytes`; 0 leaves it whole. `puts`: ranks share
/// memory and write each other's.
pub fn pipelined(
    schedule: &dyn Schedule,
    size_bytes: usize,
    segment_bytes: usize,
    puts: bool,
) -> Pipelined<&dyn Schedule> {
    let segments = segments_up_to(most_segments(schedule, puts), size_bytes, segment_bytes);
    in_segments(schedule, segments, puts)
}

/// A schedule in so many segments, a few of them sent ahead.
///
/// # Panics
/// When there is no segment.
pub fn in_segments(
    schedule: &dyn Schedule,
    segments: usize,
    puts: bool,
) -> Pipelined<&dyn Schedule> {
    let lag = if segments > 1 { lag(schedule, puts) } else { 1 };
    Pipelined::with_lag(schedule, segments, lag)
}

/// The number of segments of a buffer, rounded down to a power of two so that few programs are compiled.
pub fn segments_up_to(most: usize, size_bytes: usize, segment_bytes: usize) -> usize {
    let wanted = size_bytes.checked_div(segment_bytes).unwrap_or(1).clamp(1, most);
    1 << wanted.ilog2()
}

/// How many segments a schedule sends ahead. Schedules of two steps send a few ahead, so that ranks wait less.
/// With more steps a segment would leave the cache between its steps, which matters where ranks share memory and
/// can put; elsewhere a link must not idle until a rank has combined what it received.
fn lag(schedule: &dyn Schedule, puts: bool) -> usize {
    if schedule.steps() <= 2 || !puts { 4 } else { 1 }
}

/// The most segments that keep programs short. A schedule of fewer than two steps has nothing to overlap; over a
/// network, however, long messages in both directions block each other.
pub fn most_segments(schedule: &dyn Schedule, puts: bool) -> usize {
    if schedule.steps() < 2 && puts {
        return 1;
    }
    (MOST_OPS / ops(schedule).max(1)).max(1)
}

/// Sends and receives of rank 0.
pub fn ops(schedule: &dyn Schedule) -> usize {
    let mut part = Part::default();
    (0..schedule.steps()).for_each(|step| schedule.part(0, step, &mut part));
    part.sends.len() + part.receives.len()
}
