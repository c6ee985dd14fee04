//! `kolo calibrate`.

use measure::back_ends;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use training::back_end::RankKind;

use algorithms::topology::Topology;
use anyhow::Result;

use super::printed::{self, Printed};
use super::{Exit, sizes, timelines, usage};
use measure::machine_calibration::host::Host;
use measure::machine_calibration::interruptions::Interruptions;
use measure::machine_calibration::logs::{Said, from_logs};
use measure::machine_calibration::runner::assemble;
use measure::machine_calibration::{Effort, calibrate, write};
use results::error::RecordError;
use results::files::check_writable;
use results::files::write_whole;
use results::logs::{Format, Log};
use results::provenance::Machine;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use simulator::machine_file::MachineFile;

/// Measure a machine file for the simulator
///
/// It holds the cost of messages and of combining by size, the control plane's work, how unevenly ranks compute, what
/// interrupts them, and how much longer they compute beside messages.
/// Over MPI all processes that mpirun or srun started take part.
///
/// With --logs nothing is measured: latency and bandwidth of links are fitted to logs of nccl-tests (table, or JSON of
/// -J), osu_latency and timelines of Horovod. Every fit is listed with its points and its residual, and so is what the
/// logs do not determine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  srun kolo calibrate --transport mpi --out here.toml
  kolo calibrate --logs ring-*.log --out gpus.toml")]
pub struct Arguments {
    /// Transport
    #[arg(
        long,
        value_parser = clap::builder::PossibleValuesParser::new(back_ends::names_calibrated()),
        default_value = back_ends::default().name(),
        help_heading = RUN
    )]
    transport: String,
    /// Number of ranks [default: one per core, at least 2; over MPI all processes]
    #[arg(long, help_heading = RUN)]
    ranks: Option<usize>,
    /// Measure although the checks before a job refuse it (over MPI)
    #[arg(long, help_heading = RUN, hide_short_help = true)]
    force: bool,
    /// Longest message in bytes [default: 8M; over MPI 512K, the length of a segment]
    #[arg(short = 'e', long = "maxbytes", value_parser = sizes::size, help_heading = RUN)]
    most_bytes: Option<usize>,
    /// Quantile of the samples to use; 0.1 if other programs also use the machine
    #[arg(long, default_value_t = 0.5, value_parser = share, help_heading = RUN, hide_short_help = true)]
    quantile: f64,
    /// Minutes for which ranks compute about once per second after that, since speeds change over minutes
    #[arg(long, default_value_t = 0.0, value_parser = minutes, help_heading = RUN, hide_short_help = true)]
    minutes: f64,
    /// Logs of nccl-tests or osu_latency, or timelines of Horovod, to fit instead of measuring
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        conflicts_with_all = ["ranks", "force", "most_bytes"],
        help_heading = LOGS
    )]
    logs: Vec<PathBuf>,
    /// NCCL_ALGO of logs that do not name it, also in the file's name: Ring or Tree [default: a ring is assumed]
    #[arg(long, value_name = "NAME", requires = "logs", help_heading = LOGS, hide_short_help = true)]
    algo: Option<String>,
    /// NCCL_PROTO of logs that do not name it: LL, LL128 or Simple [default: one line for all sizes, as "auto"]
    #[arg(long, value_name = "NAME", requires = "logs", help_heading = LOGS, hide_short_help = true)]
    proto: Option<String>,
    /// Nodes x ranks per node of logs that do not say (OSU, Horovod's timelines)
    #[arg(long, value_name = "TOPOLOGY", requires = "logs", help_heading = LOGS, hide_short_help = true)]
    topology: Option<Topology>,
    /// Take [control], [variability], [interruptions] and [interference] from this machine file: no log has them
    #[arg(long, value_name = "NAME|FILE", requires = "logs", help_heading = LOGS, hide_short_help = true)]
    complete: Option<PathBuf>,
    /// The machine file, which also names the machine [default: print it]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    #[command(flatten)]
    printed: Printed,
    /// Name of the machine [default: that of the file]
    #[arg(long, hide = true)]
    name: Option<String>,
}

/// Headings of options.
const RUN: &str = "What to measure";
const LOGS: &str = "Logs of other programs";

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", path.display())));
    }
    if !arguments.logs.is_empty() {
        return fit_logs(arguments);
    }
    let mut runner =
        assemble(back_ends::named(&arguments.transport), arguments.ranks, arguments.force)
            .map_err(usage)?;
    if runner.leads() {
        runner.findings().iter().for_each(|finding| eprintln!("kolo: {finding}"));
    }
    let longest = if runner.back_end().rank_kind() == RankKind::Thread {
        Effort::DEFAULT.most_bytes
    } else {
        512 << 10
    };
    let (most_bytes, quantile) = (arguments.most_bytes.unwrap_or(longest), arguments.quantile);
    let effort = Effort { most_bytes, quantile, ..Effort::DEFAULT };
    if runner.leads() && runner.is_oversubscribed() {
        eprintln!(
            "kolo: there are more ranks than cores; the result measures how they share cores"
        );
    }
    if let Some(path) = arguments.out.as_ref().filter(|_| runner.leads()) {
        check_writable(path)?;
    }
    let (calibration, mut computing) = calibrate(&mut *runner, &effort)?;
    for _ in 0..(60.0 * arguments.minutes) as usize {
        thread::sleep(Duration::from_secs(1));
        computing.measure(&mut *runner)?;
    }
    let host = Host::measure(&mut *runner, computing)?;
    let starts = runner.starts()?;
    if !runner.leads() {
        return Ok(Exit::Right);
    }
    let stem = arguments.out.as_ref().and_then(|path| path.file_stem()?.to_str());
    let name = arguments.name.as_deref().or(stem).unwrap_or("here");
    let estimates = calibration.estimates();
    let file = calibration.machine_file(name, &Machine::this().host, &estimates);
    let file = write::with_processors(file, &estimates, &host, &starts, quantile);
    let mut measured = calibration.measured();
    measured.extend(host.computing.measured());
    measured.extend(host.interruptions.as_ref().map(Interruptions::measured));
    measured.push(starts.measured());
    let text = write::text(file, &measured);
    if let Some(path) = &arguments.out {
        write_whole(path, text.as_bytes()).map_err(|error| {
            // Prints the result if the file cannot be written, so that it is not lost.
            print!("{text}");
            RecordError::at_first(error)
        })?;
    }
    arguments.print(&text, Vec::new(), Vec::new())?;
    Ok(Exit::Right)
}

