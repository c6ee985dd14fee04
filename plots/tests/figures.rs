//! From CSV files to figures, as a user runs it.

mod synthetic;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use plots::{Drawn, Options, Outcome, PlotError, Rows, draw};
use synthetic::{
    POLICIES, RANKS, Row, WORKLOADS, allreduces, control, grid, message, published, scaling, step,
    sweep, table, validation,
};

/// An empty folder for a test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Reads a table from a file `rows.csv`.
fn read(test: &str, text: &str) -> Result<Rows, PlotError> {
    let file = folder(test).join("rows.csv");
    fs::write(&file, text).unwrap();
    Rows::read(&[file])
}

/// Draws rows into a folder of their own.
fn figures(test: &str, rows: &[Row]) -> (PathBuf, Vec<Drawn>) {
    let rows = read(test, &table(rows)).unwrap();
    let folder = folder(test);
    let drawn = draw(&rows, &folder, Options::default(), |_| {}).unwrap();
    (folder, drawn)
}

/// The error's text, without the folder.
fn refusal(test: &str, text: &str) -> String {
    let error = read(test, text).unwrap_err().to_string();
    error.replace(&folder(test).display().to_string(), "")
}

fn svg(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(format!("{name}.svg"))).unwrap()
}

fn assert_says(svg: &str, words: &[&str]) {
    for word in words {
        assert!(svg.contains(word), "`{word}` is not in the figure");
    }
}

const NO_SAMPLES: &str = "no samples.csv is among the results, or no case in it has 5 steps";

#[test]
fn a_sweep_becomes_every_figure() {
    let alone = [6, 96, 768].map(|ranks| control("bitvector", ranks));
    let (folder, drawn) = figures("sweep", &[sweep(), alone.to_vec()].concat());
    let files = |names: &[&str]| {
        let both = names.iter().flat_map(|name| ["svg", "png"].map(|end| format!("{name}.{end}")));
        Outcome::Files(both.map(|name| folder.join(name)).collect())
    };
    let expected = [
        ("surface", files(&["surface"])),
        ("bus_bandwidth", files(&["bus_bandwidth_allreduce", "bus_bandwidth_message"])),
        ("time_by_size", files(&["time_by_size"])),
        ("over_fastest", files(&["over_fastest"])),
        ("roofline", files(&["roofline"])),
        ("negotiation", files(&["negotiation"])),
        ("control_planes", files(&["control_planes"])),
        ("distribution", Outcome::Skipped(NO_SAMPLES.to_string())),
    ];
    let (over_ranks, drawn) = drawn.split_at(OVER_RANKS.len());
    let (drawn, simulated) = drawn.split_at(expected.len());
    let mut others = over_ranks.iter().chain(simulated);
    assert!(others.all(|drawn| matches!(drawn.outcome, Outcome::Skipped(_))));
    assert_eq!(drawn, expected.map(|(figure, outcome)| Drawn { figure, outcome }));

    for name in
        ["surface", "bus_bandwidth_allreduce", "bus_bandwidth_message", "roofline", "negotiation"]
    {
        assert_says(
            &svg(&folder, name),
            &[
                "MEASURED · emulated nodes (of one machine) · oversubscribed: 4 ranks",
                "Workload resnet50; transport threads; 4 ranks = 2 nodes × 2;",
                "Median with 95 % interval; 30 samples per point.",
                "commit 0123456789.",
                "font-family=\"DejaVu Sans, Verdana, sans-serif\"",
            ],
        );
        let png = fs::read(folder.join(format!("{name}.png"))).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        assert_eq!(png[16..20], 2000u32.to_be_bytes(), "the width in a PNG's header");
    }
    let surface = svg(&folder, "surface");
    assert_says(&surface, &["Step time by fusion threshold and cycle time", "off", "128"]);
    assert_says(&surface, &["ring, coordinator", "grouped, bitvector", "step time (ms)"]);
    let negotiation = svg(&folder, "negotiation");
    assert_says(&negotiation, &["Negotiation and fusion in a training step", "fusion off"]);
    let bandwidth = svg(&folder, "bus_bandwidth_allreduce");
    assert_says(&bandwidth, &["Bus bandwidth of an allreduce alone", "64 KiB", "1 MiB", "GB/s"]);
    let roofline = svg(&folder, "roofline");
    assert_says(
        &roofline,
        &["Share of the reference that an allreduce reaches", "64 KiB", "1 MiB"],
    );
    let planes = svg(&folder, "control_planes");
    assert_says(&planes, &["MEASURED (solid)", "network ASSUMED (dashed)", "768", "bitvector"]);
}

