//! Sites that fit and sites that do not, by answers as Slurm gives them.

use super::*;

fn answers() -> Answers {
    Answers {
        sinfo: "all*|up|0/4/0/4|64|gpu:a100:4(S:0-1),nvme:1\nold|up|1/0/1/2|16|(null)\n\
                night|down|0/2/0/2|16|gpu:2"
            .into(),
        config: Ok("Configuration data as of 2026-11-20T15:00:00\nJobRequeue              = 1\n\
                    PreemptMode             = CANCEL\nPreemptType  = preempt/partition_prio\n"
            .into()),
        partitions: Ok("PartitionName=all AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,long \
                        MaxTime=00:30:00 PreemptMode=REQUEUE\nPartitionName=old AllowAccounts=abc \
                        AllowQos=ALL MaxTime=UNLIMITED"
            .into()),
        mpi: Ok("MPI plugin types are...\n\tcray_shasta\n\tpmi2\n\tpmix\n\tnone\nspecific pmix \
                 plugin versions available: pmix_v4"
            .into()),
    }
}

fn verdict(site: &Site, answers: &Answers, key: &str) -> String {
    let findings = compare(site, answers);
    let finding = findings.iter().find(|finding| finding.key == key);
    let finding = finding.unwrap_or_else(|| panic!("no {key} in {findings:?}"));
    format!("{} | {} | {}", finding.site, finding.slurm, finding.verdict)
}

#[test]
fn a_site_that_fits_has_no_contradiction() {
    let site = Site {
        partition: Some("all".into()),
        account: Some("xyz".into()),
        qos: Some("long".into()),
        cpus_per_node: Some(64),
        gpus_per_node: 4,
        ranks_per_node: 4,
        cpus_per_rank: 16,
        ..Site::default()
    };
    let findings = compare(&site, &answers());
    let contradiction =
        findings.iter().find(|finding| matches!(finding.verdict, Verdict::Contradicts(_)));
    assert_eq!(contradiction, None);
    for (key, expected) in [
        ("partition", "all | all | fits"),
        ("nodes", "- | 4, 4 usable | -"),
        ("cpus_per_node", "64 | 64 | fits"),
        ("ranks_per_node", "4 of 16 CPUs | 64 CPUs | fits"),
        ("gpus_per_node", "4 | 4 | fits"),
        ("account", "xyz | ALL allowed | fits"),
        ("qos", "long | normal,long allowed | fits"),
        ("time limit", "- | 00:30:00 at most | - give --time, since the script asks for an hour"),
        ("preemption", "- | PreemptMode REQUEUE | - a preempted job is requeued and resumes"),
        ("requeue", "- | JobRequeue 1 | -"),
        ("mpi_plugin", "pmix | cray_shasta, pmi2, pmix, none, pmix_v4 | fits"),
    ] {
        assert_eq!(verdict(&site, &answers(), key), expected);
    }
}

#[test]
fn each_contradiction_says_what_to_do() {
    let plain = Site::default;
    for (site, key, expected) in [
        (
            Site { partition: Some("gpu".into()), ..plain() },
            "partition",
            "gpu | there is none | CONTRADICTS: choose from all, old, night",
        ),
        (
            Site { partition: Some("night".into()), ..plain() },
            "partition",
            "night | night is down | CONTRADICTS: choose from all, old, night",
        ),
        (
            Site { cpus_per_node: Some(32), ..plain() },
            "cpus_per_node",
            "32 | 64 | CONTRADICTS: write the number that Slurm reports",
        ),
        (
            Site { ranks_per_node: 65, ..plain() },
            "ranks_per_node",
            "65 of 1 CPUs | 64 CPUs | CONTRADICTS: 65 CPUs are needed; fewer ranks, or overcommit \
             = true",
        ),
        (
            Site { gpus_per_node: 8, ..plain() },
            "gpus_per_node",
            "8 | 4 | CONTRADICTS: a node has at most 4",
        ),
        (
            Site { qos: Some("short".into()), ..plain() },
            "qos",
            "short | normal,long allowed | CONTRADICTS: the partition does not allow it",
        ),
        (
            Site { partition: Some("old".into()), account: Some("x".into()), ..plain() },
            "account",
            "x | abc allowed | CONTRADICTS: the partition does not allow it",
        ),
    ] {
        assert_eq!(verdict(&site, &answers(), key), expected);
    }
    let without =
        Answers { mpi: Ok("MPI plugin types are...\n\tnone\n\tpmi2".into()), ..answers() };
    assert_eq!(
        verdict(&plain(), &without, "mpi_plugin"),
        "pmix | none, pmi2 | CONTRADICTS: choose one that Slurm offers"
    );
    let no_default = Answers { sinfo: "a|up|0/1/0/1|2|(null)".into(), ..answers() };
    assert_eq!(
        verdict(&plain(), &no_default, "partition"),
        "(default) | no default | CONTRADICTS: name one; choose from a"
    );
    let dead = Answers { sinfo: "a*|up|0/0/3/3|2|(null)".into(), ..answers() };
    assert!(verdict(&plain(), &dead, "nodes").starts_with("- | 3, 0 usable | CONTRADICTS"));
}

#[test]
fn values_that_cannot_be_queried_are_not_checked() {
    let refused = || Err(AskError::Failed { command: "scontrol".into(), said: "denied".into() });
    let closed = Answers { config: refused(), partitions: refused(), mpi: refused(), ..answers() };
    let site = Site {
        modules: vec!["gcc".into()],
        qos: Some("x".into()),
        link_gbit_s: Some(200.0),
        ..Site::default()
    };
    let findings = compare(&site, &closed);
    assert!(findings.iter().all(|finding| !matches!(finding.verdict, Verdict::Contradicts(_))));
    for key in ["account, qos, time", "preemption, requeue"] {
        assert!(verdict(&site, &closed, key).contains("not checked: scontrol failed: denied"));
    }
    assert_eq!(
        verdict(&site, &closed, "link_gbit_s"),
        "200 | - | not checked: Slurm has no such setting"
    );
    let mpirun = Site { launcher: Launcher::Mpirun, ..Site::default() };
    assert_eq!(verdict(&mpirun, &closed, "mpi_plugin"), "pmix | - | - not used by mpirun");
}

#[test]
fn gpus_are_counted() {
    for (gres, count) in [
        ("(null)", 0),
        ("", 0),
        ("gpu:4", 4),
        ("gpu", 1),
        ("gpu:a100:4(S:0-1),nvme:1", 4),
        ("gpu:a100:2(S:0,2),gpu:v100:2(S:1,3)", 4),
        ("nvme:1,gpu:h100:8", 8),
        ("gpumem:80", 0),
    ] {
        assert_eq!(gpus(gres), count, "{gres}");
    }
}
