//! `kolo sweep` of control planes.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::budget::Range;
use super::folder::{finish, open};
use super::intended::{Intended, IntendedCase};
use super::{Arguments, OPTIONS_OF_STEPS, exit};
use crate::cli::{Exit, usage};
use measure::control_sweep::config::{Case, Config};
use measure::control_sweep::transport::Transport;
use measure::control_sweep::{Plan, run as run_plan, summary};
use measure::environment::Environment;
use results::provenance::{Launch, memory_bytes};
use results::toml_file::{Checked, ConfigProblem, TomlFile};

pub fn run(arguments: &Arguments, file: &TomlFile) -> Result<Exit> {
    let config = Config::of(file)?;
    let refuse = |problem: String| file.refuse(ConfigProblem::unusable(problem));
    if arguments.has_options_of_steps() {
        return Err(refuse(format!(
            "a sweep of control planes takes no {OPTIONS_OF_STEPS}; leave it out, or set control.base in the configuration"
        ))
        .into());
    }
    let launch = Launch::now();
    ignore(&Environment::read(&launch.environment).map_err(usage)?);
    let plan = Plan::new(config, &file.path)
        .map_err(|error| file.refuse(ConfigProblem::unusable(error)))?;
    if let Some(available) = memory_bytes("MemAvailable").filter(|&has| has < plan.memory_bytes()) {
        return Err(refuse(format!(
            "the largest case takes up to {} MB of memory and {} MB are free; use fewer ranks or \
             tensors",
            plan.memory_bytes() / 1_000_000,
            available / 1_000_000
        ))
        .into());
    }
    if arguments.dry_run {
        intended(&plan).show(arguments.printed)?;
        return Ok(Exit::Right);
    }
    let (mut store, earlier, provenance) = open(arguments, &plan, launch, 0)?;
    if !earlier.rows.is_empty() {
        eprintln!(
            "resuming {}: {} of {} cases are there",
            store.folder().display(),
            earlier.rows.len(),
            plan.cases.len()
        );
    }
    let progress = progress(&plan);
    let rows = run_plan(&plan, &mut store, earlier.rows, &provenance.launches, &progress);
    progress.finish_and_clear();
    let rows = rows?;
    let (text, conclusion) = (summary::text(&plan, &rows), summary::conclusion(&plan, &rows));
    finish(arguments, &store, provenance, &text, &conclusion)?;
    Ok(exit(rows.iter().map(|row| {
        let has_interval = row.outcome.measured().is_some_and(|result| result.clock.has_interval());
        (row.outcome.status(), has_interval)
    })))
}

/// Warns about Horovod's variables that are set and ignored.
fn ignore(environment: &Environment) {
    environment.notices.iter().for_each(|sentence| eprintln!("{sentence}"));
    let set = [
        &environment.fusion_threshold_bytes.set_by,
        &environment.cycle_time_ms.set_by,
        &environment.cache_capacity.set_by,
    ];
    for variable in set.into_iter().flatten() {
        eprintln!("{variable} is ignored: a sweep of control planes uses only its configuration");
    }
}

fn progress(plan: &Plan) -> ProgressBar {
    let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} cases, {eta} left  {msg}";
    let style = ProgressStyle::with_template(style).expect("a template that indicatif accepts");
    ProgressBar::new(plan.cases.len() as u64).with_style(style.progress_chars("=> "))
}

fn intended(plan: &Plan) -> Intended {
    let measure = &plan.config.measure;
    let of_case = |case: &Case| {
        let (tensors, unsupported) = (plan.list(case).len(), case.unsupported());
        // A guess: 100 ns per rank and tensor, of all ranks together.
        let step = (case.ranks * tensors) as f64 * 1e-7;
        let least = (measure.warmup_steps + measure.steps_min) as f64 * step;
        let seconds = measure.budget_seconds.max(least);
        IntendedCase {
            case: case.to_string(),
            seconds: unsupported.is_none().then_some(seconds),
            unsupported: unsupported.map(|reason| reason.to_string()),
            words: format!("{tensors} tensors, about {seconds:.1} s"),
        }
    };
    let cases: Vec<IntendedCase> = plan.cases.iter().map(of_case).collect();
    let seconds = cases.iter().filter_map(|case| case.seconds).sum();
    let memory_mb = plan.memory_bytes() / 1_000_000;
    let is_driven = |case: &&Case| case.transport == Transport::Lockstep;
    let in_lockstep = plan.cases.iter().filter(is_driven).count();
    let words = format!(
        "{} cases, {in_lockstep} of them with all ranks in one thread; each {} + {} to {} steps, in \
         random order from seed {}\nat most about {seconds:.0} s, {memory_mb} MB of memory, and {} kB of files without \
         figures",
        plan.cases.len(),
        measure.warmup_steps,
        measure.steps_min,
        measure.steps_max,
        measure.seed,
        plan.cases.len().div_ceil(2),
    );
    Intended {
        seconds: Some(Range { least: 0.0, most: seconds }),
        memory_mb: Some(memory_mb),
        ..Intended::new(cases, words)
    }
}
