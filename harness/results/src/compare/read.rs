//! Reads a run: its rows, its samples, and where it comes from.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::StringRecord;
use serde_json::Value;

use super::work::{SETTING, Work};
use super::{Block, Times};
use crate::columnar::{self, ColumnarError};
use crate::logs::{Log, LogError, autotune};
use crate::provenance::PROVENANCE;
use crate::row::{OLDEST_SCHEMA, SCHEMA, is_readable};
use crate::statistics::median;
use crate::whole_lines;

/// What a comparison needs of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Where it is.
    pub path: PathBuf,
    /// Times of cases that are right, by kind and name.
    pub cases: BTreeMap<String, Times>,
    /// Workloads of its rows; the empty name for allreduces alone.
    pub workloads: BTreeSet<String>,
    /// Fingerprint of its gradients; empty if it is not known.
    pub workload_digest: String,
    /// The case that was repeated from the beginning to the end, if there is one.
    pub base: Option<String>,
    /// Cases without a time: how many.
    pub left_out: usize,
    /// Its nodes are emulated, or ranks share cores.
    pub is_doubtful: bool,
    /// Its last launch, from the provenance beside the rows.
    pub launch: Option<Value>,
    /// The median of the processors' frequency over its blocks, if it is known.
    pub frequency_mhz: Option<f64>,
    /// Its cases are parts of the longest one, and are not compared all together.
    pub has_parts: bool,
    /// What was left out of its files, a sentence each.
    pub notes: Vec<String>,
}

/// A run that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file of rows or samples.
    #[error("{path}: {why}")]
    Rows {
        /// The file.
        path: String,
        /// Why not, and what is expected.
        why: String,
    },
    /// A file of another version.
    #[error(
        "{path}: schema {found}, this kolo reads {OLDEST_SCHEMA} to {SCHEMA}; compare with the kolo that wrote the file \
         (provenance.json names its commit)"
    )]
    Schema {
        /// The file.
        path: String,
        /// Its schema.
        found: String,
    },
    /// A file lacks columns.
    #[error(
        "{path}: {} missing; expected a folder of results, or a CSV file of rows, as this kolo writes them",
        in_words(columns)
    )]
    Columns {
        /// The file.
        path: String,
        /// The columns.
        columns: Vec<&'static str>,
    },
    /// A log of another program.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A table by columns.
    #[error(transparent)]
    Columnar(#[from] ColumnarError),
}

fn in_words(columns: &[&str]) -> String {
    match columns {
        [column] => format!("column {column} is"),
        columns => format!("columns {} are", columns.join(", ")),
    }
}

/// Columns that no table of rows can do without.
const OF_ROWS: [&str; 5] = ["schema", "kind", "case", "status", "time_us_p50"];

/// Those that no table of samples can do without; `launch` came later.
const OF_SAMPLES: [&str; 3] = ["case", "block", "time_us"];

/// Those that are read.
const READ_OF_SAMPLES: [&str; 4] = ["case", "block", "launch", "time_us"];

/// The only one that counts of the conditions of blocks.
const OF_CONDITIONS: [&str; 1] = ["frequency_mhz"];

/// Why a base case has no further blocks.
const REPEATED: &str = "end";

impl Run {
    /// Reads a folder of results, a CSV file of rows, or a log of another program. Last lines that are cut are left out.
    ///
    /// # Errors
    /// When rows cannot be read, are of another version, or have no times.
    pub fn read(path: &Path) -> Result<Run, ReadError> {
        let is_folder = path.is_dir();
        if !is_folder && let Some(log) = Log::find(path)? {
            return Run::of_log(&log);
        }
        let rows = if is_folder { path.join("rows.csv") } else { path.to_path_buf() };
        let provenance =
            if is_folder { path.join(PROVENANCE) } else { path.with_extension("provenance.json") };
        let mut run = Run { path: path.into(), ..Run::default() };
        run.add_provenance(&provenance)?;
        run.add_rows(&rows)?;
        if run.cases.is_empty() {
            let why = "no row is measured, right and has time_us_p50; expected results of kolo sweep, tune or bench";
            return Err(ReadError::Rows { path: rows.display().to_string(), why: why.into() });
        }
        if let Some(samples) = columnar::find(path, "samples").filter(|_| is_folder) {
            run.add_samples(&samples)?;
        }
        let conditions = path.join("conditions.csv");
        if is_folder && conditions.exists() {
            run.add_conditions(&conditions)?;
        }
        Ok(run)
    }

