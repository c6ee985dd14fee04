//! What a sweep is going to do, as `--dry-run` prints it.

use std::time::Duration;

use algorithms::algorithm::Choice;
use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::budget::{Range, no_interval, seconds, short_budget};
use crate::cli::printed::Printed;
use measure::plan::{Plan, Planned};

/// Version of [`Intended`] as JSON.
const SCHEMA: u32 = 1;

/// What a sweep is going to do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Intended {
    /// Version of this structure.
    pub schema: u32,
    /// Each case, in the order of the configuration.
    pub cases: Vec<IntendedCase>,
    /// The time of all blocks in seconds, a guess; null of a simulated sweep.
    pub seconds: Option<Range>,
    /// The most memory that a case takes, in MB; null of a simulated sweep.
    pub memory_mb: Option<u64>,
    /// With --slurm, node-hours: a guess without network time.
    pub node_hours: Option<Range>,
    /// With --slurm, node-hours that the time limits of all jobs allow; null: without limit.
    pub node_hours_limit: Option<f64>,
    /// With --slurm, the commands that start the sweep.
    pub commands: Vec<String>,
    /// What the sweep cannot tell within its budget.
    pub warnings: Vec<String>,
    /// What is printed below the cases.
    #[serde(skip)]
    pub words: String,
}

/// One case of a sweep that is not begun.
#[derive(Debug, Serialize, JsonSchema)]
pub struct IntendedCase {
    /// The case.
    pub case: String,
    /// Why it is not run; null: it is.
    pub unsupported: Option<String>,
    /// The time of one block in seconds, or of the whole case if it has no blocks: a guess. Null: not known.
    pub seconds: Option<f64>,
    /// What is run, in words.
    #[serde(skip)]
    pub words: String,
}

impl Intended {
    /// Cases, and what is printed below them.
    pub fn new(cases: Vec<IntendedCase>, words: String) -> Intended {
        Intended {
            schema: SCHEMA,
            cases,
            seconds: None,
            memory_mb: None,
            node_hours: None,
            node_hours_limit: None,
            commands: Vec::new(),
            warnings: Vec::new(),
            words,
        }
    }

    /// Training steps that are measured.
    pub fn of(plan: &Plan, budget: Option<Duration>) -> Intended {
        let cases = plan.cases.iter().map(|planned| intended_case(plan, planned)).collect();
        let (seconds, memory_mb) =
            (seconds(plan, budget, |_| 1.0), plan.memory_bytes() / 1_000_000);
        let short = short_budget(plan, budget).into_iter().chain(no_interval(plan, budget));
        Intended {
            seconds: Some(seconds),
            memory_mb: Some(memory_mb),
            warnings: short.collect(),
            ..Intended::new(cases, words(plan, seconds, memory_mb))
        }
    }

    /// Prints it: for programs, as the table of its cases, or as text.
    ///
    /// # Errors
    /// When it is no JSON.
    pub fn show(&self, printed: Printed) -> Result<()> {
        if printed.is_text() {
            self.cases.iter().for_each(|case| println!("{}", case.line()));
            println!("{}", self.words);
            self.warnings.iter().for_each(|sentence| println!("{sentence}"));
        }
        printed.print(self, "/cases")
    }
}

impl IntendedCase {
    fn line(&self) -> String {
        let words = match &self.unsupported {
            Some(reason) => &format!("unsupported: {reason}"),
            None => &self.words,
        };
        format!("{}  {words}", self.case).trim_end().to_string()
    }
}

fn intended_case(plan: &Plan, planned: &Planned) -> IntendedCase {
    let block = planned.data_plane.is_ok().then(|| plan.estimate(planned).as_secs_f64());
    let choices = planned.data_plane.as_ref().ok().and_then(|data_plane| data_plane.choices());
    let how = match choices.and_then(<[_]>::last) {
        Some(Choice { schedule, .. }) => {
            format!("{} steps, {} chunks", schedule.steps(), schedule.chunks())
        }
        None => "the library's own".into(),
    };
    IntendedCase {
        case: planned.case.to_string(),
        unsupported: planned.data_plane.as_ref().err().map(|reason| reason.to_string()),
        seconds: block,
        words: format!("{how}, about {:.1} s per block", block.unwrap_or_default()),
    }
}

fn words(plan: &Plan, seconds: Range, memory_mb: u64) -> String {
    let measure = &plan.config.measure;
    let steps = plan.cases.len() * measure.steps_per_block * measure.launches;
    let gradients = plan.workload.gradients.len();
    let blocks = Range { least: measure.blocks_min as f64, most: measure.blocks_max as f64 };
    let kilobytes =
        |blocks: usize| (blocks * steps * (130 + 65 * gradients.min(12))).div_ceil(1000) as f64;
    format!(
        "{} cases of {} ({} gradients, {:.1} MB); each {blocks} blocks of {} + {} steps{}, in random order from seed {}\n\
         about {seconds} s (assuming 16 GB/s per core), at most {memory_mb} MB of memory, about {} kB of files without \
         figures",
        plan.cases.len(),
        plan.workload.name,
        gradients,
        (plan.workload.elements() * plan.config.dtype().size_bytes()) as f64 / 1e6,
        measure.warmup_steps,
        measure.steps_per_block,
        match measure.launches {
            1 => String::new(),
            launches => format!(" in each of {launches} launches"),
        },
        measure.seed,
        Range { least: kilobytes(measure.blocks_min), most: kilobytes(measure.blocks_max) },
    )
}
