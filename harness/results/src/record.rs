//! Output files of a run, which survive a kill: rows and samples.
//!
//! | file | a line is |
//! |---|---|
//! | `rows.csv` | one case with its statistics; see [`Row`] |
//! | `samples.csv` | one training step; a case's block is complete when all its steps are there |
//! | `messages.csv` | one allreduce within a step |
//! | `ranks.csv` | one rank in a block |
//! | `conditions.csv` | what the system did besides during a block; see [`crate::conditions::Conditions`] |
//! | `aside.csv` | steps of blocks that the machine measured at another speed, and that were measured again |
//! | `latencies.hlog` | one block's control-plane latencies, an HdrHistogram interval log |
//! | `attempts.csv` | over MPI: a block that was begun, or that broke its processes; see [`crate::journal`] |
//!
//! Each table has its header from the beginning. All data are appended, a block with one write, and flushed to the
//! disk. After a kill the last line may be cut,
//! or a block may have messages but no samples; [`Store::resume`] drops incomplete data and reports them.
//!
//! Blocks are not kept in memory: a store finds where their lines are, and reads them again.

mod appended;
mod blocks;
mod latency_log;
mod lines;
mod places;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::de::DeserializeOwned;

pub use self::appended::{Appended, csv_bytes, header, table};
pub use self::lines::{Key, Lines};
use crate::block::{Block, Histogram, Message, Outline, Sample};
use crate::error::{MalformedLine, RecordError};
use crate::files::{create_folder, write_streamed, write_whole};
use crate::provenance::{PROVENANCE, Provenance};
use crate::row::{self, Row, StepRow};
use blocks::{CONDITIONS, Found, LATENCIES, MESSAGES, RANKS, SAMPLES, Table, found_in};
use latency_log::{LatencyLog, latencies};
use places::{Place, Places};

/// How long a child process that is being started may still hold a lock.
const HELD_BY_CHILDREN: Duration = Duration::from_millis(200);

const LOCK: &str = "lock";
const ROWS: &str = "rows.csv";
const ASIDE: &str = "aside.csv";

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

    /// The rows of all finished cases, in this order.
    ///
    /// # Errors
    /// When they cannot be read.
    fn rows(&mut self) -> Result<Vec<Row>, RecordError>;

    /// A block that was appended, in this launch or before.
    ///
    /// # Errors
    /// When it cannot be read.
    fn block(&self, key: &Key) -> Result<Block, RecordError>;

    /// What tests over blocks need of it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn outline(&self, key: &Key) -> Result<Outline, RecordError>;

    /// Its messages alone.
    ///
    /// # Errors
    /// When they cannot be read.
    fn messages(&self, key: &Key) -> Result<Vec<Message>, RecordError>;

    /// Moves blocks away from the others, which remain with these rows.
    ///
    /// # Errors
    /// When a system call fails.
    fn set_aside(&mut self, aside: &BTreeSet<Key>, rows: &[Row]) -> Result<(), RecordError>;

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
    tables: [Appended; 5],
    latency_log: LatencyLog,
    /// Complete blocks.
    places: Places,
    /// Held while the program runs; the system releases it after a kill.
    _lock: File,
}

