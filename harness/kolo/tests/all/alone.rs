//! The binary alone: copied to a folder without the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli::sandbox::Ended;
use results::provenance::Provenance;
use results::toml_file::TomlFile;

/// A copy of the binary in a folder, and an empty folder to work in.
struct Alone {
    folder: tempfile::TempDir,
}

impl Alone {
    fn new() -> Alone {
        let folder = tempfile::tempdir().unwrap();
        let binary = env!("CARGO_BIN_EXE_kolo");
        let copy = folder.path().join("kolo");
        if fs::hard_link(binary, &copy).is_err() {
            fs::copy(binary, &copy).unwrap();
        }
        fs::create_dir(folder.path().join("work")).unwrap();
        Alone { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.path().join("kolo"));
        command.args(arguments).current_dir(self.path(""));
        let kept = std::env::vars_os().filter(|(name, _)| name == "PATH");
        command.env_clear().envs(kept);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&mut self.command(arguments))
    }

    /// Runs it, and returns what it printed.
    #[track_caller]
    fn prints(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.status, Some(0), "{arguments:?}: {}", ended.stderr);
        ended.stdout
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

#[test]
fn commands_work_without_any_file() {
    let alone = Alone::new();
    let quick = alone.prints(&["sweep", "quick", "--dry-run"]);
    assert!(quick.contains("48 cases of resnet50 (161 gradients, 102.2 MB)"), "{quick}");
    assert_eq!(alone.prints(&["sweep", "configs/quick.toml", "--dry-run"]), quick);
    let scaling = alone.prints(&["sweep", "summit-scaling", "--dry-run"]);
    assert!(scaling.contains("simulated on machine summit"), "{scaling}");
    assert!(alone.prints(&["sweep", "control-planes", "--dry-run"]).contains("cases"));
    assert!(alone.prints(&["validate"]).contains("series for calibration"));
    assert!(alone.prints(&["site", "show", "virtual"]).contains("overcommit = true"));
    assert!(alone.prints(&["site", "list"]).contains("perlmutter"));
    assert!(alone.prints(&["info"]).contains("HOROVOD_FUSION_THRESHOLD"));
    assert!(alone.prints(&["completions", "bash"]).contains("complete -F _kolo"));
    assert!(alone.prints(&["man"]).contains(".TH kolo 1"));
    // Whatever is embedded, too little time is told before anything is measured.
    let tune = ["tune", "--workload", "resnet50", "--backward-ms", "1", "--budget", "0s"];
    alone.run(&tune).says(2, "a budget of 0 s is too short");
    assert!(fs::read_dir(alone.path("")).unwrap().next().is_none(), "nothing was written");
}

#[test]
fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
    let alone = Alone::new();
    for (arguments, expected) in [
        (
            &["sweep", "qiuck"][..],
            "kolo: qiuck: no such configuration; did you mean quick? There are ci, cluster, control-planes, cuda, ",
        ),
        (&["sweep", "qiuck.toml"], "did you mean quick.toml? In configs there are ci.toml, "),
        (&["tune", "regret"], "kolo: regret: no such configuration. There are ci, "),
        (
            &["tune", "--workload", "resnet5", "--backward-ms", "1"],
            "did you mean resnet50? There are alexnet, ",
        ),
        (
            &["sweep", "quick", "--slurm", "--site", "virtal"],
            "did you mean virtual? There are: generic, ",
        ),
        (
            &["init", "quik"],
            "kolo: quik: no such embedded configuration; did you mean quick? There are ci, ",
        ),
        (&["sweep", "tune-regret"], "which `kolo sweep` does not take; use `kolo tune`"),
        (&["tune", "published"], "which `kolo tune` does not take; use `kolo validate --points`"),
        (&["validate", "--points", "quick"], "does not take; use `kolo sweep`"),
        (
            &["sweep", "configs/machines/summit.toml"],
            "this is a machine file, which `kolo sweep` does not",
        ),
        (
            &["sweep", "configs/sites/virtual.toml"],
            "its kind is not known: expected `workload`, [step] and [sweep]",
        ),
    ] {
        alone.run(arguments).says(2, expected);
    }
}

