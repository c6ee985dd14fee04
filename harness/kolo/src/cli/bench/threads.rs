//! Ranks that are threads of this process.

use algorithms::topology::Topology;
use anyhow::Result;

use super::arguments::Arguments;
use super::lines::tables;
use super::request::{Process, request, topology};
use crate::cli::Exit;
use measure::calibrate;
use measure::plan::Placement;
use results::provenance::Launch;
use transports::bench::run as run_bench;

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let mut launch = Launch::now();
    let topology = topology(arguments, || Topology::uniform(2, 2))?;
    let placement = Placement::on_threads(&topology);
    let this = Process { pid: std::process::id(), host: launch.machine.host.clone(), device: None };
    let playing = (topology.ranks(), vec![this; topology.ranks()]);
    let request = request(arguments, topology, placement, playing)?;
    let mut table = calibrate::Table::new();
    if request.names.iter().any(|name| calibrate::chooses(name)) {
        table = calibrate::table(&request.topology, arguments.cut(), request.sizes.to)?;
        launch.auto.insert(request.topology.to_string(), table.clone());
    }
    let plane = |name: &String| {
        if calibrate::chooses(name) {
            calibrate::data_plane(name, &request.topology, &table)
        } else {
            request.back_end.data_plane(name, &request.topology)
        }
    };
    let planes: Vec<_> = request.names.iter().map(plane).collect();
    tables(arguments, &request, &planes, launch, 1, &mut |_, bench, _| Ok(run_bench(bench)?))
}