/// Version of [`Calibrated`] as JSON.
const SCHEMA: u32 = 1;

/// A machine file.
#[derive(Serialize, JsonSchema)]
pub struct Calibrated {
    /// Version of this structure.
    schema: u32,
    /// The file that was written; null: none.
    file: Option<String>,
    /// What it holds, as a machine file has it.
    machine: serde_json::Map<String, Value>,
    /// Fits to logs, a line each.
    fits: Vec<String>,
    /// What the logs do not determine, a line each.
    left_out: Vec<String>,
}

impl Arguments {
    /// Prints a machine file for programs, or as it is where no file was written.
    fn print(&self, text: &str, fits: Vec<String>, left_out: Vec<String>) -> Result<()> {
        if self.printed.is_text() {
            if self.out.is_none() {
                print!("{text}");
            }
            return Ok(());
        }
        let machine = toml::from_str(text)?;
        let file = self.out.as_ref().map(|path| path.display().to_string());
        let calibrated = Calibrated { schema: SCHEMA, file, machine, fits, left_out };
        match self.printed.kind() {
            printed::Format::Json => self.printed.print(&calibrated, ""),
            _ => self.printed.print_values(&calibrated.machine),
        }
    }
}

/// A log, or the allreduces of a timeline.
///
/// # Errors
/// When it is neither, or has no times of known sizes.
fn read_log(path: &Path, topology: Option<&Topology>) -> Result<Log> {
    if timelines::is_timeline(path) {
        let trace = timelines::read(path)?;
        timelines::check(path, &trace, topology)?;
        timelines::left_out(path, &trace).iter().for_each(|note| eprintln!("kolo: {note}"));
        return timelines::log(path, &trace);
    }
    let log = Log::read(path).map_err(usage)?;
    if log.format == Format::Autotune {
        return Err(usage(format!(
            "{}: a log of Horovod's autotuner has bytes per microsecond of whole settings, and no time of a message of \
             known size, so it determines neither latency nor bandwidth of a link; give logs of nccl-tests or osu_latency, \
             or a timeline of the same job (HOROVOD_TIMELINE)",
            path.display()
        )));
    }
    Ok(log)
}

/// The machine file that logs determine.
fn fit_logs(arguments: &Arguments) -> Result<Exit> {
    let topology = arguments.topology.as_ref();
    let logs = arguments.logs.iter().map(|path| read_log(path, topology));
    let logs = logs.collect::<Result<Vec<Log>>>()?;
    logs.iter().flat_map(Log::notes).for_each(|note| eprintln!("kolo: {note}"));
    let said = Said {
        algorithm: arguments.algo.clone(),
        protocol: arguments.proto.clone(),
        topology: arguments.topology.clone(),
    };
    let stem = arguments.out.as_ref().and_then(|path| path.file_stem()?.to_str());
    let name = arguments.name.as_deref().or(stem).unwrap_or("logs");
    let mut made = from_logs(name, &logs, &said);
    if let Some(other) = &arguments.complete {
        made.complete(&MachineFile::choose(other).map_err(usage)?);
    }
    let text = made.text();
    // The text has both in its header.
    if text.is_none() || arguments.out.is_some() && arguments.printed.is_text() {
        made.fits.iter().for_each(|fit| println!("{fit}"));
        made.left_out.iter().for_each(|what| println!("left out: {what}"));
    }
    let Some(text) = text else {
        eprintln!("kolo: no machine file: the logs determine no kind of links");
        return Ok(Exit::Inconclusive);
    };
    if let Some(path) = &arguments.out {
        write_whole(path, text.as_bytes()).map_err(RecordError::at_first)?;
    }
    let fits: Vec<String> = made.fits.iter().map(|fit| fit.to_string()).collect();
    let left_out: Vec<String> = made.left_out.iter().map(|what| what.to_string()).collect();
    arguments.print(&text, fits, left_out)?;
    Ok(Exit::Right)
}

/// A text that is no number of minutes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a number of minutes from 0 to 1440, such as 5")]
pub struct MinutesError {
    text: String,
}

/// A number of minutes, up to a day.
fn minutes(text: &str) -> Result<f64, MinutesError> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.0..=1440.0).contains(minutes));
    minutes.ok_or_else(|| MinutesError { text: text.into() })
}

/// A text that is no quantile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a quantile; write a number between 0 and 1, such as 0.5")]
pub struct ShareError {
    text: String,
}

/// A number between 0 and 1.
pub fn share(text: &str) -> Result<f64, ShareError> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| ShareError { text: text.into() })
}
