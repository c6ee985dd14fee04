//! The tables of columns in `results/README.md` are the columns of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use against::block::BlockRow;
use against::comparison::ComparisonRow;
use against::regret::RegretRow;
use results::block::{Message, RankBlock, Sample};
use results::conditions::Conditions;
use results::journal::Journal;
use results::record::{Earlier, header};
use schemars::JsonSchema;
use serde::Serialize;

const PAGE: &str = include_str!("../../../../results/README.md");

type Columns = BTreeSet<String>;

/// Of a line of a file.
fn of<T: Serialize + Default>() -> Columns {
    of_header(&header::<T>())
}

fn of_header(line: &str) -> Columns {
    line.split(',').map(str::to_string).collect()
}

/// Of a line whose type has a schema.
fn of_schema<T: JsonSchema>() -> Columns {
    let schema = schemars::schema_for!(T);
    let properties = schema.get("properties").and_then(|it| it.as_object()).expect("columns");
    properties.keys().cloned().collect()
}

/// Of the file of a journal that has just begun.
fn of_attempts() -> Columns {
    let folder = tempfile::tempdir().unwrap();
    Journal::open(folder.path(), &Earlier::default(), false).unwrap();
    let text = fs::read_to_string(folder.path().join("attempts.csv")).unwrap();
    of_header(text.lines().next().unwrap())
}

/// The columns of every file of a run, by its name, as the code has them.
fn written() -> BTreeMap<&'static str, Columns> {
    BTreeMap::from([
        ("rows.csv", of_header(&results::row::columns())),
        ("samples.csv", of::<Sample>()),
        ("aside.csv", of::<Sample>()),
        ("messages.csv", of::<Message>()),
        ("ranks.csv", of::<RankBlock>()),
        ("conditions.csv", of::<Conditions>()),
        ("attempts.csv", of_attempts()),
        ("blocks.csv", of::<BlockRow>()),
        ("comparison.csv", of::<ComparisonRow>()),
        ("autotune.csv", of_schema::<RegretRow>()),
        ("claims.csv", of::<simulator::claims::Compared>()),
        ("published.csv", of_schema::<simulator::published::Compared>()),
        ("validation.csv", of::<measure::validate::local::Row>()),
        ("regret.csv", of::<tune::regret::Run>()),
    ])
}

/// Files with the columns of another one, which the page says.
const LIKE_ROWS: [&str; 1] = ["bandwidth.csv"];

/// The names of CSV files in backticks.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.ends_with(".csv") && !name.contains(' '))
}

/// The columns that the page lists, by file. A table follows the heading that names its files.
fn listed() -> BTreeMap<&'static str, Vec<String>> {
    let mut listed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for section in PAGE.split("\n## ").flat_map(|part| part.split("\n### ")) {
        let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
        let is_of_columns = text.contains("\n| column | meaning |\n");
        for file in named(heading).filter(|_| is_of_columns) {
            let lines = text.lines().filter(|line| line.starts_with("| ")).skip(1);
            let cells = lines.filter_map(|line| line.split('|').nth(1));
            let columns = cells.flat_map(|cell| cell.split(',').map(|it| it.trim().to_string()));
            listed.insert(file, columns.collect());
        }
    }
    listed
}

#[test]
fn every_file_has_the_columns_that_the_page_lists() {
    let (written, listed) = (written(), listed());
    for (file, columns) in &written {
        let own = listed
            .get(file)
            .unwrap_or_else(|| panic!("results/README.md lists no columns of {file}"));
        let once: Columns = own.iter().cloned().collect();
        assert_eq!(once.len(), own.len(), "{file}: a column is listed twice: {own:?}");
        let missing: Vec<&String> = columns.difference(&once).collect();
        assert!(
            missing.is_empty(),
            "{file} has columns that results/README.md does not list: {missing:?}"
        );
        let gone: Vec<&String> = once.difference(columns).collect();
        assert!(
            gone.is_empty(),
            "results/README.md lists columns that {file} does not have: {gone:?}"
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
            } else if let Some(columns) = written.get(name.as_str()) {
                let text = fs::read_to_string(&path).unwrap();
                let own = of_header(text.lines().next().unwrap_or_default());
                let other: Vec<&String> = own.difference(columns).collect();
                assert!(other.is_empty(), "{}: {other:?}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 20, "{files} files");
}
