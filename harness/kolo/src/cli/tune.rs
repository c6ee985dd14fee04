//! `kolo tune`.

mod confirm;
mod regret;
mod request;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::printed::Printed;
use super::{Exit, configuration, not_for, plot, sizes, usage};
use measure::config::MOST_STEP_MS;
use measure::environment::{Environment, ValueError, number};
use measure::executor;
use request::Request;
use results::conclusion::{CONCLUSION, Conclusion};
use results::config_kind::ConfigKind;
use results::provenance::{Launch, PROVENANCE, Provenance};
use results::record::{Store, csv_bytes};
use tune::answer::Verdict;
use tune::larger::Larger;
use tune::report::{Report, Tuning};
use tune::space::Pins;
use tune::surface::Site;
use tune::tuned::Tuned;

/// Find the fusion threshold and cycle time for a model on this cluster
///
/// A model that is fitted to the first measurements proposes settings; measured training steps decide. The result
/// is a recommendation with its gain and a 95 % interval, from measurements made after the choice. Over MPI, the
/// data plane that Horovod uses, it ends with lines to copy.
///
/// Horovod's defaults and the points where its own autotune starts are always measured.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo tune --workload resnet50 --backward-ms 100 --budget 1m
  srun kolo tune --workload densenet121 --backward-ms 100 --out tuned")]
pub struct Arguments {
    /// A configuration in TOML, or the name of an embedded one, such as tune-regret
    ///
    /// It may set everything that the options set: workload, [step], [data], [framework], [tune].
    config: Option<PathBuf>,
    /// The gradients: a model, such as resnet50, or a CSV file or timeline
    #[arg(long, value_name = "NAME|FILE", help_heading = RUN)]
    workload: Option<String>,
    /// Length of the backward pass without communication, in ms
    ///
    /// Default: as a timeline shows it, if the workload is one.
    #[arg(long, value_name = "MS", value_parser = step_ms, help_heading = RUN)]
    backward_ms: Option<f64>,
    /// Length of the forward pass in ms [default: half the backward pass]
    #[arg(
        long,
        value_name = "MS",
        value_parser = step_ms,
        help_heading = RUN,
        hide_short_help = true
    )]
    forward_ms: Option<f64>,
    /// Length of the optimizer in ms [default: 0]
    #[arg(
        long,
        value_name = "MS",
        value_parser = step_ms,
        help_heading = RUN,
        hide_short_help = true
    )]
    optimizer_ms: Option<f64>,
    /// Transport [default: mpi if several processes were started, else threads]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = clap::builder::PossibleValuesParser::new(measure::back_ends::names()),
        help_heading = RUN,
        hide_short_help = true
    )]
    transport: Option<String>,
    /// Nodes x ranks per node; several, such as 1x4,2x4, get an answer each
    ///
    /// Default: all processes of the job; on threads 1x2.
    #[arg(long, value_delimiter = ',', help_heading = RUN)]
    topology: Vec<String>,
    /// Time to measure, such as 90s or 10m, shared by all topologies [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = MEASURING)]
    budget: Option<Duration>,
    /// Most steps to measure, those that warm up included, shared by all topologies [default: no limit]
    #[arg(
        long,
        value_name = "STEPS",
        value_parser = sizes::whole::<usize>,
        help_heading = MEASURING,
        hide_short_help = true
    )]
    steps: Option<usize>,
    /// Compare with the values of Horovod's variables in the environment, instead of its defaults
    #[arg(
        long,
        conflicts_with_all = ["json", "format"],
        help_heading = MEASURING,
        hide_short_help = true
    )]
    check: bool,
    /// Afterwards measure every setting this many times, and state the regret
    ///
    /// The regret is how much longer the recommended setting takes than the best one. At least 2; this takes much
    /// longer than the budget.
    #[arg(
        long,
        value_name = "ROUNDS",
        value_parser = clap::value_parser!(u16).range(2..),
        help_heading = MEASURING,
        hide_short_help = true
    )]
    exhaustive: Option<u16>,
    /// Measure even if processes share cores or differ, and record it in rows and provenance
    #[arg(long, help_heading = MEASURING, hide_short_help = true)]
    force: bool,
    /// Also simulate more nodes, on the machine file that `kolo calibrate` wrote for this cluster
    #[arg(long, value_name = "NAME|FILE", help_heading = LARGER, hide_short_help = true)]
    machine: Option<PathBuf>,
    /// Largest number of ranks to simulate [default: eight times the ranks of this job]
    #[arg(
        long,
        value_name = "RANKS",
        value_parser = sizes::whole::<usize>,
        requires = "machine",
        help_heading = LARGER,
        hide_short_help = true
    )]
    up_to: Option<usize>,
    /// Folder for the results [default: results/DATE-tune-WORKLOAD]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    /// Also write confirm.py, which compares recommendation and defaults where Horovod runs
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    confirm_script: bool,
    #[command(flatten)]
    printed: Printed,
    /// Compare the output of confirm.py with tune.json
    ///
    /// tune.json is beside the file, or in the folder given by --out.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["config", "workload", "check", "json", "format"],
        help_heading = OUTPUT,
        hide_short_help = true
    )]
    confirm: Option<PathBuf>,
    #[command(flatten)]
    pins: Pins,
}

