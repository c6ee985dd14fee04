//! Runs every case of a plan, in blocks: each case once per block, in random order, so that slow
//! drift of the machine falls on all cases alike.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use algorithms::fusion::effective_threshold_bytes;
use indicatif::ProgressBar;
use rand::RngCore;

use crate::config::Measure;
use crate::engine::{self, Job, Outcome, RankMemory};
use crate::plan::{Plan, Planned};
use crate::provenance::Launch;
use crate::record::{Block, Earlier, RecordError, Store};
use crate::replay::StepTimes;
use crate::row::{Row, Status};
use crate::tabulate::{bandwidth, blank, block_of, finished, summary};
use crate::timeline::record::Recorder;
use crate::timeline::write::{Shown, file_name, write};

/// The folder of timelines within that of the results.
const TIMELINES: &str = "timelines";

/// What a sweep brought.
pub struct Report {
    /// A row per case, in the order of the configuration.
    pub rows: Vec<Row>,
    /// Bus bandwidth of the messages, per algorithm and octave of size.
    pub bandwidth: Vec<Row>,
}

/// Runs a plan until every case is done; blocks and rows are in the store as soon as they are known.
///
/// # Errors
/// When results cannot be written. A case that fails is a row, not an error.
pub fn run(
    plan: &Plan,
    store: &mut Store,
    earlier: Earlier,
    launches: &[Launch],
    progress: &ProgressBar,
) -> Result<Report, RecordError> {
    let rows = earlier.rows.into_iter().map(|row| (row.case.clone(), row)).collect();
    let mut sweep = Sweep {
        plan,
        store,
        launches,
        start: Instant::now(),
        rows,
        blocks: earlier.blocks,
        memories: Vec::new(),
    };
    for planned in &plan.cases {
        if let Err(reason) = &planned.choices {
            sweep.give_up(planned, Status::Unsupported, reason.clone())?;
        }
    }
    for block in 0..plan.config.measure.blocks_max {
        for (order, index) in plan.order(block).into_iter().enumerate() {
            progress.set_position((block * plan.cases.len() + order) as u64);
            progress.set_message(plan.cases[index].case.to_string());
            sweep.measure(index, block, order)?;
        }
    }
    let Sweep { mut rows, blocks, .. } = sweep;
    let rows: Vec<Row> =
        plan.cases.iter().filter_map(|planned| rows.remove(&planned.case.to_string())).collect();
    let bandwidth = bandwidth(plan, sweep.launches, &rows, &blocks);
    Ok(Report { rows, bandwidth })
}

/// A sweep that is running.
struct Sweep<'a> {
    plan: &'a Plan,
    store: &'a mut Store,
    /// Runs of the program that have worked on the store; the last one is this.
    launches: &'a [Launch],
    start: Instant,
    /// Cases that are done, by name.
    rows: HashMap<String, Row>,
    /// Blocks that are complete.
    blocks: BTreeMap<(String, usize), Block>,
    /// Of as many ranks as the largest case had so far.
    memories: Vec<RankMemory>,
}

impl Sweep<'_> {
    /// One block of one case, unless it is there; and the case's row, if that was its last.
    fn measure(&mut self, index: usize, block: usize, order: usize) -> Result<(), RecordError> {
        let planned = &self.plan.cases[index];
        let name = planned.case.to_string();
        if self.rows.contains_key(&name) {
            return Ok(());
        }
        let key = (name.clone(), block);
        if self.is_out_of_time(block) && !self.blocks.contains_key(&key) {
            return self.finish(planned, block, "budget");
        }
        if !self.blocks.contains_key(&key) {
            let seed = self.plan.random(block, index as u64 + 1).next_u64();
            let recorder = self.plan.timelines.then(|| recorder(self.plan, planned));
            let memories = &mut self.memories;
            let outcome = run_block(self.plan, planned, seed, memories, recorder.as_ref());
            if let Some(recorder) = recorder {
                self.write_timeline(planned, recorder)?;
            }
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(reason) => return self.give_up(planned, Status::Failed, reason),
            };
            let launch = self.launches.len();
            let measured = block_of(self.plan, planned, (block, order, launch), &outcome);
            self.store.append_block(&measured)?;
            self.blocks.insert(key, measured);
        }
        match stop_reason(self.plan, &self.own(&name, block + 1)) {
            Some(reason) => self.finish(planned, block + 1, reason),
            None => Ok(()),
        }
    }

    /// The timeline of a case's last block, however it ended.
    fn write_timeline(&self, planned: &Planned, recorder: Recorder) -> Result<(), RecordError> {
        let case = planned.case.to_string();
        let shown = Shown {
            case: &case,
            algorithm: &planned.case.algorithm,
            gradients: &self.plan.workload.gradients,
            dtype: self.plan.config.dtype(),
            times: self.plan.config.times(),
        };
        let name = format!("{TIMELINES}/{}", file_name(&case));
        self.store.write_streamed(&name, |out| write(out, &shown, &recorder.into_records()))
    }

    /// Every case has its minimum of blocks, and the time is over.
    fn is_out_of_time(&self, block: usize) -> bool {
        let measure = &self.plan.config.measure;
        block >= measure.blocks_min && self.start.elapsed().as_secs_f64() > measure.budget_seconds
    }

    /// A case's first `count` blocks.
    fn own(&self, name: &str, count: usize) -> Vec<&Block> {
        let key = |block| (name.to_string(), block);
        self.blocks.range(key(0)..key(count)).map(|(_, block)| block).collect()
    }

    /// A case is done after `count` blocks: its row.
    fn finish(&mut self, planned: &Planned, count: usize, reason: &str) -> Result<(), RecordError> {
        let name = planned.case.to_string();
        let row = finished(self.plan, planned, self.launches, &self.own(&name, count), reason);
        self.store.append_row(&row)?;
        self.rows.insert(name, row);
        Ok(())
    }

    /// A case without measurement is a row with a reason.
    fn give_up(
        &mut self,
        planned: &Planned,
        status: Status,
        reason: String,
    ) -> Result<(), RecordError> {
        let name = planned.case.to_string();
        if !self.rows.contains_key(&name) {
            let row = Row { status, reason, ..blank(self.plan, planned, self.launches) };
            self.store.append_row(&row)?;
            self.rows.insert(name, row);
        }
        Ok(())
    }
}

