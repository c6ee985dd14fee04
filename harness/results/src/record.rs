//! Output files of a run, which survive a kill: rows and samples.
//!
//! | file | a line is |
//! |---|---|
//! | `rows.csv` | one case with its statistics; see [`Row`] |
//! | `samples.csv` | one training step; a case's block is complete when all its steps are there |
//! | `messages.csv` | one allreduce within a step |
//! | `ranks.csv` | one rank in a block |
//! | `conditions.csv` | what the system did besides during a block; see [`Conditions`] |
//! | `aside.csv` | steps of blocks that the machine measured at another speed, and that were measured again |
//! | `latencies.hlog` | one block's control-plane latencies, an HdrHistogram interval log |
//! | `attempts.csv` | over MPI: a block that was begun, or that broke its processes; see [`crate::journal`] |
//!
//! Each table has its header from the beginning. All data are appended, a block with one write, and flushed to the
//! disk. After a kill the last line may be cut,
//! or a block may have messages but no samples; [`Store::resume`] drops incomplete data and reports them.

mod latency_log;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::block::{Block, Histogram, Message, RankBlock, Sample};
use crate::conditions::Conditions;
use crate::error::{Difference, MalformedLine, RecordError};
use crate::files::{create_folder, write_streamed, write_whole};
use crate::provenance::{PROVENANCE, Provenance};
use crate::row::{self, Row, StepRow};
use latency_log::LatencyLog;

/// How long a child process that is being started may still hold a lock.
const HELD_BY_CHILDREN: Duration = Duration::from_millis(200);

const LOCK: &str = "lock";
const ROWS: &str = "rows.csv";
const SAMPLES: &str = "samples.csv";
const MESSAGES: &str = "messages.csv";
const RANKS: &str = "ranks.csv";
const ASIDE: &str = "aside.csv";
const CONDITIONS: &str = "conditions.csv";
const LATENCIES: &str = "latencies.hlog";

/// Where a sweep puts its results.
pub trait Output {
    /// A finished block.
    ///
    /// # Errors
    /// When a system call fails.
    fn append_block(&mut self, block: &Block) -> Result<(), RecordError>;

    /// A finished case.
    ///
    /// # Errors
    /// When a system call fails.
    fn append_row(&mut self, row: StepRow) -> Result<(), RecordError>;

    /// Moves blocks away from the others: `kept` are those that remain, with these rows.
    ///
    /// # Errors
    /// When a system call fails.
    fn set_aside(
        &mut self,
        aside: &[Block],
        rows: &[Row],
        kept: &BTreeMap<(String, usize), Block>,
    ) -> Result<(), RecordError>;

    /// All rows, in the place of those that were appended.
    ///
    /// # Errors
    /// When a system call fails.
    fn replace_rows(&mut self, rows: &[Row]) -> Result<(), RecordError>;

    /// A timeline, as `write` gives it.
    ///
    /// # Errors
    /// When a system call fails.
    fn write_timeline(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), RecordError>;
}

/// The growing files of one run.
pub struct Store {
    folder: PathBuf,
    rows: Appended,
    samples: Appended,
    messages: Appended,
    ranks: Appended,
    conditions: Appended,
    latencies: Appended,
    latency_log: LatencyLog,
    /// Held while the program runs; the system releases it after a kill.
    _lock: File,
}

/// The results of earlier launches.
#[derive(Debug, Default)]
pub struct Earlier {
    /// Cases that are done.
    pub rows: Vec<Row>,
    /// Complete blocks, by case and number.
    pub blocks: BTreeMap<(String, usize), Block>,
    /// Incomplete data that were removed, in sentences.
    pub dropped: Vec<String>,
}

impl Store {
    /// A new folder, whose provenance is written first. A folder that a kill has left without provenance is empty
    /// and counts as new.
    ///
    /// # Errors
    /// When the folder already exists, is in use, or cannot be written.
    pub fn create(folder: &Path, provenance: &Provenance) -> Result<Store, RecordError> {
        if folder.join(PROVENANCE).exists() || (folder.exists() && !is_stillborn(folder)) {
            return Err(RecordError::Exists { folder: folder.into() });
        }
        create_folder(folder)?;
        let mut store = Store::open(folder).map_err(RecordError::at_first)?;
        provenance.write(&folder.join(PROVENANCE)).map_err(RecordError::at_first)?;
        store.begin()?;
        Ok(store)
    }

