use std::fs;

use super::*;

/// A bench that is kept as a reference, with some of its text replaced.
fn bench(from: &str, to: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/bench/4-ranks.csv");
    fs::read_to_string(path).unwrap().replace(from, to)
}

#[test]
fn figures_that_are_not_drawn_are_one_line_and_verbose_has_the_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("b.csv");
    fs::write(&file, bench(",2026-", ",2026-")).unwrap();
    let figures = Figures::draw(&[file], None, folder.path(), plots::Options::default()).unwrap();
    assert_eq!(figures.names, ["bus_bandwidth", "time_by_size", "over_fastest", "roofline"]);
    assert_eq!(figures.drawn.lines().count(), 4, "{}", figures.drawn);
    let short = "not drawn: scaling, efficiency, throughput, speedup, surface, negotiation, control_planes, distribution, \
                     ranks, step, gains, changes, breakdown, losses, crossover, validation, against, against_surface, autotune, kernels (--verbose says why)\n";
    assert_eq!(figures.in_short(), short);
    let reasons = figures.reasons();
    assert_eq!(reasons.lines().count(), 20, "{reasons}");
    assert!(reasons.starts_with("figure scaling not drawn: no rows of kind `step`"), "{reasons}");
    assert_eq!(figures.repeated, "");
}

#[test]
fn a_figure_that_is_drawn_in_part_has_the_reason() {
    let not_drawn = |figure, reason: &str| NotDrawn { figure, reason: reason.to_string() };
    let figures = Figures {
        drawn: "figure surface.png\n".to_string(),
        names: vec!["surface"],
        files: vec![vec!["surface.png".into()]],
        repeated: String::new(),
        not_drawn: vec![not_drawn("surface", "1 failed"), not_drawn("scaling", "none")],
    };
    let short = "figure surface not drawn: 1 failed\nnot drawn: scaling (--verbose says why)\n";
    assert_eq!(figures.in_short(), short);
}

#[test]
fn programs_are_told_every_file_and_every_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("b.csv");
    fs::write(&file, bench(",2026-", ",2026-")).unwrap();
    let options = plots::Options { paper: true, ..plots::Options::default() };
    let figures = Figures::draw(&[file], None, folder.path(), options).unwrap();
    let plotted = figures.plotted(folder.path());
    assert_eq!(plotted.figures.len(), 4);
    for FilesOf { figure, files } in &plotted.figures {
        let own = |file: &String| Path::new(file).exists() && file.contains(figure);
        assert!(!files.is_empty() && files.iter().all(own), "{figure}: {files:?}");
    }
    let reason = |name| plotted.not_drawn.iter().find(|it| it.figure == name).unwrap();
    assert!(reason("surface").reason.starts_with("no row of kind `step`"));
}

#[test]
fn what_the_tuner_saves_and_a_step_are_drawn() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/tune/four-nodes");
    let timeline =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../training/tests/all/golden/timeline.json");
    let out = tempfile::tempdir().unwrap();
    let results = [reference, timeline].map(PathBuf::from);
    let figures = Figures::draw(&results, None, out.path(), plots::Options::default()).unwrap();
    let names = ["surface", "negotiation", "distribution", "step", "gains", "breakdown"];
    assert_eq!(figures.names, names);
    let gains = fs::read_to_string(out.path().join("gains.svg")).unwrap();
    for words in
        ["1 MiB, 0.1 ms", "MEASURED · emulated nodes, or ranks that share cores", "128 MiB, 1 ms"]
    {
        assert!(gains.contains(words), "{words}");
    }
}

/// They are found in the folder, and count once if they are given as well.
#[test]
fn predictions_in_a_folder_are_drawn_beside_what_was_measured() {
    let cluster =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/cluster"));
    let out = tempfile::tempdir().unwrap();
    let draw = |results: &[PathBuf], folder: &str| {
        let folder = out.path().join(folder);
        // Without PNGs.
        let options = plots::Options { paper: true, ..plots::Options::default() };
        let figures = Figures::draw(results, None, &folder, options).unwrap();
        assert_eq!(figures.repeated, "");
        fs::read_to_string(folder.join("efficiency_double.svg")).unwrap()
    };
    let alone = draw(&[cluster.into()], "alone");
    for words in ["MEASURED, SIMULATED, emulated nodes", "SIMULATED: the same settings"] {
        assert!(alone.contains(words), "{words}");
    }
    assert_eq!(alone, draw(&[cluster.into(), cluster.join("predicted")], "both"));
    assert!(!draw(&[cluster.join("rows.csv")], "measured").contains("SIMULATED"));
}

#[test]
fn of_a_run_with_timelines_a_step_of_the_fastest_case_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    let quick = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/quick/rows.csv");
    fs::copy(quick, run.join("rows.csv")).unwrap();
    // Without PNGs.
    let options = plots::Options { paper: true, ..plots::Options::default() };
    let draw = || Figures::draw(&[run.into()], None, &run.join("figures"), options).unwrap().names;
    assert!(!draw().contains(&"step"));
    fs::create_dir(run.join("timelines")).unwrap();
    assert!(!draw().contains(&"step"));
    let timeline = include_str!("../../../../report/tests/timeline.json");
    for case in ["threads_2x2_coordinator_hierarchical_4MiB_1ms", "of-no-case"] {
        fs::write(run.join(format!("timelines/{case}.json")), timeline).unwrap();
    }
    assert!(draw().contains(&"step"));
    let svg = fs::read_to_string(run.join("figures/step_double.svg")).unwrap();
    assert!(svg.contains("rank 0, computation"), "{svg}");
}

#[test]
fn an_answer_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), bench(",2026-", ",2026-")).unwrap();
    fs::write(folder.path().join("tune.json"), "{}").unwrap();
    let results = [folder.path().to_path_buf()];
    let why = Figures::draw(&results, None, folder.path(), plots::Options::default());
    let why = why.err().expect("it is refused").to_string();
    assert!(why.contains("tune.json: missing field `workload`"), "{why}");
    assert!(why.ends_with("; run kolo tune again"), "{why}");
}

#[test]
fn an_answer_that_recommends_nothing_has_no_gains() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), bench(",2026-", ",2026-")).unwrap();
    let answer = r#"{"workload": "w", "transport": "mpi", "topology": "4x1", "recommended": null, "compared": []}"#;
    fs::write(folder.path().join("tune.json"), answer).unwrap();
    let results = [folder.path().to_path_buf()];
    let figures = Figures::draw(&results, None, folder.path(), plots::Options::default()).unwrap();
    assert!(!figures.names.contains(&"gains"), "{:?}", figures.names);
}

#[test]
fn cases_of_two_runs_are_reported_with_the_run_that_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, text: String| {
        let run = folder.path().join(name);
        fs::create_dir(&run).unwrap();
        fs::write(run.join("rows.csv"), text).unwrap();
        run
    };
    let later = run("a", bench(",2026-", ",2027-"));
    let earlier = run("b", bench(",2026-", ",2026-"));
    let figures = Figures::draw(
        &[later.clone(), earlier.clone()],
        None,
        &folder.path().join("out"),
        plots::Options::default(),
    )
    .unwrap();
    let (earlier, later) = (earlier.display(), later.display());
    let expected = format!(
        "182 cases occur in {earlier} and {later}; those of {later}, the newer run, are drawn; \
             to compare runs, plot them apart\n"
    );
    assert_eq!(figures.repeated, expected);
}
