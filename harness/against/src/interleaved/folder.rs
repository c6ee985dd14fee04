//! The folder of results of one variant.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use measure::bandwidth::Bandwidth;
use measure::case_result::row_of;
use measure::plan::{Plan, Planned};
use results::block::{Block, Outline};
use results::compare::{self, Run, Times};
use results::error::RecordError;
use results::provenance::{Interleaved, Launch, Override, PROVENANCE, Provenance, Subject, now};
use results::record::{Key, Output, Store};
use results::row::{Status, StepRow, StepSetting};
use results::statistics::median;

use super::{SessionError, Turn};

/// The folder of results of one variant, as a sweep writes it.
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// Its growing files.
    pub store: Store,
    provenance: Provenance,
    /// Its provenance names the binary, as the binary does itself.
    is_identified: bool,
    /// Complete blocks, by case and number.
    blocks: BTreeMap<Key, Outline>,
    /// Rows, by case.
    rows: HashMap<String, StepRow>,
    /// Settings of cases with blocks, as the binary wrote them.
    settings: HashMap<String, StepSetting>,
}

/// What the processes of one block wrote.
pub struct Measured {
    /// The row of the block.
    pub row: StepRow,
    /// Its samples; empty if it failed.
    pub block: Block,
    /// Who measured it.
    pub launch: Launch,
    /// Fingerprint of the gradients.
    pub workload_digest: String,
}

impl Measured {
    /// Reads the folder of a sweep of one block; none if it has no row.
    pub fn read(folder: &Path, steps: usize) -> Result<Option<Measured>, RecordError> {
        let provenance = Provenance::read(&folder.join(PROVENANCE))?;
        let (store, earlier) = Store::resume(folder, steps)?;
        let Some(row) = earlier.rows.into_iter().find_map(StepRow::of) else { return Ok(None) };
        let workload_digest = provenance.workload_digest;
        let launch = provenance.launches.into_iter().next_back().unwrap_or_default();
        let key = earlier.blocks.into_keys().next();
        let block = key.map(|key| store.block(&key)).transpose()?;
        if block.is_none() && row.outcome.status() == Status::Ok {
            return Ok(None);
        }
        Ok(Some(Measured { row, block: block.unwrap_or_default(), launch, workload_digest }))
    }
}

impl Folder {
    /// A new folder, or with `resume` one that goes on if it is there.
    pub fn open(
        path: PathBuf,
        plan: &Plan,
        launch: &Launch,
        interleaved: Interleaved,
        resume: bool,
    ) -> Result<Folder, SessionError> {
        let file = path.join(PROVENANCE);
        if !(resume && file.exists()) {
            // Until the binary has said what it is, its commit is not known.
            let launch = Launch {
                commit: "unknown".into(),
                version: "unknown".into(),
                build: "unknown".into(),
                interleaved: Some(interleaved),
                ..launch.clone()
            };
            let provenance = Provenance::new(plan, launch);
            let store = Store::create(&path, &provenance)?;
            return Ok(Folder {
                path,
                store,
                provenance,
                is_identified: false,
                blocks: BTreeMap::new(),
                rows: HashMap::new(),
                settings: HashMap::new(),
            });
        }
        let before = Provenance::read(&file)?.launches.into_iter().next_back().unwrap_or_default();
        let found = before.interleaved.clone().unwrap_or_default();
        let who = |it: &Interleaved| format!("{} {}", it.program, it.environment);
        if who(&found) != who(&interleaved) {
            return Err(SessionError::Variants {
                folder: path,
                found: who(&found).trim().into(),
                expected: who(&interleaved).trim().into(),
            });
        }
        let command = launch.command.clone();
        let again = Launch { command, started: launch.started.clone(), ended: None, ..before };
        let provenance = Provenance::resume(&file, plan, again, false)?;
        let (store, earlier) = Store::resume(&path, plan.config.measure.steps_per_block)?;
        provenance.write(&file)?;
        let rows = earlier.rows.into_iter().filter_map(StepRow::of);
        let rows: HashMap<_, _> = rows.map(|row| (row.case().to_string(), row)).collect();
        let settings = rows.iter().map(|(name, row)| (name.clone(), row.setting.clone()));
        Ok(Folder {
            path,
            store,
            provenance,
            is_identified: false,
            blocks: earlier.blocks,
            settings: settings.collect(),
            rows,
        })
    }

    /// This run of the program.
    pub fn launch(&self) -> &Launch {
        self.provenance.launches.last().expect("a folder has a launch")
    }

    /// The blocks of its cases, as a comparison takes them.
    pub fn run(&self) -> Run {
        let mut cases: BTreeMap<String, Times> = BTreeMap::new();
        for ((name, number), block) in &self.blocks {
            if let Some(time_us) = median(block.times_us.clone()) {
                let times = cases.entry(format!("step {name}")).or_default();
                times.blocks.push(compare::Block { block: *number, launch: 1, time_us });
            }
        }
        for times in cases.values_mut() {
            let times_us = times.blocks.iter().map(|block| block.time_us).collect();
            times.median_us = median(times_us).unwrap_or_default();
        }
        Run {
            path: self.path.clone(),
            cases,
            workloads: [String::new()].into(),
            launch: serde_json::to_value(self.launch()).ok(),
            ..Run::default()
        }
    }

    /// The plan has more blocks from now on.
    pub fn raise(&mut self, plan: &Plan, overrides: &[Override]) -> Result<(), RecordError> {
        self.provenance.config = plan.config();
        let last = self.provenance.launches.last_mut().expect("a folder has a launch");
        last.overrides.retain(|old| overrides.iter().all(|new| new.key != old.key));
        last.overrides.extend_from_slice(overrides);
        self.provenance.write(&self.path.join(PROVENANCE))
    }