/// The smallest sweep of an embedded workload, with a list of the files that it read.
#[test]
fn provenance_lists_embedded_files() {
    const CONFIG: &str = "workload = \"alexnet\"\n[step]\nbackward_ms = 0.1\n[sweep]\ntopology = [\"1x2\"]\n\
                          control_plane = [\"bitvector\"]\nalgorithm = [\"ring\"]\n[measure]\nwarmup_steps = 0\n\
                          steps_per_block = 1\nblocks_min = 1\nblocks_max = 1\n";
    let alone = Alone::new();
    fs::write(alone.path("small.toml"), CONFIG).unwrap();
    let sweep = |more: &[&str]| {
        let ended = alone.run(&[&["sweep", "small", "--no-figures"], more].concat());
        // One step has no interval: nothing can be concluded.
        assert_eq!(ended.status, Some(3), "{}", ended.stderr);
        ended.stderr
    };
    let inputs = |out: &str| {
        let provenance = Provenance::read(&alone.path(out).join("provenance.json")).unwrap();
        let launch = provenance.launches.last().unwrap().clone();
        let shown = |input: &results::inputs::Input| {
            assert_eq!(input.fnv1a.len(), 16);
            format!("{} {:?}", input.path.display(), input.origin)
        };
        launch.inputs.iter().map(shown).collect::<Vec<_>>()
    };
    let said = sweep(&["--out", "a"]);
    assert!(!said.contains("differs"), "{said}");
    let embedded = "configs/workloads/alexnet.csv Embedded";
    let ready = "configs/workloads/alexnet.ready.csv Embedded";
    assert_eq!(inputs("a"), ["small.toml Disk", embedded, ready]);
    // A file on disk counts, and goes with its own ready times, of which there are none.
    let text = fs::read_to_string(root().join("configs/workloads/alexnet.csv")).unwrap();
    let shorter: Vec<&str> = text.lines().take(5).collect();
    fs::create_dir_all(alone.path("configs/workloads")).unwrap();
    fs::write(alone.path("configs/workloads/alexnet.csv"), shorter.join("\n") + "\n").unwrap();
    let said = sweep(&["--out", "b"]);
    let differs = "configs/workloads/alexnet.csv is used, which differs from the embedded \
                   configs/workloads/alexnet.csv";
    assert_eq!(said.matches(differs).count(), 1, "{said}");
    assert_eq!(inputs("b"), ["small.toml Disk", "configs/workloads/alexnet.csv Disk"]);
    // The same file is no difference.
    fs::write(alone.path("configs/workloads/alexnet.csv"), text).unwrap();
    assert!(!sweep(&["--out", "c"]).contains("differs"));
}

#[test]
fn a_configuration_on_disk_comes_before_the_embedded_one() {
    let alone = Alone::new();
    let quick = alone.prints(&["sweep", "quick", "--dry-run"]);
    alone.prints(&["init"]);
    let same = alone.run(&["sweep", "quick", "--dry-run"]);
    assert_eq!((same.stdout.as_str(), same.stderr.contains("differs")), (&*quick, false));
    let text = fs::read_to_string(alone.path("quick.toml")).unwrap();
    let changed = text.replacen("\"2x2\"", "\"1x2\"", 1);
    assert_ne!(text, changed);
    fs::write(alone.path("quick.toml"), changed).unwrap();
    let ended = alone.run(&["sweep", "quick", "--dry-run"]);
    assert!(ended.stdout.contains("threads/1x2/"), "{}", ended.stdout);
    ended.says(0, "quick.toml is used, which differs from the embedded configs/quick.toml");
}

