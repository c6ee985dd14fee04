//! The work of the batch script within a job.

use std::fs;

use chrono::Utc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::slurm::fakes::{Ended, Fakes};

const STEP: &str = "--nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --mpi=pmix \
                    --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=0 --wait=60 --overlap \
                    --export=ALL";

#[test]
fn a_sweep_that_ends_is_one_step_over_the_whole_job() {
    let fakes = Fakes::new("add 3; launched '\"now\"'; exit 0").in_job("n[1-2]");
    let ended = fakes.drive();
    ended.says(0, "the sweep has ended (status 0): ");
    assert_eq!(fakes.steps(), [STEP]);
    let out = fakes.path("out");
    let call = fakes.calls("srun").concat();
    let program = format!(
        "{} sweep configs/quick.toml --out {} --go-on --transport mpi",
        env!("CARGO_BIN_EXE_kolo"),
        out.display()
    );
    assert!(call.ends_with(&program), "{call}\nexpected {program}");
    ended.says(
        0,
        "job 12, start 1: nodes n[1-2]; its end time is unknown; new cases start until Slurm",
    );
}

#[test]
fn the_statuses_of_a_sweep_that_is_over_are_passed_on() {
    for (status, step) in
        [(1, "launched '\"now\"'; exit 1"), (2, "exit 2"), (3, "launched '\"now\"'; exit 3")]
    {
        let fakes = Fakes::new(step).in_job("n[1-2]");
        fakes.drive().says(status, &format!("the sweep has ended (status {status})"));
        assert_eq!(fakes.steps().len(), 1);
    }
}

#[test]
fn a_step_that_fails_is_restarted_as_long_as_steps_produce_results() {
    // Status 1 without a recorded end is srun's own; 4 requests another step.
    let step = "add 1; case $n in 1) kill -9 $$ ;; 2) exit 137 ;; 3) launched null; exit 1 ;; \
                4) exit 4 ;; 5) exit 139 ;; esac; launched '\"now\"'; exit 0";
    let fakes = Fakes::new(step).in_job("n[1-2]");
    let ended = fakes.drive();
    ended.says(0, "the sweep has ended (status 0)");
    assert_eq!(fakes.steps(), [STEP; 6]);
    ended.says(0, "step 1 was ended by signal 9 and produced 1 new lines; cases remain");
    ended.says(0, "step 5 ended with status 139");
}

#[test]
fn steps_without_results_are_not_restarted_for_ever() {
    for (step, steps) in [
        ("exit 137", 3),
        ("launched null; exit 1", 3),
        ("[ $n = 3 ] && add 1; exit 137", 6),
        ("[ $n = 1 ] && add 5; exit 4", 4),
    ] {
        let fakes = Fakes::new(step).in_job("n[1-2]");
        fakes.drive().says(4, "3 consecutive steps produced no result; the last ended with status");
        assert_eq!(fakes.steps().len(), steps, "{step}");
        assert_eq!(
            fakes.calls("scontrol").iter().filter(|call| call.contains("requeue")).count(),
            0
        );
    }
}

#[test]
fn a_job_too_short_for_the_remaining_cases_is_requeued_only_after_progress() {
    let end = (Utc::now().timestamp() + 3600).to_string();
    let fakes = Fakes::new("[ $n = 1 ] && add 5; exit 4").in_job("n[1-2]");
    let fakes = fakes.set("SLURM_JOB_END_TIME", &end);
    fakes.drive().says(4, "no remaining case fits into the job's time: job 12 is requeued");
    assert_eq!(fakes.calls("scontrol").last().unwrap(), "requeue 12");
    let fakes = Fakes::new("exit 4").in_job("n[1-2]").set("SLURM_JOB_END_TIME", &end);
    fakes.drive().says(4, "the job's time may be too short for any: raise --time");
    assert!(!fakes.read("log").contains("requeue"));
}

#[test]
fn a_node_that_is_down_is_left_out() {
    let fakes = Fakes::new("[ $n = 1 ] && exit 137; add 1; launched '\"now\"'; exit 0");
    let fakes = fakes.in_job("n[1-3]");
    fs::write(fakes.path("nodes"), "n1 allocated\nn2 down*\nn3 draining\nn2 down*\n").unwrap();
    let ended = fakes.drive();
    ended.says(0, "node n2 is down*, and does not answer: the sweep continues without it");
    let asked = fakes.calls("sinfo");
    assert_eq!(asked, ["-h -N -n n[1-3] -o %N %T"]);
    let steps = fakes.steps();
    assert!(steps[0].starts_with("--nodes=3 --ntasks=6 ") && !steps[0].contains("nodelist"));
    assert!(steps[1].starts_with("--nodes=2 --ntasks=4 "), "{}", steps[1]);
    assert!(steps[1].ends_with(" --nodelist=n[1,3]"), "{}", steps[1]);
}

