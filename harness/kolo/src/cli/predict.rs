//! `kolo predict`.

mod target;

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::ProgressBar;
use schemars::JsonSchema;
use serde::Serialize;

use super::printed::Printed;
use super::tune::step_ms;
use super::{Exit, plot, sizes, usage};
use results::files::create_folder;
use results::files::write_whole;
use results::provenance::{Launch, PROVENANCE, Provenance, now};
use results::record::table;
use results::row::{Row, SimulatedStepRow, StepRow, Times, columns};
use simulator::limit::Answer;
use simulator::machine_file::MachineFile;
use simulator::predict::{Coverage, Missed, PER_DOUBLING, PROBABILITY, Predicted, Prediction};

/// Simulate the cases of a sweep on more ranks, or how far a model scales
///
/// With RESULTS: the measured settings, on as many ranks and on more. The machine file is the one that `kolo calibrate`
/// wrote on the same cluster. Figures show measured and predicted times.
///
/// With --workload: up to how many GPUs of the machine the model reaches an efficiency, what is lost beyond, and what
/// one change would bring.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo predict results/RUN --machine here.toml --up-to 64
  kolo predict --workload resnet50 --backward-ms 116 --machine summit --target-efficiency 0.9")]
pub struct Arguments {
    /// A folder of results with training steps over threads or MPI
    #[arg(required_unless_present = "workload", conflicts_with = "workload")]
    results: Option<PathBuf>,
    /// Machine file, or the name of an embedded one
    #[arg(long, value_name = "NAME|FILE", help_heading = RUN)]
    machine: PathBuf,
    /// Largest number of ranks
    ///
    /// Sizes double from the largest measured one; default: four times that. With --workload they double from one node;
    /// default: the whole machine.
    #[arg(long, value_name = "RANKS", value_parser = sizes::whole::<usize>, help_heading = RUN)]
    up_to: Option<usize>,
    /// Largest number of ranks whose measured times set the bands [default: all]
    ///
    /// Measured times of more ranks are then compared with the bands, to see whether these hold.
    #[arg(
        long,
        value_name = "RANKS",
        value_parser = sizes::whole::<usize>,
        conflicts_with = "workload",
        help_heading = RUN,
        hide_short_help = true
    )]
    known_ranks: Option<usize>,
    /// Folder of the workloads' gradient lists
    #[arg(
        long,
        value_name = "DIR",
        default_value = "configs/workloads",
        help_heading = RUN,
        hide_short_help = true
    )]
    workloads: PathBuf,
    /// The gradients of a model, such as resnet50, or a CSV file
    #[arg(
        long,
        value_name = "NAME|FILE",
        requires = "backward_ms",
        help_heading = MODEL
    )]
    workload: Option<String>,
    /// Wanted share of perfect scaling [default: 0.9]
    #[arg(long, value_name = "SHARE", requires = "workload", help_heading = MODEL)]
    target_efficiency: Option<f64>,
    /// Length of the backward pass on one GPU in ms
    #[arg(long, value_name = "MS", value_parser = step_ms, requires = "workload", help_heading = MODEL)]
    backward_ms: Option<f64>,
    /// Length of the forward pass in ms [default: half the backward pass]
    #[arg(long, value_name = "MS", value_parser = step_ms, help_heading = MODEL, hide_short_help = true)]
    forward_ms: Option<f64>,
    /// Length of the optimizer in ms [default: 0]
    #[arg(long, value_name = "MS", value_parser = step_ms, help_heading = MODEL, hide_short_help = true)]
    optimizer_ms: Option<f64>,
    /// Gradients travel as fp16
    #[arg(long, help_heading = MODEL, hide_short_help = true)]
    fp16: bool,
    /// Control plane
    #[arg(long, value_name = "NAME", default_value = "bitvector", help_heading = MODEL, hide_short_help = true)]
    control_plane: String,
    /// Data plane: nccl, nccl:ring, nccl:tree, nccl:nvls, nccl:nvls-tree, nccl:collnet, or an algorithm
    #[arg(long, value_name = "NAME", default_value = "nccl", help_heading = MODEL, hide_short_help = true)]
    data_plane: String,
    /// Fusion threshold in MiB
    #[arg(long, value_name = "MIB", default_value_t = 128.0, help_heading = MODEL, hide_short_help = true)]
    fusion_threshold_mb: f64,
    /// Cycle time in ms
    #[arg(long, value_name = "MS", default_value_t = 1.0, help_heading = MODEL, hide_short_help = true)]
    cycle_time_ms: f64,
    /// A new folder for the predictions [default: results/DATE-predicted]
    #[arg(long, value_name = "DIR", help_heading = RUN)]
    out: Option<PathBuf>,
    #[command(flatten)]
    printed: Printed,
    /// Draw no figures; `kolo plot` with both folders draws them later
    #[arg(long, help_heading = RUN, hide_short_help = true)]
    no_figures: bool,
}

