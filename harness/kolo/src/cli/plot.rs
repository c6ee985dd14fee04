//! `kolo plot`.

mod gains;
mod step;
mod trials;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use algorithms::topology::Topology;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Exit, report, timelines, usage};
use results::columnar;
use results::logs::{Log, autotune};
use results::record::csv_bytes;

/// Draw figures from one or more folders of results or CSV files, as SVG and PNG
///
/// All results go into the same figures. If a case occurs in several runs, the latest counts. To compare runs, plot
/// each by itself, with its own --out.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo plot results/RUN1 results/RUN2 --out figures --verbose
  kolo plot results/RUN --paper")]
pub struct Arguments {
    /// Folders that a run wrote, CSV files with the same columns, timelines or logs
    ///
    /// Of a folder with timelines, a step of the fastest case is drawn. Logs are those of nccl-tests, osu_allreduce and
    /// Horovod's autotuner.
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Folder for the figures [default: figures in the first folder]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
    /// For papers: 3.33 and 7 inches wide, text of 8 points, no title, the caption in a .txt
    #[arg(long, help_heading = "Output")]
    paper: bool,
    /// svg (for screens png, too), or pdf besides; pdf needs a build with `--features pdf`
    #[arg(long, value_name = "FORMAT", default_value = "svg", help_heading = "Output")]
    format: Format,
    /// Efficiency relative to the same line on its fewest ranks, not to the fastest line
    #[arg(long, help_heading = "Output")]
    own_base: bool,
    /// Nodes x ranks per node of logs and timelines that do not say
    ///
    /// Those of osu_allreduce and of Horovod do not.
    #[arg(long, value_name = "TOPOLOGY")]
    topology: Option<Topology>,
    /// Print why a figure is not drawn
    #[arg(long, help_heading = "Output")]
    verbose: bool,
    /// Print for programs which files were written; `kolo schema plot` describes it
    #[arg(long, conflicts_with = "verbose", help_heading = "Output", hide_short_help = true)]
    json: bool,
}

/// What figures are written as.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// SVG, and PNG for screens
    Svg,
    /// PDF besides
    Pdf,
}

/// Version of [`Plotted`] as JSON.
const SCHEMA: u32 = 1;

/// The figures of some results.
#[derive(Serialize, JsonSchema)]
pub struct Plotted {
    /// Version of this structure.
    schema: u32,
    /// Where the files are.
    folder: String,
    /// Figures that were drawn.
    figures: Vec<FilesOf>,
    /// Figures that were not drawn, or not of all rows.
    not_drawn: Vec<NotDrawn>,
}

/// The files of a figure.
#[derive(Serialize, JsonSchema)]
struct FilesOf {
    /// The figure, such as `surface`.
    figure: &'static str,
    /// Its files: an SVG and a PNG of each picture, or what --paper and --format write.
    files: Vec<String>,
}

/// A figure that was not drawn, or not of all rows.
#[derive(Clone, Serialize, JsonSchema)]
struct NotDrawn {
    /// The figure, such as `surface`.
    figure: &'static str,
    /// Why not, in a sentence.
    reason: String,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let results = &arguments.results;
    let first = &results[0];
    let beside = if first.is_dir() { first.as_path() } else { first.parent().unwrap_or(first) };
    let folder = arguments.out.clone().unwrap_or_else(|| beside.join("figures"));
    let options = plots::Options {
        paper: arguments.paper,
        pdf: arguments.format == Format::Pdf,
        own_base: arguments.own_base,
    };
    let figures = Figures::draw(results, arguments.topology.as_ref(), &folder, options)?;
    if arguments.json {
        eprint!("{}", figures.repeated);
        println!("{}", serde_json::to_string_pretty(&figures.plotted(&folder))?);
        return Ok(Exit::Right);
    }
    print!("{}", figures.drawn);
    eprint!("{}", figures.repeated);
    // Without any figure, the user needs the reasons.
    let verbose = arguments.verbose || figures.drawn.is_empty();
    eprint!("{}", if verbose { figures.reasons() } else { figures.in_short() });
    Ok(Exit::Right)
}

/// Draws every figure for which the results have data; returns a line for each figure, or the reason why there is none.
pub fn figures(results: &[PathBuf], folder: &Path) -> Result<String> {
    let figures = Figures::draw(results, None, folder, plots::Options::default())?;
    if figures.drawn.is_empty() {
        eprint!("{}", figures.reasons());
    }
    Ok(figures.drawn)
}

/// The figures of a run, and its report; returns a line for each.
pub fn figures_and_report(folder: &Path) -> Result<String> {
    Ok(figures(&[folder.to_path_buf()], &folder.join("figures"))? + &report_of(folder))
}

