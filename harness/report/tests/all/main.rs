//! What a report says of the reference runs, and what it refuses.

use std::fs;
use std::path::{Path, PathBuf};

use report::Report;
use results::conclusion::Conclusion;
use results::gpus::{Gpu, Inventory, State};
use results::provenance::{PROVENANCE, Provenance};
use results::row::SCHEMA;

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference").join(name)
}

fn html(results: &[PathBuf]) -> String {
    Report::read(results, |_| {}).unwrap().html()
}

fn refused(results: &[PathBuf]) -> String {
    Report::read(results, |_| {}).unwrap_err().to_string()
}

/// A copy of a reference run, without its figures.
fn copy(name: &str, to: &Path) -> PathBuf {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(reference(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
    to.to_path_buf()
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{}: {from}", file.display());
    fs::write(file, text.replace(from, to)).unwrap();
}

/// The text of a page between two others.
fn between<'p>(page: &'p str, from: &str, to: &str) -> &'p str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("no {from}"));
    rest.split_once(to).unwrap_or_else(|| panic!("no {to} after {from}")).0
}

/// Every folder of reference runs that a report can be made of.
fn runs() -> Vec<PathBuf> {
    let (mut folders, mut runs) = (vec![reference("")], Vec::new());
    while let Some(folder) = folders.pop() {
        let inside = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(inside.filter(|path| path.is_dir()));
        if Report::read(std::slice::from_ref(&folder), |_| {}).is_ok() {
            runs.push(folder);
        }
    }
    runs
}

#[test]
fn every_reference_run_has_a_report_that_is_one_small_file() {
    let runs = runs();
    assert!(runs.len() >= 18, "{runs:?}");
    for run in runs {
        let page = html(std::slice::from_ref(&run));
        assert!(page.len() < 5_000_000, "{}: {} bytes", run.display(), page.len());
        for outside in ["src=", "@import", "url(", "<link rel=\"stylesheet\""] {
            assert!(!page.contains(outside), "{}: {outside}", run.display());
        }
        let links = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        for link in links {
            assert!(link.starts_with('#') || link == "data:,", "{}: {link}", run.display());
        }
        let headings = page.split("<h3 class=\"unseen\"").skip(1);
        let mut headings: Vec<&str> = headings.map(|rest| between(rest, ">", "<")).collect();
        headings.sort_unstable();
        assert!(headings.len() > 20 || !run.ends_with("cluster"), "{headings:?}");
        assert!(
            headings.windows(2).all(|pair| pair[0] != pair[1]),
            "{}: {headings:?}",
            run.display()
        );
        let title = between(&page, "<title>", "</title>");
        assert!(title.ends_with(" · kolo report"), "{title}");
    }
}

#[test]
fn the_same_results_give_the_same_bytes() {
    let results = [reference("quick"), reference("quick")];
    assert_eq!(html(&results[..1]), html(&results[1..]));
}

#[test]
fn the_quick_sweep_is_told_from_the_verdict_to_its_command() {
    let quick = reference("quick");
    let page = html(std::slice::from_ref(&quick));
    let conclusion = Conclusion::read(&quick).unwrap().unwrap();
    let verdict = &conclusion.verdicts[0];
    let time = between(verdict, "a step takes ", " ms ");
    let provenance = Provenance::read(&quick.join(PROVENANCE)).unwrap();
    let order = [
        verdict.split_once(". ").unwrap().0,
        "Best for this engine on this machine, not for a cluster.",
        "Emulated: ",
        "Oversubscribed: ",
        &format!("★ {time}"),
        "Step time by fusion threshold and cycle time</title>",
        "Training steps <small>48 rows",
        "aria-sort=\"ascending\">step time (ms)",
        &format!("git checkout {}", provenance.launches[0].commit),
        "target/release/kolo sweep configs/quick.toml",
        "The run wrote no timelines; kolo sweep --timeline writes them",
    ];
    let page = page.replace("&#x2f;", "/");
    let mut at = 0;
    for words in order {
        let found =
            page[at..].find(words).unwrap_or_else(|| panic!("{words} is missing or too early"));
        at += found;
    }
    let rows = between(&page, "id=\"table-1\"", "</table>");
    assert_eq!(rows.matches("<tr>").count(), 1 + 48);
    assert!(page.contains("control plane"), "settings that differ are columns");
    assert!(page.contains("transport <b>threads</b>"), "those that do not are said once");
}

