//! Files that only grow, by whole lines, and tables of CSV.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::latency_log::key_in_log;
use super::lines::{Blocks, Key, Lines, key_in_csv};
use crate::error::{Difference, MalformedLine, RecordError};
use crate::files::{write_streamed, write_whole};

/// The length of the header's line.
fn header_bytes(table: &[u8]) -> usize {
    table.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

/// The names of a line's columns, separated by commas.
pub fn header<T: Serialize + Default>() -> String {
    let text = String::from_utf8(csv_bytes(&[T::default()], true)).expect("fields are text");
    text.lines().next().unwrap_or_default().into()
}

/// A whole table, which has its header also without a line.
pub fn table<T: Serialize>(lines: &[T], header: &str) -> Vec<u8> {
    [header.as_bytes(), b"\n", &csv_bytes(lines, false)].concat()
}

/// CSV lines, with or without the header; without lines there is no header.
pub fn csv_bytes<T: Serialize>(lines: &[T], header: bool) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().has_headers(header).from_writer(Vec::new());
    for line in lines {
        writer.serialize(line).expect("rows are flat");
    }
    writer.into_inner().expect("writing to memory does not fail")
}

/// Lines without quotes; `None` if there are quotes, or a line is malformed.
fn parse_plain<T: DeserializeOwned>(lines: &[u8]) -> Option<Vec<T>> {
    let text = std::str::from_utf8(lines)
        .ok()
        .filter(|text| !text.contains('"') && !text.contains('\r'))?;
    let columns = text.lines().next()?.split(',').count();
    let mut record = csv::StringRecord::with_capacity(text.lines().next()?.len(), columns);
    let parse = |line: &str| {
        record.clear();
        line.split(',').for_each(|field| record.push_field(field));
        if record.len() == columns { record.deserialize(None).ok() } else { None }
    };
    text.lines().map(parse).collect()
}

/// A file that only grows, by whole lines.
pub struct Appended {
    pub(super) path: PathBuf,
    file: File,
}