/// Headings of the options.
const RUN: &str = "What to simulate";
const MODEL: &str = "A model instead of results";

/// The efficiency that is wanted by default.
const TARGET: f64 = 0.9;

/// Columns without which no step can be simulated; other columns that are missing count as unknown.
const NEEDED: [&str; 12] = [
    "schema",
    "kind",
    "status",
    "source",
    "workload",
    "transport",
    "control_plane",
    "algorithm",
    "nodes",
    "ranks",
    "fusion_threshold_bytes",
    "backward_ms",
];

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match (&arguments.results, &arguments.workload) {
        (Some(results), _) => from_results(arguments, results),
        (None, Some(workload)) => target::run(arguments, workload),
        (None, None) => unreachable!("clap requires one of them"),
    }
}

/// The folder for the predictions, which does not exist yet.
fn new_folder(arguments: &Arguments, launch: &Launch) -> Result<PathBuf> {
    let out = arguments.out.clone().unwrap_or_else(|| {
        Path::new("results").join(format!("{}-predicted", launch.started.replace(':', "")))
    });
    if out.exists() {
        return Err(usage(format!("{} exists; results are never overwritten", out.display())));
    }
    Ok(out)
}

fn write_rows(out: &Path, rows: &[SimulatedStepRow]) -> Result<()> {
    Ok(write_whole(&out.join("rows.csv"), &table(rows, &columns()))?)
}

fn from_results(arguments: &Arguments, results: &Path) -> Result<Exit> {
    let launch = Launch::now();
    let request = Request {
        results,
        machine: &arguments.machine,
        workloads: &arguments.workloads,
        up_to: UpTo::asked(arguments.up_to),
        known_ranks: arguments.known_ranks,
        out: new_folder(arguments, &launch)?,
        figures: !arguments.no_figures,
    };
    let forecast = simulate(&request, launch)?;
    if arguments.printed.is_text() {
        print!("{}", forecast.text);
    }
    arguments.printed.print(&forecast, "/algorithms")?;
    Ok(Exit::Right)
}

/// Version of [`Forecast`] as JSON.
const SCHEMA: u32 = 1;

/// What is predicted.
#[derive(Serialize, JsonSchema)]
pub struct Forecast {
    /// Version of this structure.
    schema: u32,
    /// The folder of the predictions: `rows.csv` has a line for each setting and size.
    predictions: String,
    /// The fastest setting of each algorithm, by size; none of a model without results.
    algorithms: Vec<Fastest>,
    /// How far known times are from their predictions; null for fewer than two of them.
    missed: Option<Missed>,
    /// Whether other measured times lie within their bands; null if there are none.
    coverage: Option<Coverage>,
    /// Up to how many ranks a model reaches an efficiency; null of results.
    limit: Option<Answer>,
    /// The same for people.
    #[serde(skip)]
    text: String,
}

impl Forecast {
    /// For people.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The step time of an algorithm's fastest setting, measured and predicted.
#[derive(Serialize, JsonSchema)]
struct Fastest {
    workload: String,
    transport: String,
    algorithm: String,
    ranks: usize,
    /// Null where it was not measured.
    measured_ms: Option<f64>,
    predicted_ms: f64,
    /// The ends of its band.
    low_ms: f64,
    high_ms: f64,
}

/// The largest number of ranks to simulate.
#[derive(Clone, Copy, Debug)]
pub enum UpTo {
    /// This.
    Ranks(usize),
    /// So many times the largest measured one.
    Times(usize),
}

impl UpTo {
    fn asked(ranks: Option<usize>) -> UpTo {
        ranks.map_or(UpTo::Times(4), UpTo::Ranks)
    }