/// Writes the report of a run that has ended; returns a line about it. A run without a report is complete, so an error is
/// printed, and the run's status stays as it is.
pub fn report_of(folder: &Path) -> String {
    let written = report::report(&[folder.to_path_buf()], &folder.join(::report::FILE));
    written.unwrap_or_else(|error| {
        let folder = folder.display();
        eprintln!("kolo: no report: {error:#}; the results are in {folder}, and `kolo report {folder}` tries again");
        String::new()
    })
}

/// The outcome of drawing some results, as lines of text.
struct Figures {
    /// A line for each figure.
    drawn: String,
    /// Their names.
    names: Vec<&'static str>,
    /// Their files, by figure.
    files: Vec<Vec<PathBuf>>,
    /// A line for each pair of results that have cases in common.
    repeated: String,
    /// Figures that could not be drawn, each with the reason.
    not_drawn: Vec<NotDrawn>,
}

impl Figures {
    fn draw(
        results: &[PathBuf],
        topology: Option<&Topology>,
        folder: &Path,
        options: plots::Options,
    ) -> Result<Figures> {
        let Sorted { logs, timelines, others } = Sorted::of(results)?;
        let files = if others.is_empty() { Vec::new() } else { files(&others)? };
        let mut rows = ::report::rows(&files).map_err(usage)?;
        for log in &logs {
            log.notes().for_each(|note| eprintln!("kolo: {note}"));
            log.others().iter().for_each(|other| eprintln!("kolo: {other}"));
            add_log(&mut rows, log, topology)?;
        }
        for timeline in timelines {
            add_timeline(&mut rows, timeline, topology)?;
        }
        for folder in others.iter().filter(|path| path.is_dir()) {
            gains::read(folder)?.into_iter().for_each(|gains| rows.add_gains(gains));
            if let Some(timeline) = ::report::fastest_timeline(folder).map_err(usage)? {
                rows.add_timeline(step::read(&timeline)?);
            }
        }
        rows.left_out().iter().for_each(|line| eprintln!("kolo: {line}"));
        let (mut drawn, mut names, mut not_drawn) = (String::new(), Vec::new(), Vec::new());
        let mut written = Vec::new();
        let bar = progress();
        let outcomes = plots::draw(&rows, folder, options, |figure| {
            bar.set_message(figure);
            bar.inc(1);
        });
        bar.finish_and_clear();
        for figure in outcomes.map_err(usage)? {
            match figure.outcome {
                plots::Outcome::Files(files) => {
                    drawn += &lines(&files);
                    names.push(figure.figure);
                    written.push(files);
                }
                plots::Outcome::Skipped(reason) => {
                    not_drawn.push(NotDrawn { figure: figure.figure, reason });
                }
            }
        }
        let repeated = repeated(&rows.repeated(), results);
        Ok(Figures { drawn, names, files: written, repeated, not_drawn })
    }

    /// For programs.
    fn plotted(&self, folder: &Path) -> Plotted {
        let in_words = |path: &PathBuf| path.display().to_string();
        let figures = self.names.iter().zip(&self.files);
        let figures = figures.map(|(&figure, files)| FilesOf {
            figure,
            files: files.iter().map(in_words).collect(),
        });
        Plotted {
            schema: SCHEMA,
            folder: folder.display().to_string(),
            figures: figures.collect(),
            not_drawn: self.not_drawn.clone(),
        }
    }

    /// A line for each figure that could not be drawn.
    fn reasons(&self) -> String {
        self.not_drawn.iter().map(reason).collect()
    }

    /// One line for all of them, and the reasons of those that are drawn in part.
    fn in_short(&self) -> String {
        let (in_part, whole): (Vec<_>, Vec<_>) =
            self.not_drawn.iter().partition(|it| self.names.contains(&it.figure));
        let reasons = in_part.into_iter().map(reason).collect();
        let mut names: Vec<&str> = whole.into_iter().map(|it| it.figure).collect();
        names.dedup();
        match names.as_slice() {
            [] => reasons,
            names => format!("{reasons}not drawn: {} (--verbose says why)\n", names.join(", ")),
        }
    }
}

/// Shows how many figures are done, on a terminal.
fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{pos}/{len} figures, {msg}");
    let style = style.expect("a template that indicatif accepts");
    ProgressBar::new(plots::FIGURE_COUNT as u64).with_style(style)
}

/// The results by their kind.
struct Sorted<'r> {
    /// Logs of other programs.
    logs: Vec<Log>,
    timelines: Vec<&'r PathBuf>,
    /// Folders, and files of rows.
    others: Vec<&'r PathBuf>,
}

impl Sorted<'_> {
    fn of(results: &[PathBuf]) -> Result<Sorted<'_>> {
        let mut sorted = Sorted { logs: Vec::new(), timelines: Vec::new(), others: Vec::new() };
        for path in results {
            if path.is_dir() {
                sorted.others.push(path);
            } else if timelines::is_timeline(path) {
                sorted.timelines.push(path);
            } else if let Some(log) = Log::find(path).map_err(usage)? {
                sorted.logs.push(log);
            } else if path.extension().is_some_and(|end| end == "json") {
                // Reading it says what is wrong.
                sorted.timelines.push(path);
            } else {
                sorted.others.push(path);
            }
        }
        Ok(sorted)
    }
}

