//! `kolo tune` of a configuration with surfaces whose best setting is known.

use std::path::Path;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::super::{Exit, usage};
use results::provenance::{Launch, PROVENANCE, Provenance, now};
use results::record::{Store, csv_bytes};
use results::toml_file::{Checked, TomlFile};
use tune::regret::{Config, Run};

/// Searches every surface, and prints the regret.
pub fn run(file: &TomlFile, out: Option<&Path>) -> Result<Exit> {
    let config = Config::of(file)?;
    let mut launch = Launch::now();
    let length = config.surface.len() as u64 * config.runs;
    let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} searches";
    let style = ProgressStyle::with_template(style).expect("a template that indicatif accepts");
    let progress = ProgressBar::new(length).with_style(style.progress_chars("=> "));
    let runs = config.run(&file.path, || progress.inc(1)).map_err(usage)?;
    progress.finish_and_clear();
    let text = text(&runs, config.runs as usize);
    print!("{text}");
    if let Some(out) = out {
        launch.ended = Some(now());
        let provenance = Provenance::new(&config, launch);
        let store = Store::create(out, &provenance)?;
        provenance.write(&out.join(PROVENANCE))?;
        store.write_whole("regret.csv", &csv_bytes(&runs, true))?;
        store.write_whole("summary.txt", text.as_bytes())?;
        println!("results in {}", out.display());
    }
    Ok(Exit::Right)
}

/// A line for each surface, and one for all.
fn text(runs: &[Run], each: usize) -> String {
    let mut text = String::from(
        "simulated surfaces; regret: how much longer the recommended setting takes than the best of the \
         grid\n\n  surface                                             settings  blocks  of grid  of \
         Horovod's steps  regret median  worst  defaults'  interval holds\n",
    );
    for runs in runs.chunks(each) {
        let first = &runs[0];
        let name = format!(
            "{}, {} x {}, {}",
            first.workload, first.ranks, first.machine, first.data_plane
        );
        text += &format!("  {name:<50} {}\n", line(runs));
    }
    text += &format!("  {:<50} {}\n", "all", line(runs));
    let is_slower = |run: &&Run| run.regret > run.default_regret;
    let changes = || runs.iter().filter(|run| run.is_change());
    text + &format!(
        "recommended changes: {}; {} of them are to a setting that is slower than the default ({:.1} % of all searches)\n",
        changes().count(),
        changes().filter(is_slower).count(),
        100.0 * changes().filter(is_slower).count() as f64 / runs.len() as f64,
    )
}

fn line(runs: &[Run]) -> String {
    let mut regrets: Vec<f64> = runs.iter().map(|run| run.regret).collect();
    regrets.sort_by(f64::total_cmp);
    let most = |of: fn(&Run) -> f64| runs.iter().map(of).fold(0.0, f64::max);
    let covered: Vec<bool> = runs.iter().filter_map(|run| run.covered).collect();
    let held = covered.iter().filter(|&&covered| covered).count();
    format!(
        "{:>9} {:>7} {:>7.1}% {:>18.1}% {:>13.2}% {:>5.2}% {:>9.1}% {:>8} of {}",
        runs[0].settings,
        most(|run| run.blocks as f64),
        100.0 * most(|run| run.share_of_grid),
        100.0 * most(|run| run.share_of_horovod_steps),
        100.0 * regrets[regrets.len() / 2],
        100.0 * regrets[regrets.len() - 1],
        100.0 * most(|run| run.default_regret),
        held,
        covered.len(),
    )
}
