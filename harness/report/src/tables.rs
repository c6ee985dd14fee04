//! The tables of a run: files as they are, and what a page shows of them.

mod cell;
mod columns;

use std::path::{Path, PathBuf};

pub use cell::short;
use cell::tidy;
use results::columnar;
use results::row::is_readable;
use results::whole_lines;
use serde::Serialize;

use crate::ReportError;
use crate::run::Run;

/// The tables that a report shows, by name; the first is that of rows.
pub const FILES: [&str; 8] = [
    "rows.csv",
    "bandwidth.csv",
    "comparison.csv",
    "autotune.csv",
    "regret.csv",
    "claims.csv",
    "published.csv",
    "validation.csv",
];

/// Those that figures are drawn from.
const DRAWN: [&str; 5] =
    ["rows.csv", "bandwidth.csv", "published.csv", "validation.csv", "comparison.csv"];

/// A table of more rows has the others as data for the script.
const MOST_ROWS_AS_TEXT: usize = 200;

/// The most data of the tables of a section in bytes, so that a page stays below 5 MB.
const MOST_DATA_BYTES: usize = 1_200_000;

/// Columns that no table of rows can do without.
const NEEDED: [&str; 4] = ["schema", "kind", "case", "status"];

/// A table of as many rows says once what is the same in all of them.
const LEAST_ROWS_TO_LIFT: usize = 2;

/// A CSV file.
#[derive(Debug)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    header: Vec<String>,
    records: Vec<csv::StringRecord>,
    /// The last line was incomplete, as after a kill, and is left out.
    pub is_cut: bool,
}

/// A table of the page.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    /// Unique on the page.
    pub id: String,
    /// What it shows.
    pub caption: String,
    /// From left to right.
    pub columns: Vec<Column>,
    /// Cells, in the order of the columns; numbers as text. Of a large table, the first rows, which the page has as text.
    pub rows: Vec<Vec<String>>,
    /// Of a large table, the other rows as JSON, which the script shows; else empty.
    pub data: String,
    /// The number of rows in the page.
    pub held: usize,
    /// The number of rows of the run.
    pub total: usize,
    /// The file that has all of them.
    pub file: String,
    /// What all rows have in common: name and value.
    pub common: Vec<(String, String)>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Column {
    /// Its name, with the unit.
    pub header: String,
    /// Numbers, or intervals of numbers, which are right-aligned.
    pub is_number: bool,
    /// The rows are sorted by it: `ascending`, `descending`, or nothing.
    pub sorted: &'static str,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is no CSV, is of another version, or has rows without their names.
    pub fn read(path: &Path) -> Result<File, ReportError> {
        File::of_columns(path, None)
    }

    /// Reads a file; of one by columns only these.
    ///
    /// # Errors
    /// As [`File::read`].
    pub fn of_columns(path: &Path, columns: Option<&[&str]>) -> Result<File, ReportError> {
        let (mut header, mut records) = (Vec::new(), Vec::new());
        let text = columnar::open(path, columns)?;
        let read = whole_lines::read_text::<csv::Error, _>(text, |names| {
            header = names.iter().map(String::from).collect();
            Ok(|record: &csv::StringRecord| {
                records.push(record.clone());
                Ok(())
            })
        });
        let cut = read.map_err(|cause| ReportError::Csv { path: path.into(), cause })?;
        let file = File { path: path.into(), header, records, is_cut: cut.is_some() };
        let other = file.column("schema").find(|schema| !schema.parse().is_ok_and(is_readable));
        if let Some(found) = other {
            return Err(ReportError::Schema { path: path.into(), found: found.into() });
        }
        // A run that was stopped early has written a file without a line.
        if (file.name() == FILES[0] || file.name() == FILES[1]) && !file.header.is_empty() {
            file.require(&NEEDED)?;
        }
        Ok(file)
    }

    fn require(&self, columns: &[&'static str]) -> Result<(), ReportError> {
        let is_missing = |column: &&'static str| self.place(column).is_none();
        let columns: Vec<&'static str> = columns.iter().copied().filter(is_missing).collect();
        match columns.as_slice() {
            [] => Ok(()),
            _ => Err(ReportError::Columns { path: self.path.clone(), columns }),
        }
    }

    /// Its name without the folder.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// It has rows of a run.
    pub fn is_of_rows(&self) -> bool {
        NEEDED.iter().all(|column| self.place(column).is_some())
    }

    /// Figures may be drawn from it.
    pub fn is_drawn(&self) -> bool {
        self.is_of_rows() || DRAWN.contains(&self.name().as_str())
    }

    /// The number of its records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The fields of a column; none if it has no such column.
    pub fn column(&self, name: &str) -> impl Iterator<Item = &str> {
        let place = self.place(name);
        self.records.iter().filter_map(move |record| record.get(place?))
    }

    /// Its records, with their fields by name.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|fields| Record { file: self, fields })
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }
}