#[test]
fn a_bench_becomes_its_figures_in_any_order_of_its_rows() {
    let sizes = (10..=26).map(|power| f64::from(1 << power));
    let mut rows: Vec<Row> = sizes
        .flat_map(|size| ["ring", "tree"].map(|algorithm| message("allreduce", algorithm, size)))
        .map(|row| row.with("workload", "").with("pinned", "true"))
        .collect();
    let (folder, drawn) = figures("bench", &rows);
    let files: Vec<_> =
        drawn.iter().filter(|drawn| matches!(drawn.outcome, Outcome::Files(_))).collect();
    let names: Vec<&str> = files.iter().map(|drawn| drawn.figure).collect();
    assert_eq!(names, ["bus_bandwidth", "time_by_size", "over_fastest", "roofline"]);
    rows.reverse();
    let (reversed, _) = figures("bench_reversed", &rows);
    for name in ["bus_bandwidth_allreduce", "time_by_size", "over_fastest", "roofline"] {
        assert_says(&svg(&folder, name), &["each rank pinned to a core;"]);
        assert_eq!(svg(&folder, name), svg(&reversed, name), "{name}");
    }
}

#[test]
fn outlines_in_the_svg_are_the_settings_that_tie() {
    let rows = grid(&["ring"], &[64.0, 128.0], &[1.0, 5.0]);
    let times = [("ring", 100.0), ("b", 101.5), ("c", 103.0), ("d", 100.0)];
    let at = |index: usize| times[index % 4].1 * 1e3;
    let timed: Vec<Row> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| row.with_estimate("time_us_p50", at(index), 1000.0))
        .collect();
    let (folder, _) = figures("outlines", &timed);
    // Intervals of 100 and 101.5 reach 101.1 and 100.6; that of 103 begins at 102.1. Both control
    // planes have the same times, so 3 of 4 in each.
    assert_eq!(svg(&folder, "surface").matches("stroke-width=\"6\"").count(), 6);
}

#[test]
fn simulations_have_their_own_colour() {
    let rows: Vec<Row> =
        sweep().iter().map(|row| row.with("source", "simulated").with("emulated", "")).collect();
    let (folder, _) = figures("simulated", &rows);
    for name in ["surface", "bus_bandwidth_message", "negotiation"] {
        let svg = svg(&folder, name);
        let line = svg.lines().position(|line| line.contains("SIMULATED")).unwrap();
        let tag = svg.lines().nth(line - 1).unwrap();
        assert!(tag.contains("#D55E00") && tag.contains("bold"), "{tag}");
        assert!(!svg.contains("MEASURED") && !svg.contains("emulated"));
    }
}

/// Figures over several numbers of ranks come first.
const OVER_RANKS: [&str; 4] = ["scaling", "efficiency", "throughput", "speedup"];

const SIMULATED: [&str; 5] = ["throughput", "efficiency", "speedup", "breakdown", "crossover"];

#[test]
fn a_simulated_machine_becomes_its_figures_and_no_others() {
    let steps = scaling(&WORKLOADS, &POLICIES, &RANKS);
    let algorithms =
        ["ring", "hierarchical", "double-tree", "halving-doubling", "recursive-doubling"];
    let rows = [steps, allreduces(&algorithms, &RANKS, 8..31)].concat();
    let (folder, drawn) = figures("machine", &rows);
    for Drawn { figure, outcome } in drawn {
        let expected = [format!("{figure}.svg"), format!("{figure}.png")];
        match outcome {
            Outcome::Files(files) => {
                assert!(SIMULATED.contains(&figure), "{figure}");
                assert_eq!(files, expected.map(|name| folder.join(name)));
                let origin = "SIMULATED on machine file summit · engine rounds (our schedules in \
                              virtual time)";
                let seeds = if figure == "crossover" { "Computed once" } else { " · 10 seeds" };
                assert_says(&svg(&folder, figure), &[origin, seeds, "#D55E00"]);
            }
            Outcome::Skipped(_) => assert!(!SIMULATED.contains(&figure), "{figure}"),
        }
    }
}

