//! Control planes alone: worlds of real ranks on threads, and worlds of any size in one thread.
//!
//! In a step everything becomes ready on all ranks, and cycles follow until all of it is executed. Each case
//! differs from the base in one setting. Times on a network are not measured but computed from assumed numbers,
//! and reported separately.

pub mod config;
mod lockstep;
pub mod measured;
pub mod summary;
pub mod tabulate;
pub mod tensors;
mod threads;
pub mod transport;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use algorithms::control::Tensor;
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use config::{Case, Config, Source};
use measured::{DriveError, Job, Measured};
use results::error::RecordError;
use results::provenance::{Launch, Subject};
use results::record::Store;
use results::row::{CaseOutcome, ControlRow, Row};
use tabulate::{outcome, row_of};
use tensors::Steps;
use transport::Transport;
use workloads::workload::workload_path;
use workloads::workload::{Workload, WorkloadError};

/// The cases of a configuration, with their tensors.
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// Every case, in its order.
    pub cases: Vec<Case>,
    /// Tensors that become ready, in this order, from each source.
    lists: BTreeMap<Source, Vec<Tensor>>,
    digest: String,
}

impl Plan {
    /// Builds the cases, and reads the workloads of a configuration at `path`.
    ///
    /// # Errors
    /// When a workload cannot be read.
    pub fn new(config: Config, path: &Path) -> Result<Plan, WorkloadError> {
        let (mut lists, mut digests) = (BTreeMap::new(), Vec::new());
        for source in config.sources() {
            let list = match source {
                Source::Synthetic(count) => tensors::synthetic(*count),
                Source::Workload(name) => {
                    let workload = Workload::read(&workload_path(name, path))?;
                    digests.push(workload.digest());
                    tensors::of_workload(&workload)
                }
            };
            lists.insert(source.clone(), list);
        }
        Ok(Plan { cases: config.cases(), config, lists, digest: digests.join(" ") })
    }

    /// Tensors of a case's steps, before new names and other shapes are added.
    pub fn list(&self, case: &Case) -> &[Tensor] {
        &self.lists[&case.source]
    }

    /// Positions in `cases`, in random order, so that slow drift of the machine affects all alike. The same seed
    /// gives the same order.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.cases.len()).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(self.config.measure.seed));
        order
    }

    /// Memory that the largest case takes in bytes, about: lists of requests under way, answers, and
    /// some kilobytes of state per rank.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = |case: &Case| {
            let list = self.list(case);
            let names: usize = list.iter().map(|tensor| tensor.name.len() + 64).sum();
            case.ranks * (16_384 + names)
        };
        self.cases.iter().map(bytes).max().unwrap_or(0) as u64
    }

    /// Steps of a case at most, the warm-up included.
    fn steps(&self) -> usize {
        self.config.measure.warmup_steps + self.config.measure.steps_max
    }
}

impl Subject for Plan {
    fn config(&self) -> serde_json::Value {
        serde_json::to_value(&self.config).expect("a configuration is plain data")
    }

    fn seed(&self) -> u64 {
        self.config.measure.seed
    }

    fn workload_digest(&self) -> String {
        self.digest.clone()
    }
}

/// Runs a plan until every case is done; each case's row is in the store before the next begins. Returns
/// all rows, in the order of the configuration.
///
/// # Errors
/// When results cannot be written. A case that fails is a row, not an error.
pub fn run(
    plan: &Plan,
    store: &mut Store,
    earlier: Vec<Row>,
    launches: &[Launch],
    progress: &ProgressBar,
) -> Result<Vec<ControlRow>, RecordError> {
    let launch = launches.last().expect("this run of the program");
    let earlier = earlier.into_iter().filter_map(ControlRow::of);
    let mut rows: HashMap<String, ControlRow> =
        earlier.map(|row| (row.key.case.clone(), row)).collect();
    for (done, index) in plan.order().into_iter().enumerate() {
        let case = &plan.cases[index];
        let name = case.to_string();
        progress.set_position(done as u64);
        progress.set_message(name.clone());
        if rows.contains_key(&name) {
            continue;
        }
        let outcome = match case.unsupported() {
            Some(reason) => CaseOutcome::Unsupported(reason),
            None => match measure(plan, case) {
                Ok(measured) => {
                    let Config { network, measure, .. } = &plan.config;
                    outcome(case, network, measure.warmup_steps, &measured)
                }
                Err(error) => CaseOutcome::Failed(error.to_string()),
            },
        };
        let row = row_of(plan, case, launch, outcome);
        store.append_row(row.clone())?;
        rows.insert(name, row);
    }
    Ok(plan.cases.iter().filter_map(|case| rows.remove(&case.to_string())).collect())
}

fn measure(plan: &Plan, case: &Case) -> Result<Measured, DriveError> {
    let measure = &plan.config.measure;
    // One more than is run: a rank reads the ready tensors before it learns that the run is over.
    let steps = Steps::new(plan.list(case), case, plan.steps() + 1, measure.seed)?;
    let fusion_threshold_bytes = plan.config.fusion_threshold_bytes();
    let job = Job { case, steps: &steps, measure, fusion_threshold_bytes };
    match case.transport {
        Transport::Lockstep => lockstep::run(&job),
        Transport::Threads => threads::run(&job),
    }
}