#[test]
fn the_fastest_time_has_its_interval_beside_it() {
    let run = reference("gpu/train-resnet50");
    let verdict = Conclusion::read(&run).unwrap().unwrap().verdicts.remove(0);
    let (time, rest) = between(&verdict, "a step takes ", " with ").split_once(" ms [").unwrap();
    let interval = rest.trim_end_matches(']');
    assert!(html(&[run]).contains(&format!("★ {time}<small>[{interval}]")), "{verdict}");
}

#[test]
fn a_recommendation_has_its_lines_to_copy() {
    let page = html(&[reference("tune/four-nodes")]);
    assert!(page.contains(
        "Use 1 MiB, 0.1 ms, cache on: a step takes 564.9 ms, 30.9 % [24.7, 36.6] less than"
    ));
    assert!(page.contains(
        "<code>export HOROVOD_FUSION_THRESHOLD=1048576\nexport HOROVOD_CYCLE_TIME=0.1\n"
    ));
    assert!(page.contains("Nodes are emulated: do not use these settings on a cluster."));
}

/// Conclusions of reference runs say what their summaries say.
#[test]
fn conclusions_are_those_of_the_summaries() {
    let mut found = 0;
    for run in runs() {
        let Some(conclusion) = Conclusion::read(&run).unwrap() else {
            continue;
        };
        let summary = fs::read_to_string(run.join("summary.txt")).unwrap();
        for line in conclusion.to_copy.iter().flat_map(|it| it.lines.iter().chain([&it.purpose])) {
            assert!(summary.contains(line.as_str()), "{}: {line}", run.display());
            found += 1;
        }
        for verdict in &conclusion.verdicts {
            let is_copied = summary.contains(verdict.as_str());
            assert!(is_copied || !run.join("tune.json").exists(), "{}: {verdict}", run.display());
            // Sentences of other runs put the numbers of the summary in other words. The summary does not list more
            // settings that tie than fit, so it has not their number.
            let counted = verdict.split(". ").filter(|it| !it.contains(" other setting"));
            let numbers = counted
                .flat_map(|it| it.split([' ', '[', ']', ',', ';']))
                .map(|word| word.trim_end_matches('.'));
            for number in numbers.filter(|word| word.parse::<f64>().is_ok()) {
                assert!(summary.contains(number), "{}: {number} in {verdict}", run.display());
                found += 1;
            }
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn a_machine_that_drifts_is_named() {
    let page = html(&[reference("tune/four-nodes-busy")]);
    assert!(
        page.contains("Drift: the last block of a case took +4.0 % [+0.4, +8.9] against its first")
    );
    assert!(!html(&[reference("tune/four-nodes")]).contains("Drift:"));
}

#[test]
fn failed_cases_forced_checks_and_throttled_gpus_are_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy("quick", &folder.path().join("run"));
    replace(
        &run.join("rows.csv"),
        "hierarchical/4MiB/5ms,ok,,",
        "hierarchical/4MiB/5ms,failed,rank 1 is gone,",
    );
    let path = run.join(PROVENANCE);
    let mut provenance = Provenance::read(&path).unwrap();
    let after = State {
        sm_mhz: Some(900),
        throttle: Some(vec!["SwThermalSlowdown".into()]),
        ..State::default()
    };
    let gpu = Gpu { sm_mhz_most: Some(1530), after: Some(after), ..Gpu::default() };
    provenance.launches[0].inventory = Some(Inventory { gpus: vec![gpu], ..Inventory::default() });
    provenance.launches[0].forced = vec!["cores are shared".into()];
    provenance.launches[0].ended = None;
    provenance.write(&path).unwrap();
    let page = html(&[run]).replace("&#x2f;", "/");
    let warnings = between(&page, "Before you use these numbers", "</div>");
    for words in [
        "Not measured: 2 cases are failed (threads/2x2/",
        "hierarchical/4MiB/5ms: rank 1 is gone",
        "Forced: Cores are shared.",
        "Cut: the last launch has no end, so cases may be missing.",
        "was throttled after the run (900 of 1530 MHz): SwThermalSlowdown.",
    ] {
        assert!(warnings.contains(words), "{words}\n{warnings}");
    }
    assert!(page.contains("<th scope=\"col\" class=\"t\">reason"), "the reason is a column");
}

#[test]
fn blocks_in_which_the_machine_was_slower_or_shared_are_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy("quick", &folder.path().join("run"));
    let of = |shares: [[&str; 3]; 4]| {
        let line = |(at, [others, steal, throttled]): (usize, &[&str; 3])| {
            format!("case,{at},1,0.0,1.0,{others},{steal},,{throttled},0,0.0,0")
        };
        let header = "case,block,launch,began_s,elapsed_s,others_share,steal_share,frequency_mhz,throttled,\
                      major_faults,preempted_per_s,numa_misses";
        let lines: Vec<String> = shares.iter().enumerate().map(line).collect();
        fs::write(run.join("conditions.csv"), format!("{header}\n{}\n", lines.join("\n"))).unwrap();
        html(std::slice::from_ref(&run)).replace("&#x27;", "'")
    };
    let page =
        of([["0.0", "0.0", "0"], ["0.3", "0.004", "2"], ["0.06", "0.05", "0"], ["", "", ""]]);
    for words in [
        "Throttled: processors were slowed down because of heat in 1 of 4 blocks.",
        "Other programs: they had 12.0 % of the processors' time, and more than 5 % in 2 of 4 blocks (at most 30 %).",
        "Shared machine: other virtual machines had 1.8 % of the processors' time, and more than 1 % in 1 of 4 blocks \
         (at most 5 %).",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let page = of([["0.04", "0.01", "0"]; 4]);
    for word in ["Throttled:", "Other programs:", "Shared machine:"] {
        assert!(!page.contains(word), "{word}");
    }
}

/// The same run thrice: the others are compared with the first, each by itself.
#[test]
fn of_several_runs_each_is_compared_with_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let second = copy("quick", &folder.path().join("second"));
    let third = copy("quick", &folder.path().join("third"));
    let page = html(&[reference("quick"), second.clone(), third.clone()]).replace("&#x2f;", "/");
    let compared = between(&page, "id=\"compared\"", "</section>");
    for run in [second, third] {
        let words = format!("{} against {}: ", run.display(), reference("quick").display());
        assert!(compared.contains(&words), "{words}\n{compared}");
        assert!(compared.contains(&format!("<h3>{}</h3>", run.display())));
    }
    assert_eq!(compared.matches("48 cases: 0 slower").count(), 2, "{compared}");
    assert_eq!(compared.matches("second / first").count(), 2);
    assert!(compared.contains("All runs have the same cases."));
}

/// 400 rows: 200 are text, and all others are data of which the script makes rows.
#[test]
fn of_a_large_table_the_first_rows_are_text_and_the_others_data() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy("quick", &folder.path().join("run"));
    let text = fs::read_to_string(run.join("rows.csv")).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let lines: Vec<Vec<&str>> = rows.lines().map(|line| line.split(',').collect()).collect();
    let place = |name: &str| header.split(',').position(|column| column == name).unwrap();
    let many = |count: usize| {
        // Every line of the sweep at 100 thresholds and as many cycle times as are needed.
        let row = |at: usize| {
            let mut row: Vec<String> = lines[at % 8 * 6].iter().map(ToString::to_string).collect();
            row[place("workload")] = "<resnet>".into();
            row[place("fusion_threshold_bytes")] = (1_048_576 * (1 + at / 8 % 100)).to_string();
            row[place("cycle_time_ms")] = format!("{}.5", at / 800);
            row.join(",")
        };
        let rows: Vec<String> = (0..count).map(row).collect();
        fs::write(run.join("rows.csv"), format!("{header}\n{}\n", rows.join("\n"))).unwrap();
        html(std::slice::from_ref(&run))
    };
    let data = |page: &str| -> Vec<Vec<String>> {
        let json = between(page, "<script type=\"application/json\" class=\"rows\">", "</script>");
        assert!(!json.contains('<'), "{json}");
        serde_json::from_str(json).unwrap()
    };
    let page = many(400);
    let table = between(&page, "id=\"table-1\"", "</table>");
    assert_eq!(table.matches("<tr>").count(), 1 + 200);
    assert_eq!(data(&page).len(), 200);
    assert_eq!(
        data(&page)[0].len(),
        table.split("</thead>").next().unwrap().matches("<th ").count()
    );
    assert!(page.contains("<small>400 rows</small>"));
    assert!(page.contains("The first 200 of 400 rows; all are in rows.csv."));
    assert!(!page.contains("The page has the first"));
    // A page stays small; what is not in it is told.
    let page = many(20_000);
    assert!(page.len() < 5_000_000, "{}", page.len());
    let held = 200 + data(&page).len();
    assert!((5_000..20_000).contains(&held), "{held}");
    let words = format!("The page has the first {held} of 20000 rows; the others are in rows.csv.");
    assert!(page.contains(&words), "{words}");
}

