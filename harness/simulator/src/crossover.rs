//! Allreduces alone, to see which algorithm is the fastest for which size and world.

use algorithms::topology::Topology;
use rayon::prelude::*;

use super::config::Crossover;
use super::data_plane::{DataPlane, Engine};
use super::machine_file::MachineFile;
use results::row::{
    Bandwidths, CaseOutcome, Key, SimulatedCollectiveResult, SimulatedCollectiveRow, Transfer,
};
use results::statistics::Summary;

/// Rows of every algorithm, world and size, in that order.
pub fn rows(
    crossover: &Crossover,
    file: &MachineFile,
    progress: impl Fn() + Sync,
) -> Vec<SimulatedCollectiveRow> {
    let worlds: Vec<(&String, usize)> = (crossover.algorithm.iter())
        .flat_map(|name| crossover.ranks.iter().map(move |&ranks| (name, ranks)))
        .collect();
    let rows = |&(name, ranks): &(&String, usize)| {
        let rows = of_world(crossover, file, name, ranks);
        progress();
        rows
    };
    worlds.par_iter().with_max_len(1).flat_map_iter(rows).collect()
}

fn of_world(
    crossover: &Crossover,
    file: &MachineFile,
    name: &str,
    ranks: usize,
) -> Vec<SimulatedCollectiveRow> {
    let topology = match file.misfit(ranks) {
        None => file.machine().topology(ranks),
        Some(_) => Topology::uniform(1, ranks.max(1)),
    };
    let segment_bytes = crossover.segment_kib * 1024.0;
    let data = DataPlane::new(name, file, ranks, segment_bytes, Engine::Rounds);
    let (from, to) = crossover.size_log2;
    let row = |log2: u32| {
        let size_bytes = 1_usize << log2;
        let row = SimulatedCollectiveRow {
            key: Key {
                case: format!("{ranks}/{name}/{size_bytes}"),
                nodes: topology.nodes(),
                local_size: topology.local_size(),
                ranks,
                dtype: "f32".into(),
                op: "sum".into(),
                in_place: true,
                size_bytes,
            },
            outcome: match &data {
                Ok(data) => CaseOutcome::Ok(result(data, size_bytes, ranks)),
                Err(why) => CaseOutcome::Unsupported(why.to_string()),
            },
            machine: file.name.clone(),
            algorithm: name.into(),
            segment_bytes: segment_bytes as usize,
        };
        row.rounded()
    };
    (from..=to).map(row).collect()
}

fn result(data: &DataPlane, size_bytes: usize, ranks: usize) -> SimulatedCollectiveResult {
    let time = data.time(size_bytes as f64);
    let time_us_p50 = time.at_s * 1e6;
    let median = Summary { p50: time_us_p50, ..Summary::default() };
    SimulatedCollectiveResult {
        bandwidths: Bandwidths::of(size_bytes, ranks, &median),
        transfer: Transfer {
            part_latency_us: time.latency_s * 1e6,
            part_bandwidth_us: time.bandwidth_s * 1e6,
            part_contention_us: time.contention_s * 1e6,
            part_reduction_us: time.reduction_s * 1e6,
        },
        engine: data.engine().into(),
        time_us_p50,
    }
}
