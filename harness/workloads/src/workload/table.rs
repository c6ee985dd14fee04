//! A list in CSV, of gradients or of their ready times.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use super::{TableError, WorkloadError};
use results::inputs::{self, Origin};

/// A CSV file; errors have the line.
pub struct Table {
    path: PathBuf,
    reader: csv::Reader<Cursor<Vec<u8>>>,
    columns: Vec<usize>,
    names: Vec<String>,
    line: u64,
}

/// One line of a table.
pub struct Row<'t> {
    table: &'t Table,
    record: csv::StringRecord,
}

impl Table {
    pub fn open(path: &Path, names: &[&str]) -> Result<(Table, Origin), WorkloadError> {
        let unreadable = |cause| WorkloadError::Unreadable { path: path.into(), cause };
        let (text, origin) = inputs::read(path).map_err(unreadable)?;
        let mut reader = csv::Reader::from_reader(Cursor::new(text.into_owned().into_bytes()));
        let malformed = |problem| WorkloadError::Malformed { path: path.into(), line: 1, problem };
        let header = reader.headers().map_err(|error| malformed(error.into()))?;
        let column = |name: &&str| {
            header.iter().position(|field| field == *name).ok_or_else(|| {
                let found = header.iter().collect::<Vec<_>>().join(",");
                malformed(TableError::Column { column: name.to_string(), found })
            })
        };
        let columns = names.iter().map(column).collect::<Result<_, _>>()?;
        let names = names.iter().map(|name| name.to_string()).collect();
        Ok((Table { path: path.into(), reader, columns, names, line: 1 }, origin))
    }

    pub fn next(&mut self) -> Result<Option<Row<'_>>, WorkloadError> {
        let mut record = csv::StringRecord::new();
        match self.reader.read_record(&mut record) {
            Ok(false) => Ok(None),
            Ok(true) => {
                self.line = record.position().map_or(self.line + 1, csv::Position::line);
                Ok(Some(Row { table: self, record }))
            }
            Err(error) => {
                self.line = error.position().map_or(self.line + 1, csv::Position::line);
                let problem = match *error.kind() {
                    csv::ErrorKind::UnequalLengths {
                        expected_len: expected, len: found, ..
                    } => TableError::Fields { found, expected },
                    _ => error.into(),
                };
                Err(self.malformed(problem))
            }
        }
    }

    pub fn malformed(&self, problem: TableError) -> WorkloadError {
        WorkloadError::Malformed { path: self.path.clone(), line: self.line, problem }
    }
}

impl Row<'_> {
    pub fn field(&self, column: usize) -> &str {
        &self.record[self.table.columns[column]]
    }

    pub fn malformed(&self, problem: TableError) -> WorkloadError {
        self.table.malformed(problem)
    }

    pub fn number<N: std::str::FromStr>(
        &self,
        column: usize,
        expected: &'static str,
    ) -> Result<N, WorkloadError> {
        self.field(column).parse().map_err(|_| self.unread(column, expected))
    }

    pub fn unread(&self, column: usize, expected: &'static str) -> WorkloadError {
        let (column, found) = (self.table.names[column].clone(), self.field(column).to_string());
        self.malformed(TableError::Field { column, found, expected })
    }

    /// `64x3x7x7`, or empty for a scalar.
    pub fn shape(&self, column: usize) -> Result<Vec<u64>, WorkloadError> {
        let field = self.field(column);
        let dims = field.split('x').filter(|_| !field.is_empty());
        let dims = dims.map(|dim| dim.parse().ok()).collect::<Option<_>>();
        dims.ok_or_else(|| self.unread(column, "dimensions such as 64x3x7x7"))
    }
}