#[test]
fn a_last_line_that_a_kill_has_cut_is_left_out_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy("quick", &folder.path().join("run"));
    let samples = fs::read(run.join("samples.csv")).unwrap();
    fs::write(run.join("samples.csv"), &samples[..samples.len() - 40]).unwrap();
    let page = html(&[run]);
    assert!(page.contains("Cut: the last line of samples.csv is incomplete, and left out."));
}

#[test]
fn a_run_that_was_stopped_before_its_first_row_has_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy("quick", folder.path());
    for name in ["rows.csv", "bandwidth.csv", "samples.csv"] {
        fs::write(run.join(name), "").unwrap();
    }
    let page = html(&[run]);
    assert!(page.contains("kolo report") && !page.contains("<table class=\"map\""), "{page}");
}

#[test]
fn names_from_files_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy("quick", &folder.path().join("<img src=x onerror=alert(1)>"));
    let evil = "<script>alert('workload')</script>&\"";
    let csv = evil.replace('"', "\"\"");
    for file in ["rows.csv", "bandwidth.csv"] {
        replace(&run.join(file), ",resnet50,", &format!(",\"{csv}\","));
        replace(&run.join(file), ",tree,", ",\"<b onclick=alert(2)>tree</b>\",");
    }
    for file in ["provenance.json", "conclusion.json"] {
        replace(&run.join(file), "resnet50", &evil.replace('"', "\\\""));
    }
    replace(&run.join("summary.txt"), "resnet50", "</pre><script>alert(3)</script>");
    let page = html(&[run]);
    assert_eq!(page.matches("<script>").count(), 1, "only our own");
    for tag in ["<img", "<b onclick", "</pre><script", "alert('workload')"] {
        assert!(!page.contains(tag), "{tag}");
    }
    assert!(page.contains("&lt;script&gt;alert(&#x27;workload&#x27;)"));
}