/// Headings of the options.
const RUN: &str = "What to tune";
const MEASURING: &str = "Measuring";
const LARGER: &str = "Larger sizes";
const OUTPUT: &str = "Output";

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let file = arguments.config.as_deref().map(configuration).transpose()?;
    if let Some(file) = &file {
        match ConfigKind::of_file(file)? {
            ConfigKind::Training => {}
            ConfigKind::Regret => return regret::run(file, arguments.out.as_deref()),
            kind => return Err(not_for(file, kind, "kolo tune")),
        }
    }
    if let Some(printed) = &arguments.confirm {
        return confirm::run(printed, arguments.out.as_deref());
    }
    let mut launch = Launch::now();
    let environment = Environment::read(&launch.environment).map_err(usage)?;
    let mut request = Request::of(arguments, file.as_ref(), &environment)?;
    let assembled = executor::assemble(&mut request.all, &mut launch, arguments.force);
    let Some(mut executor) = assembled.map_err(usage)? else { return Ok(Exit::Right) };
    request.settle()?;
    request.remark();
    let Request { all, grids, .. } = &request;
    let folder = arguments.out.clone().unwrap_or_else(|| {
        let name = format!("{}-tune-{}", launch.started.replace(':', ""), all.workload.name);
        Path::new("results").join(name)
    });
    let mut provenance = Provenance::new(all, launch);
    let mut store = Store::create(&folder, &provenance)?;
    provenance.write(&folder.join(PROVENANCE))?;
    let (settings, seconds) = (all.cases.len(), request.budget.time.as_secs_f64());
    let steps = arguments.steps.map_or(String::new(), |steps| format!(" and {steps} steps"));
    eprintln!(
        "{settings} settings, at most {seconds:.0} s{steps}; results in {}",
        folder.display()
    );
    let (progress, launches) = (progress(), provenance.launches.clone());
    let mut site = Site {
        all,
        executor: &mut *executor,
        store: &mut store,
        launches: &launches,
        progress: &progress,
        blocks: 0,
    };
    let mut tuned = Vec::new();
    for grid in grids {
        // The remaining budget is that of the other topologies; measuring every setting afterwards is not part of
        // it.
        let seconds: f64 = tuned.iter().map(|tuned: &Tuned| tuned.seconds).sum();
        let blocks = tuned.iter().map(|tuned: &Tuned| tuned.blocks).sum();
        let used = Duration::from_secs_f64(seconds);
        let share = request.budget.share(used, blocks, grids.len() - tuned.len());
        let rounds = arguments.exhaustive.map(usize::from);
        tuned.push(Tuned::measure(grid, &mut site, share, rounds)?);
    }
    progress.finish_and_clear();
    drop(executor);
    let (text, tuning) = write(&request, &tuned, &store, arguments.confirm_script)?;
    if let Some(launch) = provenance.launches.last_mut() {
        launch.end(gpu::cuda::inventory::after).iter().for_each(|sentence| eprintln!("{sentence}"));
    }
    provenance.write(&folder.join(PROVENANCE))?;
    let figures = plot::figures_and_report(&folder)?;
    if arguments.printed.is_text() {
        print!("{text}{figures}");
        println!("results in {}", folder.display());
    }
    arguments.printed.print(&tuning, "/compared")?;
    let largest = tuned.last().and_then(|tuned| tuned.answer.as_ref());
    Ok(match largest.map(|answer| answer.verdict) {
        None | Some(Verdict::Unknown) => Exit::Inconclusive,
        Some(_) => Exit::Right,
    })
}

