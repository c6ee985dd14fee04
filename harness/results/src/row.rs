//! The lines of `rows.csv`: the result of each case, one type per kind of row.
//!
//! A row is made of groups of columns ([`Key`], [`Run`], [`Times`], ...). Several kinds share a group; a column
//! that a kind has no use for does not exist in its type and is empty in the file. Fields have the names of their
//! columns, which `results/README.md` explains. The order of the columns is in `flat.rs`, the file format.
//! `plots` reads columns by name.

mod collective;
mod columns;
mod control;
mod flat;
mod outcome;
mod simulated;
mod step;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

pub use collective::SimulatedCollectiveRow;
pub use collective::{CollectiveResult, CollectiveRow, Enqueued, SimulatedCollectiveResult};
pub use columns::{Bandwidths, Confidence, Effort, Key, Negotiation, Run, Times, Transfer, ends};
pub use control::{AssumedNetwork, Clock, ControlResult, ControlRow, RankTimes, ThreadTimes};
pub use flat::{RowError, columns, described, schema};
pub use outcome::{CaseOutcome, Status};
pub use simulated::{SimulatedStepResult, SimulatedStepRow};
pub use step::{Framework, MessageRow, StepResult, StepRow, StepSetting, Training, Tuning};

use flat::Flat;

/// Version of all files of a run. It changes when a column is added, or changes its meaning.
///
/// Version 1 had columns added to it while its number stayed: files of version 1 have 73 to 140 columns.
pub const SCHEMA: u32 = 9;

/// The oldest version that is read. Columns that a version did not have are empty.
pub const OLDEST_SCHEMA: u32 = 1;

/// Files of this version can be read.
pub fn is_readable(schema: u32) -> bool {
    (OLDEST_SCHEMA..=SCHEMA).contains(&schema)
}

/// The last part of the name of a case with strong scaling: all ranks together have the same work in any world.
pub const STRONG: &str = "strong";

/// A line of `rows.csv`, of any kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Flat", try_from = "Flat")]
#[allow(clippy::large_enum_variant, reason = "there are some thousand rows at most")]
pub enum Row {
    /// Training steps, measured.
    Step(StepRow),
    /// Messages of measured training steps, by algorithm and octave of size.
    Message(MessageRow),
    /// An allreduce alone, measured.
    Collective(CollectiveRow),
    /// Steps of a control plane alone, measured.
    Control(ControlRow),
    /// Training steps, simulated.
    SimulatedStep(SimulatedStepRow),
    /// An allreduce alone, simulated.
    SimulatedCollective(SimulatedCollectiveRow),
}

/// As a line of the file has it: every column, whatever the kind.
impl JsonSchema for Row {
    fn schema_name() -> Cow<'static, str> {
        "Row".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Flat::json_schema(generator)
    }
}

impl Row {
    /// The columns that every kind has.
    pub fn key(&self) -> &Key {
        match self {
            Row::Step(row) => &row.setting.key,
            Row::Message(row) => &row.key,
            Row::Collective(row) => &row.key,
            Row::Control(row) => &row.key,
            Row::SimulatedStep(row) => &row.key,
            Row::SimulatedCollective(row) => &row.key,
        }
    }
}

/// Conversions that all kinds have.
macro_rules! kinds {
    ($($variant:ident($row:ident)),*) => {$(
        impl From<$row> for Row {
            fn from(row: $row) -> Row {
                Row::$variant(row)
            }
        }

        impl Serialize for $row {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Row::from(self.clone()).serialize(serializer)
            }
        }

        impl $row {
            /// The row, if it is of this kind.
            pub fn of(row: Row) -> Option<$row> {
                match row {
                    Row::$variant(row) => Some(row),
                    _ => None,
                }
            }

            /// With numbers to as many decimals as the file has: three (nanoseconds, MB/s), five of efficiencies.
            pub fn rounded(self) -> $row {
                flat::rounded(&self)
            }
        }
    )*};
}

