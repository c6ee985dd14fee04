//! Jobs with injected faults.

use std::thread;
use std::time::Duration;

use algorithms::control::{self, ReduceOp, StallCheck};
use algorithms::topology::Topology;
use training::fault::Fault;
use training::outcome::EngineError;
use training::outcome::Outcome;
use workloads::framework::Framework;
use workloads::groups::Groups;
use workloads::replay::HostCosts;

use crate::engine::setting::{BUSY, Setting, try_run, workload};

/// Long enough for ranks that only wait for a core not to be taken for dead.
pub const TIMEOUT: Duration = Duration::from_millis(1500);

/// Longer than all other ranks need to give up.
pub const LINGERS: Duration = Duration::from_secs(4);

/// Runs a job for each control plane, all at once: they spend their time waiting.
pub fn at_once(planes: &[&str], job: impl Fn(&str) + Sync) {
    thread::scope(|scope| planes.iter().for_each(|plane| drop(scope.spawn(|| job(plane)))));
}

/// A gradient that never becomes ready ends the job, by name, instead of leaving it hanging.
#[test]
fn a_gradient_that_never_becomes_ready_is_named() {
    let mut workload = workload(9);
    workload.gradients[4].ready_fraction = f64::INFINITY;
    let listed = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let lists = Groups::Listed(vec![listed(&["layer8"]), listed(&["layer3", "layer4", "layer5"])]);
    for (groups, host, expected) in [
        (
            None,
            HostCosts::default(),
            "the step waits for 1 of its 9 gradients: \"layer4\"; see that every gradient",
        ),
        (
            Some(lists),
            HostCosts::default(),
            "group 1 waits for 1 of its 3 gradients: \"layer4\"; see that",
        ),
        (
            Some(Groups::Even(2)),
            BUSY,
            "group 0 waits for 1 of its 5 gradients: \"layer4\"; see that",
        ),
    ] {
        at_once(&control::NAMES, |plane| {
            let setting = Setting {
                plane,
                cycle_ms: 5.0,
                host,
                timeout: TIMEOUT,
                framework: Framework { groups: groups.clone(), ..Framework::default() },
                ..Setting::default()
            };
            let error = try_run(&setting, &workload).unwrap_err().to_string();
            assert!(error.contains("s after the last backward pass "), "{plane}: {error}");
            assert!(error.contains(expected), "{plane}: {error}");
        });
    }
}

/// A job in which something goes wrong on rank 2 of 4.
fn run_with(fault: Fault, plane: &str, timeout: Duration) -> Result<Outcome, EngineError> {
    run_on(HostCosts::default(), fault, plane, timeout)
}

fn run_on(
    host: HostCosts,
    fault: Fault,
    plane: &str,
    timeout: Duration,
) -> Result<Outcome, EngineError> {
    let setting = Setting {
        host,
        plane,
        topology: Topology::flat(4),
        op: ReduceOp::Sum,
        threshold: 2000,
        cycle_ms: 1.0,
        segment_bytes: 0,
        packing_bytes: 0,
        backward: Duration::from_millis(4),
        timeout,
        steps: 4,
        stall_check: Some(StallCheck {
            warn_after: Duration::from_millis(100),
            shut_down_after: Some(Duration::from_millis(300)),
        }),
        fault: Some(fault),
        ..Setting::default()
    };
    try_run(&setting, &workload(12))
}

/// Without and with a framework's thread.
const HOSTS: [HostCosts; 2] =
    [HostCosts { wake: Duration::ZERO, hand_over: Duration::ZERO, ..BUSY }, BUSY];

const NEGOTIATING: [&str; 4] = ["coordinator", "tree:2", "point-to-point", "bitvector"];

/// The error reaches every rank, names both values and both ranks, and the job continues: all other gradients are
/// reduced, in every step, and are right.
#[test]
fn ranks_that_disagree_are_told_so_and_go_on() {
    for (plane, host) in NEGOTIATING.into_iter().flat_map(|plane| HOSTS.map(|host| (plane, host))) {
        let fault = Fault::Mismatch { rank: 2, gradient: 5 };
        let outcome = run_on(host, fault, plane, Duration::from_secs(60)).unwrap();
        for rank in &outcome.ranks {
            assert_eq!(rank.steps.len(), 4, "{plane}");
            assert_eq!(rank.refused.len(), 4, "{plane}: once a step");
            for (gradient, error) in &rank.refused {
                assert_eq!(*gradient, 5);
                assert!(
                    error.starts_with("Mismatched shapes for tensor \"layer5\": rank "),
                    "{error}"
                );
                assert!(error.contains("[185]") && error.contains("[185, 1]"), "{error}");
                assert!(error.contains("rank 2 has"), "{error}");
            }
        }
        assert_eq!(outcome.wrong.count, 0, "{plane}: {:?}", outcome.wrong);
        let error = outcome.refusal().unwrap().to_string();
        assert!(error.ends_with("(4 such errors)"), "{error}");
    }
}

#[test]
fn a_gradient_that_one_rank_lacks_ends_the_job_for_all() {
    for (plane, host) in NEGOTIATING.into_iter().flat_map(|plane| HOSTS.map(|host| (plane, host))) {
        let fault = Fault::Missing { rank: 2, gradient: 5 };
        let error = run_on(host, fault, plane, Duration::from_secs(60)).unwrap_err();
        let EngineError::ShutDown { unfinished } = &error else { panic!("{plane}: {error}") };
        assert!(unfinished == "layer5" || unfinished.starts_with("nothing"), "{plane}: {error}");
    }
}

#[test]
fn a_rank_that_dies_within_a_step_is_named_by_all_others() {
    at_once(&["coordinator", "tree:2", "point-to-point", "bitvector", "ddp"], |plane| {
        let fault = Fault::Death { rank: 2, step: 1, lingers: LINGERS };
        let error = run_with(fault, plane, TIMEOUT).unwrap_err().to_string();
        assert!(error.contains("for rank 2, which does not answer"), "{plane}: {error}");
    });
}