    /// A folder of an earlier launch; a block is complete if it has `steps` samples, all their messages, and a
    /// line for each rank.
    ///
    /// # Errors
    /// When the folder is in use, or a file of it cannot be read.
    pub fn resume(folder: &Path, steps: usize) -> Result<(Store, Earlier), RecordError> {
        let mut store = Store::open(folder)?;
        let mut earlier = Earlier::default();
        earlier.rows = store.rows.read(&row::columns(), &mut earlier.dropped)?;
        for sample in store.samples.read::<Sample>(&header::<Sample>(), &mut earlier.dropped)? {
            let key = (sample.case.clone(), sample.block);
            earlier.blocks.entry(key).or_default().samples.push(sample);
        }
        for (key, latencies) in store.read_latencies(&mut earlier.dropped)? {
            earlier.blocks.entry(key).or_default().latencies = Some(latencies);
        }
        for message in store.messages.read::<Message>(&header::<Message>(), &mut earlier.dropped)? {
            let key = (message.case.clone(), message.block);
            earlier.blocks.entry(key).or_default().messages.push(message);
        }
        for rank in store.ranks.read::<RankBlock>(&header::<RankBlock>(), &mut earlier.dropped)? {
            let key = (rank.case.clone(), rank.block);
            earlier.blocks.entry(key).or_default().ranks.push(rank);
        }
        let of_blocks =
            store.conditions.read::<Conditions>(&header::<Conditions>(), &mut earlier.dropped);
        for conditions in of_blocks? {
            let key = (conditions.case.clone(), conditions.block);
            earlier.blocks.entry(key).or_default().conditions = Some(conditions);
        }
        let before = earlier.blocks.len();
        earlier.blocks.retain(|_, block| {
            let messages: usize = block.samples.iter().map(|sample| sample.messages).sum();
            block.samples.len() == steps
                && block.messages.len() == messages
                && block.ranks.first().is_some_and(|first| first.ranks == block.ranks.len())
                && block.latencies.is_some()
        });
        let incomplete = before - earlier.blocks.len();
        if incomplete > 0 || !earlier.dropped.is_empty() {
            store.rewrite(&earlier.rows, &earlier.blocks)?;
        }
        if incomplete > 0 {
            let sentence = format!("{incomplete} incomplete block(s) are dropped");
            earlier.dropped.push(sentence);
        }
        store.begin()?;
        Ok((store, earlier))
    }

    /// Tables that are empty get their header.
    fn begin(&mut self) -> Result<(), RecordError> {
        self.rows.begin(&row::columns())?;
        self.samples.begin(&header::<Sample>())?;
        self.messages.begin(&header::<Message>())?;
        self.ranks.begin(&header::<RankBlock>())?;
        self.conditions.begin(&header::<Conditions>())
    }

    fn open(folder: &Path) -> Result<Store, RecordError> {
        let path = folder.join(LOCK);
        let lock = File::create(&path).map_err(RecordError::io(&path))?;
        let start = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                // A child process that has just started may briefly hold its parent's open files.
                Err(fs::TryLockError::WouldBlock) if start.elapsed() < HELD_BY_CHILDREN => {
                    std::thread::sleep(HELD_BY_CHILDREN / 20);
                }
                Err(fs::TryLockError::WouldBlock) => {
                    return Err(RecordError::InUse { folder: folder.into() });
                }
                Err(fs::TryLockError::Error(error)) => return Err(RecordError::io(&path)(error)),
            }
        }
        crate::columnar::restore(folder)?;
        Ok(Store {
            folder: folder.into(),
            rows: Appended::open(folder.join(ROWS))?,
            samples: Appended::open(folder.join(SAMPLES))?,
            messages: Appended::open(folder.join(MESSAGES))?,
            ranks: Appended::open(folder.join(RANKS))?,
            conditions: Appended::open(folder.join(CONDITIONS))?,
            latencies: Appended::open(folder.join(LATENCIES))?,
            latency_log: LatencyLog::default(),
            _lock: lock,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A finished case.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn append_row(&mut self, row: impl Into<Row>) -> Result<(), RecordError> {
        self.rows.append(&[row.into()])
    }

    /// Finished cases, with one write.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn append_rows(&mut self, rows: &[Row]) -> Result<(), RecordError> {
        self.rows.append(rows)
    }

    /// A finished block. Its samples come last: with them it is complete.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn append_block(&mut self, block: &Block) -> Result<(), RecordError> {
        self.messages.append(&block.messages)?;
        self.ranks.append(&block.ranks)?;
        self.conditions.append(block.conditions.as_slice())?;
        if let Some(latencies) = &block.latencies {
            let is_empty = self.latencies.is_empty()?;
            let text = self.latency_log.append(is_empty, &block.samples, latencies);
            self.latencies.append_bytes(text.as_bytes())?;
        }
        self.samples.append(&block.samples)
    }

    /// Writes a whole file atomically: to a temporary file, which is then renamed.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn write_whole(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        write_whole(&self.folder.join(name), bytes)
    }

    /// Writes a file atomically, without holding it in memory.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn write_streamed(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), RecordError> {
        let path = self.folder.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(RecordError::io(folder))?;
        }
        write_streamed(&path, write)
    }

    /// Rewrites all files with these rows and blocks only.
    fn rewrite(
        &mut self,
        rows: &[Row],
        blocks: &BTreeMap<(String, usize), Block>,
    ) -> Result<(), RecordError> {
        // In the order in which rounds measure them.
        let mut ordered: Vec<_> = blocks.iter().collect();
        let place =
            |block: &Block| block.samples.first().map(|sample| (sample.block, sample.order));
        ordered.sort_by_key(|(_, block)| place(block));
        let latencies = self.latency_log.of_blocks(ordered.iter().map(|(key, _)| *key));
        let blocks = || ordered.iter().map(|(_, block)| *block);
        let samples: Vec<&Sample> = blocks().flat_map(|block| &block.samples).collect();
        let messages: Vec<&Message> = blocks().flat_map(|block| &block.messages).collect();
        let ranks: Vec<&RankBlock> = blocks().flat_map(|block| &block.ranks).collect();
        let conditions: Vec<&Conditions> =
            blocks().filter_map(|block| block.conditions.as_ref()).collect();
        self.rows.replace(&table(rows, &row::columns()))?;
        self.samples.replace(&table(&samples, &header::<Sample>()))?;
        self.messages.replace(&table(&messages, &header::<Message>()))?;
        self.ranks.replace(&table(&ranks, &header::<RankBlock>()))?;
        self.conditions.replace(&table(&conditions, &header::<Conditions>()))?;
        self.latencies.replace(latencies.as_bytes())
    }

    fn read_latencies(
        &mut self,
        dropped: &mut Vec<String>,
    ) -> Result<HashMap<(String, usize), Histogram>, RecordError> {
        let text = self.latencies.complete_lines(dropped)?;
        let (log, histograms) = LatencyLog::read(&text).map_err(|line| RecordError::Malformed {
            path: self.latencies.path.clone(),
            line,
            problem: MalformedLine::Interval,
        })?;
        self.latency_log = log;
        Ok(histograms)
    }
}