/// Adds the allreduces of a log, or the trials of an autotuner.
fn add_log(rows: &mut plots::Rows, log: &Log, topology: Option<&Topology>) -> Result<()> {
    let (tried, answer) = autotune::answer(&log.trials);
    if !tried.is_empty() {
        rows.add_trials(trials::of(&log.path, tried, answer));
    }
    let table = log.rows(topology);
    if !table.is_empty() {
        rows.add_table(&log.path, &csv_bytes(&table, true)).map_err(usage)?;
    }
    Ok(())
}

/// Adds a step of a timeline, and of Horovod's the allreduces, whose sizes ours has in other files.
///
/// # Errors
/// When it is no timeline, or has neither a step nor an allreduce whose size is known.
fn add_timeline(rows: &mut plots::Rows, path: &Path, topology: Option<&Topology>) -> Result<()> {
    let trace = timelines::read(path)?;
    let step = step::of(path, &trace);
    if trace.case.is_some() {
        rows.add_timeline(step.map_err(usage)?);
        return Ok(());
    }
    timelines::check(path, &trace, topology)?;
    let log = timelines::log(path, &trace);
    timelines::left_out(path, &trace).iter().for_each(|note| eprintln!("kolo: {note}"));
    match (step, log) {
        (Err(step), Err(_)) => return Err(usage(step)),
        (step, log) => {
            match step {
                Ok(step) => rows.add_timeline(step),
                Err(why) => eprintln!("kolo: {why}; no step is drawn"),
            }
            match log {
                Ok(log) => add_log(rows, &log, topology)?,
                Err(why) => eprintln!("kolo: {why}; no allreduce is drawn"),
            }
        }
    }
    Ok(())
}

/// A line with the first PNG of a figure; on paper a line for each SVG or PDF.
fn lines(files: &[PathBuf]) -> String {
    let of = |end: &str| -> Vec<&PathBuf> {
        let has = |file: &&PathBuf| file.extension().is_some_and(|it| it == end);
        files.iter().filter(has).collect()
    };
    let pictures = of("png");
    let shown = match (pictures.first(), of("pdf")) {
        (Some(first), _) => vec![*first],
        (None, converted) if !converted.is_empty() => converted,
        _ => of("svg"),
    };
    shown.iter().map(|file| format!("figure {}\n", file.display())).collect()
}

fn reason(NotDrawn { figure, reason }: &NotDrawn) -> String {
    format!("figure {figure} not drawn: {reason}\n")
}

/// The tables of a run that figures are drawn from.
const TABLES: [&str; 6] =
    ["rows.csv", "bandwidth.csv", "published.csv", "validation.csv", "comparison.csv", "ranks.csv"];

/// The tables of folders, with the predictions that are in them, and files as they are, each once.
fn files(results: &[&PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for result in results {
        if result.is_dir() {
            let predicted = result.join(::report::PREDICTED).join(TABLES[0]);
            let tables = TABLES.map(|name| result.join(name)).into_iter().chain([predicted]);
            files.extend(tables.filter(|path| path.exists()));
            files.extend(columnar::find(result, "samples"));
        } else {
            files.push(result.to_path_buf());
        }
    }
    if files.is_empty() {
        let names: Vec<_> = results.iter().map(|path| path.display().to_string()).collect();
        return Err(usage(format!(
            "{}: no rows.csv there, nor published.csv, validation.csv or comparison.csv",
            names.join(", ")
        )));
    }
    // The predictions of a folder may be given by themselves, too.
    let mut once: Vec<PathBuf> = Vec::new();
    for file in files {
        if !once.contains(&file) {
            once.push(file);
        }
    }
    Ok(once)
}

/// A line for each pair of results that have cases in common, as the user gave them.
fn repeated(repeated: &[plots::Repeated], results: &[PathBuf]) -> String {
    let given = |file: &Path| {
        let of = |result: &&PathBuf| file == result.as_path() || file.parent() == Some(result);
        results.iter().find(of).map_or(file, PathBuf::as_path).display().to_string()
    };
    let mut pairs: BTreeMap<(String, String), usize> = BTreeMap::new();
    for it in repeated {
        *pairs.entry((given(&it.earlier), given(&it.later))).or_default() += it.cases;
    }
    let line = |((earlier, later), cases): ((String, String), usize)| {
        let occur = if cases == 1 { "case occurs" } else { "cases occur" };
        let those = if cases == 1 { "that" } else { "those" };
        let drawn = if cases == 1 { "is" } else { "are" };
        format!(
            "{cases} {occur} in {earlier} and {later}; {those} of {later}, the newer run, {drawn} \
             drawn; to compare runs, plot them apart\n"
        )
    };
    pairs.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
