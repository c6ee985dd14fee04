//! One conformance suite for all that runs over MPI. Run plainly it starts itself under the library's
//! launcher, in worlds of several sizes; started by a launcher it is one rank of such a world.
//!
//! `cargo test -p kolo --features mpi --test mpi`; with `-- --ignored` instead a message of more than
//! 2 GiB, for which the machine needs about 7 GiB of free memory. `KOLO_MPIRUN` names another launcher
//! than the library's own, `KOLO_SEED` the seed of a run to be repeated.

mod allreduce;
mod clocks;
mod exchange;
mod jobs;
mod launcher;
mod process;

use std::time::Duration;

use cluster::launch::Launched;
use process::Process;

/// What a world does, in words of the command line.
const ALL: &str = "all";
const LARGE: &str = "large";
/// One rank falls silent: the others must name it.
const SILENT: &str = "silent";
/// One rank has a wrong element: the suite must fail and report it.
const WRONG: &str = "wrong";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| arguments.get(at).map(String::as_str);
    let started = Launched::here().is_some_and(|launched| launched.tasks > 1);
    match (word(0), word(1)) {
        (Some("--scenario"), Some(scenario)) => rank(scenario, seed(word(2))),
        _ if started => rank(ALL, seed(None)),
        _ => launcher::worlds(arguments.iter().any(|argument| argument == "--ignored"), seed(None)),
    }
}

fn seed(given: Option<&str>) -> u64 {
    let variable = std::env::var("KOLO_SEED").ok();
    let text = given.or(variable.as_deref()).unwrap_or("1");
    text.parse().unwrap_or_else(|_| panic!("the seed is {text:?}, expected a number"))
}

/// One rank's part.
fn rank(scenario: &str, seed: u64) {
    let timeout = match scenario {
        SILENT => 1,
        LARGE => 100,
        _ => 20,
    };
    let mut process = Process::join(seed, Duration::from_secs(timeout));
    match scenario {
        LARGE => allreduce::large(&mut process),
        SILENT => allreduce::one_falls_silent(&mut process),
        WRONG => allreduce::one_is_wrong(&mut process),
        _ => {
            allreduce::exact(&mut process);
            allreduce::vendor(&mut process);
            allreduce::same_bits_as_on_threads(&mut process);
            allreduce::late_ranks(&mut process);
            allreduce::bits(&mut process);
            exchange::messages(&mut process);
            exchange::barrier(&mut process);
            clocks::drifting(&mut process);
            clocks::unknown(&mut process);
            jobs::negotiations(&mut process);
            jobs::jobs(&mut process);
        }
    }
    process.leave();
}
