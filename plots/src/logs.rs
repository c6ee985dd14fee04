//! What a run wrote of every step: `samples.csv` and `ranks.csv`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::PlotError;
use crate::fields::Fields;
use crate::rows::{Row, Rows};

/// A timed step, a line of `samples.csv`.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    place: Place,
    launch: u64,
    block: u64,
    pub time_us: f64,
}

/// The steps of a rank in a block, a line of `ranks.csv`.
#[derive(Debug, Clone)]
pub(crate) struct RankTimes {
    place: Place,
    pub block: u64,
    pub rank: u64,
    pub node: u64,
    pub times_us: Vec<f64>,
}

/// The folder of a run and the name of a case, which is unique in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    folder: PathBuf,
    case: String,
}

impl Place {
    fn of(fields: &Fields) -> Result<Place, PlotError> {
        Ok(Place { folder: folder_of(fields.path), case: fields.text("case")? })
    }

    fn of_row(rows: &Rows, row: &Row) -> Place {
        Place { folder: folder_of(&rows.files[row.file]), case: row.case.clone() }
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_path_buf()
}

/// The median step time of each block of a case, by launch and round.
pub(crate) type Medians = BTreeMap<(u64, u64), f64>;

fn median(mut times_us: Vec<f64>) -> f64 {
    times_us.sort_by(f64::total_cmp);
    let half = times_us.len() / 2;
    if times_us.len() % 2 == 1 {
        times_us[half]
    } else {
        f64::midpoint(times_us[half - 1], times_us[half])
    }
}

impl Sample {
    /// # Errors
    /// When a column is missing or a field has a wrong value.
    pub fn of(fields: &Fields) -> Result<Sample, PlotError> {
        Ok(Sample {
            place: Place::of(fields)?,
            launch: fields.whole("launch")?,
            block: fields.whole("block")?,
            time_us: fields.positive("time_us")?,
        })
    }
}

impl RankTimes {
    /// # Errors
    /// When a column is missing or a field has a wrong value.
    pub fn of(fields: &Fields) -> Result<RankTimes, PlotError> {
        Ok(RankTimes {
            place: Place::of(fields)?,
            block: fields.whole("block")?,
            rank: fields.whole("rank")?,
            node: fields.whole("node")?,
            times_us: fields.numbers("times_us")?,
        })
    }
}

impl Rows {
    /// The times of a row's steps in ascending order.
    pub(crate) fn samples_of(&self, row: &Row) -> Vec<f64> {
        let place = Place::of_row(self, row);
        let own = self.samples.iter().filter(|sample| sample.place == place);
        let mut times_us: Vec<f64> = own.map(|sample| sample.time_us).collect();
        times_us.sort_by(f64::total_cmp);
        times_us
    }

    /// The medians of the blocks of some rows, by file and case.
    pub(crate) fn block_medians<'r>(
        &self,
        rows: impl Iterator<Item = &'r Row>,
    ) -> BTreeMap<(usize, String), Medians> {
        let key = |row: &Row| (row.file, row.case.clone());
        let keys: BTreeMap<Place, (usize, String)> =
            rows.map(|row| (Place::of_row(self, row), key(row))).collect();
        let mut times: BTreeMap<&Place, BTreeMap<(u64, u64), Vec<f64>>> = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| keys.contains_key(&sample.place)) {
            let blocks = times.entry(&sample.place).or_default();
            blocks.entry((sample.launch, sample.block)).or_default().push(sample.time_us);
        }
        let medians = |blocks: BTreeMap<(u64, u64), Vec<f64>>| -> Medians {
            blocks.into_iter().map(|(place, times_us)| (place, median(times_us))).collect()
        };
        times.into_iter().map(|(place, blocks)| (keys[place].clone(), medians(blocks))).collect()
    }

    /// The ranks of a row's blocks.
    pub(crate) fn ranks_of(&self, row: &Row) -> Vec<&RankTimes> {
        let place = Place::of_row(self, row);
        self.rank_times.iter().filter(|times| times.place == place).collect()
    }
}
