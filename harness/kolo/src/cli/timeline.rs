//! `kolo timeline`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::printed::Printed;
use super::sizes::whole;
use super::{Exit, usage};
use results::error::RecordError;
use results::files::{check_writable, write_streamed};
use training::timeline::analyse::{Analysis, Negotiation, Share, Tensor, analyse};
use workloads::trace::horovod;
use workloads::trace::read::{Flaws, Trace};

/// Show where the time of a job went, from a timeline of kolo or Horovod
///
/// Computation, communication and the part of it that was exposed, negotiation, and the ranks that others waited
/// for. Perfetto (https://ui.perfetto.dev) shows the same file.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo timeline results/RUN/timelines/CASE.json --skip 1
  kolo timeline results/RUN/timelines/CASE.json --horovod rank0.json")]
pub struct Arguments {
    /// A timeline of `kolo sweep --timeline`, or one that Horovod wrote (HOROVOD_TIMELINE); also an object with
    /// traceEvents
    file: PathBuf,
    /// Number of tensors to list, slowest negotiation first
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 10,
        value_parser = whole::<usize>,
        help_heading = SHOWN
    )]
    tensors: usize,
    /// Number of first steps to leave out, such as those of the warm-up
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 0,
        value_parser = whole::<usize>,
        help_heading = SHOWN
    )]
    skip: usize,
    #[command(flatten)]
    printed: Printed,
    /// Write one rank's part of a timeline of kolo in Horovod's layout into this file, and show nothing
    #[arg(long, value_name = "OUT", conflicts_with_all = ["json", "format"], help_heading = LAYOUT)]
    horovod: Option<PathBuf>,
    /// The rank of --horovod
    #[arg(
        long,
        default_value_t = 0,
        value_parser = whole::<usize>,
        requires = "horovod",
        help_heading = LAYOUT
    )]
    rank: usize,
}

/// Headings of the options.
const LAYOUT: &str = "Horovod's layout";
const SHOWN: &str = "What to show";

/// Version of [`Analysed`] as JSON.
const SCHEMA: u32 = 1;

/// Where the time of a job went.
#[derive(Serialize, JsonSchema)]
pub struct Analysed {
    /// Version of this structure.
    schema: u32,
    /// The case of kolo's timeline; null of a timeline that another program wrote.
    case: Option<String>,
    /// What the file lacks, and by how much clocks may be off.
    notes: Vec<String>,
    /// The breakdown of time.
    analysis: Analysis,
}

/// Errors of clocks from which on they are told.
const SHOWN_US: f64 = 0.1;

const UNKNOWN: &str = "not in this file";

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let mut trace = Trace::read(&arguments.file).map_err(usage)?;
    if arguments.skip > 0 {
        trace.skip(arguments.skip).map_err(|there| {
            let file = arguments.file.display();
            usage(format!("{file}: it has {there} steps; --skip must leave at least one"))
        })?;
    }
    if let Some(out) = &arguments.horovod {
        return write_horovod(arguments, &trace, out);
    }
    let mut analysis = analyse(&trace);
    if !arguments.printed.is_text() {
        analysis.tensors.truncate(arguments.tensors);
        let notes = notes(&trace);
        let analysed = Analysed { schema: SCHEMA, case: trace.case, notes, analysis };
        arguments.printed.print(&analysed, "/analysis/tensors")?;
        return Ok(Exit::Right);
    }
    let origin = match &trace.case {
        Some(case) => format!("kolo, {case}"),
        None => "not written by kolo; read as a Horovod timeline".into(),
    };
    println!("{}: {origin}", arguments.file.display());
    notes(&trace).iter().for_each(|note| println!("  note: {note}"));
    print!("{}", text(&analysis, arguments.tensors));
    Ok(Exit::Right)
}

/// A process for each tensor, as Horovod writes it.
fn write_horovod(arguments: &Arguments, trace: &Trace, out: &Path) -> Result<Exit> {
    let file = arguments.file.display();
    if trace.case.is_none() {
        return Err(usage(format!(
            "{file}: not written by kolo; expected a timeline of `kolo sweep --timeline`"
        )));
    }
    let ranks: BTreeSet<usize> = trace.tracks.iter().filter_map(|track| track.rank).collect();
    if !ranks.contains(&arguments.rank) {
        let (rank, count) = (arguments.rank, ranks.len());
        return Err(usage(format!(
            "{file}: --rank is {rank}, expected one of its {count} ranks, from 0"
        )));
    }
    if out.exists() {
        return Err(usage(format!("{} exists; results are never overwritten", out.display())));
    }
    check_writable(out)?;
    write_streamed(out, |to| horovod::write(to, trace, arguments.rank))
        .map_err(RecordError::at_first)?;
    Ok(Exit::Right)
}

fn flaws(flaws: Flaws) -> Vec<String> {
    let Flaws { cut, open, unopened } = flaws;
    let mut sentences = Vec::new();
    if cut {
        sentences.push("the end of the file is missing, as when a job is killed".into());
    }
    if open > 0 {
        sentences
            .push(format!("{open} span(s) never end; they are counted to the end of the file"));
    }
    if unopened > 0 {
        sentences.push(format!("{unopened} end(s) without a beginning are ignored"));
    }
    sentences
}

/// What a reader should know of a file: its flaws, and by how much the clocks of ranks may be off.
fn notes(trace: &Trace) -> Vec<String> {
    let clocks = match trace.clock_error_us {
        Some(f64::INFINITY) => {
            Some("the clock of a rank could not be compared with rank 0's; its times begin with rank 0's".into())
        }
        Some(error_us) if error_us >= SHOWN_US => {
            Some(format!("the clocks of ranks may be {error_us:.1} us off rank 0's"))
        }
        _ => None,
    };
    flaws(trace.flaws).into_iter().chain(clocks).collect()
}