impl Output for Store {
    fn append_block(&mut self, block: &Block) -> Result<(), RecordError> {
        Store::append_block(self, block)
    }

    fn append_row(&mut self, row: StepRow) -> Result<(), RecordError> {
        Store::append_row(self, row)
    }

    /// The steps of blocks that are set aside go to a file of their own before they leave the others.
    fn set_aside(
        &mut self,
        aside: &[Block],
        rows: &[Row],
        kept: &BTreeMap<(String, usize), Block>,
    ) -> Result<(), RecordError> {
        let samples: Vec<&Sample> = aside.iter().flat_map(|block| &block.samples).collect();
        Appended::open(self.folder.join(ASIDE))?.append(&samples)?;
        self.rewrite(rows, kept)
    }

    fn replace_rows(&mut self, rows: &[Row]) -> Result<(), RecordError> {
        self.rows.replace(&table(rows, &row::columns()))
    }

    fn write_timeline(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), RecordError> {
        self.write_streamed(name, write)
    }
}

/// Only empty files of kolo's: a run was killed before it had written its provenance.
fn is_stillborn(folder: &Path) -> bool {
    let ours = |entry: io::Result<fs::DirEntry>| {
        let Ok(entry) = entry else { return false };
        let ours = [LOCK, ROWS, SAMPLES, MESSAGES, RANKS, CONDITIONS, LATENCIES, "provenance.new"];
        let empty = entry.metadata().is_ok_and(|metadata| metadata.len() == 0);
        let name = entry.file_name();
        ours.iter().any(|own| name == *own) && (empty || name == "provenance.new")
    };
    fs::read_dir(folder).is_ok_and(|mut entries| entries.all(ours))
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

/// A file that only grows, by whole lines.
pub struct Appended {
    path: PathBuf,
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
        match self.file.metadata().map_err(RecordError::io(&self.path))?.len() {
            0 => self.append_bytes(format!("{header}\n").as_bytes()),
            _ => Ok(()),
        }
    }

    /// Appends lines of CSV, below a header if the file is empty.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn append<T: Serialize>(&mut self, lines: &[T]) -> Result<(), RecordError> {
        let empty = self.is_empty()?;
        self.append_bytes(&csv_bytes(lines, empty))
    }

    fn is_empty(&self) -> Result<bool, RecordError> {
        Ok(self.file.metadata().map_err(RecordError::io(&self.path))?.len() == 0)
    }

    /// One write, then the disk. If it fails half-way the file is cut back.
    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        let before = self.file.metadata().map_err(RecordError::io(&self.path))?.len();
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
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

    /// The text up to the last end of a line; a kill has cut the rest.
    fn complete_lines(&mut self, dropped: &mut Vec<String>) -> Result<String, RecordError> {
        let mut bytes = Vec::new();
        let mut read = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.read_to_end(&mut bytes)
        };
        read().map_err(RecordError::io(&self.path))?;
        let (mut end, mut quoted) = (0, false);
        for (at, &byte) in bytes.iter().enumerate() {
            quoted ^= byte == b'"';
            if byte == b'\n' && !quoted {
                end = at + 1;
            }
        }
        if end < bytes.len() {
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            dropped.push(format!("the last line of {name} was cut off and is dropped"));
            bytes.truncate(end);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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
        let text = self.complete_lines(dropped)?;
        if text.lines().next().is_some_and(|columns| columns != header) {
            return Err(RecordError::Differs {
                path: self.path.clone(),
                problem: Difference::Columns,
            });
        }
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
}

#[cfg(test)]
mod tests;