/// Writes the results as text and as data, and returns both. The lines to copy are those of the last topology.
fn write(
    request: &Request,
    tuned: &[Tuned],
    store: &Store,
    script: bool,
) -> Result<(String, Tuning)> {
    let (mut text, mut json, mut conclusion) = (String::new(), Vec::new(), Conclusion::default());
    for (grid, tuned) in request.grids.iter().zip(tuned) {
        let is_last = json.len() + 1 == request.grids.len();
        let asked = request.machine.as_ref().filter(|_| is_last);
        let expected =
            asked.map(|(machine, up_to)| Larger::expect(grid, tuned, machine, *up_to)).transpose();
        let (larger, problem) = match expected {
            Ok(larger) => (larger.flatten(), None),
            // The measurement is reported all the same.
            Err(why) => (None, Some(format!("\nNo prediction for larger sizes: {why}\n"))),
        };
        let (reference, larger) = (request.reference.as_str(), larger.as_ref());
        let report = Report { grid, tuned, reference, larger, is_last };
        text += &report.text();
        text += &problem.unwrap_or_default();
        json.push(report.json());
        conclusion.add(report.conclusion());
        if !is_last {
            text.push('\n');
            continue;
        }
        if let Some(yaml) = report.yaml() {
            store.write_whole("horovod.yaml", yaml.as_bytes())?;
        }
        if let Some(script) = report.script().filter(|_| script) {
            store.write_whole("confirm.py", script.as_bytes())?;
        }
    }
    let lost: Vec<_> = tuned.iter().filter_map(|tuned| tuned.lost.as_ref()).collect();
    if !lost.is_empty() {
        store.write_whole("regret.csv", &csv_bytes(&lost, true))?;
    }
    let mut tuning: Tuning = json.pop().expect("there is a topology");
    tuning.smaller = json;
    let json = serde_json::to_string_pretty(&tuning)? + "\n";
    store.write_whole("tune.json", json.as_bytes())?;
    store.write_whole("summary.txt", text.as_bytes())?;
    store.write_whole(CONCLUSION, &conclusion.json())?;
    Ok((text, tuning))
}

fn progress() -> ProgressBar {
    let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} blocks  {msg}";
    let style = ProgressStyle::with_template(style).expect("a template that indicatif accepts");
    ProgressBar::new(1).with_style(style.progress_chars("=> "))
}

/// Length of a part of a step.
pub(super) fn step_ms(text: &str) -> Result<f64, ValueError> {
    number(text, MOST_STEP_MS)
}

/// A text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a time; write 90s, 10m or 1h")]
pub struct DurationError {
    text: String,
}

/// `90s`, `10m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError { text: text.into() };
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    if (0.0..1e6).contains(&number) {
        Ok(Duration::from_secs_f64(number * seconds))
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "90", "m", "-1m", "tenm", "1e9h", "5µ"] {
            assert!(duration(wrong).unwrap_err().to_string().contains("write 90s"), "{wrong}");
        }
    }
}