    /// A block is there, or its case is done.
    pub fn has(&self, case: &str, block: usize) -> bool {
        self.rows.contains_key(case) || self.blocks.contains_key(&(case.into(), block))
    }

    /// A block of the case failed.
    pub fn has_failed(&self, case: &str) -> bool {
        self.rows.get(case).is_some_and(|row| row.outcome.status() != Status::Ok)
    }

    /// How many blocks a case has.
    pub fn blocks(&self, case: &str) -> usize {
        self.own(case).count()
    }

    /// The row of a case.
    pub fn row(&self, case: &str) -> Option<&StepRow> {
        self.rows.get(case)
    }

    /// All rows, in the order of the plan.
    pub fn rows(&self, plan: &Plan) -> Vec<StepRow> {
        let names = plan.cases.iter().map(|planned| planned.case.to_string());
        names.filter_map(|name| self.rows.get(&name).cloned()).collect()
    }

    /// Adds the messages of a case, if it is right.
    pub fn add_messages(
        &self,
        planned: &Planned,
        bandwidth: &mut Bandwidth,
    ) -> Result<(), RecordError> {
        let name = planned.case.to_string();
        let Some(row) = self.row(&name).filter(|_| !self.has_failed(&name)) else { return Ok(()) };
        for key in self.own(&name) {
            let place = (self.blocks[key].launch, key.1);
            bandwidth.add(&planned.case, &row.setting, place, &self.store.messages(key)?);
        }
        Ok(())
    }

    /// The provenance is that of the binary that measured, but for the command.
    pub fn identify(&mut self, measured: &Launch) -> Result<(), RecordError> {
        if self.is_identified {
            return Ok(());
        }
        self.is_identified = true;
        let last = self.provenance.launches.last_mut().expect("a folder has a launch");
        *last = Launch {
            command: last.command.clone(),
            inputs: last.inputs.clone(),
            interleaved: last.interleaved.clone(),
            overrides: last.overrides.clone(),
            started: last.started.clone(),
            ended: None,
            ..measured.clone()
        };
        self.provenance.write(&self.path.join(PROVENANCE))
    }

    /// A block, under the name that the case has in the plan.
    pub fn append(
        &mut self,
        setting: StepSetting,
        mut block: Block,
        turn: &Turn,
    ) -> Result<(), RecordError> {
        let (case, launch) = (setting.key.case.clone(), self.provenance.launches.len());
        for sample in &mut block.samples {
            sample.case.clone_from(&case);
            (sample.block, sample.order, sample.launch) = (turn.block, turn.order, launch);
        }
        for message in &mut block.messages {
            message.case.clone_from(&case);
            message.block = turn.block;
        }
        for rank in &mut block.ranks {
            rank.case.clone_from(&case);
            (rank.block, rank.launch) = (turn.block, launch);
        }
        self.store.append_block(&block)?;
        self.settings.entry(case.clone()).or_insert(setting);
        self.blocks.insert((case, turn.block), Outline::from(&block));
        Ok(())
    }

    /// The row of a case that has its blocks.
    pub fn end_case(
        &mut self,
        case: &str,
        reason: &str,
        counts_bytes: bool,
        plan: impl FnOnce(&Launch) -> StepSetting,
    ) -> Result<(), RecordError> {
        // A run that was ended between a case's last block and its row has no setting of the binary's.
        let setting = self.settings.get(case).cloned().unwrap_or_else(|| plan(self.launch()));
        let blocks = self.own(case).map(|key| self.store.block(key));
        let blocks: Vec<Block> = blocks.collect::<Result<_, _>>()?;
        let row = row_of(setting, &blocks.iter().collect::<Vec<_>>(), reason, counts_bytes);
        self.keep(row)
    }

    /// A case of which a block failed.
    pub fn failed(&mut self, setting: StepSetting, reason: String) -> Result<(), RecordError> {
        self.keep(StepRow::failed(setting, reason))
    }

    /// A case that does not exist.
    pub fn unsupported(&mut self, setting: StepSetting, reason: String) -> Result<(), RecordError> {
        if self.rows.contains_key(&setting.key.case) {
            return Ok(());
        }
        self.keep(StepRow::unsupported(setting, reason))
    }

    /// Keeps the output of a block that failed; returns where.
    pub fn keep_output(&self, output: &Path, case: &str) -> Result<PathBuf, SessionError> {
        let kept = self.path.join("failed").join(case.replace('/', "_") + ".txt");
        let refuse = |cause| SessionError::File { path: kept.clone(), cause };
        fs::create_dir_all(self.path.join("failed")).map_err(refuse)?;
        fs::copy(output, &kept).map_err(refuse)?;
        Ok(kept)
    }

    /// The launch is over.
    pub fn end(&mut self) -> Result<(), RecordError> {
        let last = self.provenance.launches.last_mut().expect("a folder has a launch");
        last.ended = Some(now());
        self.provenance.write(&self.path.join(PROVENANCE))
    }

    /// The blocks of a case.
    fn own<'f>(&'f self, case: &str) -> impl Iterator<Item = &'f Key> {
        let key = |block| (case.to_string(), block);
        self.blocks.range(key(0)..key(usize::MAX)).map(|(key, _)| key)
    }

    fn keep(&mut self, row: StepRow) -> Result<(), RecordError> {
        self.store.append_row(row.clone())?;
        self.rows.insert(row.case().to_string(), row);
        Ok(())
    }
}