#[test]
fn two_runs_are_compared_and_cases_of_one_alone_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let fewer = copy("quick", &folder.path().join("fewer"));
    let rows = fs::read_to_string(fewer.join("rows.csv")).unwrap();
    let kept: Vec<&str> = rows
        .lines()
        .filter(|line| !line.contains("threads/2x2/bitvector/ring/64MiB/5ms"))
        .collect();
    fs::write(fewer.join("rows.csv"), kept.join("\n") + "\n").unwrap();
    let page = html(&[reference("quick"), fewer]).replace("&#x2f;", "/");
    let compared = between(&page, "id=\"compared\"", "</section>");
    assert!(compared.contains("47 cases: 0 slower"), "{compared}");
    assert!(compared.contains("1 case of "));
    assert!(compared.contains("<li>step threads/2x2/bitvector/ring/64MiB/5ms"));
}

#[test]
fn bad_results_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);

    let nothing = refused(&[at("none")]);
    assert_eq!(
        nothing,
        format!(
            "{}: there is nothing; expected a folder that a run wrote, with one of rows.csv, bandwidth.csv, \
             comparison.csv, autotune.csv, regret.csv, claims.csv, published.csv, validation.csv, or a CSV file of rows",
            at("none").display()
        )
    );
    fs::create_dir(at("empty")).unwrap();
    assert!(refused(&[at("empty")]).contains("no table of results there; expected a folder"));

    let other = copy("quick", &at("other"));
    let schema = Provenance::read(&other.join(PROVENANCE)).unwrap().schema;
    let unknown = SCHEMA + 1;
    replace(
        &other.join(PROVENANCE),
        &format!("\"schema\": {schema}"),
        &format!("\"schema\": {unknown}"),
    );
    let why = refused(std::slice::from_ref(&other));
    assert_eq!(
        why,
        format!(
            "{}: schema {unknown}, this kolo reads 1 to {SCHEMA}; make the report with the kolo that wrote the file (provenance.json names \
             its commit)",
            other.join("provenance.json").display()
        )
    );

    let rows = copy("quick", &at("rows"));
    replace(&rows.join("rows.csv"), &format!("\n{schema},step"), &format!("\n{unknown},step"));
    assert!(
        refused(std::slice::from_ref(&rows))
            .contains(&format!("rows.csv: schema {unknown}, this kolo reads 1 to {SCHEMA}"))
    );

    let columns = copy("quick", &at("columns"));
    replace(&columns.join("rows.csv"), "schema,kind,case,", "schema,sort,name,");
    let why = refused(std::slice::from_ref(&columns));
    assert!(
        why.contains("rows.csv: columns kind, case are missing; expected the columns of rows.csv"),
        "{why}"
    );

    let why = refused(&[reference("quick"), reference("tune/four-nodes")]);
    let (quick, tune) = (reference("quick"), reference("tune/four-nodes"));
    assert_eq!(
        why,
        format!(
            "the runs are of different workloads: {} has resnet50, {} has densenet121; give each its own report",
            quick.display(),
            tune.display()
        )
    );

    let gradients = copy("quick", &at("gradients"));
    replace(&gradients.join("provenance.json"), "85aaed782f75f95d", "0000000000000000");
    let why = refused(&[reference("quick"), gradients]);
    assert!(why.starts_with("the gradients of resnet50 differ: "), "{why}");
}

