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
use measure::back_ends;
use training::back_end::RankKind;

pub use arguments::Arguments;

/// How `kolo bench` runs over a back end.
struct Runner {
    /// The back end.
    transport: &'static str,
    /// Options that only some back ends have.
    options: &'static [&'static str],
    run: fn(&Arguments) -> Result<Exit>,
}

/// One for each back end.
const RUNNERS: [Runner; 4] = [
    Runner { transport: transports::threads::NAME, options: &["--bound"], run: threads::run },
    Runner { transport: transports::transport::MPI, options: &["--force"], run: processes::run },
    Runner { transport: gpu::cuda::NAME, options: &["--graph", "--kernels"], run: gpus::run },
    Runner {
        transport: gpu::nccl::NAME,
        options: &["--force", "--nccl-algo", "--nccl-proto"],
        run: nccl::run,
    },
];

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", path.display())));
    }
    let back_end = arguments.back_end();
    let Some(runner) = RUNNERS.iter().find(|runner| runner.transport == back_end.name()) else {
        let known = choices(RUNNERS.iter());
        return Err(usage(format!("kolo bench does not measure {back_end}; choose {known}")));
    };
    for option in arguments.special_options() {
        if !runner.options.contains(&option) {
            let having = RUNNERS.iter().filter(|runner| runner.options.contains(&option));
            return Err(usage(format!("{option} requires --transport {}", choices(having))));
        }
    }
    let started = Launched::here().filter(|launched| launched.tasks > 1);
    if let Some(Launched { tasks, .. }) = started
        && back_end.rank_kind() != RankKind::Process
    {
        let is_process =
            |runner: &&Runner| back_ends::named(runner.transport).rank_kind() == RankKind::Process;
        return Err(usage(format!(
            "started as {tasks} processes, but ranks over {back_end} are in one process; start one process, or \
             choose --transport {}",
            choices(RUNNERS.iter().filter(is_process))
        )));
    }
    (runner.run)(arguments)
}

/// Names of back ends, as in `a, b or c`.
fn choices<'r>(runners: impl Iterator<Item = &'r Runner>) -> String {
    let names: Vec<&str> = runners.map(|runner| runner.transport).collect();
    match &names[..] {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(not(feature = "mpi"))]
mod processes {
    use super::{Arguments, Exit, Result, usage};

    pub fn run(_: &Arguments) -> Result<Exit> {
        Err(usage("this program was built without MPI; build it with --features mpi"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_back_end_has_one_runner() {
        let runners: Vec<&str> = RUNNERS.iter().map(|runner| runner.transport).collect();
        assert_eq!(runners, back_ends::names());
    }

    #[test]
    fn choices_are_enumerated() {
        assert_eq!(choices(RUNNERS.iter().take(1)), "threads");
        assert_eq!(choices(RUNNERS.iter().take(3)), "threads, mpi or cuda");
    }
}
