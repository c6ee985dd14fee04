//! `kolo bench`: nccl-tests' table for our algorithms, and for the MPI library's own.

mod arguments;
mod gpus;
mod line;
mod lines;
mod nccl;
mod out;
#[cfg(feature = "mpi")]
mod processes;
mod request;
mod table;
mod threads;
mod turns;

use anyhow::Result;

use super::{Exit, usage};
use cluster::launch::Launched;
use gpu::cuda;
use gpu::nccl::NAME as NCCL;
use measure::back_ends;
use training::back_end::{MemoryKind, RankKind};

pub use arguments::Arguments;

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", path.display())));
    }
    let back_end = arguments.back_end();
    let (kind, memory) = (back_end.rank_kind(), back_end.memory());
    if arguments.kernels.is_some() && kind != RankKind::Stream {
        return Err(usage(format!("--kernels requires --transport {}", cuda::NAME)));
    }
    if arguments.graph && kind != RankKind::Stream {
        return Err(usage(format!("--graph requires --transport {}", cuda::NAME)));
    }
    let has_nccl = (kind, memory) == (RankKind::Process, MemoryKind::Device);
    let tunes_nccl = !arguments.nccl_algo.is_empty() || !arguments.nccl_proto.is_empty();
    if tunes_nccl && !has_nccl {
        return Err(usage(format!("--nccl-algo and --nccl-proto require --transport {NCCL}")));
    }
    if arguments.force && kind != RankKind::Process {
        return Err(usage(format!(
            "--force requires --transport {NCCL} or {}",
            back_ends::default_of_processes()
        )));
    }
    if arguments.bound && kind != RankKind::Thread {
        return Err(usage("--bound requires --transport threads"));
    }
    let started = Launched::here().filter(|launched| launched.tasks > 1);
    match (kind, memory, started) {
        (RankKind::Process, MemoryKind::Host, _) => over_mpi(arguments),
        (RankKind::Process, MemoryKind::Device, _) => nccl::run(arguments),
        (_, _, Some(Launched { tasks, .. })) => Err(usage(format!(
            "started as {tasks} processes, but ranks are threads of one process; start one process, or add \
             --transport {} or {NCCL}",
            back_ends::default_of_processes()
        ))),
        (RankKind::Stream, _, None) => gpus::run(arguments),
        (RankKind::Thread, _, None) => threads::run(arguments),
    }
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &Arguments) -> Result<Exit> {
    Err(usage("this program was built without MPI; build it with --features mpi"))
}

#[cfg(feature = "mpi")]
fn over_mpi(arguments: &Arguments) -> Result<Exit> {
    processes::run(arguments)
}