#[test]
fn comparisons_become_pictures_and_their_wrong_fields_are_named() {
    let folder = folder("validation");
    let files = ["published.csv", "validation.csv"].map(|name| folder.join(name));
    fs::write(&files[0], published()).unwrap();
    fs::write(&files[1], validation()).unwrap();
    let rows = Rows::read(&files).unwrap();
    assert_eq!(rows.len(), 15);
    let mut drawn = draw(&rows, &folder, Options::default(), |_| {}).unwrap();
    let drawn = drawn.remove(drawn.iter().position(|it| it.figure == "validation").unwrap());
    let names = ["efficiency", "published", "local"];
    let names =
        names.into_iter().flat_map(|name| ["svg", "png"].map(|end| format!("{name}.{end}")));
    let names: Vec<_> = names.map(|name| folder.join(format!("validation_{name}"))).collect();
    assert_eq!(drawn, Drawn { figure: "validation", outcome: Outcome::Files(names) });
    assert_says(&svg(&folder, "validation_published"), &["simulated / published", "#D55E00"]);
    assert_says(&svg(&folder, "validation_local"), &["SIMULATED", "MEASURED", "#D55E00"]);

    let wrong = |text: String, from: &str, to: &str| refusal("compared", &text.replace(from, to));
    let found = wrong(published(), ",3000,", ",0,");
    let expected = "rows.csv:4: column `published` has `0`, expected a number above 0";
    assert!(found.contains(expected), "{found}");
    let found = wrong(published(), "missed,the", "fine,the");
    assert!(found.contains(":3: column `verdict` has `fine`, expected met or missed"), "{found}");
    let found = wrong(validation(), "error_low", "low");
    assert!(found.contains(":1: column `error_low` is missing"), "{found}");
}

#[test]
fn figures_without_rows_are_skipped_with_a_reason() {
    let (_, drawn) = figures("steps_only", &grid(&["ring"], &[64.0], &[5.0]));
    let reason = "no row of kind `allreduce` or `message`; run a sweep of message sizes";
    let of_layouts = &drawn[OVER_RANKS.len()..];
    assert!(matches!(of_layouts[0].outcome, Outcome::Files(_)));
    assert_eq!(of_layouts[1].outcome, Outcome::Skipped(reason.to_string()));

    let (_, drawn) = figures("nothing", &[]);
    let figures: Vec<&str> = drawn.iter().map(|drawn| drawn.figure).collect();
    let of_what_ran = [
        "surface",
        "bus_bandwidth",
        "time_by_size",
        "over_fastest",
        "roofline",
        "negotiation",
        "control_planes",
        "distribution",
        "ranks",
        "step",
        "gains",
        "changes",
    ];
    assert_eq!(
        figures,
        [
            &OVER_RANKS[..],
            &of_what_ran,
            &["breakdown", "losses", "crossover"],
            &["validation", "against", "against_surface", "autotune", "kernels"]
        ]
        .concat()
    );
    assert!(drawn.iter().all(|drawn| matches!(drawn.outcome, Outcome::Skipped(_))));
}

#[test]
fn other_conditions_become_other_files_and_their_failures_a_reason() {
    let rows = [
        step("ring", "coordinator", 64.0, 5.0),
        step("ring", "coordinator", 64.0, 5.0).with("transport", "mpi"),
        step("ring", "coordinator", 64.0, 5.0).with("transport", "nccl").with("status", "failed"),
    ];
    let (folder, drawn) = figures("conditions", &rows);
    let files = ["mpi.svg", "mpi.png", "threads.svg", "threads.png"];
    let files = files.map(|end| folder.join(format!("surface_{end}"))).to_vec();
    let surface = drawn.iter().position(|drawn| drawn.figure == "surface").unwrap();
    assert_eq!(drawn[surface].outcome, Outcome::Files(files));
    let failed = &drawn[surface + 1].outcome;
    let Outcome::Skipped(reason) = failed else { panic!("{failed:?}") };
    assert!(reason.contains("for nccl has status ok"), "{reason}");
}

