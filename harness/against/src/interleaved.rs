//! Several variants of kolo beside each other: every block of every case by each of them, in one random order.
//!
//! Each block runs in processes of its own. What it measured is appended to the folder of its variant at once, which is
//! an ordinary folder of results.

mod folder;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use measure::bandwidth::Bandwidth;
use measure::plan::{Plan, Planned};
use measure::steadiness::SpeedChange;
use measure::summary;
use rand::seq::SliceRandom;
use results::compare::Run;
use results::conclusion::CONCLUSION;
use results::error::RecordError;
use results::provenance::{Interleaved, Launch, Override};
use results::record::table;
use results::row::{Status, columns};
use results::statistics::median;
use thiserror::Error;

use crate::engine::limit;
use crate::launcher::Launcher;
use crate::one_block::{OUTPUT, OneBlock, results_in};
use crate::variant::Variant;
use folder::{Folder, Measured};

/// Random numbers of the order of variants, apart from those of cases and data.
const ORDER_OF_VARIANTS: u64 = 1 << 31;

/// What is measured, and how.
pub struct Session<'p> {
    /// Cases and numbers of blocks.
    pub plan: &'p Plan,
    /// The gradients.
    pub workload: &'p Path,
    /// Who measures.
    pub variants: &'p [Variant],
    /// Starts the ranks of cases whose ranks are processes.
    pub launcher: &'p Launcher,
    /// Gets a folder of results for each variant.
    pub out: &'p Path,
    /// Asked after the blocks of the plan.
    pub more: Option<More<'p>>,
}

/// From what was measured, one run for each variant: the plan with more blocks, and what it overrides; none if there are
/// enough.
pub type More<'m> = &'m dyn Fn(&[Run]) -> Option<(Plan, Vec<Override>)>;

/// One entry of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The position of the case in the plan.
    pub case: usize,
    /// The position of the variant.
    pub variant: usize,
    /// The block, from 0.
    pub block: usize,
    /// The position within the round.
    pub order: usize,
}

/// Why a session ends early. What was measured is recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Results cannot be written, or the folder holds others.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A variant's results cannot be read.
    #[error(
        "{variant} writes results that this kolo cannot read: {cause}; compare binaries whose results have the same \
         schema and columns, or run `kolo sweep` with each and compare the folders"
    )]
    Version {
        /// The variant.
        variant: String,
        /// What cannot be read.
        #[source]
        cause: RecordError,
    },
    /// A variant measures other cases.
    #[error(
        "{variant} measured {found} in place of {expected}: a variable of its environment overrides the configuration; \
         leave it out, or compare two sweeps"
    )]
    Case {
        /// The variant.
        variant: String,
        /// What it measured.
        found: String,
        /// What it was told to.
        expected: String,
    },
    /// A variant measures other gradients.
    #[error(
        "{variant} has another workload {name}: its gradients are {found}, expected {expected}; give the configuration a \
         workload on disk, as \"{name}.csv\""
    )]
    Workload {
        /// The variant.
        variant: String,
        /// The workload.
        name: String,
        /// The fingerprint of its gradients.
        found: String,
        /// That of this kolo's.
        expected: String,
    },
    /// The folder belongs to other variants.
    #[error("{}: it was measured by {found}, not by {expected}; name another folder with --out", folder.display())]
    Variants {
        /// The folder.
        folder: PathBuf,
        /// Who measured it.
        found: String,
        /// Who would.
        expected: String,
    },
    /// A block's files cannot be removed or kept.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The folder of each variant.
    pub folders: Vec<PathBuf>,
    /// How many cases were given up.
    pub given_up: usize,
}

