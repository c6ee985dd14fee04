//! Reports in a real browser: nothing fails, nothing is asked for, and everything answers to mouse and keyboard.
//!
//! `KOLO_SCREENSHOTS=DIR` keeps pictures of every report in both colour schemes and two widths, and its print.

mod chromium;

use std::fs;
use std::path::{Path, PathBuf};

use chromium::Chromium;
use report::Report;
use results::conclusion::Conclusion;
use serde_json::{Value, json};

/// Folders of reference runs, one of each kind.
const RUNS: [&[&str]; 9] = [
    &["quick"],
    &["cluster"],
    &["tune/four-nodes"],
    &["tune/four-nodes", "tune/four-nodes-busy"],
    &["control-planes"],
    &["summit-scaling"],
    &["horovod/one-node"],
    &["validation"],
    &["autotune"],
];

/// Of these thousands of rows it takes a minute to print each, and to look at the colours of each.
const LARGE: &str = "summit-scaling";

/// A phone, and a laptop.
const WIDTHS: [u32; 2] = [400, 1280];

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference").join(name)
}

/// What the quick sweep's verdict says of its fastest step.
struct Fastest {
    /// With its interval, if it has one.
    time: String,
    control_plane: String,
    algorithm: String,
    setting: String,
}

impl Fastest {
    /// Of a verdict such as `a step takes 54.7 ms with coordinator, hierarchical, 4 MiB and 1 ms`.
    fn of_quick() -> Fastest {
        let verdict = Conclusion::read(&reference("quick")).unwrap().unwrap().verdicts.remove(0);
        let (_, said) = verdict.split_once("a step takes ").unwrap();
        let (time, rest) = said.split_once(" with ").unwrap();
        let (setting, _) = rest.split_once(". ").unwrap();
        let [plane, algorithm, setting] = setting.splitn(3, ", ").collect::<Vec<_>>()[..] else {
            panic!("{verdict}")
        };
        Fastest {
            time: time.into(),
            control_plane: plane.into(),
            algorithm: algorithm.into(),
            setting: setting.replace(" and ", ", "),
        }
    }
}

/// Writes the report of some folders, and opens it.
fn open(browser: &Chromium, results: &[PathBuf], folder: &Path) {
    let file = folder.join("report.html");
    fs::write(&file, Report::read(results, |_| {}).unwrap().html()).unwrap();
    browser.open(&file);
}

