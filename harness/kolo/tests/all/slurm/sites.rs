//! Site files, and `kolo site`.

use std::fs;

use cluster::slurm::site::{Origin, Site};

use crate::slurm::fakes::{Fakes, root};

fn shipped() -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(root().join("configs/sites")).unwrap();
    files.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_site_file_is_understood() {
    assert!(shipped().len() >= 3);
    for path in shipped() {
        let site = Site::read(&path).unwrap();
        assert!(!site.about.is_empty(), "{}", path.display());
    }
}

/// The page of all keys has the defaults, and names every key.
#[test]
fn the_generic_site_is_the_defaults_and_explains_every_key() {
    let path = root().join("configs/sites/generic.toml");
    let site = Site::read(&path).unwrap();
    let bare = Site { about: String::new(), origin: Origin::default(), ..site };
    assert_eq!(bare, Site { origin: Origin::default(), ..Site::default() });
    let some = || Some("x".to_string());
    let full = Site {
        partition: some(),
        account: some(),
        qos: some(),
        interface: some(),
        cpus_per_node: Some(1),
        nics_per_node: Some(1),
        link_gbit_s: Some(1.0),
        ..Site::default()
    };
    let table: toml::Table = toml::from_str(&toml::to_string(&full).unwrap()).unwrap();
    let page = fs::read_to_string(&path).unwrap();
    for key in table.keys().filter(|key| *key != "environment") {
        let explained = page
            .lines()
            .any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")));
        assert!(explained, "generic.toml does not explain {key}");
    }
    assert!(page.contains("[environment]"));
}

#[test]
fn a_foreign_machine_is_marked_as_not_run_by_us() {
    let page = fs::read_to_string(root().join("configs/sites/perlmutter.toml")).unwrap();
    assert!(page.lines().next().unwrap().contains("not run by us"));
}

#[test]
fn a_check_prints_what_fits_and_what_does_not() {
    let fakes = Fakes::new("exit 0");
    let ended = fakes.kolo(&["site", "check"]);
    ended.says(0, "site generic (configs/sites/generic.toml): any cluster with Slurm");
    for line in [
        "key             site file    Slurm reports       verdict",
        "partition       (default)    all                 fits",
        "nodes           -            2, 2 usable         -",
        "mpi_plugin      pmix         none, pmix          fits",
        "preemption      -            PreemptMode CANCEL  - a preempted job is cancelled: submit",
    ] {
        ended.says(0, line);
    }
    fs::write(fakes.path("mine.toml"), "partition = \"gpu\"\nmpi_plugin = \"pmi2\"").unwrap();
    let mine = fakes.path("mine.toml").display().to_string();
    let ended = fakes.kolo(&["site", "check", &mine]);
    ended.says(1, "CONTRADICTS: choose from all");
    ended.says(1, "CONTRADICTS: choose one that Slurm offers");
    ended.says(1, "2 of 4 contradict Slurm");
}

#[test]
fn a_check_without_slurm_is_reported() {
    let fakes = Fakes::new("exit 0");
    fs::create_dir(fakes.path("empty")).unwrap();
    let path = fakes.path("empty").display().to_string();
    fakes
        .set("PATH", &path)
        .kolo(&["site", "check", "virtual"])
        .says(3, "nothing was compared: sinfo is not on PATH: Slurm is not installed here");
    let fakes = Fakes::new("exit 0");
    fakes.script(
        "sinfo",
        "echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1",
    );
    let ended = fakes.kolo(&["site", "check"]);
    ended.says(
        3,
        "nothing was compared: sinfo -h -e -o '%P|%a|%F|%c|%G' failed: sinfo: fatal: Could",
    );
}

#[test]
fn a_bad_site_file_is_refused_with_file_line_and_what_is_expected() {
    let fakes = Fakes::new("exit 0");
    for (text, expected) in [
        ("\nparttion = \"a\"", "bad.toml: line 2: unknown field `parttion`, expected one of"),
        (
            "gpus_per_node = \"4\"",
            "bad.toml: line 1: invalid type: string \"4\", expected a whole number from 0",
        ),
        (
            "mpi_plugin = \"pmi3\"",
            "bad.toml: line 1: unknown variant `pmi3`, expected one of `pmix`",
        ),
    ] {
        fs::write(fakes.path("bad.toml"), text).unwrap();
        let bad = fakes.path("bad.toml").display().to_string();
        fakes.kolo(&["site", "check", &bad]).says(2, expected);
        let sweep = ["sweep", "--slurm", "configs/quick.toml", "--site", &bad];
        fakes.kolo(&sweep).says(2, expected);
    }
    assert_eq!(fakes.read("log"), "");
}

#[test]
fn the_variable_names_the_site_and_the_option_comes_before_it() {
    let fakes = Fakes::new("exit 0").set("KOLO_SITE", "virtual");
    fakes.kolo(&["site", "show"]).says(0, "OMPI_MCA_pml = \"ob1\"");
    fakes.kolo(&["site", "show", "generic"]).says(0, "mpi_plugin = \"pmix\"");
    fakes.kolo(&["site", "list"]).says(0, "perlmutter       Perlmutter (NERSC), GPU nodes");
}
