//! Allreduces alone, to see which algorithm is the fastest for which size and world.

use algorithms::topology::Topology;
use rayon::prelude::*;

use super::config::Crossover;
use super::data_plane::{DataPlane, Engine};
use super::machine_file::MachineFile;
use results::row::put_bandwidths;
use results::row::rounded;
use results::row::{Kind, Row, SCHEMA, Source, Status};

/// Rows of every algorithm, world and size, in that order.
pub fn rows(crossover: &Crossover, file: &MachineFile, progress: impl Fn() + Sync) -> Vec<Row> {
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

fn of_world(crossover: &Crossover, file: &MachineFile, name: &str, ranks: usize) -> Vec<Row> {
    let topology = match file.misfit(ranks) {
        None => file.machine().topology(ranks),
        Some(_) => Topology::uniform(1, ranks.max(1)),
    };
    let segment_bytes = crossover.segment_kib * 1024.0;
    let data = DataPlane::new(name, file, ranks, segment_bytes, Engine::Rounds);
    let (from, to) = crossover.size_log2;
    let row = |log2: u32| {
        let size_bytes = 1_usize << log2;
        let blank = Row {
            schema: SCHEMA,
            kind: Kind::Allreduce,
            case: format!("{ranks}/{name}/{size_bytes}"),
            source: Source::Simulated,
            machine: file.name.clone(),
            algorithm: name.into(),
            nodes: topology.nodes(),
            local_size: topology.local_size(),
            ranks,
            dtype: "f32".into(),
            op: "sum".into(),
            in_place: true,
            size_bytes,
            segment_bytes: (crossover.segment_kib * 1024.0) as usize,
            ..Row::default()
        };
        let data = match &data {
            Ok(data) => data,
            Err(why) => {
                return Row { status: Status::Unsupported, reason: why.to_string(), ..blank };
            }
        };
        let time = data.time(size_bytes as f64);
        let us = |seconds: f64| Some(seconds * 1e6);
        let mut row = Row {
            status: Status::Ok,
            engine: data.engine().into(),
            time_us_p50: us(time.at_s),
            part_latency_us: us(time.latency_s),
            part_bandwidth_us: us(time.bandwidth_s),
            part_contention_us: us(time.contention_s),
            part_reduction_us: us(time.reduction_s),
            ..blank
        };
        put_bandwidths(&mut row);
        rounded(row)
    };
    (from..=to).map(row).collect()
}
