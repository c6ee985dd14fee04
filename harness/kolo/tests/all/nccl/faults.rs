//! Faults are detected, end all ranks, and are reported with the rank.

use crate::coverage::{all_worlds, not_tested};
use crate::nccl::world::{Ended, World};

const SMALL: [&str; 8] = ["-b", "1K", "-e", "1K", "-n", "4", "-w", "1"];

/// Runs ranks with an injected fault.
fn posing(wrong: &str, ranks: usize, more: &[&str]) -> Option<Vec<Ended>> {
    let world = World::new()?.with("POSING_NCCL", wrong);
    Some(world.bench(ranks, &[&SMALL[..], more].concat()))
}

#[track_caller]
fn assert_said(ended: &Ended, status: i32, words: &str) {
    assert_eq!(ended.status, Some(status), "{ended:?}");
    assert!(ended.complained.contains(words), "\"{words}\" is not in {ended:?}");
}

#[test]
fn a_wrong_result_is_found_on_any_rank() {
    let Some(ended) = posing("lost=1", 2, &["--algorithm", "ring,nccl-allreduce"]) else { return };
    assert_eq!(ended[0].status, Some(1), "{ended:?}");
    let said = &ended[0].said;
    assert!(said.contains(" FAILED") && said.contains("# wrong: nccl/"), "{said}");
    assert!(said.contains(": rank 1, element "), "{said}");
}

#[test]
fn an_old_library_is_refused() {
    let Some(ended) = posing("old", 1, &[]) else { return };
    assert_said(&ended[0], 2, "libnccl.so.2 is NCCL 2.17.3, and 2.18.0 or later is needed");
}

#[test]
fn errors_that_come_later_end_all_ranks() {
    let Some(ended) = posing("error=1", 3, &[]) else { return };
    let why = "failed: remote process exited or there was a network error";
    assert_said(&ended[1], 1, why);
    for (rank, ended) in [(0, &ended[0]), (2, &ended[2])] {
        assert_said(ended, 1, &format!("rank {rank}: rank 1 on "));
        assert!(ended.complained.contains(" gave up: rank 1: ") && ended.complained.contains(why));
    }
}

#[test]
fn the_error_of_a_failed_call_names_the_peer() {
    let Some(ended) = posing("refuse=1", 2, &["--algorithm", "ring"]) else { return };
    assert_said(&ended[1], 1, "rank 1: ncclSend with rank 0 failed: an error: it does not like it");
    assert_said(&ended[0], 1, "rank 0: rank 1 on ");
}

#[test]
fn one_gpu_for_two_ranks_is_nccls_own_error() {
    let Some(ended) = posing("duplicate", 2, &[]) else { return };
    for ended in &ended {
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let words = "ncclCommInitRank failed: invalid usage: Duplicate GPU detected";
        assert!(ended.complained.contains(words), "{ended:?}");
    }
}

#[test]
fn waiting_for_a_process_that_never_joins_times_out() {
    let Some(ended) = posing("absent=1", 2, &["--timeout", "5"]) else { return };
    for ended in &ended {
        assert_said(ended, 1, "s for ncclCommInitRank, and no process is known to be gone");
    }
}

#[test]
fn a_rank_that_is_killed_in_a_collective_is_named_by_all_others() {
    let Some(ended) = posing("kill=1", 3, &["--algorithm", "ring"]) else { return };
    assert_eq!(ended[1].status, None, "it was killed: {ended:?}");
    assert_said(&ended[0], 1, "rank 0: rank 1 on ");
    assert_said(&ended[2], 1, "rank 2: rank 1 on ");
    assert!(ended[0].complained.contains(" is gone, its connection is closed"), "{ended:?}");
    assert!(ended[2].complained.contains(" is gone, its connection is closed"), "{ended:?}");
}

