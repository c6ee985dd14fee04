//! `kolo validate`.

use measure::back_ends;
use std::path::{Path, PathBuf};

use algorithms::registry;
use anyhow::Result;

use super::calibrate::share;
use super::printed::Printed;
use super::{Exit, configuration, not_for, sizes, usage};
use measure::laboratory::{DESIGNS, MACHINES, Score, in_words, score};
use measure::machine_calibration::Effort;
use measure::machine_calibration::runner::assemble;
use measure::validate::local::{GOAL, Validation, validate};
use results::config_kind::ConfigKind;
use results::files::write_whole;
use results::names::{AlgorithmError, algorithm};
use results::provenance::{Launch, PROVENANCE, now};
use results::record::csv_bytes;
use results::toml_file::Checked;
use schemars::JsonSchema;
use serde::Serialize;
use simulator::published::{Compared, Points, text};

/// Compare simulations with published measurements, or with measurements on this machine
///
/// With --local this machine is calibrated, and its algorithms are measured.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo validate --ablation
  kolo validate --local --ranks 2 --algorithm ring,tree -e 256K --out validation")]
pub struct Arguments {
    /// File or name of published points
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "published",
        conflicts_with = "local",
        help_heading = RUN
    )]
    points: PathBuf,
    /// Also score the test points without each part of the model
    #[arg(long, conflicts_with_all = ["local", "json", "format"], help_heading = RUN)]
    ablation: bool,
    /// Count how often intervals of sweeps contain the truth, on synthetic machines
    #[arg(long, conflicts_with_all = ["local", "ablation", "points", "json", "format"], help_heading = RUN)]
    intervals: bool,
    /// Sweeps of each machine and design
    #[arg(long, default_value_t = 1000, requires = "intervals", value_parser = clap::value_parser!(u64).range(10..), help_heading = RUN, hide_short_help = true)]
    sweeps: u64,
    /// Measure on this machine, calibration and algorithms alternately
    #[arg(long, help_heading = RUN)]
    local: bool,
    /// Transport
    #[arg(
        long,
        value_parser = clap::builder::PossibleValuesParser::new(back_ends::names_calibrated()),
        default_value = back_ends::default().name(),
        requires = "local",
        help_heading = RUN,
        hide_short_help = true
    )]
    transport: String,
    /// Number of ranks
    ///
    /// Default: one per core, at least 2; over MPI all processes.
    #[arg(long, requires = "local", help_heading = RUN)]
    ranks: Option<usize>,
    /// Measure although the checks before a job refuse it (over MPI)
    #[arg(long, requires = "local", help_heading = RUN, hide_short_help = true)]
    force: bool,
    /// Algorithms, separated by commas, or all
    #[arg(long, value_delimiter = ',', default_value = "all", help_heading = RUN)]
    algorithm: Vec<String>,
    /// Largest size in bytes
    #[arg(
        short = 'e',
        long = "maxbytes",
        value_parser = sizes::size,
        default_value = "16M",
        help_heading = MEASURING,
        hide_short_help = true
    )]
    most_bytes: usize,
    /// Over MPI: pipeline large buffers in segments of about this size; 0: no pipelining
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = sizes::size,
        default_value = "512K",
        help_heading = MEASURING,
        hide_short_help = true
    )]
    segment: usize,
    /// Quantile of the samples to use, in calibration and validation
    ///
    /// Use 0.1, for example, where other programs use the machine too.
    #[arg(
        long,
        default_value_t = 0.5,
        value_parser = share,
        help_heading = MEASURING,
        hide_short_help = true
    )]
    quantile: f64,
    #[command(flatten)]
    printed: Printed,
    /// Folder for the results
    ///
    /// published.csv and summary.txt; with --local, in a new folder, validation.csv and the machine file. Both with
    /// provenance.json.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
}

/// Headings of the options.
const RUN: &str = "What to compare";
const MEASURING: &str = "Measuring";

/// For calibration and validation together: both take longer than a calibration alone.
const BUDGET_S: f64 = 90.0;

/// Version of [`Published`] as JSON.
const SCHEMA: u32 = 1;

/// Published measurements, simulated.
#[derive(Serialize, JsonSchema)]
pub struct Published {
    /// Version of this structure.
    schema: u32,
    /// Every point, in the order of the file; the fields are the columns of published.csv.
    points: Vec<Compared>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match () {
        () if arguments.local => local(arguments),
        () if arguments.intervals => intervals(arguments),
        () => published(arguments),
    }
}