    fn ranks(self, largest: usize) -> usize {
        match self {
            UpTo::Ranks(ranks) => ranks,
            UpTo::Times(times) => times * largest,
        }
    }
}

/// What to simulate.
pub struct Request<'a> {
    /// A folder of results with training steps.
    pub results: &'a Path,
    /// Machine file, or the name of an embedded one.
    pub machine: &'a Path,
    /// The folder of the workloads' gradient lists.
    pub workloads: &'a Path,
    /// How far to go beyond what was measured.
    pub up_to: UpTo,
    /// The largest number of ranks whose measured times set the bands; none: all.
    pub known_ranks: Option<usize>,
    /// A new folder for the predictions.
    pub out: PathBuf,
    /// Draw figures.
    pub figures: bool,
}

/// Simulates measured settings, and writes the predictions.
///
/// # Errors
/// When results or machine cannot be read, no row can be simulated, or predictions cannot be written.
pub fn simulate(request: &Request<'_>, launch: Launch) -> Result<Forecast> {
    let Request { results, machine, workloads, up_to, known_ranks, out, figures } = request;
    let machine = MachineFile::choose(machine)?;
    let rows = read(results)?;
    let largest = rows.iter().map(|row| row.key().ranks).max().unwrap_or(0);
    let sizes = (up_to.ranks(largest), known_ranks.unwrap_or(usize::MAX));
    let prediction = Prediction::new(&rows, &machine, workloads, sizes)?;
    for (count, why) in &prediction.left_out {
        eprintln!("kolo: {count} rows are left out: {why}");
    }
    prediction.ends.iter().for_each(|why| eprintln!("kolo: {why}"));
    if prediction.cases() == 0 {
        return Err(usage(format!(
            "{}: no row of kind `step` can be simulated on machine {}; expected training steps by \
             our own algorithms, with {} ranks on each node",
            results.display(),
            machine.name,
            machine.node.ranks
        )));
    }
    create_folder(out)?;
    let mut provenance = Provenance::new(&prediction, launch);
    let progress = ProgressBar::new(prediction.cases() as u64);
    let predicted = prediction.predicted(|| progress.inc(1));
    progress.finish_and_clear();
    write_rows(out, &predicted.rows)?;
    if let Some(launch) = provenance.launches.last_mut() {
        launch.ended = Some(now());
    }
    provenance.write(&out.join(PROVENANCE))?;
    let algorithms = fastest(&rows, &predicted.rows);
    let mut text = table_of(&algorithms) + &bands(&predicted);
    if *figures {
        text += &plot::figures(&[results.to_path_buf(), out.clone()], &out.join("figures"))?;
    }
    text += &format!("predictions in {}\n", out.display());
    let Predicted { missed, coverage, .. } = predicted;
    let predictions = out.display().to_string();
    Ok(Forecast { schema: SCHEMA, predictions, algorithms, missed, coverage, limit: None, text })
}

fn read(folder: &Path) -> Result<Vec<Row>> {
    let path = folder.join("rows.csv");
    let refuse = |why: String| usage(format!("{}: {why}", path.display()));
    let mut reader = csv::Reader::from_path(&path).map_err(|error| {
        refuse(format!("{error}; expected a folder of results, as `kolo sweep` writes it"))
    })?;
    let columns = reader.headers().map_err(|error| refuse(error.to_string()))?;
    let missing = NEEDED.iter().filter(|needed| !columns.iter().any(|column| column == **needed));
    let missing: Vec<&str> = missing.copied().collect();
    if !missing.is_empty() {
        return Err(refuse(format!(
            "columns {} are missing, and a simulation needs them; if another version of kolo wrote \
             this file, measure again with this version",
            missing.join(", ")
        )));
    }
    reader
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(|error| refuse(format!("{error}; measure it again with this version of kolo")))
}

