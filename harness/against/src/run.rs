//! The blocks of a plan in their order, each recorded as it ends.

use std::path::Path;
use std::time::{Duration, Instant};

use results::core_to_core::{Watch, core_to_core_ns, until_alike};
use results::error::RecordError;
use results::record::{Appended, header, table};
use results::statistics::Summary;

use crate::block::{BlockRow, Runner};
use crate::counted::{Counted, Distance, usual_distance_ns};
use crate::engine::{BlockError, Engine};
use crate::plan::{Plan, Turn};

/// The file of blocks in a folder of results.
const BLOCKS: &str = "blocks.csv";

/// How long a block waits until the processors are as far apart as they should be.
const PATIENCE: Duration = Duration::from_secs(10);

/// A comparison that is under way.
pub struct Run<'p> {
    plan: &'p Plan,
    file: Appended,
    /// Blocks that have ended.
    rows: Vec<BlockRow>,
}

impl<'p> Run<'p> {
    /// A new run, or one that goes on with the blocks that the folder has.
    ///
    /// # Errors
    /// When the file of blocks cannot be opened or read.
    pub fn open(plan: &'p Plan, folder: &Path) -> Result<Run<'p>, RecordError> {
        let mut file = Appended::open(folder.join(BLOCKS))?;
        let mut dropped = Vec::new();
        let rows: Vec<BlockRow> = file.read(&header::<BlockRow>(), &mut dropped)?;
        // A block whose line was cut off by a kill runs again.
        if !dropped.is_empty() {
            file.replace(&table(&rows, &header::<BlockRow>()))?;
        }
        file.begin(&header::<BlockRow>())?;
        Ok(Run { plan, file, rows })
    }

    /// Runs those of these turns that have not been run; returns all blocks of the folder. A case of which a block failed is
    /// given up. Of a block, the steps count during which the first two processors were at this distance, see [`Counted`]; it waits
    /// for a given one, but not long.
    /// `report` gets a line for each block.
    ///
    /// # Errors
    /// When a block cannot be recorded.
    pub fn finish(
        mut self,
        order: &[Turn],
        distance: Distance,
        kolo: &mut dyn Engine,
        horovod: &mut dyn Engine,
        report: impl Fn(String),
    ) -> Result<Vec<BlockRow>, RecordError> {
        for (index, turn) in order.iter().enumerate() {
            let case = &self.plan.cases[turn.case];
            let is_over = |row: &BlockRow| {
                let is_it = (row.block, &*row.engine) == (turn.block, turn.runner.name());
                row.case == case.name && (is_it || row.status == FAILED)
            };
            if self.rows.iter().any(is_over) {
                continue;
            }
            let engine: &mut dyn Engine = match turn.runner {
                Runner::Kolo => &mut *kolo,
                Runner::Horovod | Runner::Control => &mut *horovod,
            };
            if let Distance::Ns(ns) = distance {
                until_alike(ns, PATIENCE, core_to_core_ns);
            }
            let (start, watch) = (Instant::now(), Watch::begin());
            let ended = engine.run(self.plan, case);
            let block_s = start.elapsed().as_secs_f64();
            let latencies = watch.and_then(Watch::end);
            let shares = ended.as_ref().ok().and_then(|steps| steps.shares);
            let counted = ended.map(|steps| {
                let latencies = latencies.as_ref();
                let expected_ns = match distance {
                    Distance::Any => None,
                    Distance::Ns(ns) => Some(ns),
                    Distance::Usual => latencies.and_then(|it| usual_distance_ns(&steps, it)),
                };
                Counted::of(steps, latencies, expected_ns)
            });
            let row = BlockRow {
                emulated: shares.map(|shares| shares.emulated),
                oversubscribed: shares.map(|shares| shares.oversubscribed),
                ..self.row(self.rows.len(), turn, counted, block_s)
            };
            let outcome = match row.step_ms {
                Some(step_ms) => format!("{step_ms:.3} ms"),
                None => format!("failed, the case is given up: {}", row.reason),
            };
            let (number, all) = (index + 1, order.len());
            report(format!("[{number}/{all}] {}: {}: {outcome}", case.name, turn.runner.name()));
            self.file.append(std::slice::from_ref(&row))?;
            self.rows.push(row);
        }
        Ok(self.rows)
    }

    fn row(
        &self,
        order: usize,
        turn: &Turn,
        counted: Result<Counted, BlockError>,
        block_s: f64,
    ) -> BlockRow {
        let row = BlockRow {
            case: self.plan.cases[turn.case].name.clone(),
            block: turn.block,
            order,
            engine: turn.runner.name().into(),
            block_s: rounded(block_s),
            ..BlockRow::default()
        };
        let failed = |reason: String| BlockRow { status: FAILED.into(), reason, ..row.clone() };
        let Counted { times_ms, core_to_core_ns } = match counted {
            Ok(counted) => counted,
            Err(why) => return failed(why.to_string()),
        };
        match Summary::of(&times_ms) {
            Some(Summary { samples, p50, min, max, .. }) => BlockRow {
                status: "ok".into(),
                steps: samples,
                step_ms: Some(rounded(p50)),
                min_ms: Some(rounded(min)),
                max_ms: Some(rounded(max)),
                long_steps: times_ms.iter().filter(|&&ms| ms > 2.0 * p50).count(),
                core_to_core_ns_least: core_to_core_ns.map(|[least, _]| least),
                core_to_core_ns_most: core_to_core_ns.map(|[_, most]| most),
                ..row
            },
            None => failed("no step was measured".into()),
        }
    }
}

const FAILED: &str = "failed";

/// Three digits behind the point.
fn rounded(value: f64) -> f64 {
    (1e3 * value).round() / 1e3
}