#[test]
fn a_rank_that_is_stopped_is_named_by_all_others() {
    // It takes the whole timeout.
    if !all_worlds() {
        return;
    }
    let Some(world) = World::new() else { return };
    let more = [&SMALL[..], &["--timeout", "10"]].concat();
    let ended = world.with("POSING_NCCL", "stop=1").some_of(3, &[0, 1, 2], Some(1), &more);
    for rank in [0, 2] {
        assert_said(&ended[rank], 1, "does not respond: process 1 has sent no heartbeat for ");
        assert!(ended[rank].complained.contains("rank 1 on "), "{ended:?}");
    }
}

/// As with blocking calls of NCCL: the rank cannot be interrupted, and the others name it.
#[test]
fn a_call_that_does_not_return_ends_the_process() {
    // It takes three timeouts.
    if !all_worlds() {
        return;
    }
    let Some(ended) = posing("stuck=1", 2, &["--timeout", "5"]) else { return };
    let words = "rank 1: ncclAllReduce has not returned for 15.0 s";
    let group = "rank 1: a group of sends and receives has not returned for 15.0 s";
    assert_eq!(ended[1].status, Some(1), "{ended:?}");
    let said = &ended[1].complained;
    assert!(said.contains(words) || said.contains(group), "{ended:?}");
    assert_eq!(ended[0].status, Some(1), "{ended:?}");
    assert!(
        ended[0].complained.contains("does not respond: process 1 makes no progress: "),
        "{ended:?}"
    );
}

#[test]
fn missing_processes_are_named() {
    let Some(world) = World::new() else { return };
    let ended = world.some_of(3, &[0, 2], None, &["--timeout", "5"]);
    assert_said(&ended[0], 1, "2 of 3 processes joined, and rank 1 did not");
    assert_eq!(ended[1].status, Some(1), "{ended:?}");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_measured() {
    let Some(world) = World::new() else { return };
    let ended = world.with("POSING", "full").bench(2, &["-b", "1K", "-e", "1M"]);
    for (rank, ended) in ended.iter().enumerate() {
        assert_eq!((ended.status, ended.said.as_str()), (Some(1), ""), "{ended:?}");
        let own = format!("GPU {rank} has 3 MB free, and 1 ranks of 1 MB there take ");
        assert!(ended.complained.contains(&own) || ended.complained.contains(" gave up: "));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(world) = World::new() else { return };
    for (more, words) in [
        (&["--bound"][..], "--bound requires --transport threads"),
        (
            &["--topology", "1x3"],
            "--topology 1x3 has 3 ranks, but 1 processes were started; start 3",
        ),
        (&["--nccl-algo", "rign"], "found \"rign\""),
        (&["--algorithm", "grouped:nccl-allreduce"], "NCCL's allreduces cannot be nested"),
    ] {
        assert_said(&world.alone(more), 2, words);
    }
    let ended = world.kolo(&["bench", "--force"]);
    assert_said(&ended, 2, "--force requires --transport mpi or nccl");
    let ended = world.kolo(&["bench", "--nccl-proto", "LL"]);
    assert_said(&ended, 2, "--nccl-proto requires --transport nccl");
}

#[test]
fn without_nccl_the_searched_names_are_reported() {
    if gpu::cuda::library::NCCL.open().is_ok() {
        return not_tested("messages without NCCL", "this machine has it");
    }
    let Some(world) = World::new() else { return };
    let world = world.without_nccl();
    let words = "NCCL was not found: looked for libnccl.so.2 and libnccl.so in ";
    assert_said(&world.alone(&SMALL), 2, words);
    let info = world.kolo(&["info"]);
    assert_eq!(info.status, Some(0), "{info:?}");
    assert!(
        info.said.contains("NCCL                 not available: NCCL was not found"),
        "{info:?}"
    );
}

#[test]
fn info_shows_the_version_of_nccl() {
    let Some(world) = World::new() else { return };
    let info = world.kolo(&["info"]);
    assert!(info.said.contains("libnccl.so.2, 2.27.6"), "{info:?}");
    let info = world.with("POSING_NCCL", "old").kolo(&["info"]);
    assert!(info.said.contains("is NCCL 2.17.3, and 2.18.0 or later is needed"), "{info:?}");
}