/// The whole table.
fn text(analysis: &Analysis, most_tensors: usize) -> String {
    let mut text = String::new();
    line(&mut text, "time covered", ms(analysis.covered_us));
    let steps = analysis.steps.as_ref().map(|steps| {
        format!("{}, median {}, longest {}", steps.samples, ms(steps.p50), ms(steps.max))
    });
    line(&mut text, "steps", steps.unwrap_or(UNKNOWN.into()));
    let communication: Part = |share| Some(share.communication_us);
    for (label, part, whole) in [
        ("computation", (|share| share.computation_us) as Part, None),
        ("communication", communication, None),
        ("  overlapped", overlapped, Some(communication)),
        ("  exposed", |share| share.exposed_us, Some(communication)),
        ("  packing", |share| Some(share.packing_us), Some(communication)),
        ("control plane", |share| share.control_us, None),
    ] {
        line(&mut text, label, shares(analysis, part, whole));
    }
    negotiation(&mut text, analysis);
    let share = &analysis.ranks[0];
    let cycles = share.cycles.map(|cycles| {
        let percent = 100.0 * cycles.idle as f64 / cycles.count as f64;
        format!("{}, of which {} idle ({percent:.1} %)", cycles.count, cycles.idle)
    });
    let unmarked = || format!("{UNKNOWN}; HOROVOD_TIMELINE_MARK_CYCLES=1 marks them");
    line(&mut text, "cycles", cycles.unwrap_or_else(unmarked));
    let messages = analysis.messages.map(|messages| {
        format!(
            "{} of {:.1} tensors each ({} to {}){}",
            messages.count,
            messages.tensors_mean,
            messages.tensors_min,
            messages.tensors_max,
            if messages.reported { "" } else { ", counting messages that overlap in time as one" },
        )
    });
    line(&mut text, "messages", messages.unwrap_or(UNKNOWN.into()));
    tensors(&mut text, &analysis.tensors, most_tensors);
    text
}

fn line(text: &mut String, label: &str, value: String) {
    let _ = writeln!(text, "  {label:<18}{value}");
}

fn ms(time_us: f64) -> String {
    format!("{:.3} ms", time_us / 1e3)
}

/// A number that each rank may have.
type Part = fn(&Share) -> Option<f64>;

/// Communication during which something was computed.
fn overlapped(share: &Share) -> Option<f64> {
    share.exposed_us.map(|exposed_us| share.communication_us - exposed_us)
}

/// A part of all ranks' time: mean, share of a whole or of the time covered, and range.
fn shares(analysis: &Analysis, part: Part, whole: Option<Part>) -> String {
    let times = |part: Part| analysis.ranks.iter().map(part).collect::<Option<Vec<f64>>>();
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let Some(own) = times(part) else { return UNKNOWN.into() };
    let whole = whole.map_or(Some(analysis.covered_us), |whole| times(whole).map(|all| mean(&all)));
    let own_mean = mean(&own);
    let mut text = ms(own_mean);
    if let Some(whole) = whole.filter(|&whole| whole > 0.0) {
        let _ = write!(text, " ({:.1} %)", 100.0 * own_mean / whole);
    }
    if own.len() > 1 {
        let least = own.iter().copied().fold(f64::INFINITY, f64::min);
        let most = own.iter().copied().fold(0.0, f64::max);
        let _ = write!(text, ", mean over ranks, {} to {}", ms(least), ms(most));
    }
    if let Some(steps) = &analysis.steps {
        let _ = write!(text, "; {} per step", ms(own_mean / steps.samples as f64));
    }
    text
}

fn negotiation(text: &mut String, analysis: &Analysis) {
    let Some(Negotiation { time, wall_us, ticked, waiting_us, last }) = &analysis.negotiation
    else {
        return line(text, "negotiation", UNKNOWN.into());
    };
    let count = time.samples;
    let value = format!(
        "{count} of single tensors, median {}, longest {}; at least one for {}",
        ms(time.p50),
        ms(time.max),
        ms(*wall_us)
    );
    line(text, "negotiation", value);
    let (waiting, ranks) = match ticked {
        0 => (UNKNOWN.into(), UNKNOWN.into()),
        ticked => {
            let waiting = ms(waiting_us / *ticked as f64);
            let ranks = last.iter().map(|last| {
                format!("rank {} {} times (alone for {})", last.rank, last.times, ms(last.alone_us))
            });
            let of = format!("{waiting} from first to last rank, mean of {ticked} of {count}");
            (of, ranks.collect::<Vec<_>>().join(", "))
        }
    };
    line(text, "waiting", waiting);
    line(text, "last to be ready", ranks);
}

fn tensors(text: &mut String, tensors: &[Tensor], most: usize) {
    let listed = &tensors[..most.min(tensors.len())];
    let Some(width) = listed.iter().map(|tensor| tensor.name.chars().count()).max() else { return };
    let title = "slowest to negotiate";
    let width = width.max(title.len());
    let _ =
        writeln!(text, "  {title:<width$}  {:>12} {:>12} {:>6}  last", "mean", "longest", "times");
    for Tensor { name, times, mean_us, max_us, last } in listed {
        let last = last.map_or(UNKNOWN.into(), |rank| format!("rank {rank}"));
        let (mean, max) = (ms(*mean_us), ms(*max_us));
        let _ = writeln!(text, "  {name:<width$}  {mean:>12} {max:>12} {times:>6}  {last}");
    }
}