/// The fastest setting of each algorithm, measured and predicted.
fn fastest(measured: &[Row], predicted: &[SimulatedStepRow]) -> Vec<Fastest> {
    let measured: Vec<Setting> = measured.iter().filter_map(Setting::measured).collect();
    let predicted: Vec<Setting> = predicted.iter().filter_map(Setting::predicted).collect();
    fn of<'s, 'r>(settings: &'s [Setting<'r>], of: &Setting) -> Option<&'s Setting<'r>> {
        let alike = settings.iter().filter(|setting| setting.of == of.of);
        alike.min_by(|a, b| a.time_us.total_cmp(&b.time_us))
    }
    let mut listed = Vec::new();
    let mut all = Vec::new();
    for setting in predicted.iter().filter_map(|setting| of(&predicted, setting)) {
        if listed.contains(&setting.of) {
            continue;
        }
        listed.push(setting.of);
        let (workload, transport, algorithm, ranks) = setting.of;
        let (low_us, high_us) = setting.band_us;
        all.push(Fastest {
            workload: workload.into(),
            transport: transport.into(),
            algorithm: algorithm.into(),
            ranks,
            measured_ms: of(&measured, setting).map(|measured| measured.time_us / 1e3),
            predicted_ms: setting.time_us / 1e3,
            low_ms: low_us / 1e3,
            high_ms: high_us / 1e3,
        });
    }
    all
}

fn table_of(algorithms: &[Fastest]) -> String {
    let mut text = String::from(
        "step time of each algorithm's fastest setting (ms)\n\
         workload             transport algorithm               ranks   measured  predicted [band]                  error\n",
    );
    for Fastest {
        workload,
        transport,
        algorithm,
        ranks,
        measured_ms,
        predicted_ms,
        low_ms,
        high_ms,
    } in algorithms
    {
        let band = format!("[{low_ms:.2}, {high_ms:.2}]");
        let shown = measured_ms.map_or("-".into(), |ms| format!("{ms:.2}"));
        let error = measured_ms
            .map_or("-".into(), |ms| format!("{:+.1} %", 100.0 * (predicted_ms / ms - 1.0)));
        text += &format!(
            "{workload:<20} {transport:<9} {algorithm:<22} {ranks:>8} {shown:>10} {predicted_ms:>10.2} {band:<20} \
             {error:>8}\n"
        );
    }
    text
}

/// What the bands consist of, and whether they hold.
fn bands(Predicted { missed, coverage, .. }: &Predicted) -> String {
    let mut text = match missed {
        Some(missed) => {
            let (typical, low, high) = missed.ratio();
            format!(
                "bands of {:.0} %: the ranges of the machine's parameters, and how far {} measured times are from \
                 their predictions\n(measured / predicted {typical:.2}, one more within [{low:.2}, {high:.2}]), \
                 with a deviation of {:.0} % for each doubling beyond {} ranks\n",
                100.0 * PROBABILITY,
                missed.cases,
                100.0 * PER_DOUBLING,
                missed.ranks,
            )
        }
        None => "bands: the ranges of the machine's parameters alone, since fewer than two times were measured\n".into(),
    };
    if let Some(Coverage { cases, within, width }) = coverage {
        text += &format!(
            "measured times of more ranks: {within} of {cases} within their bands, which are {:.0} % wide in the median\n",
            100.0 * width
        );
    }
    text
}

/// The median time of a setting that is right.
struct Setting<'r> {
    /// Workload, transport, algorithm and ranks.
    of: (&'r str, &'r str, &'r str, usize),
    time_us: f64,
    band_us: (f64, f64),
}

impl Setting<'_> {
    fn measured(row: &Row) -> Option<Setting<'_>> {
        let Row::Step(StepRow { setting, outcome, .. }) = row else { return None };
        let (training, transport) = (&setting.training, &setting.run.transport);
        let of = (&*training.workload, &**transport, &*training.algorithm, setting.key.ranks);
        Some(Setting::of(of, &outcome.right()?.times))
    }

    fn predicted(row: &SimulatedStepRow) -> Option<Setting<'_>> {
        let SimulatedStepRow { key, training, transport, outcome, .. } = row;
        let of = (&*training.workload, &**transport, &*training.algorithm, key.ranks);
        Some(Setting::of(of, &outcome.right()?.times))
    }

    fn of<'r>(of: (&'r str, &'r str, &'r str, usize), times: &Times) -> Setting<'r> {
        let time_us = times.time_us_p50;
        let end = |end: Option<f64>| end.unwrap_or(time_us);
        Setting { of, time_us, band_us: (end(times.time_us_p50_low), end(times.time_us_p50_high)) }
    }
}
