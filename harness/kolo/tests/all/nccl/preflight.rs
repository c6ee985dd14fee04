//! Problems of GPUs are reported before anything is measured, and refused unless `--force` is given.

use results::provenance::Launch;

use crate::nccl::world::World;

const SMALL: [&str; 8] = ["-b", "1K", "-e", "1K", "-n", "1", "-w", "0"];

/// The problem of two ranks, as in sweeps.
pub const UNLIKE: &str = "GPUs are of different models: a processor that poses, compute capability 9.0 (rank 0); \
                          another that poses, compute capability 9.0 (rank 1); every rank waits for the slowest \
                          GPU; request one kind (--constraint)";
pub const APART: &str = ": GPUs 0 and 1 cannot read each other's memory, so data pass through host memory; look at \
                         the topology in `kolo info`, and at IOMMU and ACS of the machine";

#[test]
fn doubtful_gpus_are_refused_by_all_ranks_with_the_reasons() {
    let Some(mut world) = World::new() else { return };
    for (posing, said, unsaid) in [
        ("unlike", vec![UNLIKE], APART),
        ("apart", vec![APART], UNLIKE),
        ("unlike,apart", vec![UNLIKE, APART], "?"),
    ] {
        world = world.with("POSING", posing);
        for ended in world.bench(2, &SMALL) {
            assert_eq!((ended.status, ended.said.as_str()), (Some(2), ""), "{ended:?}");
            let complained = &ended.complained;
            assert!(said.iter().all(|words| complained.contains(words)), "{posing}: {ended:?}");
            assert!(!complained.contains(unsaid), "{posing}: {ended:?}");
            assert!(complained.trim_end().ends_with("; add --force to measure nevertheless"));
        }
    }
}

#[test]
fn forced_results_are_marked() {
    let Some(world) = World::new() else { return };
    let world = world.with("POSING", "unlike,apart");
    let out = world.folder("rows.csv");
    let ended =
        world.bench(2, &[&SMALL[..], &["--force", "--out", out.to_str().unwrap()]].concat());
    assert!(ended.iter().all(|ended| ended.status == Some(0)), "{ended:?}");
    let said = &ended[0].said;
    assert!(said.contains("# Out of bounds values : 0 OK"), "{said}");
    assert!(said.contains(&format!("# warning: {UNLIKE}\n")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("# warning: ") && line.ends_with(APART)));
    let text = std::fs::read_to_string(out.with_extension("provenance.json")).unwrap();
    let launch: Launch = serde_json::from_str(&text).unwrap();
    assert_eq!(launch.forced.len(), 2, "{text}");
    assert!(launch.forced[0] == UNLIKE && launch.forced[1].ends_with(APART), "{text}");
    assert!(launch.ended.is_some(), "{text}");
}

#[test]
fn unused_gpus_are_ignored() {
    let Some(world) = World::new() else { return };
    let ended = world.with("POSING", "unlike,apart").alone(&SMALL);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(!ended.said.contains("# warning: "), "{ended:?}");
}

/// As where ranks are streams, and in sweeps: it is known afterwards only.
#[test]
fn a_gpu_that_was_throttled_is_warned_of() {
    let Some(world) = World::new() else { return };
    let ended = world.with_nvml().with("POSING", "hot").bench(2, &SMALL);
    assert_eq!(ended[0].status, Some(0), "{ended:?}");
    let words =
        "# warning: GPU 1 of the bus (a GPU that poses, GPU-posed-2) was throttled after the run";
    assert!(ended[0].said.contains(words), "{ended:?}");
    assert_eq!(ended[1].said, "");
}