#[test]
fn without_nodes_there_is_no_step() {
    let fakes = Fakes::new("exit 137").in_job("n[1-2]");
    fs::write(fakes.path("nodes"), "n1 down\nn2 down\n").unwrap();
    fakes.drive().says(4, "no node of the job is up. Results so far are in ");
    assert_eq!(fakes.steps().len(), 1);
}

#[test]
fn a_job_that_is_too_small_for_any_case_is_refused() {
    let fakes = Fakes::new("exit 0").in_job("n1");
    fakes.drive().says(
        2,
        "no case fits: job 12 has 1 nodes of 2 ranks, and the smallest topology is 2x2; request more nodes, or \
         measure on fewer",
    );
    assert!(fakes.steps().is_empty());
}

/// After the sweep, the ranks calibrate. Without a machine file there is no prediction, and the status is the sweep's.
#[test]
fn a_job_ends_with_a_calibration_if_the_sweep_asks_for_it() {
    let fakes = Fakes::new("case \"$*\" in *' calibrate '*) exit 5 ;; esac; add 1; exit 0");
    let fakes = fakes.in_job("n[1-2]");
    let out = fakes.path("out").display().to_string();
    let sweep = ["sweep", "--slurm", "configs/cluster.toml", "--out", &out];
    let ended = fakes.kolo(&sweep);
    ended.says(0, "no prediction: the calibration ended with status 5");
    ended.says(0, &format!("calibrate --transport mpi --out {out}/machine.toml --name generic\n"));
    assert_eq!(fakes.steps().len(), 2);
    // The small jobs of an array leave it to the largest.
    fakes
        .kolo(&[&sweep[..], &["--nodes", "4"]].concat())
        .says(0, "no prediction: a job with 4 nodes calibrates them, and this one has 2");
    let nccl = fakes.kolo(&[&sweep[..], &["--transport", "nccl"]].concat());
    nccl.says(0, "no prediction: only transport mpi is calibrated, and the sweep is over nccl");
}

#[test]
fn the_sweep_receives_the_end_of_the_job_minus_a_margin() {
    let now = Utc::now().timestamp();
    for (end, margin) in [(now + 7200, 180), (now + 600, 60)] {
        let fakes = Fakes::new("exit 0").in_job("n[1-2]");
        fakes.script("squeue", &format!("echo {end}"));
        fakes.drive().says(0, "(squeue)");
        let call = fakes.calls("srun").concat();
        let until: i64 = call.rsplit("--until ").next().unwrap().parse().unwrap();
        // A job of 10 minutes keeps a tenth of what is left.
        assert!((margin - 6..=margin).contains(&(end - until)), "{end} {until}");
    }
}

#[test]
fn queries_to_a_busy_controller_are_repeated() {
    let fakes = Fakes::new("exit 0").in_job("n[1-2]");
    fakes.script(
        "squeue",
        "[ $(grep -c ^squeue \"$fake/log\") = 1 ] || { echo 1900000000; exit 0; }\n\
         echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\n\
         exit 1",
    );
    let ended = fakes.drive();
    ended.says(0, "(connect failure); retrying in 0.5 s");
    ended.says(0, "it ends at 2030-03-17T17:46:40Z (squeue)");
}

/// Sends a signal once the step has begun; the step ends when its folder holds the file `stop`.
fn signalled(fakes: &Fakes, signal: Signal, timeout_seconds: &str) -> Ended {
    let child = fakes.begin(timeout_seconds);
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    Ended::of(child.wait_with_output().unwrap())
}

const STOPS: &str = "mkdir -p \"$out\"; touch \"$fake/begun\"; until_stopped; add 1; exit 4";

fn requeues(fakes: &Fakes) -> usize {
    fakes.calls("scontrol").iter().filter(|call| *call == "requeue 12").count()
}