impl Session<'_> {
    /// Every turn: in each round every case comes once, in random order, and its variants one after the other, in
    /// random order. The same seed gives the same order.
    pub fn order(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for block in 0..self.plan.config.measure.blocks_min {
            let mut order = 0;
            for case in self.plan.order(block) {
                let mut variants: Vec<usize> = (0..self.variants.len()).collect();
                variants.shuffle(&mut self.plan.random(block, ORDER_OF_VARIANTS | case as u64));
                for variant in variants {
                    turns.push(Turn { case, variant, block, order });
                    order += 1;
                }
            }
        }
        turns
    }

    /// Measures every turn that has not been, and writes the summaries. A case of which a block fails is given up.
    /// `report` gets a line for each block.
    ///
    /// # Errors
    /// When results cannot be written, or a variant measures something else.
    pub fn run(
        &self,
        launch: &Launch,
        resume: bool,
        report: &mut dyn FnMut(String),
    ) -> Result<Ended, SessionError> {
        let mut folders = self.open(launch, resume)?;
        let scratch = self.out.join("scratch");
        let measured = self.measure_and_finish(&mut folders, &scratch, report);
        let _ = fs::remove_dir_all(&scratch);
        let given_up = measured?;
        let folders = folders.into_iter().map(|folder| folder.path).collect();
        Ok(Ended { folders, given_up })
    }

    /// Every turn, and those of the plan with more blocks; returns how many cases were given up.
    fn measure_and_finish(
        &self,
        folders: &mut [Folder],
        scratch: &Path,
        report: &mut dyn FnMut(String),
    ) -> Result<usize, SessionError> {
        let given_up = self.measure_all(folders, scratch, report)?;
        let runs = || folders.iter().map(Folder::run).collect::<Vec<_>>();
        if let Some((plan, overrides)) = self.more.and_then(|more| more(&runs())) {
            for folder in &mut *folders {
                folder.raise(&plan, &overrides)?;
            }
            return Session { plan: &plan, more: None, ..*self }
                .measure_and_finish(folders, scratch, report);
        }
        for folder in folders {
            self.finish(folder)?;
        }
        Ok(given_up)
    }

    /// Every turn; returns how many cases were given up.
    fn measure_all(
        &self,
        folders: &mut [Folder],
        scratch: &Path,
        report: &mut dyn FnMut(String),
    ) -> Result<usize, SessionError> {
        let mut given_up = HashSet::new();
        self.without_data_plane(folders)?;
        let order = self.order();
        for (index, turn) in order.iter().enumerate() {
            let name = self.plan.cases[turn.case].case.to_string();
            given_up.extend(folders.iter().any(|it| it.has_failed(&name)).then_some(turn.case));
            if given_up.contains(&turn.case) || folders[turn.variant].has(&name, turn.block) {
                continue;
            }
            let folder = &mut folders[turn.variant];
            let outcome = match self.measure(turn, scratch, folder)? {
                Ok(step_ms) => format!("{step_ms:.3} ms"),
                Err(reason) => {
                    given_up.insert(turn.case);
                    let kept = folder.keep_output(&scratch.join(OUTPUT), &name)?;
                    format!(
                        "failed, the case is given up: {reason}; its output: {}",
                        kept.display()
                    )
                }
            };
            report(format!(
                "[{}/{}] {name}: {}: {outcome}",
                index + 1,
                order.len(),
                self.variants[turn.variant]
            ));
        }
        Ok(given_up.len())
    }

    /// The folders, in the order of the variants.
    fn open(&self, launch: &Launch, resume: bool) -> Result<Vec<Folder>, SessionError> {
        let host = &launch.machine.host;
        let session = format!("{} {host} {}", launch.started, std::process::id());
        let open = |variant: &Variant| {
            let interleaved = Interleaved {
                session: session.clone(),
                name: variant.name.clone(),
                program: variant.program.display().to_string(),
                environment: variant.variables(),
            };
            Folder::open(self.out.join(&variant.name), self.plan, launch, interleaved, resume)
        };
        self.variants.iter().map(open).collect()
    }

    /// Cases that cannot be run have a row in every folder.
    fn without_data_plane(&self, folders: &mut [Folder]) -> Result<(), RecordError> {
        for planned in &self.plan.cases {
            if let Err(reason) = &planned.data_plane {
                for folder in &mut *folders {
                    let setting = self.plan.setting(planned, folder.launch());
                    folder.unsupported(setting, reason.to_string())?;
                }
            }
        }
        Ok(())
    }

    /// One block: the median of its steps in ms, or why there is none.
    fn measure(
        &self,
        turn: &Turn,
        scratch: &Path,
        folder: &mut Folder,
    ) -> Result<Result<f64, String>, SessionError> {
        let (planned, variant) = (&self.plan.cases[turn.case], &self.variants[turn.variant]);
        let config = &self.plan.config;
        if scratch.exists() {
            let refuse = |cause| SessionError::File { path: scratch.into(), cause };
            fs::remove_dir_all(scratch).map_err(refuse)?;
        }
        let block = OneBlock {
            program: &variant.program,
            environment: &variant.environment,
            launcher: self.launcher,
            config,
            workload: self.workload,
            case: &planned.case,
            // The same data for all variants.
            seed: config.measure.seed + turn.block as u64,
            limit: limit(config),
        };
        let ended = block.run(scratch);
        let read = Measured::read(&results_in(scratch), config.measure.steps_per_block);
        let found = match (read, &ended) {
            (Ok(found), _) => found,
            // Processes that failed early have left nothing that could be read.
            (Err(_), Err(_)) => None,
            (Err(cause), Ok(_)) => {
                return Err(SessionError::Version { variant: variant.to_string(), cause });
            }
        };
        let name = planned.case.to_string();
        let Some(measured) = found else {
            let reason = ended.err().map_or("it ended without a row".into(), |why| why.to_string());
            let setting = self.plan.setting(planned, folder.launch());
            folder.failed(setting, reason.clone())?;
            return Ok(Err(reason));
        };
        let (expected, found) = (block.name(), measured.row.case().to_string());
        if expected != found {
            let variant = variant.to_string();
            return Err(SessionError::Case { variant, found, expected });
        }
        let (expected, found) = (self.plan.workload.digest(), measured.workload_digest.clone());
        if expected != found {
            let (variant, name) = (variant.to_string(), self.plan.workload.name.clone());
            return Err(SessionError::Workload { variant, name, found, expected });
        }
        folder.identify(&measured.launch)?;
        let mut setting = measured.row.setting.clone();
        setting.key.case.clone_from(&name);
        // A sweep of few steps ends with a status of its own, because its row has no interval.
        if measured.row.outcome.status() != Status::Ok {
            let reason = measured.row.outcome.reason().to_string();
            folder.failed(setting, reason.clone())?;
            return Ok(Err(reason));
        }
        let times = measured.block.samples.iter().map(|sample| sample.time_us / 1e3).collect();
        let step_ms = median(times).unwrap_or_default();
        folder.append(setting, measured.block, turn)?;
        // A case that may go on has no row yet.
        if self.more.is_none() && folder.blocks(&name) == config.measure.blocks_min {
            self.end_case(planned, folder, "count")?;
        }
        Ok(Ok(step_ms))
    }

    fn end_case(
        &self,
        planned: &Planned,
        folder: &mut Folder,
        reason: &str,
    ) -> Result<(), RecordError> {
        let (name, counts_bytes) = (planned.case.to_string(), planned.choices().is_some());
        folder.end_case(&name, reason, counts_bytes, |launch| self.plan.setting(planned, launch))
    }

    /// Writes the rows that are missing, of cases that another variant has failed or that a kill left; summary, conclusion and provenance.
    fn finish(&self, folder: &mut Folder) -> Result<(), SessionError> {
        for planned in &self.plan.cases {
            let name = planned.case.to_string();
            let blocks = folder.blocks(&name);
            if blocks > 0 && folder.row(&name).is_none() {
                let is_whole = blocks == self.plan.config.measure.blocks_min;
                self.end_case(planned, folder, if is_whole { "count" } else { "other-failed" })?;
            }
        }
        let rows = folder.rows(self.plan);
        let mut bandwidth = Bandwidth::default();
        for planned in &self.plan.cases {
            folder.add_messages(planned, &mut bandwidth)?;
        }
        folder.store.write_whole(
            "bandwidth.csv",
            &table(&bandwidth.rows(&SpeedChange::default()), &columns()),
        )?;
        folder.store.write_whole("summary.txt", summary::text(&rows).as_bytes())?;
        let conclusion = summary::conclusion(&rows);
        if !conclusion.verdicts.is_empty() {
            folder.store.write_whole(CONCLUSION, &conclusion.json())?;
        }
        folder.end()?;
        Ok(())
    }
}