fn intervals(arguments: &Arguments) -> Result<Exit> {
    let launch = Launch::now();
    let tried = || MACHINES.iter().flat_map(|machine| DESIGNS.map(|design| (machine, design)));
    let mut text = Score::header() + "\n";
    print!("{text}");
    let mut scores = Vec::new();
    for (machine, design) in tried() {
        let score = score(machine, design, arguments.sweeps)?;
        println!("{}", score.line());
        text += &(score.line() + "\n");
        scores.push(score);
    }
    let said = in_words(&scores);
    print!("{said}");
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("intervals.csv");
        write_whole(&path, &csv_bytes(&scores, true))?;
        write_whole(&folder.join("summary.txt"), (text + &said).as_bytes())?;
        ended(launch).write(&folder.join(PROVENANCE))?;
        println!("{}", path.display());
    }
    Ok(Exit::Right)
}

fn published(arguments: &Arguments) -> Result<Exit> {
    let launch = Launch::now();
    let file = configuration(&arguments.points)?;
    let kind = ConfigKind::of_file(&file)?;
    if kind != ConfigKind::PublishedPoints {
        return Err(not_for(&file, kind, "kolo validate --points"));
    }
    let points = Points::of(&file)?;
    let compared = points.compare(&file.path).map_err(usage)?;
    let mut text = text::text(&points, &compared);
    if let Some(sentence) = points.older_machines(&file.path).map_err(usage)? {
        text += &format!("{sentence}\n");
    }
    if arguments.ablation {
        text += &text::ablation(&points.ablation(&file.path).map_err(usage)?);
    }
    if arguments.printed.is_text() {
        print!("{text}");
    }
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("published.csv");
        write_whole(&path, &csv_bytes(&compared, true))?;
        write_whole(&folder.join("summary.txt"), text.as_bytes())?;
        ended(launch).write(&folder.join(PROVENANCE))?;
        if arguments.printed.is_text() {
            println!("{}", path.display());
        }
    }
    arguments.printed.print(&Published { schema: SCHEMA, points: compared }, "/points")?;
    Ok(Exit::Right)
}

fn local(arguments: &Arguments) -> Result<Exit> {
    let launch = Launch::now();
    let names = names(&arguments.algorithm).map_err(usage)?;
    if let Some(folder) = arguments.out.as_ref().filter(|folder| folder.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", folder.display())));
    }
    let mut runner =
        assemble(back_ends::named(&arguments.transport), arguments.ranks, arguments.force)
            .map_err(usage)?;
    if runner.leads() {
        runner.findings().iter().for_each(|finding| eprintln!("kolo: {finding}"));
    }
    // Messages are half a buffer at most in most algorithms.
    let most_bytes = (arguments.most_bytes / 2).max(4);
    // Ranks that share memory wait less for each other without segments.
    let shares_memory = runner.back_end().puts();
    let segment_bytes = if shares_memory { 0 } else { arguments.segment };
    let most_bytes = if segment_bytes > 0 { most_bytes.min(segment_bytes) } else { most_bytes };
    let quantile = arguments.quantile;
    let effort = Effort { most_bytes, quantile, budget_s: BUDGET_S, ..Effort::DEFAULT };
    let validation = validate(&mut *runner, &names, arguments.most_bytes, segment_bytes, &effort)?;
    if !runner.leads() {
        return Ok(Exit::Right);
    }
    report(&validation, launch, arguments.out.as_deref())
}

fn report(validation: &Validation, launch: Launch, out: Option<&Path>) -> Result<Exit> {
    print!("{}", validation.table());
    for (name, why) in &validation.left_out {
        println!("left out: {name}: {why}");
    }
    if let Some(folder) = out {
        validation.write(folder)?;
        ended(launch).write(&folder.join(PROVENANCE))?;
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

/// The launch with its end.
fn ended(launch: Launch) -> Launch {
    Launch { ended: Some(now()), ..launch }
}

fn names(list: &[String]) -> Result<Vec<String>, AlgorithmError> {
    if list == ["all"] {
        return Ok(registry::ALL.iter().map(|entry| entry.name.to_string()).collect());
    }
    let name = |name: &String| algorithm(name, &[]).map(|algorithm| algorithm.name());
    list.iter().map(name).collect()
}