/// With room for one block of a case whose steps take twice their bound.
fn recorder(plan: &Plan, planned: &Planned) -> Recorder {
    let Measure { warmup_steps, steps_per_block, .. } = plan.config.measure;
    let StepTimes { forward, backward, optimizer } = plan.config.times();
    // No cycle is shorter than some microseconds.
    let cycle_time = planned.case.cycle_time.max(Duration::from_micros(20));
    let cycles = 2 * (forward + backward + optimizer).as_nanos() / cycle_time.as_nanos();
    // A tensor becomes ready, and is at most a message of its own, with a beginning and an end.
    let of_step = 2 + 2 * cycles as usize + 4 * plan.workload.gradients.len();
    Recorder::new(planned.case.topology.ranks(), (warmup_steps + steps_per_block) * of_step)
}

fn run_block(
    plan: &Plan,
    planned: &Planned,
    seed: u64,
    memories: &mut Vec<RankMemory>,
    recorder: Option<&Recorder>,
) -> Result<Outcome, String> {
    let (case, measure) = (&planned.case, &plan.config.measure);
    let choices = planned.choices.as_ref().expect("cases without a schedule are not run");
    let job = Job {
        workload: &plan.workload,
        times: plan.config.times(),
        topology: &case.topology,
        dtype: plan.config.dtype(),
        op: plan.config.op(),
        algorithm: &*planned.algorithm,
        choices,
        framework: &plan.config.framework,
        groups: &planned.groups,
        disable_group_fusion: plan.config.sweep.disable_group_fusion,
        control_plane: &case.control_plane,
        stall_check: measure.stall_check(),
        fusion_threshold_bytes: effective_threshold_bytes(
            case.fusion_threshold_bytes,
            &case.topology,
        ),
        cycle_time: case.cycle_time,
        cache_capacity: plan.config.sweep.cache_capacity,
        sizes: plan.config.sizes(),
        steps: measure.warmup_steps + measure.steps_per_block,
        patience: Duration::from_secs_f64(measure.patience_seconds),
        seed,
        recorder,
        fault: None,
    };
    let ranks = case.topology.ranks();
    memories.resize_with(memories.len().max(ranks), RankMemory::default);
    let outcome = engine::run(&job, &mut memories[..ranks]);
    let outcome = outcome.and_then(|outcome| outcome.refusal().map_or(Ok(outcome), Err));
    outcome.map_err(|error| error.to_string())
}

/// Why a case is done after these blocks, if it is.
fn stop_reason(plan: &Plan, own: &[&Block]) -> Option<&'static str> {
    let measure = &plan.config.measure;
    if own.len() < measure.blocks_min {
        return None;
    }
    let width = summary(own, |sample| sample.time_us).and_then(|all| all.relative_half_width());
    if width.is_some_and(|width| width <= measure.interval_percent / 100.0) {
        return Some("interval");
    }
    (own.len() == measure.blocks_max).then_some("count")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Sample;
    use crate::workload::Workload;

    #[test]
    fn a_case_stops_when_its_interval_is_narrow_or_its_blocks_are_used_up() {
        let config = "workload = \"x\"\nstep = { backward_ms = 1 }\n[sweep]\ntopology = []\n\
                      control_plane = []\nalgorithm = []\nfusion_threshold_mib = []\n\
                      cycle_time_ms = []\n[measure]\nblocks_max = 4\ninterval_percent = 5";
        let (gradients, ready_order) = (Vec::new(), Vec::new());
        let workload = Workload { name: "x".into(), gradients, ready_order, ready_assumed: false };
        let plan = Plan::new(toml::from_str(config).unwrap(), workload);
        let block = |times: [f64; 5]| Block {
            samples: times.map(|time_us| Sample { time_us, ..Sample::default() }).to_vec(),
            ..Block::default()
        };
        let narrow = block([100.0, 101.0, 99.0, 100.0, 102.0]);
        let wide = block([100.0, 300.0, 80.0, 200.0, 102.0]);
        assert_eq!(stop_reason(&plan, &[&narrow]), None, "below the minimum of blocks");
        assert_eq!(stop_reason(&plan, &[&narrow, &narrow]), Some("interval"));
        assert_eq!(stop_reason(&plan, &[&wide, &wide]), None);
        assert_eq!(stop_reason(&plan, &[&wide; 4]), Some("count"));
    }
}
