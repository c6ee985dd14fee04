//! Ranks that are streams of this process, on this machine's GPUs.

use std::env;

use algorithms::topology::Topology;
use anyhow::Result;

use super::arguments::Arguments;
use super::kernels;
use super::lines::{Measure, tables};
use super::out::write_provenance;
use super::request::{Process, request, topology};
use crate::cli::{Exit, usage};
use gpu::cuda::bench::Ranks;
use gpu::cuda::driver::Driver;
use gpu::cuda::emulated::{Emulated, Turns};
use gpu::cuda::inventory;
use gpu::cuda::streams::Streams;
use measure::plan::Placement;
use results::provenance::Launch;

/// A seed in it makes devices in memory of the host, which have no clock: for tests.
const EMULATED: &str = "KOLO_CUDA_EMULATED";

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match env::var(EMULATED) {
        Ok(seed) => {
            let seed = seed.parse().map_err(|_| {
                usage(format!("{EMULATED}={seed} is not a number; unset it, or give a seed"))
            })?;
            on(Emulated::new(2, true, Turns::Lot, seed), arguments, None)
        }
        Err(_) => {
            let driver = Driver::open().map_err(usage)?;
            let about = driver.found.about();
            on(driver, arguments, Some(about))
        }
    }
}

/// With what the driver is, or none where devices are emulated.
fn on<S: Streams>(streams: S, arguments: &Arguments, driver: Option<String>) -> Result<Exit> {
    if let Some(path) = &arguments.kernels {
        return kernels::run(streams, arguments, path, driver);
    }
    let mut launch = Launch::now();
    let devices = streams.devices().len();
    let topology = topology(arguments, || Topology::uniform(1, devices.max(2)))?;
    let (ranks, nodes) = (topology.ranks(), topology.nodes());
    let mut ranks_on = Ranks::new(streams, ranks)?;
    ranks_on.graphs = arguments.is_graph();
    let host = &launch.machine.host;
    let process =
        |device| Process { pid: std::process::id(), host: host.clone(), device: Some(device) };
    let processes = ranks_on.devices().into_iter().map(process).collect();
    let emulated = driver.is_none() || nodes > 1;
    launch.gpus = driver.iter().cloned().chain(ranks_on.devices()).collect();
    let placement = Placement { members: Vec::new(), emulated, oversubscribed: ranks > devices };
    arguments.remark(driver.as_deref().unwrap_or("emulated: no GPU is used, and nothing is timed"));
    // The host's memory holds none of the buffers.
    let request = request(arguments, topology, placement, (0, processes))?;
    let plane = |name: &String| request.back_end.data_plane(name, &request.topology);
    let planes: Vec<_> = request.names.iter().map(plane).collect();
    launch.inventory = driver.is_some().then(inventory::before);
    let measure: Measure = &mut |_, bench, _| Ok(ranks_on.run(bench)?);
    let ended = tables(arguments, &request, &planes, launch.clone(), 1, measure);
    let warnings = finish(arguments, launch)?;
    if ended.is_ok() {
        warnings.iter().for_each(|line| arguments.remark(line));
    }
    ended
}

/// Looks at the GPUs once more, for the provenance; returns what makes times doubtful.
fn finish(arguments: &Arguments, mut launch: Launch) -> Result<Vec<String>> {
    if launch.inventory.is_none() {
        return Ok(Vec::new());
    }
    let lines = launch.end(inventory::after);
    if let Some(rows) = arguments.out.as_ref().filter(|rows| rows.exists()) {
        write_provenance(rows, &launch)?;
    }
    Ok(lines)
}
