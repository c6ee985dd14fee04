//! `kolo predict --workload`: how far a model scales on a machine.

use std::path::Path;

use anyhow::Result;
use indicatif::ProgressBar;

use super::{Arguments, Forecast, SCHEMA, new_folder, write_rows};
use crate::cli::{Exit, configuration, plot, usage};
use results::files::create_folder;
use results::provenance::{Launch, PROVENANCE, Provenance, now};
use results::row::CaseOutcome;
use results::toml_file::{Checked, control_plane, within};
use simulator::config::Model;
use simulator::limit::Question;
use simulator::machine_file::MachineFile;
use simulator::policy::Policy;
use simulator::published::Points;
use simulator::tabulate;
use workloads::framework::Compression;
use workloads::workload::{Workload, workload_path};

pub fn run(arguments: &Arguments, workload: &str) -> Result<Exit> {
    let launch = Launch::now();
    let question = question(arguments, workload)?;
    let out = new_folder(arguments, &launch)?;
    let progress = ProgressBar::new(question.sizes().len() as u64);
    let answer = question.answer(|| progress.inc(1)).map_err(usage)?;
    progress.finish_and_clear();
    let plan = question.whole_plan();
    let mut provenance = Provenance::new(&plan, launch);
    let mut rows = tabulate::rows(&plan, &plan.run(|| ()));
    for (row, world) in rows.iter_mut().zip(&answer.worlds) {
        // Samples per step are not known.
        row.batch = None;
        if let CaseOutcome::Ok(result) = &mut row.outcome {
            let (low, high) = world.range;
            result.efficiency_p50 = Some(world.efficiency);
            (result.efficiency_p50_low, result.efficiency_p50_high) = (Some(low), Some(high));
            result.efficiency_base_ranks = Some(1);
            result.throughput_samples_s_p50 = None;
            result.throughput_samples_s_p50_low = None;
            result.throughput_samples_s_p50_high = None;
        }
    }
    create_folder(&out)?;
    write_rows(&out, &rows)?;
    if let Some(launch) = provenance.launches.last_mut() {
        launch.ended = Some(now());
    }
    provenance.write(&out.join(PROVENANCE))?;
    let figures = if arguments.no_figures {
        String::new()
    } else {
        plot::figures(std::slice::from_ref(&out), &out.join("figures"))?
    };
    if !arguments.printed.is_text() {
        let forecast = Forecast {
            schema: SCHEMA,
            predictions: out.display().to_string(),
            algorithms: Vec::new(),
            missed: None,
            coverage: None,
            limit: Some(answer),
            text: String::new(),
        };
        arguments.printed.print(&forecast, "/limit/worlds")?;
        return Ok(Exit::Right);
    }
    print!("{}{figures}", answer.text(&question));
    println!("predictions in {}", out.display());
    Ok(Exit::Right)
}

/// What the options ask.
fn question(arguments: &Arguments, workload: &str) -> Result<Question> {
    let machine = MachineFile::choose(&arguments.machine)?;
    let path = workload_path(workload, Path::new(""));
    let workload = Workload::read(&path).map_err(usage)?;
    let backward_ms = arguments.backward_ms.expect("clap requires it");
    let target = arguments.target_efficiency.unwrap_or(super::TARGET);
    within("--target-efficiency", target, 0.01, 0.999).map_err(usage)?;
    control_plane("--control-plane", &arguments.control_plane).map_err(usage)?;
    let model = Model {
        workload: workload.name.clone(),
        batch: 1,
        forward_ms: arguments.forward_ms.unwrap_or(backward_ms / 2.0),
        backward_ms,
        optimizer_ms: arguments.optimizer_ms.unwrap_or(0.0),
        compression: if arguments.fp16 { Compression::Fp16 } else { Compression::None },
        source: "options of kolo predict".into(),
    };
    let policy = Policy {
        fusion_threshold_mib: arguments.fusion_threshold_mb,
        cycle_time_ms: arguments.cycle_time_ms,
        ..Policy::new(&arguments.control_plane, &arguments.control_plane, &arguments.data_plane)
    };
    policy.check().map_err(usage)?;
    let up_to = arguments.up_to;
    let points = configuration(Path::new("published"))?;
    let residuals = Points::of(&points)?.residuals(&points.path).map_err(usage)?;
    Ok(Question { machine, workload, model, policy, target, up_to, residuals })
}
