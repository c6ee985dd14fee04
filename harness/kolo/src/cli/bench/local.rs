//! Ranks in this process, over a back end that has no runner of its own.

use algorithms::topology::Topology;
use anyhow::Result;

use super::arguments::Arguments;
use super::lines::tables;
use super::request::{Process, request, topology};
use crate::cli::{Exit, usage};
use measure::plan::Placement;
use measure::{back_ends, calibrate};
use results::provenance::Launch;
use training::back_end::Shares;

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let back_end = arguments.back_end();
    let mut launch = Launch::now();
    let mut ranks = back_end.open(&mut launch).map_err(usage)?;
    let topology = topology(arguments, || Topology::uniform(2, 2))?;
    let Shares { emulated, oversubscribed } = ranks.shares(&topology);
    let placement = Placement { members: Vec::new(), emulated, oversubscribed };
    let this = Process { pid: std::process::id(), host: launch.machine.host.clone(), device: None };
    let playing = (topology.ranks(), vec![this; topology.ranks()]);
    let request = request(arguments, topology, placement, playing)?;
    // The measured table is that of threads.
    let by_table = |name: &str| back_end == back_ends::default() && calibrate::chooses(name);
    let mut table = calibrate::Table::new();
    if request.names.iter().any(|name| by_table(name)) {
        table = calibrate::table(&request.topology, arguments.cut(), request.sizes.to)?;
        launch.auto.insert(request.topology.to_string(), table.clone());
    }
    let plane = |name: &String| {
        if by_table(name) {
            calibrate::data_plane(name, &request.topology, &table)
        } else {
            back_end.data_plane(name, &request.topology)
        }
    };
    let planes: Vec<_> = request.names.iter().map(plane).collect();
    tables(arguments, &request, &planes, launch, 1, &mut |_, bench, _| Ok(ranks.bench(bench)?))
}
