//! `kolo validate`.

use measure::back_ends;
use std::path::{Path, PathBuf};
use training::back_end::RankKind;

use algorithms::registry;
use anyhow::Result;

use super::calibrate::share;
use super::{Exit, sizes, usage};
use measure::machine_calibration::Effort;
use measure::machine_calibration::runner::assemble;
use measure::validate::local::{GOAL, Validation, validate};
use results::files::write_whole;
use results::names::algorithm;
use results::record::csv_bytes;
use simulator::published::{self, Points};

/// Compare what simulations predict with what is measured
///
/// By others, who have published it; or, with --local, on the machine at hand, which is calibrated
/// meanwhile.
#[derive(clap::Args)]
pub struct Arguments {
    /// Published points in TOML
    #[arg(
        long,
        value_name = "FILE",
        default_value = "configs/published.toml",
        conflicts_with = "local"
    )]
    points: PathBuf,
    /// Measure here: calibration and algorithms take turns
    #[arg(long)]
    local: bool,
    /// What moves bytes: threads, or mpi
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(back_ends::names_on_host()), default_value = back_ends::default().name(), requires = "local")]
    transport: String,
    /// Number of ranks [default: as many threads as cores, at least 2; over MPI all processes]
    #[arg(long, requires = "local")]
    ranks: Option<usize>,
    /// Algorithms, separated by commas; `all` for every registered one
    #[arg(long, value_delimiter = ',', default_value = "all")]
    algorithm: Vec<String>,
    /// Largest size in bytes
    #[arg(short = 'e', long = "maxbytes", value_parser = sizes::size, default_value = "16M")]
    most_bytes: usize,
    /// Over MPI, pipeline large buffers in segments of about this size; 0 switches that off
    #[arg(long, value_name = "SEGMENT", value_parser = sizes::size, default_value = "512K")]
    segment: usize,
    /// The quantile of samples that counts, in calibration and validation alike; 0.1, say, where others
    /// use the machine, too
    #[arg(long, default_value_t = 0.5, value_parser = share)]
    quantile: f64,
    /// A folder for published.csv; or a new one for validation.csv and the machine file
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Of calibration and validation together: both take longer than a calibration alone.
const BUDGET_S: f64 = 90.0;

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if arguments.local { local(arguments) } else { published(arguments) }
}

fn published(arguments: &Arguments) -> Result<Exit> {
    let points = Points::read(&arguments.points)?;
    let compared = points.compare(&arguments.points).map_err(usage)?;
    print!("{}", published::text(&compared));
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("published.csv");
        write_whole(&path, &csv_bytes(&compared, true))?;
        println!("{}", path.display());
    }
    Ok(Exit::Right)
}

fn local(arguments: &Arguments) -> Result<Exit> {
    let names = names(&arguments.algorithm).map_err(usage)?;
    if let Some(folder) = arguments.out.as_ref().filter(|folder| folder.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", folder.display())));
    }
    let mut runner =
        assemble(back_ends::named(&arguments.transport), arguments.ranks).map_err(usage)?;
    // Messages are half a buffer at most in most algorithms.
    let most_bytes = (arguments.most_bytes / 2).max(4);
    // Ranks that share memory wait less for each other without segments.
    let shares_memory = runner.back_end().rank_kind() == RankKind::Thread;
    let segment_bytes = if shares_memory { 0 } else { arguments.segment };
    let most_bytes = if segment_bytes > 0 { most_bytes.min(segment_bytes) } else { most_bytes };
    let quantile = arguments.quantile;
    let effort = Effort { most_bytes, quantile, budget_s: BUDGET_S, ..Effort::DEFAULT };
    let validation = validate(&mut *runner, &names, arguments.most_bytes, segment_bytes, &effort)?;
    if !runner.leads() {
        return Ok(Exit::Right);
    }
    report(&validation, arguments.out.as_deref())
}

fn report(validation: &Validation, out: Option<&Path>) -> Result<Exit> {
    print!("{}", validation.table());
    for (name, why) in &validation.left_out {
        println!("left out: {name}: {why}");
    }
    if let Some(folder) = out {
        validation.write(folder)?;
    }
    if validation.rows.iter().all(|row| !row.scored) {
        println!("nothing is scored: more ranks than cores, or no size from 64 KiB on");
        return Ok(Exit::Inconclusive);
    }
    let missed = validation.missed();
    let goal = 100.0 * GOAL;
    if missed.is_empty() {
        println!("all algorithms are within {goal} %")
    } else {
        println!("not within {goal} %: {}", missed.join(", "))
    }
    Ok(if missed.is_empty() { Exit::Right } else { Exit::Wrong })
}

fn names(list: &[String]) -> Result<Vec<String>, String> {
    if list == ["all"] {
        return Ok(registry::ALL.iter().map(|entry| entry.name.to_string()).collect());
    }
    let name = |name: &String| algorithm(name, &[]).map(|algorithm| algorithm.name());
    list.iter().map(name).collect()
}
