//! Ranks that are the processes of a job, over MPI; rank 0 prints.

use std::sync::Arc;

use algorithms::topology::{Rank, Topology};
use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::arguments::Arguments;
use super::lines::tables;
use super::request::{Process, request, topology};
use super::turns::{Measured, blocks, measure};
use crate::cli::{Exit, usage};
use cluster::launch::Launched;
use cluster::preflight::Severity;
use measure::executor::preflight;
use measure::executor::reports::Reports;
use measure::plan::Placement;
use results::provenance::Launch;
use transports::bench::{
    Bench, Ended, RankTimes, Synchronised, TIMEOUT, Timed, check, run_rank, synchronised, timed,
};
use transports::clock::Clock;
use transports::memory::Memory;
use transports::mpi::{MpiPlane, World, give_up};
use transports::pattern::Wrong;
use transports::transport::{Connections, MessageChannel, TransportError};

/// What a rank tells rank 0 of its part in a block.
#[derive(Serialize, Deserialize)]
struct Reported {
    times: RankTimes,
    wrong: Wrong,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let mut world = World::join()?;
    let all = world.comm().ranks();
    if let Some(problem) = Launched::here().and_then(|launched| launched.contradicts(all)) {
        return Err(usage(problem));
    }
    let mut launch = Launch::now();
    let mut reports = Reports::new(&world)?;
    // Tables and rows say themselves which ranks share cores.
    let crowded = Severity::Warning;
    let processes = (&world, &mut reports);
    preflight::check(processes, &mut launch, crowded, Vec::new(), arguments.force)
        .map_err(usage)?;
    let hosts = reports.share((std::process::id(), launch.machine.host.clone()))?;
    let nodes: Vec<usize> = world.nodes().iter().map(|node| node.ranks.len()).collect();
    let topology = topology(arguments, || Topology::new(&nodes))?;
    let placement = Placement::among(world.nodes(), &topology).map_err(usage)?;
    let here = world.nodes().iter().find(|node| node.ranks.contains(&world.rank()));
    let ranks_here = here.map_or(0, |node| node.ranks.len());
    let process = |&member: &Rank| {
        let (pid, host) = hosts[member].clone();
        Process { pid, host, device: None }
    };
    let playing = placement.members.iter().map(process).collect();
    let request = request(arguments, topology, placement, (ranks_here, playing))?;
    let find = |name: &String| request.back_end.data_plane(name, &request.topology);
    let planes: Vec<_> = request.names.iter().map(find).collect();
    let members = &request.placement.members;
    let mut clock = Clock::default();
    let mut measured = if members.contains(&world.rank()) {
        measure(arguments, &request, &planes, &mut |_, bench| {
            let timed = together(bench, &mut world, members, &mut clock);
            Ok(timed.unwrap_or_else(|error| give_up(&error)))
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

/// One block of one data plane; at rank 0 with what all ranks saw. Ranks compare their clocks before it, and start after a
/// barrier if these are not known well enough.
fn together(
    bench: &Bench,
    world: &mut World,
    members: &[Rank],
    clock: &mut Clock,
) -> Result<Timed, TransportError> {
    let connected = |world: &mut World| {
        Ok::<_, TransportError>(world.connect(members, TIMEOUT)?.expect("a member"))
    };
    let (rank, Connections { mut control, .. }) = connected(world)?;
    let plane = MpiPlane::of(bench.data_plane).expect("this back end made it");
    let mut run = |bench: &Bench, clock: &Clock| {
        let (_, Connections { data, bits, .. }) = connected(world)?;
        let all_reduce = plane.all_reduce(data, bench.sizes, Memory::default());
        run_rank(bench, rank, all_reduce, (bits, clock))
    };
    let place = (rank, members.len());
    let Synchronised { ended, start, why } =
        synchronised(bench, place, clock, &mut control, &mut run)?;
    let Ended { times, result } = ended;
    let bench = &Bench { start, ..*bench };
    let wrong = if bench.check { check(bench, &[(rank, &result)]) } else { Wrong::default() };
    let mut reported = vec![Reported { times, wrong }];
    if rank > 0 {
        let own = postcard::to_stdvec(&reported[0]).expect("plain data");
        control.send(0, Arc::from(own))?;
        control.flush()?;
    } else {
        let mut message = Vec::new();
        for next in 1..members.len() {
            control.receive(next, &mut message)?;
            reported.push(postcard::from_bytes(&message).expect("all run the same program"));
        }
    }
    let wrong =
        reported.iter().map(|reported| reported.wrong.clone()).fold(Wrong::default(), Wrong::and);
    let ranks = reported.iter().map(|reported| &reported.times);
    let timed = timed(bench, ranks, bench.check.then_some(wrong));
    Ok(Timed { unsynchronised: why, ..timed })
}