impl Appended {
    /// A file that is there, or a new one.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn open(path: PathBuf) -> Result<Appended, RecordError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        Ok(Appended { file: file.map_err(RecordError::io(&path))?, path })
    }

    /// Writes the header of a table that is empty.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn begin(&mut self, header: &str) -> Result<(), RecordError> {
        if self.is_empty()? {
            self.append_bytes(format!("{header}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Appends lines of CSV, below a header if the file is empty.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn append<T: Serialize>(&mut self, lines: &[T]) -> Result<Lines, RecordError> {
        let is_empty = self.is_empty()?;
        let bytes = csv_bytes(lines, is_empty);
        let header = if is_empty { header_bytes(&bytes) } else { 0 };
        let start = self.append_bytes(&bytes)? + header as u64;
        Ok(Lines::of(start, bytes.len() - header, lines.len()))
    }

    pub(super) fn is_empty(&self) -> Result<bool, RecordError> {
        Ok(self.len()? == 0)
    }

    fn len(&self) -> Result<u64, RecordError> {
        Ok(self.file.metadata().map_err(RecordError::io(&self.path))?.len())
    }

    /// One write, then the disk; returns where. If it fails half-way the file is cut back.
    pub(super) fn append_bytes(&mut self, bytes: &[u8]) -> Result<u64, RecordError> {
        let before = self.len()?;
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        written.map(|()| before).map_err(|error| {
            // If cutting back fails as well, the cut line is found when the run is resumed.
            let _ = self.file.set_len(before);
            RecordError::io(&self.path)(error)
        })
    }

    /// Puts other bytes in place of the whole file.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn replace(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        write_whole(&self.path, bytes)?;
        *self = Appended::open(self.path.clone())?;
        Ok(())
    }

    /// Keeps these lines alone, in this order, below `above`; returns where they are then.
    pub(super) fn keep(
        &mut self,
        above: &[u8],
        kept: impl Iterator<Item = Lines>,
    ) -> Result<Vec<Lines>, RecordError> {
        let mut places = Vec::new();
        write_streamed(&self.path, |out| {
            out.write_all(above)?;
            let mut start = above.len() as u64;
            for lines in kept {
                out.write_all(&self.bytes(lines)?)?;
                places.push(lines.moved_to(start));
                start += lines.bytes();
            }
            Ok(())
        })?;
        *self = Appended::open(self.path.clone())?;
        Ok(places)
    }

    /// Some lines as they are.
    fn bytes(&self, lines: Lines) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; lines.bytes() as usize];
        self.file.read_exact_at(&mut bytes, lines.start).map(|()| bytes)
    }

    /// The text of some lines.
    pub(super) fn text(&self, lines: Lines) -> Result<String, RecordError> {
        let bytes = self.bytes(lines).map_err(RecordError::io(&self.path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Some lines of a table.
    pub(super) fn lines<T: DeserializeOwned>(&self, lines: Lines) -> Result<Vec<T>, RecordError> {
        let bytes = self.bytes(lines).map_err(RecordError::io(&self.path))?;
        self.parse(&bytes, lines.start)
    }

    /// Lines of a table that begin there. Only lines with quotes, or malformed ones, go through a CSV reader: building one
    /// takes longer than parsing a block.
    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        lines: &[u8],
        start: u64,
    ) -> Result<Vec<T>, RecordError> {
        if let Some(plain) = parse_plain(lines) {
            return Ok(plain);
        }
        let mut builder = csv::ReaderBuilder::new();
        let mut reader =
            builder.has_headers(false).buffer_capacity(lines.len().max(1)).from_reader(lines);
        let parsed = reader.deserialize().collect::<Result<Vec<T>, csv::Error>>();
        parsed.map_err(|error| {
            let inside = error.position().map_or(0, csv::Position::byte);
            self.malformed(start + inside, error.into())
        })
    }

    /// A problem of the line that begins there.
    pub(super) fn malformed(&self, start: u64, problem: MalformedLine) -> RecordError {
        let mut before = vec![0; start as usize];
        let read = self.file.read_exact_at(&mut before, 0);
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let path = self.path.clone();
        match read {
            Ok(()) => RecordError::Malformed { path, line, problem },
            Err(cause) => RecordError::Io { path, cause },
        }
    }

    /// Every line that is whole, and where it begins; reports a cut one.
    fn each_line(
        &self,
        dropped: &mut Vec<String>,
        mut take: impl FnMut(&[u8], u64) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(RecordError::io(&self.path))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut line, mut start) = (Vec::new(), 0);
        loop {
            line.clear();
            // A field in quotes may have ends of lines.
            let mut is_whole = false;
            while !is_whole {
                let read =
                    reader.read_until(b'\n', &mut line).map_err(RecordError::io(&self.path))?;
                if read == 0 {
                    break;
                }
                let quotes = line.iter().filter(|&&byte| byte == b'"').count();
                is_whole = line.ends_with(b"\n") && quotes % 2 == 0;
            }
            if !is_whole {
                if !line.is_empty() {
                    let name = self.path.file_name().unwrap_or_default().to_string_lossy();
                    dropped.push(format!("the last line of {name} was cut off and is dropped"));
                }
                return Ok(());
            }
            take(&line, start)?;
            start += line.len() as u64;
        }
    }

    /// Every block of a table: its key, where its lines are, and these lines. Reports a cut line.
    ///
    /// # Errors
    /// When the file cannot be read, has other columns than `header`, or has a line without a key.
    pub(super) fn each_block(
        &self,
        header: &str,
        dropped: &mut Vec<String>,
        take: impl FnMut(Key, Lines, Vec<u8>) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let mut blocks = Blocks::new(key_in_csv, take);
        self.each_line(dropped, |line, start| {
            if start == 0 {
                return self.check_header(line, header);
            }
            let found = blocks.add(line, start)?;
            found.then_some(()).ok_or_else(|| self.malformed(start, MalformedLine::Key))
        })?;
        blocks.end()
    }

    /// Every block of a log of latencies; `header` gets the other lines, and returns false for one that does not belong
    /// there. Reports a cut line.
    ///
    /// # Errors
    /// When the file cannot be read, or has a line of another kind.
    pub(super) fn each_interval(
        &self,
        mut header: impl FnMut(&[u8]) -> bool,
        dropped: &mut Vec<String>,
        mut take: impl FnMut(Key, Lines),
    ) -> Result<(), RecordError> {
        self.each_line(dropped, |line, start| {
            if let Some((key, _)) = key_in_log(line) {
                take(key, Lines::of(start, line.len(), 1));
            } else if !header(line) {
                return Err(self.malformed(start, MalformedLine::Interval));
            }
            Ok(())
        })
    }

    /// All complete lines; reports a cut one.
    ///
    /// # Errors
    /// When the file cannot be read, has other columns than `header`, or has a line that is not a `T`.
    pub fn read<T: DeserializeOwned>(
        &mut self,
        header: &str,
        dropped: &mut Vec<String>,
    ) -> Result<Vec<T>, RecordError> {
        let mut text = String::new();
        self.each_line(dropped, |line, start| {
            text += &String::from_utf8_lossy(line);
            if start == 0 { self.check_header(line, header) } else { Ok(()) }
        })?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let lines = reader.deserialize().map(|line| {
            line.map_err(|error| RecordError::Malformed {
                path: self.path.clone(),
                line: error.position().map_or(1, csv::Position::line),
                problem: error.into(),
            })
        });
        lines.collect()
    }

    fn check_header(&self, line: &[u8], header: &str) -> Result<(), RecordError> {
        let is_same = line.strip_suffix(b"\n") == Some(header.as_bytes());
        let differs =
            || RecordError::Differs { path: self.path.clone(), problem: Difference::Columns };
        is_same.then_some(()).ok_or_else(differs)
    }
}
