//! Starts one thread per rank and collects the results.

use std::sync::Arc;
use std::thread::ScopedJoinHandle;

use algorithms::topology::Rank;

use super::Links;
use crate::transport::{CausedByTransport, TransportError};

/// Whether ranks are bound to cores (logical ones, in the system's order, one per rank), which needs a system that
/// reports its cores. Without binding, the kernel may put two new threads on one core, takes many milliseconds to
/// correct that, and differs from run to run. Threads that a rank starts inherit its binding.
pub fn is_pinned() -> bool {
    core_affinity::get_core_ids().is_some_and(|cores| !cores.is_empty())
}

fn pin(rank: Rank) {
    if let Some(cores) = core_affinity::get_core_ids().filter(|cores| !cores.is_empty()) {
        core_affinity::set_for_current(cores[rank % cores.len()]);
    }
}

/// Runs `rank` on one thread per rank of a world and returns the results in order. When a rank fails or cannot be
/// started, the others are notified over all `links`.
///
/// # Errors
/// The error of a rank that failed by itself.
pub fn run_ranks<T: Send, E: CausedByTransport + Send>(
    links: &[&Arc<Links>],
    rank: impl Fn(Rank) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let report = |by: Rank, error: &E| {
        let abortion = match error.transport_error() {
            Some(aborted @ TransportError::Aborted { .. }) => aborted.clone(),
            _ => TransportError::Aborted { by, reason: error.to_string() },
        };
        links.iter().for_each(|links| links.abort(abortion.clone()));
    };
    let ended: Vec<Result<T, E>> = std::thread::scope(|scope| {
        let spawn = |me: Rank| {
            let (rank, report) = (&rank, &report);
            let run = move || {
                pin(me);
                rank(me).inspect_err(|error| report(me, error))
            };
            let thread = std::thread::Builder::new().name(format!("rank {me}"));
            thread.spawn_scoped(scope, run).map_err(|error| {
                let reason = format!("its thread cannot be started: {error}");
                let error = E::from(TransportError::Aborted { by: me, reason });
                report(me, &error);
                error
            })
        };
        let threads: Vec<_> = (0..links[0].ranks).map(spawn).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("a rank panicked");
        threads.into_iter().map(|thread| thread.and_then(join)).collect()
    });
    let (mut values, mut errors) = (Vec::with_capacity(ended.len()), Vec::new());
    for (me, ended) in ended.into_iter().enumerate() {
        match ended {
            Ok(value) => values.push(value),
            Err(error) => errors.push((me, error)),
        }
    }
    let by_itself = |(me, error): &(Rank, E)| match error.transport_error() {
        Some(TransportError::Aborted { by, .. }) => by == me,
        _ => true,
    };
    let says_most = errors.iter().position(by_itself).unwrap_or(0);
    match errors.into_iter().nth(says_most) {
        Some((_, error)) => Err(error),
        None => Ok(values),
    }
}
