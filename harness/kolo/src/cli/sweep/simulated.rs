//! `kolo sweep` of a simulated configuration.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::folder::{finish, open};
use super::intended::{Intended, IntendedCase};
use super::{Arguments, OPTIONS_OF_STEPS, exit};
use crate::cli::Exit;
use results::conclusion::Conclusion;
use results::provenance::Launch;
use results::record::csv_bytes;
use results::row::{Row, SimulatedCollectiveRow, SimulatedStepRow, Status};
use results::toml_file::{Checked, ConfigProblem, TomlFile};
use simulator::config::{Case, Config};
use simulator::sweep::Plan;
use simulator::{claims, crossover, summary, tabulate};

pub fn run(arguments: &Arguments, file: &TomlFile) -> Result<Exit> {
    let config = Config::of(file)?;
    if arguments.has_options_of_steps() {
        let problem = format!(
            "a simulated sweep takes no {OPTIONS_OF_STEPS}; leave it out, or change its policies"
        );
        return Err(file.refuse(ConfigProblem::unusable(problem)).into());
    }
    let launch = Launch::now();
    let plan = Plan::new(config, &file.path)
        .map_err(|error| file.refuse(ConfigProblem::unusable(error)))?;
    let assumptions = plan.workloads.iter().filter_map(|workload| workload.assumption());
    assumptions.for_each(|sentence| eprintln!("{sentence}"));
    if arguments.dry_run {
        intended(&plan).show(arguments.printed)?;
        return Ok(Exit::Right);
    }
    let (mut store, earlier, provenance) = open(arguments, &plan, launch, 0)?;
    let progress = progress(&plan);
    let cases = plan.run(|| progress.inc(1));
    let steps = tabulate::rows(&plan, &cases);
    let crossover = plan.config.crossover.as_ref();
    let collectives = crossover.map_or(Vec::new(), |crossover| {
        crossover::rows(crossover, &plan.machine, || progress.inc(1))
    });
    progress.finish_and_clear();
    let mut text = summary::text(&plan, &steps);
    let ended: Vec<(Status, bool)> = ended(&steps, &collectives).collect();
    let collectives = collectives.into_iter().map(Row::SimulatedCollective);
    let rows = steps.into_iter().map(Row::SimulatedStep).chain(collectives);
    // A run that was cut while it wrote has the first of the same rows.
    let missing: Vec<Row> = rows.skip(earlier.rows.len()).collect();
    store.append_rows(&missing)?;
    if !plan.config.claim.is_empty() {
        let compared =
            claims::compare(&plan).map_err(|error| file.refuse(ConfigProblem::unusable(error)))?;
        store.write_whole("claims.csv", &csv_bytes(&compared, true))?;
        text.push('\n');
        text.push_str(&claims::text(&compared));
    }
    finish(arguments, &store, provenance, &text, &Conclusion::default())?;
    Ok(exit(ended.into_iter()))
}

/// The outcome of each case. An unsupported schedule is an outcome, too.
fn ended<'r>(
    steps: &'r [SimulatedStepRow],
    collectives: &'r [SimulatedCollectiveRow],
) -> impl Iterator<Item = (Status, bool)> + 'r {
    let steps = steps.iter().map(|row| {
        let times = row.outcome.measured().map(|result| &result.times);
        (row.outcome.status(), times.is_some_and(|times| times.time_us_p50_low.is_some()))
    });
    let collectives = collectives.iter().map(|row| (row.outcome.status(), false));
    steps.chain(collectives).filter(|(status, _)| *status != Status::Unsupported)
}

fn units(plan: &Plan) -> usize {
    let crossover = plan.config.crossover.as_ref();
    plan.config.cases().len()
        + crossover.map_or(0, |crossover| crossover.algorithm.len() * crossover.ranks.len())
}

fn progress(plan: &Plan) -> ProgressBar {
    let style = "{elapsed_precise} [{wide_bar}] {pos}/{len}, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a template that indicatif accepts");
    ProgressBar::new(units(plan) as u64).with_style(style.progress_chars("=> "))
}

fn intended(plan: &Plan) -> Intended {
    let simulate = &plan.config.simulate;
    let of_case = |case: Case| IntendedCase {
        case: case.to_string(),
        unsupported: plan.machine.misfit(case.ranks).map(|why| why.to_string()),
        seconds: None,
        words: String::new(),
    };
    let cases: Vec<IntendedCase> = plan.config.cases().into_iter().map(of_case).collect();
    let mut words = format!(
        "{} cases, each {} seeds x ({} + {}) steps, simulated on machine {}",
        cases.len(),
        simulate.seeds,
        simulate.warmup_steps,
        simulate.steps,
        plan.machine.name,
    );
    if let Some(crossover) = &plan.config.crossover {
        let (from, to) = crossover.size_log2;
        let (algorithms, worlds) = (crossover.algorithm.len(), crossover.ranks.len());
        words += &format!("\n{algorithms} algorithms on {worlds} worlds, 2^{from} to 2^{to} bytes");
    }
    Intended::new(cases, words)
}