/// Keeps a picture or a print, if that is asked for: it takes a second.
fn keep(name: &str, end: &str, make: impl FnOnce() -> Vec<u8>) {
    if let Some(folder) = std::env::var_os("KOLO_SCREENSHOTS") {
        let folder = PathBuf::from(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{}{end}", name.replace('/', "-"))), make()).unwrap();
    }
}

/// What a reader who sees no pictures and has no mouse needs, as a list of what is missing.
const ACCESSIBLE: &str = include_str!("accessible.js");

/// Texts whose contrast with their ground is below 4.5 (WCAG 2, AA).
const FAINT: &str = include_str!("faint.js");

#[test]
fn reports_of_all_kinds_are_whole_in_both_schemes_and_at_any_width() {
    let folder = tempfile::tempdir().unwrap();
    let browser = Chromium::start();
    for names in RUNS {
        let name = names.join("+");
        let results: Vec<PathBuf> = names.iter().map(|name| reference(name)).collect();
        browser.show(WIDTHS[1], "light");
        open(&browser, &results, folder.path());
        assert_eq!(browser.value(ACCESSIBLE), json!([]), "{name}");
        for scheme in ["light", "dark"] {
            for width in WIDTHS {
                browser.show(width, scheme);
                let wide = browser.value("document.documentElement.scrollWidth");
                assert!(
                    wide.as_u64().unwrap() <= u64::from(width),
                    "{name}: {wide} px at {width} px"
                );
                if width == WIDTHS[1] && name != LARGE {
                    assert_eq!(browser.value(FAINT), json!([]), "{name}, {scheme}");
                }
                keep(&name, &format!("-{scheme}-{width}.png"), || browser.picture());
            }
        }
        let grounds: Vec<Value> = ["light", "dark"]
            .map(|scheme| {
                browser.show(WIDTHS[1], scheme);
                browser.value("getComputedStyle(document.body).backgroundColor")
            })
            .into();
        assert_ne!(grounds[0], grounds[1], "{name}");
        if name != LARGE {
            let printed = browser.print();
            assert!(printed.starts_with(b"%PDF"), "{name}");
            keep(&name, ".pdf", || printed);
        }
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn tables_sort_and_filter_by_mouse_and_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let browser = Chromium::start();
    browser.show(WIDTHS[1], "light");
    open(&browser, &[reference("quick")], folder.path());
    let column = |at: usize| {
        format!(
            "[...document.querySelectorAll('#table-1 tbody tr:not([hidden])')].map((row) => row.cells[{at}].textContent)"
        )
    };
    let header = |name: &str| {
        format!(
            "[...document.querySelectorAll('#table-1 th')].findIndex((th) => th.textContent === '{name}')"
        )
    };
    let time = browser.value(&header("step time (ms)")).as_u64().unwrap() as usize;
    let numbers = |cells: &Value| -> Vec<f64> {
        cells
            .as_array()
            .unwrap()
            .iter()
            .map(|cell| cell.as_str().unwrap().parse().unwrap())
            .collect()
    };
    let sorted = |browser: &Chromium| {
        browser.value(&format!(
            "document.querySelectorAll('#table-1 th')[{time}].getAttribute('aria-sort')"
        ))
    };
    // At first by step time.
    let before = numbers(&browser.value(&column(time)));
    assert_eq!(before.len(), 48);
    assert!(before.is_sorted());
    assert_eq!(sorted(&browser), json!("ascending"));
    // A click turns the order.
    browser.value(&format!("document.querySelectorAll('#table-1 th button')[{time}].click()"));
    assert!(numbers(&browser.value(&column(time))).is_sorted_by(|a, b| a >= b));
    assert_eq!(sorted(&browser), json!("descending"));
    // So does Enter, on another column.
    let algorithm = browser.value(&header("algorithm")).as_u64().unwrap() as usize;
    browser.value(&format!("document.querySelectorAll('#table-1 th button')[{algorithm}].focus()"));
    browser.press("Enter");
    let names = browser.value(&column(algorithm));
    let names: Vec<&str> = names.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(names.is_sorted() && names[0] == "grouped" && names[47] == "tree", "{names:?}");
    assert_eq!(sorted(&browser), json!(null));
    // The filter takes several words, in any case.
    let filter = "const input = document.querySelector('.tools input'); input.value = 'TREE bitvector'; \
                  input.dispatchEvent(new Event('input')); new Promise((done) => setTimeout(done, 300))";
    browser.value(filter);
    assert_eq!(numbers(&browser.value(&column(time))).len(), 6);
    let count = browser.value("document.querySelector('.tools [role=status]').textContent");
    assert_eq!(count, json!("6 of 48 rows"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn of_thousands_of_rows_the_first_are_shown_until_all_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let browser = Chromium::start();
    browser.show(WIDTHS[1], "light");
    open(&browser, &[reference("summit-scaling")], folder.path());
    let shown = "document.querySelectorAll('#table-1 tbody tr:not([hidden])').length";
    assert_eq!(browser.value(shown), json!(200));
    browser
        .value("[...document.querySelectorAll('.tools button')].find((it) => !it.hidden).click()");
    let all = browser.value("document.querySelectorAll('#table-1 tbody tr').length");
    assert_eq!(browser.value(shown), all);
    assert!(all.as_u64().unwrap() > 300, "{all}");
}

#[test]
fn settings_are_read_out_and_figures_are_enlarged_by_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let browser = Chromium::start();
    browser.show(WIDTHS[1], "light");
    open(&browser, &[reference("quick")], folder.path());
    let reading = "document.querySelector('#surface .reading').textContent";
    let fastest = Fastest::of_quick();
    let map = format!("{}, {}", fastest.algorithm, fastest.control_plane);
    let first = browser.value(reading);
    let interval = if fastest.time.ends_with(']') { "" } else { ", no interval" };
    let words = format!("{}{interval}; {}; {map}", fastest.time, fastest.setting);
    assert!(first.as_str().unwrap().starts_with(&words), "{first}");
    // Every map has thresholds of 4, 64 and 128 MiB from left to right, and cycles of 1 and 5 ms from top to bottom.
    let (threshold, cycle) = fastest.setting.split_once(" MiB, ").unwrap();
    browser.value("document.querySelector('.map .best').focus()");
    let (key, cycle) = if cycle == "1 ms" { ("ArrowDown", "5 ms") } else { ("ArrowUp", "1 ms") };
    browser.press(key);
    let beside = browser.value(reading);
    let words = format!("; {threshold} MiB, {cycle}; {map};");
    assert!(beside.as_str().unwrap().contains(&words), "{beside}");
    let (key, threshold) = match threshold {
        "4" => ("ArrowRight", "64"),
        "64" => ("ArrowRight", "128"),
        _ => ("ArrowLeft", "64"),
    };
    browser.press(key);
    let beside = browser.value(reading);
    let words = format!("; {threshold} MiB, {cycle}; {map};");
    assert!(beside.as_str().unwrap().contains(&words), "{beside}");
    browser.value("document.querySelector('.card button').focus()");
    browser.press("Enter");
    let large =
        browser.value("document.querySelector('dialog[open] svg').getBoundingClientRect().width");
    assert!(large.as_f64().unwrap() > 1200.0, "{large}");
    browser.value("document.querySelector('dialog button').click()");
    let open =
        "new Promise((done) => setTimeout(() => done(document.querySelector('dialog')), 100))";
    assert_eq!(browser.value(open), json!(null));
}

#[test]
fn a_timeline_zooms() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    fs::create_dir_all(run.join("timelines")).unwrap();
    for name in ["rows.csv", "provenance.json"] {
        fs::copy(reference("quick").join(name), run.join(name)).unwrap();
    }
    let name = "timelines/threads_2x2_coordinator_hierarchical_4MiB_1ms.json";
    fs::write(run.join(name), include_str!("../timeline.json")).unwrap();
    let browser = Chromium::start();
    browser.show(WIDTHS[1], "light");
    open(&browser, &[run], folder.path());
    assert_eq!(browser.value(ACCESSIBLE), json!([]));
    let width = "document.querySelector('.timeline .sheet').getBoundingClientRect().width";
    let before = browser.value(width).as_f64().unwrap();
    browser.value("document.querySelector('[aria-label=\"Zoom in\"]').click()");
    assert!((browser.value(width).as_f64().unwrap() / before - 2.0).abs() < 0.01);
    assert!(
        browser.value("document.querySelectorAll('.timeline rect').length").as_u64().unwrap() > 5
    );
    keep("timeline", "-light-1280.png", || browser.picture());
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Without the script the page has the same text.
#[test]
fn the_page_is_complete_without_its_script() {
    let folder = tempfile::tempdir().unwrap();
    let browser = Chromium::start();
    browser.disable_scripts();
    browser.show(WIDTHS[1], "light");
    open(&browser, &[reference("quick")], folder.path());
    keep("quick", "-without-script.png", || browser.picture());
    let text = browser.value("document.body.innerText");
    let text = text.as_str().unwrap();
    let fastest = Fastest::of_quick();
    for words in [&*fastest.time, "Settings", "Oversubscribed", "git checkout"] {
        assert!(text.contains(words), "{words}");
    }
    assert_eq!(browser.value("document.querySelectorAll('#table-1 tbody tr').length"), json!(48));
    assert_eq!(browser.value("document.querySelectorAll('button, input').length"), json!(0));
}

/// What the tests above take for silence.
#[test]
fn errors_and_requests_of_a_page_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let browser = Chromium::start();
    fs::write(&file, "<title>calm</title>").unwrap();
    browser.open(&file);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let page = "<img src='other.png'><script>console.warn('careful'); nowhere.found()</script>";
    fs::write(&file, page).unwrap();
    browser.open(&file);
    let said = browser.complaints().join("\n");
    for words in ["careful", "nowhere is not defined", "asked for file://", "other.png"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
