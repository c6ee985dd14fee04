//! Ranks of Horovod that stay for several blocks, with a program that stands in for them.

use std::fs;
use std::time::{Duration, Instant};

use against::engine::Engine;
use against::horovod::Horovod;
use against::launcher::Launcher;

use crate::{CONFIG, PROBED, plan, program};

/// Its steps take as many milliseconds as it has run blocks. It writes its process to `pids`.
const STAYS: &str = "
echo $$ >>\"${0%/*}/pids\"
while true; do
    n=$((n + 1))
    echo \"KOLO-REPORT {\\\"ranks\\\": 2, \\\"steps_ms\\\": [$n], \\\"pids\\\": [$$]}\"
    [ \"$8\" = --stay ] && kill -STOP $$ || exit 0
done";

#[test]
fn ranks_stay_for_five_blocks_of_a_case_until_another_configuration_runs() {
    let folder = tempfile::tempdir().unwrap();
    let python =
        program(folder.path(), "python", &format!("{}{STAYS}", PROBED.replace("MPI", "true")));
    let launcher = Launcher::parse("env RANKS={ranks}").unwrap();
    let find = || Horovod::find(&python, launcher.clone(), folder.path()).unwrap();
    let plan = plan(&[CONFIG, CONFIG]);
    let [one, two, other] = [0, 1, 4].map(|case| &plan.cases[case]);
    assert_ne!(one.origin, other.origin);
    let mut horovod = find().staying();
    let mut run = |case| horovod.run(&plan, case).unwrap().times_ms[0];
    let both: Vec<[f64; 2]> = (0..6).map(|_| [run(one), run(two)]).collect();
    assert_eq!(both, [1.0, 2.0, 3.0, 4.0, 5.0, 1.0].map(|block| [block; 2]));
    assert_eq!([run(other), run(one), run(one), run(two)], [1.0, 1.0, 2.0, 1.0]);
    horovod.end_residents();
    assert_eq!(horovod.run(&plan, one).unwrap().times_ms, [1.0]);
    drop(horovod);
    let pids = fs::read_to_string(folder.path().join("pids")).unwrap();
    // Twice two, the other one, two again, and the last.
    assert_eq!(pids.lines().count(), 8);
    let start = Instant::now();
    let name = python.display().to_string();
    let stays = |pid: &&str| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&name)
    };
    while let Some(pid) = pids.lines().find(stays) {
        assert!(start.elapsed() < Duration::from_secs(60), "process {pid} stays");
    }
    // Otherwise each block has processes of its own.
    let mut horovod = find();
    assert_eq!([1, 2].map(|_| horovod.run(&plan, one).unwrap().times_ms[0]), [1.0; 2]);
}
