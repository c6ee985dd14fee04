//! Ranks that are the processes of a job, over MPI; rank 0 prints.

use std::sync::Arc;
use std::time::Duration;

use algorithms::topology::{Rank, Topology};
use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::arguments::Arguments;
use super::lines::tables;
use super::request::{Process, request, topology};
use super::turns::{Measured, blocks, measure};
use crate::cli::{Exit, usage};
use cluster::launch::Launched;
use measure::plan::Placement;
use results::provenance::Launch;
use transports::bench::{Bench, Ended, TIMEOUT, Timed, check, run_rank, timed};
use transports::memory::Memory;
use transports::mpi::{self, World, give_up};
use transports::pattern::Wrong;
use transports::transport::{Connections, MessageChannel, TransportError};

/// Room for the name of a host.
const HOST_BYTES: usize = 60;

/// What a rank tells rank 0 of its part in a block.
#[derive(Serialize, Deserialize)]
struct Reported {
    times: Vec<Duration>,
    context_switches: Option<u64>,
    wrong: Wrong,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let mut world = World::join()?;
    let all = world.comm().ranks();
    if let Some(problem) = Launched::here().and_then(|launched| launched.contradicts(all)) {
        return Err(usage(problem));
    }
    let launch = Launch::now();
    let hosts = processes(&world, &launch.machine.host)?;
    let nodes: Vec<usize> = world.nodes().iter().map(|node| node.ranks.len()).collect();
    let topology = topology(arguments, || Topology::new(&nodes))?;
    let placement = Placement::among(world.nodes(), &topology).map_err(usage)?;
    let here = world.nodes().iter().find(|node| node.ranks.contains(&world.rank()));
    let ranks_here = here.map_or(0, |node| node.ranks.len());
    let playing = placement.members.iter().map(|&member| hosts[member].clone()).collect();
    let request = request(arguments, topology, placement, (ranks_here, playing))?;
    let find = |name: &String| request.back_end.data_plane(name, &request.topology);
    let planes: Vec<_> = request.names.iter().map(find).collect();
    let members = &request.placement.members;
    let mut measured = if members.contains(&world.rank()) {
        measure(arguments, &request, &planes, &mut |_, bench| {
            Ok(together(bench, &mut world, members).unwrap_or_else(|error| give_up(&error)))
        })?
    } else {
        Measured::new()
    };
    let exit = match world.rank() {
        0 => tables(
            arguments,
            &request,
            &planes,
            launch,
            blocks(arguments),
            &mut |index, _, line| Ok(measured.remove(&(index, line)).expect("it was measured")),
        )?,
        _ => Exit::Right,
    };
    world.broadcast(&mut [0])?;
    Ok(exit)
}

/// All processes of the job.
fn processes(world: &World, host: &str) -> Result<Vec<Process>, TransportError> {
    let mut own = [0; 4 + HOST_BYTES];
    own[..4].copy_from_slice(&std::process::id().to_ne_bytes());
    let length = host.len().min(HOST_BYTES);
    own[4..4 + length].copy_from_slice(&host.as_bytes()[..length]);
    let process = |reported: [u8; 4 + HOST_BYTES]| Process {
        pid: u32::from_ne_bytes([reported[0], reported[1], reported[2], reported[3]]),
        host: String::from_utf8_lossy(&reported[4..]).trim_end_matches('\0').to_string(),
        device: None,
    };
    Ok(world.comm().all_gather(own)?.into_iter().map(process).collect())
}

/// One block of one data plane; at rank 0 with what all ranks saw.
fn together(bench: &Bench, world: &mut World, members: &[Rank]) -> Result<Timed, TransportError> {
    let connected = world.connect(members, TIMEOUT)?;
    let (rank, Connections { data, bits, mut mail, .. }) = connected.expect("a member");
    let all_reduce = mpi::all_reduce(bench.data_plane, data, bench.sizes, Memory::default());
    let Ended { times, context_switches, result } = run_rank(bench, rank, all_reduce, bits)?;
    let wrong = if bench.check { check(bench, &[(rank, &result)]) } else { Wrong::default() };
    let mut reported = vec![Reported { times, context_switches, wrong }];
    if rank > 0 {
        let own = postcard::to_stdvec(&reported[0]).expect("plain data");
        mail.send(0, Arc::from(own))?;
        mail.flush()?;
    } else {
        let mut message = Vec::new();
        for next in 1..members.len() {
            mail.receive(next, &mut message)?;
            reported.push(postcard::from_bytes(&message).expect("all run the same program"));
        }
    }
    let wrong =
        reported.iter().map(|reported| reported.wrong.clone()).fold(Wrong::default(), Wrong::and);
    let ranks = reported.iter().map(|reported| (&reported.times, reported.context_switches));
    Ok(timed(bench, ranks, bench.check.then_some(wrong)))
}