#[test]
fn a_job_whose_time_is_nearly_over_stops_its_step_and_is_requeued() {
    let fakes = Fakes::new(STOPS).in_job("n[1-2]").set("SLURM_RESTART_COUNT", "2");
    let ended = signalled(&fakes, Signal::SIGUSR1, "60");
    ended.says(4, "the job's time limit is reached: job 12 is requeued");
    assert_eq!((fakes.steps().len(), requeues(&fakes)), (1, 1));
    assert!(!fakes.path("out/stop").exists(), "the next start would stop at once");
}

#[test]
fn a_job_that_is_terminated_stops_its_step_and_leaves_the_rest_to_slurm() {
    let fakes = Fakes::new(STOPS).in_job("n[1-2]");
    let ended = signalled(&fakes, Signal::SIGTERM, "60");
    ended.says(4, "the job was asked to end");
    assert_eq!((fakes.steps().len(), requeues(&fakes)), (1, 0));
    assert!(!fakes.path("out/stop").exists());
}

#[test]
fn a_sweep_that_is_over_when_its_time_is_is_not_requeued() {
    let step = STOPS.replace("exit 4", "launched '\"now\"'; exit 0");
    let fakes = Fakes::new(&step).in_job("n[1-2]");
    signalled(&fakes, Signal::SIGUSR1, "60").says(0, "the sweep has ended (status 0)");
    assert_eq!(requeues(&fakes), 0);
}

#[test]
fn requeues_are_capped_and_only_done_where_they_are_allowed() {
    let fakes = Fakes::new(STOPS).in_job("n[1-2]").set("SLURM_RESTART_COUNT", "3");
    let ended = signalled(&fakes, Signal::SIGUSR1, "60");
    ended.says(4, "the job's time limit is reached, and it was already requeued 3 times");
    ended.says(4, &format!("submit with --out {} to continue", fakes.path("out").display()));
    assert_eq!(requeues(&fakes), 0);
    let fakes = Fakes::new(STOPS).in_job("n[1-2]").set("REQUEUE", "0");
    signalled(&fakes, Signal::SIGUSR1, "60").says(4, "requeueing is disabled (Requeue=0)");
    assert_eq!(requeues(&fakes), 0);
    let fakes = Fakes::new(STOPS).in_job("n[1-2]");
    fakes.script("scontrol", "echo 'Requested operation is presently disabled' >&2; exit 1");
    signalled(&fakes, Signal::SIGUSR1, "60").says(4, "scontrol requeue 12 ended with status 1");
}

/// A step that does not look for the file is terminated, and one that hangs even then is killed after half the timeout.
#[test]
fn a_step_that_does_not_stop_is_ended() {
    // A shell that waits runs its trap at once; one that runs a command does so after the command.
    let notes = "trap 'touch \"$fake/terminated\"; kill $!; exit 143' TERM; sleep 60 & touch \"$fake/begun\"; wait $!";
    let hangs = "trap '' TERM; touch \"$fake/begun\"; \
                 while [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done";
    for (step, timeout_seconds, noted) in [(notes, "4", true), (hangs, "0.6", false)] {
        let fakes = Fakes::new(step).in_job("n[1-2]");
        let ended = signalled(&fakes, Signal::SIGUSR1, timeout_seconds);
        let seconds: f64 = timeout_seconds.parse().unwrap();
        ended.says(4, &format!("the step did not stop within {seconds:.1} s and is terminated"));
        assert_eq!((fakes.path("terminated").exists(), requeues(&fakes)), (noted, 1));
    }
}

/// A file from an earlier start of the job does not stop this one.
#[test]
fn an_old_request_to_stop_is_taken_back() {
    let fakes = Fakes::new("[ -e \"$out/stop\" ] && exit 4; add 1; exit 0").in_job("n[1-2]");
    fs::create_dir(fakes.path("out")).unwrap();
    fs::write(fakes.path("out/stop"), "").unwrap();
    fakes.drive().says(0, "the sweep has ended");
}

#[test]
fn a_job_that_is_not_understood_is_refused() {
    let fakes = Fakes::new("exit 0").set("SLURM_JOB_ID", "12");
    fakes.drive().says(2, "kolo: job 12: SLURM_JOB_NODELIST is not set, so its nodes are unknown");
    let fakes = Fakes::new("exit 0").in_job("n[2-1]");
    fakes
        .drive()
        .says(2, "kolo: job 12: SLURM_JOB_NODELIST: node list \"n[2-1]\": the range \"2-1\"");
    assert!(fakes.steps().is_empty());
}
