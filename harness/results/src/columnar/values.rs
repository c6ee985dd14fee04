//! The values of a column, of some lines of a table.

use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::ColumnDescriptor;
use serde::Serialize;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// True or false.
    Truth,
}

impl Kind {
    /// What a column of samples or messages holds, by its name, and whether a field of it may be empty.
    pub fn named(name: &str) -> (Kind, bool) {
        let is_optional = matches!(
            name,
            "device_us" | "cpu_share" | "reduction_us" | "until_cycle_us" | "ended_s"
        );
        let kind = match name {
            "case" | "first_wrong" => Kind::Text,
            "checked" => Kind::Truth,
            "cpu_share" | "ended_s" => Kind::Number,
            name if name.ends_with("_us") => Kind::Number,
            _ => Kind::Whole,
        };
        (kind, is_optional)
    }

    /// Its type in a schema.
    pub fn type_name(self) -> &'static str {
        match self {
            Kind::Text => "binary",
            Kind::Whole => "int64",
            Kind::Number => "double",
            Kind::Truth => "boolean",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Whole => "a whole number",
            Kind::Number => "a number",
            Kind::Truth => "true or false",
        }
    }
}

/// A field of a line, as it is written as CSV.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Field<'v> {
    /// An empty one.
    Empty,
    /// A text.
    Text(&'v str),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A truth value.
    Truth(bool),
}

enum Values {
    Text(Vec<ByteArray>),
    Whole(Vec<i64>),
    Number(Vec<f64>),
    Truth(Vec<bool>),
}

/// The fields of a column in some lines, in their order.
pub struct Column {
    /// Those that are not empty.
    values: Values,
    /// For each line 1, or 0 if the field is empty; none if no field may be.
    levels: Option<Vec<i16>>,
    /// Lines and values that were handed out.
    next: (usize, usize),
}

impl Column {
    /// A column without lines.
    pub fn new(kind: Kind, is_optional: bool) -> Column {
        let values = match kind {
            Kind::Text => Values::Text(Vec::new()),
            Kind::Whole => Values::Whole(Vec::new()),
            Kind::Number => Values::Number(Vec::new()),
            Kind::Truth => Values::Truth(Vec::new()),
        };
        Column { values, levels: is_optional.then(Vec::new), next: (0, 0) }
    }

    /// Adds the field of a line.
    ///
    /// # Errors
    /// What is expected in its place, in words.
    pub fn push(&mut self, field: &str) -> Result<(), &'static str> {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(!field.is_empty()));
            if field.is_empty() {
                return Ok(());
            }
        }
        match &mut self.values {
            Values::Text(texts) => texts.push(field.as_bytes().to_vec().into()),
            Values::Whole(numbers) => {
                numbers.push(field.parse().map_err(|_| Kind::Whole.in_words())?);
            }
            Values::Number(numbers) => {
                numbers.push(field.parse().map_err(|_| Kind::Number.in_words())?);
            }
            Values::Truth(truths) => {
                truths.push(field.parse().map_err(|_| Kind::Truth.in_words())?);
            }
        }
        Ok(())
    }

    /// Writes all lines, and forgets them.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> ParquetResult<()> {
        let levels = self.levels.as_deref();
        match &mut self.values {
            Values::Text(values) => {
                to.typed::<ByteArrayType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Whole(values) => {
                to.typed::<Int64Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Number(values) => {
                to.typed::<DoubleType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Truth(values) => {
                to.typed::<BoolType>().write_batch(values, levels, None)?;
                values.clear();
            }
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
        to.close()
    }

    /// Reads so many lines.
    ///
    /// # Errors
    /// When the file is damaged, or the column is of a type that kolo does not write.
    pub fn read(
        described: &ColumnDescriptor,
        from: ColumnReader,
        lines: usize,
    ) -> ParquetResult<Column> {
        let is_optional = described.max_def_level() == 1;
        let mut levels = is_optional.then(|| Vec::with_capacity(lines));
        let values = match described.physical_type() {
            Physical::BYTE_ARRAY => Values::Text(all::<ByteArrayType>(from, lines, &mut levels)?),
            Physical::INT64 => Values::Whole(all::<Int64Type>(from, lines, &mut levels)?),
            Physical::DOUBLE => Values::Number(all::<DoubleType>(from, lines, &mut levels)?),
            Physical::BOOLEAN => Values::Truth(all::<BoolType>(from, lines, &mut levels)?),
            other => {
                let name = described.name();
                return Err(ParquetError::General(format!("column {name} is of type {other}")));
            }
        };
        Ok(Column { values, levels, next: (0, 0) })
    }

    /// The field of the next line.
    ///
    /// # Errors
    /// When a text is not UTF-8.
    ///
    /// # Panics
    /// After the last line.
    pub fn next(&mut self) -> ParquetResult<Field<'_>> {
        let (line, at) = self.next;
        let is_there = self.levels.as_ref().is_none_or(|levels| levels[line] == 1);
        self.next = (line + 1, at + usize::from(is_there));
        if !is_there {
            return Ok(Field::Empty);
        }
        Ok(match &self.values {
            Values::Text(texts) => Field::Text(texts[at].as_utf8()?),
            Values::Whole(numbers) => Field::Whole(numbers[at]),
            Values::Number(numbers) => Field::Number(numbers[at]),
            Values::Truth(truths) => Field::Truth(truths[at]),
        })
    }
}

/// All values of a column in a group of lines.
fn all<T: DataType>(
    from: ColumnReader,
    lines: usize,
    levels: &mut Option<Vec<i16>>,
) -> ParquetResult<Vec<T::T>> {
    let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(from);
    let mut values = Vec::with_capacity(lines);
    let (read, ..) = reader.read_records(lines, levels.as_mut(), None, &mut values)?;
    if read != lines {
        return Err(ParquetError::General(format!("a column has {read} of {lines} lines")));
    }
    Ok(values)
}