#[test]
fn one_value_on_each_axis_is_drawn() {
    let one = message("allreduce", "ring", 65536.0);
    let rows = [step("ring", "coordinator", 64.0, 5.0), one.clone(), one.with("algorithm", "tree")];
    let (_, drawn) = figures("single", &rows);
    let (of_layouts, others) = drawn[OVER_RANKS.len()..].split_at(6);
    assert!(of_layouts.iter().all(|drawn| matches!(drawn.outcome, Outcome::Files(_))), "{drawn:?}");
    assert_eq!(others[0].figure, "control_planes");
}

#[test]
fn many_settings_are_drawn() {
    let rows = grid(
        &["ring", "tree", "hierarchical", "hierarchical:tree", "grouped"],
        &[0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0],
        &[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0],
    );
    let (folder, _) = figures("many", &rows);
    // A value for each of 800 cells; the half-widths tell them from other texts.
    assert_eq!(svg(&folder, "surface").matches('±').count(), 800);
}

#[test]
fn a_missing_column_is_named_with_those_there_are() {
    assert_eq!(
        refusal("column", "kind,status\nstep,ok\n"),
        "/rows.csv:1: column `source` is missing; the header has: kind, status; write the rows \
         again with this version of kolo, or add the column and leave its fields empty"
    );
}

#[test]
fn a_malformed_number_is_named_with_its_place() {
    let ring = step("ring", "coordinator", 64.0, 5.0);
    for found in ["fast", "-3", "inf", "NaN"] {
        assert_eq!(
            refusal("number", &table(&[ring.clone(), ring.with("time_us_p50", found)])),
            format!(
                "/rows.csv:3: column `time_us_p50` has `{found}`, expected a number of at least 0; \
                 correct the field, or leave it empty if the value is not known"
            )
        );
    }
}

#[test]
fn a_word_that_is_none_of_the_known_ones_is_refused() {
    let ring = step("ring", "coordinator", 64.0, 5.0);
    let status = refusal("word", &table(&[ring.with("status", "fine")]));
    assert!(
        status.contains("rows.csv:2: column `status` has `fine`, expected ok, wrong, failed or")
    );
    let truth = refusal("word", &table(&[ring.with("emulated", "yes")]));
    assert!(truth.contains("`emulated` has `yes`, expected true or false"));
}

#[test]
fn a_short_line_and_a_missing_file_are_refused() {
    let text = table(&[step("ring", "coordinator", 64.0, 5.0)]) + "1,step\n";
    let short = refusal("short", &text);
    assert!(short.starts_with("/rows.csv:3: the line is not a row of this table"), "{short}");
    let error = Rows::read(&[folder("absent").join("rows.csv")]).unwrap_err();
    assert!(error.to_string().starts_with("cannot open "), "{error}");
    assert!(error.source().is_some());
}

#[test]
fn several_files_are_one_table() {
    let folder = folder("files");
    let file = |name: &str, rows: &[Row]| {
        let file = folder.join(name);
        fs::write(&file, table(rows)).unwrap();
        file
    };
    let steps = file("steps.csv", &[step("ring", "coordinator", 64.0, 5.0)]);
    let sizes = file("sizes.csv", &[message("allreduce", "ring", 65536.0)]);
    let rows = Rows::read(&[steps, sizes]).unwrap();
    assert_eq!((rows.len(), rows.is_empty()), (2, false));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let file = folder("rights").join("file");
    fs::write(&file, "").unwrap();
    let rows = read("rights_rows", &table(&sweep())).unwrap();
    let error =
        draw(&rows, &file.join("figures"), Options::default(), |_| {}).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot write to the folder ") && error.contains("figures;"),
        "{error}"
    );
}