/// The results of earlier launches.
#[derive(Debug, Default)]
pub struct Earlier {
    /// Cases that are done.
    pub rows: Vec<Row>,
    /// Complete blocks, by case and number.
    pub blocks: BTreeMap<Key, Outline>,
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
        let found = store.find(&mut earlier.dropped)?;
        let before = found.len();
        let complete = found.into_iter().filter(|(_, found)| found.is_complete(steps));
        let outlines = complete.map(|(key, found)| {
            let place = Place { order: found.outline.order, lines: found.lines };
            store.places.add(&key, place).map(|()| (key, found.outline))
        });
        // Built at once: in a sorted map of many blocks, inserting them one by one takes longer.
        earlier.blocks = outlines.collect::<Result<_, _>>()?;
        let incomplete = before - earlier.blocks.len();
        if incomplete > 0 || !earlier.dropped.is_empty() {
            store.rewrite(&earlier.rows, |_| true)?;
        }
        if incomplete > 0 {
            let sentence = format!("{incomplete} incomplete block(s) are dropped");
            earlier.dropped.push(sentence);
        }
        store.begin()?;
        Ok((store, earlier))
    }

    /// What the tables have of each block.
    fn find(&mut self, dropped: &mut Vec<String>) -> Result<HashMap<Key, Found>, RecordError> {
        let read = |table: Table| (table, found_in(table, &self.tables[table as usize]));
        // The log of latencies comes last: it has ';' for commas in names, and the other tables tell the real names.
        let order =
            [Table::Samples, Table::Messages, Table::Ranks, Table::Conditions, Table::Latencies];
        let parts: Vec<_> = order.into_par_iter().map(read).collect();
        let mut all: HashMap<Key, Found> = HashMap::new();
        let mut in_log: HashMap<Key, Key> = HashMap::new();
        for (table, part) in parts {
            let part = part?;
            dropped.extend(part.dropped);
            if table == Table::Latencies {
                self.latency_log = part.latency_log;
            }
            for (key, lines, told) in part.blocks {
                let key = match table {
                    Table::Latencies => in_log.remove(&key).unwrap_or(key),
                    _ if key.0.contains(',') => {
                        in_log.insert((key.0.replace(',', ";"), key.1), key.clone());
                        key
                    }
                    _ => key,
                };
                all.entry(key).or_default().add(table, lines, told);
            }
        }
        Ok(all)
    }

    /// Tables that are empty get their header.
    fn begin(&mut self) -> Result<(), RecordError> {
        self.rows.begin(&row::columns())?;
        for table in Table::ALL.into_iter().filter(|table| *table != Table::Latencies) {
            self.tables[table as usize].begin(&table.header())?;
        }
        Ok(())
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
            tables: [
                Appended::open(folder.join(Table::Messages.file()))?,
                Appended::open(folder.join(Table::Ranks.file()))?,
                Appended::open(folder.join(Table::Conditions.file()))?,
                Appended::open(folder.join(Table::Latencies.file()))?,
                Appended::open(folder.join(Table::Samples.file()))?,
            ],
            latency_log: LatencyLog::default(),
            places: Places::new(folder)?,
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
        self.rows.append(&[row.into()]).map(drop)
    }

    /// Finished cases, with one write.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn append_rows(&mut self, rows: &[Row]) -> Result<(), RecordError> {
        self.rows.append(rows).map(drop)
    }

    /// A finished block. Its samples come last: with them it is complete.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn append_block(&mut self, block: &Block) -> Result<(), RecordError> {
        let Some(first) = block.samples.first() else { return Ok(()) };
        let mut place = Place { order: first.order, ..Place::default() };
        for table in Table::ALL {
            let file = &mut self.tables[table as usize];
            place.lines[table as usize] = match table {
                Table::Messages => file.append(&block.messages)?,
                Table::Ranks => file.append(&block.ranks)?,
                Table::Conditions => file.append(block.conditions.as_slice())?,
                Table::Latencies => match &block.latencies {
                    Some(latencies) => {
                        let is_empty = file.is_empty()?;
                        let [above, line] =
                            self.latency_log.append(is_empty, &block.samples, latencies);
                        let start = file.append_bytes((above.clone() + &line).as_bytes())?;
                        Lines::of(start + above.len() as u64, line.len(), 1)
                    }
                    None => Lines::default(),
                },
                Table::Samples => file.append(&block.samples)?,
            };
        }
        self.places.add(&(first.case.clone(), first.block), place)
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

    /// Rewrites all files with these rows and the blocks that `is_kept` takes.
    fn rewrite(&mut self, rows: &[Row], is_kept: impl Fn(&Key) -> bool) -> Result<(), RecordError> {
        self.rows.replace(&table(rows, &row::columns()))?;
        let mut all = self.places.all(is_kept)?;
        for table in Table::ALL {
            let above = match table {
                Table::Latencies if all.is_empty() => String::new(),
                Table::Latencies => self.latency_log.header(),
                _ => table.header() + "\n",
            };
            let kept = all.iter().map(|(_, place)| place.lines[table as usize]);
            let kept = self.tables[table as usize].keep(above.as_bytes(), kept)?;
            for ((_, place), lines) in all.iter_mut().zip(kept) {
                place.lines[table as usize] = lines;
            }
        }
        self.places = Places::new(&self.folder)?;
        all.iter().try_for_each(|(key, place)| self.places.add(key, *place))
    }

    /// A block's lines in a table.
    fn lines<T: DeserializeOwned>(
        &self,
        place: &Place,
        table: Table,
    ) -> Result<Vec<T>, RecordError> {
        self.tables[table as usize].lines(place.lines[table as usize])
    }

    fn latencies(&self, place: &Place) -> Result<Option<Histogram>, RecordError> {
        let (file, lines) =
            (&self.tables[Table::Latencies as usize], place.lines[Table::Latencies as usize]);
        if lines.count() == 0 {
            return Ok(None);
        }
        let malformed = || file.malformed(lines.start, MalformedLine::Interval);
        latencies(&file.text(lines)?).map(Some).ok_or_else(malformed)
    }
}

impl Output for Store {
    fn append_block(&mut self, block: &Block) -> Result<(), RecordError> {
        Store::append_block(self, block)
    }

    fn append_row(&mut self, row: StepRow) -> Result<(), RecordError> {
        Store::append_row(self, row)
    }

    fn rows(&mut self) -> Result<Vec<Row>, RecordError> {
        self.rows.read(&row::columns(), &mut Vec::new())
    }

    fn block(&self, key: &Key) -> Result<Block, RecordError> {
        let place = &self.places.get(key)?;
        Ok(Block {
            samples: self.lines(place, Table::Samples)?,
            messages: self.lines(place, Table::Messages)?,
            ranks: self.lines(place, Table::Ranks)?,
            latencies: self.latencies(place)?,
            conditions: self.lines(place, Table::Conditions)?.pop(),
        })
    }

    fn outline(&self, key: &Key) -> Result<Outline, RecordError> {
        let place = &self.places.get(key)?;
        let samples: Vec<Sample> = self.lines(place, Table::Samples)?;
        let conditions = self.lines(place, Table::Conditions)?.pop();
        // A line of each rank.
        let ranks = place.lines[Table::Ranks as usize].count();
        Ok(Outline::of(&samples, ranks, conditions))
    }

    fn messages(&self, key: &Key) -> Result<Vec<Message>, RecordError> {
        self.lines(&self.places.get(key)?, Table::Messages)
    }

    /// The steps of blocks that are set aside go to a file of their own before they leave the others.
    fn set_aside(&mut self, aside: &BTreeSet<Key>, rows: &[Row]) -> Result<(), RecordError> {
        let mut samples: Vec<Sample> = Vec::new();
        for key in aside {
            samples.extend(self.lines::<Sample>(&self.places.get(key)?, Table::Samples)?);
        }
        Appended::open(self.folder.join(ASIDE))?.append(&samples)?;
        self.rewrite(rows, |key| !aside.contains(key))
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

#[cfg(test)]
mod tests;