kinds!(
    Step(StepRow),
    Message(MessageRow),
    Collective(CollectiveRow),
    Control(ControlRow),
    SimulatedStep(SimulatedStepRow),
    SimulatedCollective(SimulatedCollectiveRow)
);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::mem::discriminant;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::record::csv_bytes;

    /// Files of rows of reference runs.
    fn reference_files() -> Vec<PathBuf> {
        let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
        let (mut folders, mut files) = (vec![reference], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let is_csv = path.extension().is_some_and(|extension| extension == "csv");
                if path.is_dir() {
                    folders.push(path);
                } else if is_csv && fs::read_to_string(&path).unwrap().starts_with("schema,") {
                    files.push(path);
                }
            }
        }
        files
    }

    fn read(text: &str) -> Result<Vec<Row>, csv::Error> {
        csv::Reader::from_reader(text.as_bytes()).deserialize().collect()
    }

    /// Every kind of row, as earlier versions wrote it: what is read is written again, field by field, and columns
    /// that the version did not have are empty (numbers that are always known are 0).
    #[test]
    fn rows_of_reference_runs_are_written_as_they_were_read() {
        let mut kinds = Vec::new();
        for path in reference_files() {
            let text = fs::read_to_string(&path).unwrap();
            let rows = read(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let written = String::from_utf8(csv_bytes(&rows, true)).unwrap();
            assert_eq!(written.lines().next(), Some(&*columns()));
            assert_eq!(read(&written).unwrap(), rows, "{}", path.display());
            let mut before = csv::Reader::from_reader(text.as_bytes());
            let mut after = csv::Reader::from_reader(written.as_bytes());
            let had: Vec<String> = before.headers().unwrap().iter().map(String::from).collect();
            let has: Vec<String> = after.headers().unwrap().iter().map(String::from).collect();
            for (before, after) in before.records().zip(after.records()) {
                let (before, after) = (before.unwrap(), after.unwrap());
                for (column, field) in has.iter().zip(&after) {
                    let place = had.iter().position(|had| had == column);
                    let expected = place.map_or("", |place| &before[place]);
                    if column == "schema" {
                        assert!(is_readable(expected.parse().unwrap()), "{}", path.display());
                        assert_eq!(field, SCHEMA.to_string());
                        continue;
                    }
                    let is_added_number = place.is_none() && field == "0";
                    assert!(field == expected || is_added_number, "{}: {column}", path.display());
                }
            }
            for row in rows {
                if !kinds.contains(&discriminant(&row)) {
                    kinds.push(discriminant(&row));
                }
            }
        }
        assert_eq!(kinds.len(), 6);
    }

    /// Who adds a column raises the schema, and writes both here.
    #[test]
    fn the_schema_changes_with_the_columns() {
        let columns = columns();
        let sum = columns.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!((SCHEMA, columns.split(',').count(), sum), (9, 151, 10_911_344_022_050_194_688));
    }

    /// A row whose columns are all filled, but for these.
    fn filled(changes: &[(&str, &str)]) -> Result<Row, csv::Error> {
        const WORDS: [(&str, &str); 8] = [
            ("kind", "step"),
            ("status", "wrong"),
            ("source", "measured"),
            ("emulated", "true"),
            ("oversubscribed", "true"),
            ("pinned", "true"),
            ("in_place", "true"),
            ("average_aggregated_gradients", "true"),
        ];
        let columns = columns();
        let field = |column: &str| {
            let known = changes.iter().chain(&WORDS).find(|(name, _)| *name == column);
            known.map_or("1", |(_, field)| field)
        };
        let fields: Vec<&str> = columns.split(',').map(field).collect();
        read(&format!("{columns}\n{}\n", fields.join(","))).map(|mut rows| rows.remove(0))
    }

    #[test]
    fn every_column_belongs_to_a_kind() {
        let lines: [&[(&str, &str)]; 7] = [
            &[("kind", "step")],
            &[("kind", "message")],
            &[("kind", "allreduce")],
            &[("kind", "control")],
            &[("kind", "control"), ("rank0_us_p50", "")],
            &[("kind", "step"), ("source", "simulated")],
            &[("kind", "allreduce"), ("source", "simulated")],
        ];
        let mut used = vec![false; columns().split(',').count()];
        for line in lines {
            let written = csv_bytes(&[filled(line).unwrap()], false);
            let mut reader = csv::ReaderBuilder::new();
            let mut reader = reader.has_headers(false).from_reader(&*written);
            let record = reader.records().next().unwrap().unwrap();
            let is_used = |field: &str| !["", "0", "false"].contains(&field);
            used.iter_mut().zip(&record).for_each(|(used, field)| *used |= is_used(field));
        }
        for (column, used) in columns().split(',').zip(used) {
            assert!(used, "{column}");
        }
    }

    #[test]
    fn lines_that_are_no_rows_are_refused() {
        for (changes, expected) in [
            (
                &[("fusion_threshold_bytes", "")][..],
                "column fusion_threshold_bytes is empty, expected a value in a row of kind step",
            ),
            (&[("schema", "0")], "its rows are of schema 0, this kolo reads 1 to 9"),
            (
                &[("kind", "control"), ("source", "simulated")],
                "a row of kind control is never simulated, expected source measured",
            ),
        ] {
            let error = filled(changes).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
