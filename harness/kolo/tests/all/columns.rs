//! The tables of columns in `results/README.md` are those of the types of the files' lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use against::block::BlockRow;
use against::comparison::ComparisonRow;
use against::regret::RegretRow;
use results::block::{Message, RankBlock, Sample};
use results::conditions::Conditions;
use results::described::{columns_in, columns_of};

const PAGE: &str = include_str!("../../../../results/README.md");

/// The table of columns of every file of a run, by the file's name.
fn written() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("rows.csv", results::row::described()),
        ("samples.csv", columns_of::<Sample>()),
        ("aside.csv", columns_of::<Sample>()),
        ("messages.csv", columns_of::<Message>()),
        ("ranks.csv", columns_of::<RankBlock>()),
        ("conditions.csv", columns_of::<Conditions>()),
        ("attempts.csv", columns_in(&results::journal::schema())),
        ("blocks.csv", columns_of::<BlockRow>()),
        ("comparison.csv", columns_of::<ComparisonRow>()),
        ("autotune.csv", columns_of::<RegretRow>()),
        ("claims.csv", columns_of::<simulator::claims::Compared>()),
        ("published.csv", columns_of::<simulator::published::Compared>()),
        ("validation.csv", columns_of::<measure::validate::local::Row>()),
        ("regret.csv", columns_of::<tune::regret::Run>()),
    ])
}

/// Files with the columns of another one, which the page says.
const LIKE_ROWS: [&str; 1] = ["bandwidth.csv"];

/// The names of CSV files in backticks.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.ends_with(".csv") && !name.contains(' '))
}

/// The parts of the page that list columns, by the file that their heading names.
fn listed() -> BTreeMap<&'static str, &'static str> {
    let sections = PAGE.split("\n## ").flat_map(|part| part.split("\n### "));
    let of_columns = sections.filter_map(|section| {
        let (heading, text) = section.split_once('\n')?;
        text.contains("\n| column | meaning |\n").then_some((heading, text))
    });
    of_columns.flat_map(|(heading, text)| named(heading).map(move |file| (file, text))).collect()
}

#[test]
fn every_file_has_the_table_of_its_types_on_the_page() {
    let (written, listed) = (written(), listed());
    for (file, table) in &written {
        let text = listed.get(file).copied().unwrap_or_default();
        assert!(
            text.contains(table),
            "results/README.md has another table of {file} than:\n{table}"
        );
    }
    let unknown: Vec<_> = listed.keys().filter(|file| !written.contains_key(*file)).collect();
    assert!(unknown.is_empty(), "no code is compared with the columns of {unknown:?}");
}

/// A file that is added to the page of what a run writes has its columns there, too.
#[test]
fn every_file_that_the_page_names_has_its_columns_on_it() {
    let (_, rest) = PAGE.split_once("| file | holds |").unwrap();
    let (table, text) = rest.split_once("\n\n").unwrap();
    let of_table = table.lines().filter_map(|line| line.split('|').nth(1));
    let of_text = text.split("\n## ").next().unwrap();
    let names: BTreeSet<&str> = of_table.chain([of_text]).flat_map(named).collect();
    assert!(names.len() > 10, "{names:?}");
    let listed = listed();
    for name in names {
        let is_known = listed.contains_key(name) || LIKE_ROWS.contains(&name);
        assert!(is_known, "results/README.md names {name} without its columns");
    }
    for name in LIKE_ROWS {
        assert!(PAGE.contains(&format!(
            "`{name}`, and `rows.csv` of `predicted/`, have the columns of `rows.csv`"
        )));
    }
}

/// The reference runs are files of the same kinds, of this version or an older one, which had fewer columns.
#[test]
fn files_of_the_reference_runs_have_no_other_columns() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
    let (mut folders, mut files, written) = (vec![reference], 0, written());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(table) = written.get(name.as_str()) {
                let cells = table.lines().skip(2).filter_map(|line| line.split('|').nth(1));
                let columns: BTreeSet<&str> =
                    cells.flat_map(|cell| cell.split(',').map(str::trim)).collect();
                let text = fs::read_to_string(&path).unwrap();
                let mut own = text.lines().next().unwrap_or_default().split(',');
                assert_eq!(
                    own.find(|column| !columns.contains(column)),
                    None,
                    "{}",
                    path.display()
                );
                files += 1;
            }
        }
    }
    assert!(files > 20, "{files} files");
}