    /// Reads several runs at the same time.
    ///
    /// # Errors
    /// As [`Run::read`], of the first run that cannot be read.
    ///
    /// # Panics
    /// When reading one does.
    pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Run>, ReadError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                paths.iter().map(|path| scope.spawn(|| Run::read(path))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("reading does not panic"))
                .collect()
        })
    }

    /// The allreduces of a log, or the scores of an autotuner as times for a million bytes. A case that occurs several
    /// times has as many blocks.
    fn of_log(log: &Log) -> Result<Run, ReadError> {
        let mut run = Run { path: log.path.clone(), ..Run::default() };
        let mut times_us: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for row in log.rows(None) {
            match row.outcome.right().and_then(|result| result.times.as_ref()) {
                Some(times) => {
                    times_us
                        .entry(format!("allreduce {}", row.key.case))
                        .or_default()
                        .push(times.time_us_p50);
                }
                None => run.left_out += 1,
            }
            run.is_doubtful |= row.run.emulated || row.run.oversubscribed;
        }
        // The answer repeats a line.
        for trial in autotune::answer(&log.trials).0 {
            let case = format!("autotune, a million bytes with {}", trial.setting());
            times_us.entry(case).or_default().push(trial.us_per_mb());
        }
        if times_us.is_empty() {
            let path = log.path.display().to_string();
            let why = "the log has no allreduce; expected one of all_reduce_perf, osu_allreduce or Horovod's autotuner";
            return Err(ReadError::Rows { path, why: why.into() });
        }
        run.workloads.insert(String::new());
        run.cases = times_us
            .into_iter()
            .map(|(case, times_us)| (case, Times::of_values(&times_us)))
            .collect();
        Ok(run)
    }

    fn add_rows(&mut self, path: &Path) -> Result<(), ReadError> {
        let cut = read(path, &OF_ROWS, |line| {
            let schema = line.text("schema");
            if !schema.parse().is_ok_and(is_readable) {
                let path = path.display().to_string();
                return Err(ReadError::Schema { path, found: schema.into() });
            }
            let right = line.text("status") == "ok" && line.text("source") != "simulated";
            let median_us = line.number("time_us_p50")?.filter(|&time_us| right && time_us > 0.0);
            let Some(median_us) = median_us else {
                self.left_out += 1;
                return Ok(());
            };
            let name = format!("{} {}", line.text("kind"), line.text("case"));
            let interval = line.number("time_us_p50_low")?.zip(line.number("time_us_p50_high")?);
            // Of steps and repetitions there are many.
            let of = match line.text("interval_over") {
                units @ ("launches" | "blocks") => line.number(units)?,
                _ => None,
            };
            let times = Times {
                median_us,
                interval_us: interval,
                freedom: of.map(|units| units - 1.0),
                blocks: Vec::new(),
                work: Work::of(SETTING.map(|column| line.text(column))),
            };
            if line.text("stop_reason") == REPEATED {
                self.base = Some(name.clone());
            }
            self.is_doubtful |=
                line.text("emulated") == "true" || line.text("oversubscribed") == "true";
            self.workloads.insert(line.text("workload").into());
            self.cases.insert(name, times);
            Ok(())
        })?;
        self.note(path, cut);
        Ok(())
    }

    fn add_samples(&mut self, path: &Path) -> Result<(), ReadError> {
        /// By launch and block.
        type Blocks = BTreeMap<(usize, usize), Vec<f64>>;
        let mut cases: HashMap<String, Blocks> = HashMap::new();
        let text = columnar::open(path, Some(&READ_OF_SAMPLES))?;
        let cut = read_text(path, text, &OF_SAMPLES, |line| {
            let time_us = line.needed("time_us")?;
            // Launches came later, and are counted from 1.
            let launch = line.number("launch")?.map_or(1, |launch| launch as usize);
            let of = (launch, line.needed("block")? as usize);
            let name = line.text("case");
            if !cases.contains_key(name) {
                cases.insert(name.into(), Blocks::new());
            }
            let blocks = cases.get_mut(name).expect("it was inserted");
            blocks.entry(of).or_default().push(time_us);
            Ok(())
        })?;
        self.note(path, cut);
        for (name, times) in &mut self.cases {
            let samples = name.strip_prefix("step ").and_then(|name| cases.remove(name));
            times.blocks = samples.map(Times::of_samples).unwrap_or_default();
        }
        Ok(())
    }

    fn add_conditions(&mut self, path: &Path) -> Result<(), ReadError> {
        let mut clocks_mhz = Vec::new();
        let cut = read(path, &OF_CONDITIONS, |line| {
            // Where the system does not tell, it is 0 or empty.
            clocks_mhz.extend(line.number("frequency_mhz")?.filter(|&clock| clock > 0.0));
            Ok(())
        })?;
        self.note(path, cut);
        self.frequency_mhz = median(clocks_mhz);
        Ok(())
    }

    /// The last launch in a file of provenance; of rows of `kolo bench` it is the whole file. Nothing if there is none.
    fn add_provenance(&mut self, path: &Path) -> Result<(), ReadError> {
        let Ok(text) = std::fs::read_to_string(path) else { return Ok(()) };
        let whole: Value = serde_json::from_str(&text).map_err(|error| {
            let why = format!("{error}; expected what a run of this version writes");
            ReadError::Rows { path: path.display().to_string(), why }
        })?;
        let schema = whole.get("schema");
        let is_known = |schema: &Value| {
            schema.as_u64().and_then(|it| u32::try_from(it).ok()).is_some_and(is_readable)
        };
        if let Some(other) = schema.filter(|schema| !is_known(schema)) {
            let (path, found) = (path.display().to_string(), other.to_string());
            return Err(ReadError::Schema { path, found });
        }
        let digest = whole.get("workload_digest").and_then(Value::as_str);
        self.workload_digest = digest.unwrap_or_default().into();
        self.launch = match whole.get("launches") {
            Some(launches) => launches.as_array().and_then(|launches| launches.last().cloned()),
            None => Some(whole),
        };
        Ok(())
    }

    fn note(&mut self, path: &Path, cut: Option<u64>) {
        self.notes.extend(cut.map(|line| {
            format!(
                "{}:{line}: the last line is cut, as when a run is killed; it is left out",
                path.display()
            )
        }));
    }

    /// The runs took turns, block by block, as their provenance says.
    pub fn took_turns_with(&self, other: &Run) -> bool {
        let session = |run: &Run| {
            let session = run.launch.as_ref()?.pointer("/interleaved/session")?.as_str()?;
            Some(session.to_string())
        };
        session(self).is_some_and(|own| Some(own) == session(other))
    }
}

