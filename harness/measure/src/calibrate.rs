//! Measures the fastest algorithm for each size in a world of threads; `auto` uses the result.

use std::time::Duration;

use algorithms::algorithm::{Algorithm, Choice, Unsupported};
use algorithms::control::{DataType, ReduceOp};
use algorithms::registry;
use algorithms::registry::candidates;
use algorithms::topology::Topology;

use results::statistics::median;
use transports::allreduce::Sizes;
use transports::bench::{Bench, Start, run};
use transports::data_plane::{DataPlane, DataPlaneError, Schedules};
use transports::transport::TransportError;

/// Measured sizes in bytes: from one element to more than the caches hold, as far as needed. The best algorithm of
/// the largest size is used for all larger ones.
const SIZES: [usize; 12] =
    [4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];

/// Rounds over all candidates for each size; the median is used. Small sizes are fast.
const ROUNDS: usize = 7;
const ROUNDS_OF_SMALL: usize = 21;
const SMALL_BYTES: usize = 1 << 18;

/// From this size on, measuring takes long, and only candidates close to the best are measured.
const LARGE_BYTES: usize = 1 << 20;
const FAR_BEHIND: f64 = 1.25;

/// Within this factor of the fastest, the choice for the size below stays, else the first that is
/// registered is taken.
const ALIKE: f64 = 1.02;

pub use results::provenance::AutoTable as Table;

/// Measures all candidates (see [`candidates`]) in allreduces of f32 in place, and returns the fastest for each
/// size up to `most_bytes`.
///
/// # Errors
/// When a rank does not answer.
pub fn table(
    topology: &Topology,
    sizes: Sizes,
    most_bytes: usize,
) -> Result<Table, TransportError> {
    let mut names: Vec<String> = candidates(topology).into_iter().map(|(name, _)| name).collect();
    let mut table: Table = Vec::new();
    for size_bytes in SIZES.into_iter().filter(|&size| size == SIZES[0] || size / 2 <= most_bytes) {
        let mut rounds = vec![Vec::new(); names.len()];
        for _ in 0..if size_bytes > SMALL_BYTES { ROUNDS } else { ROUNDS_OF_SMALL } {
            for (name, times_s) in names.iter().zip(&mut rounds) {
                times_s.push(time_s(name, topology, sizes, size_bytes)?);
            }
        }
        let times_s: Vec<f64> = rounds.into_iter().filter_map(median).collect();
        let Some(fastest_s) = times_s.iter().copied().min_by(f64::total_cmp) else { continue };
        let is_fast = |at: usize| times_s[at] <= fastest_s * ALIKE;
        let before = table.last().and_then(|(_, name)| names.iter().position(|n| n == name));
        if !before.is_some_and(is_fast)
            && let Some(name) = (0..names.len()).find(|&at| is_fast(at)).map(|at| &names[at])
        {
            let from_bytes = if table.is_empty() { 0 } else { size_bytes / 2 };
            table.push((from_bytes, name.clone()));
        }
        if size_bytes >= LARGE_BYTES {
            let mut near = times_s.iter().map(|&time_s| time_s <= fastest_s * FAR_BEHIND);
            names.retain(|_| near.next().unwrap_or(true));
        }
    }
    Ok(table)
}

/// The median time of an allreduce, in seconds.
fn time_s(
    name: &str,
    topology: &Topology,
    sizes: Sizes,
    size_bytes: usize,
) -> Result<f64, TransportError> {
    let algorithm = registry::find(name).expect("candidates are registered");
    let data_plane = DataPlane::ours(algorithm, topology).expect("candidates support the world");
    let repetitions = ((16 << 20) / size_bytes).clamp(8, 100);
    let timed = run(&Bench {
        data_plane: &data_plane,
        topology,
        dtype: DataType::F32,
        op: ReduceOp::Sum,
        sizes,
        tensors: &[size_bytes / size_of::<f32>()],
        in_place: true,
        warmup: repetitions.min(10),
        repetitions,
        start: Start::Barrier,
        check: false,
        seed: 0,
    })?;
    let times_s = timed.times.iter().map(Duration::as_secs_f64).collect();
    Ok(median(times_s).expect("there is a repetition"))
}

/// An algorithm and its schedules in a world, or why there are none; if it chooses, then as `table` says.
///
/// # Panics
/// When there is no such algorithm.
pub fn prepared(
    name: &str,
    topology: &Topology,
    table: &Table,
) -> (std::sync::Arc<dyn Algorithm>, Result<Vec<Choice>, Unsupported>) {
    let auto = || std::sync::Arc::new(registry::auto_by_measurement(table.clone())) as _;
    let algorithm = registry::find_with(name, &auto).expect("the name was checked");
    let choices = algorithm.choices(topology);
    (algorithm, choices)
}

/// One of this project's algorithms as a data plane. `auto` chooses by `table`.
///
/// # Errors
/// When it has no schedule for the world.
///
/// # Panics
/// When there is no such algorithm.
pub fn data_plane(
    name: &str,
    topology: &Topology,
    table: &Table,
) -> Result<DataPlane, DataPlaneError> {
    let (algorithm, choices) = prepared(name, topology, table);
    Ok(DataPlane::Ours(Schedules { algorithm, choices: choices? }))
}

/// Whether an algorithm of this name chooses among others.
pub fn chooses(name: &str) -> bool {
    let last = name.rsplit(':').next().unwrap_or(name);
    registry::ALL.iter().any(|entry| entry.chooses() && entry.name == last)
}

/// A table as text: `auto: one-shot, from 8192 B two-shot`.
pub fn in_words(table: &Table) -> String {
    let part = |(from_bytes, name): &(usize, String)| match from_bytes {
        0 => name.clone(),
        _ => format!("from {from_bytes} B {name}"),
    };
    format!("auto: {}", table.iter().map(part).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_covers_all_sizes_with_candidates() {
        // More ranks than cores take long; they are for `make test-all`.
        let all = std::env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1");
        let (small, large) = ([1, 2].map(Topology::flat), Topology::uniform(2, 2));
        for world in small.into_iter().chain(all.then_some(large)) {
            let sizes = Sizes { segment_bytes: 0, packing_bytes: 0 };
            let table = table(&world, sizes, if all { 2000 } else { 60 }).unwrap();
            assert_eq!(table[0].0, 0);
            assert!(table.is_sorted_by(|a, b| a.0 < b.0), "{table:?}");
            let names: Vec<_> = candidates(&world).into_iter().map(|(name, _)| name).collect();
            assert!(table.iter().all(|(_, name)| names.contains(name)), "{table:?}");
            let (algorithm, choices) = prepared("grouped:auto", &world, &table);
            assert_eq!(algorithm.name(), "grouped:auto");
            let chosen: Vec<_> =
                choices.unwrap().into_iter().map(|c| (c.from_bytes, c.name)).collect();
            assert_eq!(chosen, table);
        }
        assert!(chooses("auto") && chooses("grouped:auto") && !chooses("ring"));
    }

    #[test]
    fn a_table_as_text() {
        let table = vec![(0, "one-shot".into()), (8192, "two-shot".into())];
        assert_eq!(in_words(&table), "auto: one-shot, from 8192 B two-shot");
    }
}