/// One record of a file.
#[derive(Clone, Copy)]
pub struct Record<'f> {
    file: &'f File,
    fields: &'f csv::StringRecord,
}

impl<'f> Record<'f> {
    /// A field; empty if the file does not have it.
    pub fn text(&self, column: &str) -> &'f str {
        self.file.place(column).and_then(|place| self.fields.get(place)).unwrap_or_default()
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        self.file.name()
    }

    /// A field that is a finite number.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// The tables of all runs: one for each kind of row, and one for each other file.
pub fn of(runs: &[Run]) -> Vec<Table> {
    let mut tables = columns::of_rows(runs);
    for run in runs {
        let others = run.files.iter().filter(|file| !file.is_of_rows() && file.len() > 0);
        tables.extend(others.map(|file| {
            let caption = match runs.len() {
                1 => file.name(),
                _ => file.path.display().to_string(),
            };
            plain(file, caption)
        }));
    }
    split(tables.iter_mut().collect(), "table");
    tables
}

/// Numbers tables, and makes data of the rows of large ones, of all together not more than a page can hold.
pub fn split(tables: Vec<&mut Table>, name: &str) {
    let share = MOST_DATA_BYTES / tables.len().max(1);
    for (at, table) in tables.into_iter().enumerate() {
        table.id = format!("{name}-{}", at + 1);
        table.split(share);
    }
}

/// A file as it is, without empty columns.
fn plain(file: &File, caption: String) -> Table {
    let column = |name: &String| Column {
        header: name.replace('_', " "),
        is_number: file.column(name).any(|field| !field.is_empty())
            && file.column(name).all(|field| field.is_empty() || field.parse::<f64>().is_ok()),
        sorted: "",
    };
    let table = Table {
        caption,
        file: file.name(),
        columns: file.header.iter().map(column).collect(),
        rows: file.records.iter().map(|row| row.iter().map(tidy).collect()).collect(),
        ..Table::default()
    };
    table.without_repetition()
}

impl Table {
    /// Keeps the first rows as text, and makes data of the others, of at most so many bytes.
    fn split(&mut self, most_bytes: usize) {
        self.total = self.rows.len();
        self.held = self.total;
        if self.total <= MOST_ROWS_AS_TEXT {
            return;
        }
        let others = self.rows.split_off(MOST_ROWS_AS_TEXT);
        let mut lines: Vec<String> = Vec::new();
        let mut bytes = 0;
        for row in &others {
            // Nothing in a field may end the element that the data are in.
            let line = serde_json::to_string(row).expect("texts are JSON").replace('<', "\\u003c");
            bytes += line.len() + 2;
            if bytes > most_bytes {
                break;
            }
            lines.push(line);
        }
        self.held = MOST_ROWS_AS_TEXT + lines.len();
        self.data = format!("[{}]", lines.join(",\n"));
    }

    /// Without columns that are empty, and with those that say the same in every row said once.
    fn without_repetition(mut self) -> Table {
        let is_alike = |at: usize| self.rows.windows(2).all(|pair| pair[0][at] == pair[1][at]);
        let alike: Vec<usize> = (0..self.columns.len()).filter(|&at| is_alike(at)).collect();
        let is_lifted = self.rows.len() >= LEAST_ROWS_TO_LIFT;
        let Some(first) = self.rows.first() else { return self };
        let is_empty = |at: usize| alike.contains(&at) && first[at].is_empty();
        let gone = |at: usize| is_empty(at) || (is_lifted && alike.contains(&at));
        let said = |at: &usize| !first[*at].is_empty() && is_lifted;
        self.common = alike
            .iter()
            .filter(|at| said(at))
            .map(|&at| (self.columns[at].header.clone(), first[at].clone()))
            .collect();
        let kept: Vec<usize> = (0..self.columns.len()).filter(|&at| !gone(at)).collect();
        self.rows =
            self.rows.iter().map(|row| kept.iter().map(|&at| row[at].clone()).collect()).collect();
        self.columns = kept.iter().map(|&at| self.columns[at].clone()).collect();
        self
    }
}