#[test]
fn init_writes_every_configuration_as_it_is() {
    let alone = Alone::new();
    let list = alone.prints(&["init", "--list"]);
    assert!(list.lines().count() >= 20, "{list}");
    for line in list.lines() {
        let (name, about) = line.split_once("  ").unwrap();
        assert!(about.trim().ends_with('.') && about.trim().len() <= 100, "{line}");
        let out = format!("{}.toml", name.replace('/', "-"));
        alone.prints(&["init", name, "--out", &out]);
        let original = fs::read_to_string(root().join(format!("configs/{name}.toml"))).unwrap();
        assert_eq!(fs::read_to_string(alone.path(&out)).unwrap(), original, "{name}");
        TomlFile::read(&alone.path(&out)).unwrap().parse::<toml::Table>().unwrap();
    }
    // What a copy names is found without the repository.
    for name in ["quick", "summit-scaling", "control-planes"] {
        let copy = format!("{name}.toml");
        let planned = alone.prints(&["sweep", &copy, "--dry-run"]);
        assert_eq!(planned, alone.prints(&["sweep", &format!("configs/{copy}"), "--dry-run"]));
    }
    alone
        .run(&["init"])
        .says(2, "kolo: quick.toml exists, and nothing was written; name another file");
    alone
        .run(&["init", "quick", "--out", "no/such/folder.toml"])
        .says(2, "cannot be written: No such file");
    assert!(alone.prints(&["init", "machines/summit"]).contains("summit.toml is written"));
    for (name, next) in [
        ("horovod-burst", "kolo against horovod FILE"),
        ("tuners-burst", "kolo against autotune FILE"),
        ("promises/resnet101", "kolo against autotune FILE --steps 440"),
        ("sites/generic", "kolo site check FILE"),
        ("paper-claims", "kolo sweep FILE"),
    ] {
        let copy = format!("copy-of-{}.toml", name.replace('/', "-"));
        let said = alone.prints(&["init", name, "--out", &copy]);
        assert!(said.ends_with(&format!("{next}\n")), "{name}: {said}");
    }
}

/// Outside of a checkout a copy of the embedded script is submitted, which finds this program.
#[test]
fn a_job_is_submitted_with_a_copy_of_the_batch_script() {
    let alone = Alone::new();
    let fakes = crate::slurm::fakes::Fakes::new("add 1; exit 0");
    let dry = alone.prints(&["sweep", "--slurm", "--dry-run", "quick"]);
    assert!(dry.contains("site generic (configs/sites/generic.toml, embedded)"), "{dry}");
    assert!(!alone.path("results").exists(), "a dry run writes nothing");
    let mut command = fakes.command(alone.folder.path().join("kolo"));
    command.args(["sweep", "--slurm", "quick", "--site", "virtual"]).current_dir(alone.path(""));
    Ended::of(&mut command).says(0, "slurm/sweep.sh quick --site virtual");
    let call = fakes.calls("sbatch").pop().unwrap();
    let script = call.split(' ').find(|word| word.ends_with("slurm/sweep.sh")).unwrap();
    assert!(script.starts_with("results/slurm-scripts/"), "{script}");
    // As Slurm runs it: a copy elsewhere, whose original it is asked for.
    fs::copy(alone.path(script), fakes.path("slurm_script")).unwrap();
    let shown = format!("   Command={} quick", alone.path(script).display());
    fakes.script("scontrol", &format!("echo 'JobId=12'; echo '{shown}'"));
    let fakes = fakes.in_job("n[1-2]");
    let mut job = fakes.command("bash");
    job.arg(fakes.path("slurm_script")).args(["quick", "--site", "virtual", "--out", "out"]);
    job.current_dir(alone.path("")).env_remove("CARGO_TARGET_DIR");
    let ended = Ended::of(&mut job);
    assert!(
        ended.stdout.contains("the sweep has ended (status 0)"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    assert!(fakes.calls("srun").iter().any(|step| step.contains("/kolo sweep quick --out out")));
}
