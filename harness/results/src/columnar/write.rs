//! A table in CSV, converted into one by columns.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::StringRecord;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::values::{Column, Kind};
use super::{ColumnarError, Converted, text};

/// Lines of a group, whose columns are in memory at once: some 30 MB of samples.
const GROUP_LINES: usize = 1 << 16;

/// The level of zstd: on samples, 1 leaves two fifths more, and 9 hardly less.
const COMPRESSION_LEVEL: i32 = 3;

/// Converts a file of CSV into one by columns, and removes it.
///
/// # Errors
/// When a field is not what its column holds, the file would not be the same when it is read back, or a system call fails.
/// Then the file of CSV is as it was.
pub fn convert(table: &str, from: &Path, to: PathBuf) -> Result<Converted, ColumnarError> {
    let beside = to.with_extension("new");
    let written = write(table, from, &beside).and_then(|lines| {
        is_same(from, &beside)?;
        Ok(lines)
    });
    let lines = written.inspect_err(|_| {
        // It is no result, and is written anew by the next attempt.
        let _ = fs::remove_file(&beside);
    })?;
    fs::rename(&beside, &to).map_err(ColumnarError::io(&to))?;
    let size = |path: &Path| fs::metadata(path).map(|it| it.len()).map_err(ColumnarError::io(path));
    let (before_bytes, after_bytes) = (size(from)?, size(&to)?);
    fs::remove_file(from).map_err(ColumnarError::io(from))?;
    Ok(Converted { path: to, lines, before_bytes, after_bytes })
}

/// Writes a table by columns to the disk, a group of lines at a time; returns the number of lines.
fn write(table: &str, from: &Path, to: &Path) -> Result<u64, ColumnarError> {
    let written =
        |cause: ParquetError| ColumnarError::Io { path: to.into(), cause: io::Error::other(cause) };
    let read = |cause: csv::Error| ColumnarError::Io { path: from.into(), cause: cause.into() };
    let mut reader = csv::Reader::from_path(from).map_err(read)?;
    let names: Vec<String> = reader.headers().map_err(read)?.iter().map(String::from).collect();
    let mut columns: Vec<Column> = names
        .iter()
        .map(|name| {
            let (kind, is_optional) = Kind::named(name);
            Column::new(kind, is_optional)
        })
        .collect();
    let file = File::create(to).map_err(ColumnarError::io(to))?;
    let mut writer = writer(table, &names, BufWriter::new(file)).map_err(written)?;
    let (mut record, mut lines) = (StringRecord::new(), 0);
    loop {
        let is_line = reader.read_record(&mut record).map_err(read)?;
        if is_line {
            for ((field, column), name) in record.iter().zip(&mut columns).zip(&names) {
                column.push(field).map_err(|expected| ColumnarError::Field {
                    path: from.into(),
                    line: record.position().map_or(0, csv::Position::line),
                    problem: format!("column {name} has {field:?}, expected {expected}"),
                })?;
            }
            lines += 1;
        }
        let in_group = lines % GROUP_LINES as u64;
        if (is_line && in_group == 0) || (!is_line && in_group > 0) {
            group(&mut writer, &mut columns).map_err(written)?;
        }
        if !is_line {
            break;
        }
    }
    let mut file = writer.into_inner().map_err(written)?;
    file.flush().and_then(|()| file.get_ref().sync_data()).map_err(ColumnarError::io(to))?;
    Ok(lines)
}

/// A writer of tables with these columns.
fn writer<W: Write + Send>(
    table: &str,
    names: &[String],
    to: W,
) -> ParquetResult<SerializedFileWriter<W>> {
    let column = |name: &String| {
        let (kind, is_optional) = Kind::named(name);
        let repetition = if is_optional { "optional" } else { "required" };
        let annotation = if kind == Kind::Text { " (UTF8)" } else { "" };
        format!("{repetition} {} {name}{annotation};", kind.type_name())
    };
    let columns: Vec<String> = names.iter().map(column).collect();
    let schema = parse_message_type(&format!("message {table} {{ {} }}", columns.join(" ")))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(COMPRESSION_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::None);
    SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties.build()))
}

/// Writes the lines that are there as a group.
fn group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &mut [Column],
) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let to = group.next_column()?;
        column.write(to.expect("the schema has a column for each"))?;
    }
    group.close().map(drop)
}

/// Checks that a table by columns gives the bytes of a file of CSV back.
fn is_same(csv: &Path, columns: &Path) -> Result<(), ColumnarError> {
    let mut before = BufReader::new(File::open(csv).map_err(ColumnarError::io(csv))?);
    let mut after = text::open(columns, None)?;
    let (mut piece, mut expected) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut at = 0;
    loop {
        let count = after.read(&mut piece).map_err(ColumnarError::io(columns))?;
        // One more byte than there should be, at the end.
        let wanted = count.max(1);
        let mut there = 0;
        while there < wanted {
            match before.read(&mut expected[there..wanted]).map_err(ColumnarError::io(csv))? {
                0 => break,
                more => there += more,
            }
        }
        let same =
            piece[..count].iter().zip(&expected[..there]).take_while(|(a, b)| a == b).count();
        if same != count || there != count {
            return Err(ColumnarError::Differs { path: csv.into(), at: at + same as u64 });
        }
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
    }
}