/// Rows of measured steps and of a simulated machine, as of a paper.
fn of_a_paper() -> Vec<Row> {
    [sweep(), scaling(&WORKLOADS[..2], &POLICIES, &RANKS)].concat()
}

#[test]
fn a_paper_has_columns_of_their_widths_and_the_caption_beside_them() {
    let folder = folder("paper");
    let rows = read("paper_rows", &table(&of_a_paper())).unwrap();
    let options = Options { paper: true, ..Options::default() };
    let mut done = Vec::new();
    let drawn = draw(&rows, &folder, options, |figure| done.push(figure)).unwrap();
    assert_eq!(done.len(), plots::FIGURE_COUNT);
    let names = ["negotiation", "bus_bandwidth_message", "efficiency", "throughput", "breakdown"];
    for name in names {
        let of = |column| svg(&folder, &format!("{name}_{column}"));
        assert_says(&of("single"), &["<svg width=\"3.33in\" height=\""]);
        assert_says(&of("double"), &["<svg width=\"7in\" height=\""]);
        let caption = fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let title = caption.lines().next().unwrap().trim_end_matches('.');
        assert!(!title.is_empty() && !of("double").contains(title), "{title}");
        let origin = if names[..2].contains(&name) { "MEASURED" } else { "SIMULATED" };
        assert!(caption.contains(origin) && of("single").contains(origin), "{caption}");
        let single = of("single");
        let sizes = single
            .split("font-size=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse::<f64>().expect("a number"));
        let pixels: f64 = between(&single, "viewBox=\"0 0 ", " ").parse().unwrap();
        for size in sizes {
            let points = size / pixels * 3.33 * 72.0;
            assert!((7.9..9.1).contains(&points), "{points} points in {name}");
        }
    }
    let png = |drawn: &Drawn| match &drawn.outcome {
        Outcome::Files(files) => files.iter().any(|file| file.extension().unwrap() == "png"),
        Outcome::Skipped(_) => false,
    };
    assert!(!drawn.iter().any(png));
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = &text[text.find(from).expect("it is there") + from.len()..];
    &rest[..rest.find(to).expect("it ends")]
}

/// Six workloads are six panels below each other in a column, and a grid across two.
#[test]
fn a_figure_of_a_paper_is_not_higher_than_a_page() {
    let workloads = ["resnet50", "vgg16", "bert_large", "resnet101", "inception", "gpt2"];
    let folder = folder("page");
    let rows = read("page_rows", &table(&scaling(&workloads, &POLICIES, &RANKS))).unwrap();
    let options = Options { paper: true, ..Options::default() };
    let drawn = draw(&rows, &folder, options, |_| {}).unwrap();
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "svg") {
            let text = fs::read_to_string(&path).unwrap();
            let inches: f64 = between(&text, "in\" height=\"", "in\"").parse().unwrap();
            assert!(inches <= 9.0, "{}: {inches} inches", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen}");
    assert!(folder.join("efficiency_single.svg").exists(), "{drawn:?}");
    // Of a figure that is in one column alone, the reason is told.
    for drawn in drawn.iter().filter(|drawn| drawn.figure == "breakdown") {
        if let Outcome::Skipped(reason) = &drawn.outcome {
            assert!(reason.starts_with("does not fit a single column: it would be "), "{reason}");
        }
    }
    for name in ["efficiency", "throughput", "speedup"] {
        assert!(folder.join(format!("{name}_double.svg")).exists(), "{name}: {drawn:?}");
    }
    // What is higher is told: a row for each of many algorithms.
    let names = (0..40).map(|index| format!("algorithm-{index}"));
    let rows: String = names.map(|name| validation().replace("ring", &name)).collect();
    let (header, _) = rows.split_once('\n').unwrap();
    let lines = rows.lines().filter(|line| *line != header);
    let text = format!("{header}\n{}\n", lines.collect::<Vec<_>>().join("\n"));
    let rows = read("page_high_rows", &text).unwrap();
    let drawn = draw(&rows, &folder, options, |_| {}).unwrap();
    let told = drawn.iter().find(|drawn| drawn.figure == "validation").unwrap();
    let Outcome::Skipped(reason) = &told.outcome else { panic!("{told:?}") };
    assert!(reason.contains(" inches high, and a page has 9"), "{reason}");
}

#[test]
fn a_figure_with_too_much_for_a_column_is_told() {
    let algorithms = ["ring", "tree"];
    let thresholds = [0.0, 4.0, 16.0, 64.0, 128.0];
    let rows = read("wide_rows", &table(&grid(&algorithms, &thresholds, &[1.0, 5.0]))).unwrap();
    let folder = folder("wide");
    let options = Options { paper: true, ..Options::default() };
    let drawn = draw(&rows, &folder, options, |_| {}).unwrap();
    let is_told = |it: &&Drawn| it.figure == "surface" && matches!(it.outcome, Outcome::Skipped(_));
    let told = drawn.iter().find(is_told).unwrap();
    let Outcome::Skipped(reason) = &told.outcome else { panic!("{told:?}") };
    assert!(reason.starts_with("does not fit a single column: `"), "{reason}");
    assert!(reason.contains(" would have less than 8 points (and "), "{reason}");
    assert!(!folder.join("surface_single.svg").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_to_is_refused_before_anything_is_drawn() {
    let rows = read("read_only", &table(&sweep())).unwrap();
    let mut done = 0;
    let error = draw(&rows, Path::new("/proc/self"), Options::default(), |_| done += 1);
    let expected = "cannot write to the folder /proc/self; give a folder that you can write to";
    assert_eq!((error.unwrap_err().to_string().as_str(), done), (expected, 0));
}

#[cfg(not(feature = "pdf"))]
#[test]
fn pdf_is_refused_by_builds_without_it() {
    let rows = read("no_pdf", &table(&sweep())).unwrap();
    let options = Options { pdf: true, ..Options::default() };
    let error = draw(&rows, &folder("no_pdf_figures"), options, |_| {}).unwrap_err();
    let expected = "this build writes no PDF; build with `--features pdf`, or convert the SVG";
    assert_eq!(error.to_string(), expected);
}

#[cfg(feature = "pdf")]
#[test]
fn a_pdf_has_the_size_of_its_column_and_text_in_fonts() {
    let rows = read("pdf_rows", &table(&sweep())).unwrap();
    let folder = folder("pdf");
    let options = Options { pdf: true, paper: true, ..Options::default() };
    draw(&rows, &folder, options, |_| {}).unwrap();
    let pdf = fs::read(folder.join("negotiation_single.pdf")).unwrap();
    let text = String::from_utf8_lossy(&pdf);
    assert!(text.starts_with("%PDF-") && text.contains("/FontName"), "fonts are embedded");
    let width: f64 = between(&text, "/MediaBox [0 0 ", " ").parse().unwrap();
    assert!((width - 3.33 * 72.0).abs() < 0.01, "{width} points");
}

#[test]
fn a_log_that_is_cut_is_read_as_far_as_it_is_whole() {
    let folder = folder("cut");
    let ring = step("ring", "coordinator", 64.0, 5.0).with("case", "ring");
    let mut samples = "case,block,launch,order,step,time_us\n".to_string();
    (0..8).for_each(|step| samples += &format!("ring,0,1,0,{step},{}\n", 10_000 + step));
    let files = ["rows.csv", "samples.csv"].map(|name| folder.join(name));
    fs::write(&files[0], table(&[ring])).unwrap();
    fs::write(&files[1], samples + "ring,0,1,0").unwrap();
    let rows = Rows::read(&files).unwrap();
    let said = rows.left_out().join("\n").replace(&folder.display().to_string(), "");
    let expected = "/samples.csv:10: the last line is cut, as when a run is killed; it is left out";
    assert_eq!(said, expected);
    assert_eq!(rows.len(), 9);
    draw(&rows, &folder, Options::default(), |_| {}).unwrap();
    assert_says(&svg(&folder, "distribution"), &["half of the steps take at most 10.0 ms"]);
}