/// One line of a file.
struct Line<'l> {
    path: &'l Path,
    places: &'l HashMap<String, usize>,
    record: &'l StringRecord,
}

impl<'l> Line<'l> {
    /// A field; empty if the file does not have it.
    fn text(&self, column: &str) -> &'l str {
        self.places.get(column).and_then(|&place| self.record.get(place)).unwrap_or_default()
    }

    /// A number, if there is one.
    fn number(&self, column: &str) -> Result<Option<f64>, ReadError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| self.refuse(column))
    }

    fn needed(&self, column: &str) -> Result<f64, ReadError> {
        self.number(column)?.ok_or_else(|| self.refuse(column))
    }

    fn refuse(&self, column: &str) -> ReadError {
        let line = self.record.position().map_or(0, csv::Position::line);
        ReadError::Rows {
            path: format!("{}:{line}", self.path.display()),
            why: format!(
                "column {column} has {:?}, expected a number; write the file again with kolo, or remove the line",
                self.text(column)
            ),
        }
    }
}

/// An error of reading a file, of which the path is not known yet.
enum FileError {
    Csv(csv::Error),
    Read(ReadError),
}

impl From<csv::Error> for FileError {
    fn from(error: csv::Error) -> FileError {
        FileError::Csv(error)
    }
}

/// Reads a file that has at least these columns. Returns the number of a last line that is cut.
fn read(
    path: &Path,
    needed: &[&'static str],
    each: impl FnMut(&Line) -> Result<(), ReadError>,
) -> Result<Option<u64>, ReadError> {
    let text = File::open(path).map_err(|error| unreadable(path, &error))?;
    read_text(path, text, needed, each)
}

/// The same of the text of a table.
fn read_text(
    path: &Path,
    text: impl Read,
    needed: &[&'static str],
    mut each: impl FnMut(&Line) -> Result<(), ReadError>,
) -> Result<Option<u64>, ReadError> {
    let read = whole_lines::read_text::<FileError, _>(text, |header| {
        let names = header.iter().enumerate().map(|(place, name)| (name.to_string(), place));
        let places: HashMap<String, usize> = names.collect();
        let is_missing = |column: &&'static str| !places.contains_key(*column);
        let columns: Vec<&'static str> = needed.iter().copied().filter(is_missing).collect();
        // A run that was stopped early has written a file without a line.
        if !columns.is_empty() && !header.is_empty() {
            let path = path.display().to_string();
            return Err(FileError::Read(ReadError::Columns { path, columns }));
        }
        Ok(move |record: &StringRecord| {
            each(&Line { path, places: &places, record }).map_err(FileError::Read)
        })
    });
    read.map_err(|error| match error {
        FileError::Read(error) => error,
        FileError::Csv(error) => unreadable(path, &error),
    })
}

fn unreadable(path: &Path, error: &dyn Display) -> ReadError {
    ReadError::Rows {
        path: path.display().to_string(),
        why: format!("{error}; expected a folder of results, or a CSV file of rows"),
    }
}

impl Times {
    /// The medians of blocks, in their order, from samples by launch and block.
    fn of_samples(samples: BTreeMap<(usize, usize), Vec<f64>>) -> Vec<Block> {
        let block =
            |((launch, block), samples)| Some(Block { block, launch, time_us: median(samples)? });
        let mut blocks: Vec<Block> = samples.into_iter().filter_map(block).collect();
        blocks.sort_by_key(|block| block.block);
        blocks
    }
}
