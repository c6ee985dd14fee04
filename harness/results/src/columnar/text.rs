//! The text of a table by columns, as CSV.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::ColumnarError;
use super::values::{Column, Field};

/// The text, of which one group of lines at a time is in memory.
pub struct Text {
    file: SerializedFileReader<File>,
    /// Places of the columns that are read.
    columns: Vec<usize>,
    /// Groups that were read.
    groups: usize,
    /// The header, or the lines of the last of them.
    bytes: Vec<u8>,
    /// The first byte that was not handed out.
    at: usize,
}

/// The text of these columns of a table, or of all; those that it does not have are left out.
///
/// # Errors
/// When the file cannot be opened, or is no such table.
pub fn open(path: &Path, columns: Option<&[&str]>) -> Result<Box<dyn Read>, ColumnarError> {
    Ok(Box::new(Text::open(path, columns)?))
}

impl Text {
    fn open(path: &Path, columns: Option<&[&str]>) -> Result<Text, ColumnarError> {
        let file = File::open(path).map_err(ColumnarError::io(path))?;
        let malformed = |cause| ColumnarError::Malformed { path: path.into(), cause };
        let file = SerializedFileReader::new(file).map_err(|cause| malformed(cause.into()))?;
        let schema = file.metadata().file_metadata().schema_descr();
        let (mut places, mut names) = (Vec::new(), Vec::new());
        for (place, column) in schema.columns().iter().enumerate() {
            if columns.is_none_or(|columns| columns.contains(&column.name())) {
                places.push(place);
                names.push(column.name());
            }
        }
        let mut header = writer(Vec::new());
        header.write_record(&names).map_err(|cause| malformed(cause.into()))?;
        let bytes = header.into_inner().expect("writing to memory does not fail");
        Ok(Text { file, columns: places, groups: 0, bytes, at: 0 })
    }

    /// The lines of the next group.
    fn group(&self) -> ParquetResult<Vec<u8>> {
        let group = self.file.get_row_group(self.groups)?;
        let lines = usize::try_from(group.metadata().num_rows())?;
        let described = group.metadata().schema_descr();
        let column = |&place: &usize| {
            Column::read(&described.column(place), group.get_column_reader(place)?, lines)
        };
        let mut columns: Vec<Column> = self.columns.iter().map(column).collect::<Result<_, _>>()?;
        let mut writer = writer(Vec::new());
        for _ in 0..lines {
            let fields: Vec<Field> =
                columns.iter_mut().map(Column::next).collect::<Result<_, _>>()?;
            writer.serialize(&fields).expect("fields are flat, and memory takes them");
        }
        Ok(writer.into_inner().expect("writing to memory does not fail"))
    }
}

/// Writes as `record::csv_bytes` does.
fn writer(to: Vec<u8>) -> csv::Writer<Vec<u8>> {
    csv::WriterBuilder::new().has_headers(false).from_writer(to)
}

impl Read for Text {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.bytes.len() {
            if self.groups == self.file.num_row_groups() {
                return Ok(0);
            }
            self.bytes = self.group().map_err(io::Error::other)?;
            (self.at, self.groups) = (0, self.groups + 1);
        }
        let count = (&self.bytes[self.at..]).read(into)?;
        self.at += count;
        Ok(count)
    }
}