#[test]
fn a_folder_with_rows_alone_has_a_report_that_says_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(reference("quick").join("rows.csv"), folder.path().join("rows.csv")).unwrap();
    let page = html(&[folder.path().to_path_buf()]);
    assert!(page.contains("The run states no verdict in a sentence."));
    for file in ["summary.txt", "conclusion.json", "samples.csv", "provenance.json"] {
        assert!(page.contains(&format!(" has no {file}.")), "{file}");
    }
    assert!(page.contains("not known, because there is no provenance"));
}

#[test]
fn a_step_has_its_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let run = copy("quick", &folder.path().join("run"));
    fs::create_dir(run.join("timelines")).unwrap();
    let name = "threads_2x2_coordinator_hierarchical_4MiB_1ms.json";
    fs::write(run.join("timelines").join(name), include_str!("../timeline.json")).unwrap();
    let page = html(&[run]);
    let timeline = between(&page, "id=\"timeline\"", "</section>").replace("&#x2f;", "/");
    // Two ranks, the second 0.15 ms later; the last of two steps.
    let words = "One training step of threads/2x2/coordinator/hierarchical/4MiB/1ms: 38.1 ms on 2 ranks. On rank 0, computation \
         takes 24.0 ms, 8 messages take 25.6 ms, and negotiation takes 2.4 ms; they overlap.";
    assert!(timeline.contains(words), "{timeline}");
    assert_eq!(timeline.matches("<rect").count(), 2 * (3 + 8 + 8));
    assert!(timeline.contains("message of 20 tensors: 3.200 ms from 5.400 ms on"));
}
