//! `kolo compare`.

mod interleaved;

use std::path::{Path, PathBuf};

use anyhow::Result;

use serde::Serialize;

use super::printed::{Format, Printed};
use super::{Exit, timelines, usage};
use results::compare::{Compared, Comparison, Comparisons, Run, Verdict};
use results::logs::Log;

/// Headings of the options.
const OUTPUT: &str = "Output";
const INTERLEAVED: &str = "Measure first";

/// Compare the times of runs, case by case and all together: each with the first
///
/// Cases are matched by name. First come the facts in which the runs differ, such as commit, kernel and environment. A
/// case is slower or faster if the interval of the ratio says so, and the same if the interval is within the threshold.
/// Verdicts hold together with 95 %, those of all cases and of all runs: the more cases, the more blocks it takes. How
/// many would tell the threshold is printed.
///
/// With --interleaved it measures the runs first: two binaries, or two environments, take turns block by block, so that
/// a change of the machine is in both. After eight blocks of each case it measures as many more as tell the threshold.
///
/// Exit status: 0, the same or faster; 1, slower, or a case was given up; 3, cannot be said. Of several runs it is that
/// of the worst.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo compare results/BEFORE results/AFTER --figure figures
  kolo compare --interleaved old/kolo target/release/kolo quick --out results/compared")]
pub struct Arguments {
    /// Folders of results, CSV files of rows or logs: each is compared with the first
    ///
    /// Logs are those of nccl-tests, osu_allreduce and Horovod's autotuner. Of timelines, the activities of a step are
    /// compared.
    ///
    /// With --interleaved: binaries of kolo, then a configuration.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Difference that does not matter
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "2%", help_heading = OUTPUT)]
    threshold: f64,
    #[command(flatten)]
    printed: Printed,
    /// Draw the cases into this folder, as changes.svg and changes.png
    ///
    /// Of several runs one for each against the first: changes_b.svg, changes_c.svg, ...
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    figure: Option<PathBuf>,
    /// List all cases, not only the most different ones
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    all: bool,
    #[command(flatten)]
    interleaved: interleaved::Options,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if !arguments.interleaved.is_set() {
        return compare(arguments, &arguments.runs);
    }
    let (folders, is_partial) =
        interleaved::measure(&arguments.interleaved, &arguments.runs, arguments.threshold)?;
    if folders.is_empty() {
        return Ok(Exit::Right);
    }
    let exit = compare(arguments, &folders)?;
    Ok(if is_partial { Exit::Wrong } else { exit })
}

fn compare(arguments: &Arguments, paths: &[PathBuf]) -> Result<Exit> {
    let runs = read(paths)?;
    let (first, others) = match &runs[..] {
        [first, others @ ..] if !others.is_empty() => (first, others),
        _ => return Err(usage("one run; expected two or more, as results/BEFORE results/AFTER")),
    };
    let compared = Comparisons::of(first, others, arguments.threshold).map_err(usage)?;
    match arguments.printed.kind() {
        Format::Text => print!("{}", compared.text(arguments.all)),
        Format::Markdown => print!("{}", compared.markdown(arguments.all)),
        Format::Json => arguments.printed.print(&compared, "")?,
        Format::Csv => arguments.printed.print(&lines(&compared), "")?,
    }
    if let Some(folder) = &arguments.figure {
        draw(&compared, first, others, folder)?;
    }
    Ok(match compared.verdict {
        Verdict::Slower => Exit::Wrong,
        Verdict::Unknown => Exit::Inconclusive,
        Verdict::Same | Verdict::Faster => Exit::Right,
    })
}

/// A case of two runs, as a line of CSV. Times are in microseconds.
#[derive(Serialize)]
struct Line<'c> {
    /// Where the second run is.
    second: &'c str,
    case: &'c str,
    /// Empty where only the second run has the case.
    first_us: Option<f64>,
    second_us: Option<f64>,
    /// Empty where blocks are too few for an interval.
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    /// The interval that the verdict rests on.
    joint_low: Option<f64>,
    joint_high: Option<f64>,
    weight: Option<f64>,
    verdict: &'static str,
}

/// Every case of every pair of runs, also those that only one of them has.
fn lines(compared: &Comparisons) -> Vec<Line<'_>> {
    compared.pairs.iter().flat_map(lines_of).collect()
}

fn lines_of(pair: &Comparison) -> impl Iterator<Item = Line<'_>> {
    let second = pair.second.as_str();
    let both = pair.cases.iter().map(move |case| Line {
        second,
        case: &case.case,
        first_us: Some(case.first_us),
        second_us: Some(case.second_us),
        ratio: case.ratio.map(|ratio| ratio.ratio),
        ratio_low: case.ratio.map(|ratio| ratio.low),
        ratio_high: case.ratio.map(|ratio| ratio.high),
        joint_low: case.joint.map(|ratio| ratio.low),
        joint_high: case.joint.map(|ratio| ratio.high),
        weight: Some(case.weight),
        verdict: case.verdict.name(),
    });
    let only = [("only in the first", &pair.only_first), ("only in the second", &pair.only_second)];
    let alone = only.into_iter().flat_map(move |(verdict, cases)| {
        cases.iter().map(move |case| Line {
            second,
            case,
            first_us: None,
            second_us: None,
            ratio: None,
            ratio_low: None,
            ratio_high: None,
            joint_low: None,
            joint_high: None,
            weight: None,
            verdict,
        })
    });
    both.chain(alone)
}

fn read(paths: &[PathBuf]) -> Result<Vec<Run>> {
    let is_timeline: Vec<bool> = paths.iter().map(|path| timelines::is_timeline(path)).collect();
    let others = || paths.iter().zip(&is_timeline).filter(|(_, is_timeline)| !**is_timeline);
    for (path, _) in others().filter(|(path, _)| !path.is_dir()) {
        if let Some(log) = Log::find(path).map_err(usage)? {
            log.notes().for_each(|note| eprintln!("kolo: {note}"));
        }
    }
    let files: Vec<PathBuf> = others().map(|(path, _)| path.clone()).collect();
    let mut read = Run::read_all(&files).map_err(usage)?.into_iter();
    let run = |(path, is_timeline): (&PathBuf, &bool)| match is_timeline {
        true => timelines::run(path),
        false => Ok(read.next().expect("it was read")),
    };
    let runs = paths.iter().zip(&is_timeline).map(run).collect::<Result<Vec<Run>>>()?;
    for run in &runs {
        run.notes.iter().for_each(|note| eprintln!("kolo: {note}"));
        let path = run.path.display();
        if run.left_out > 0 {
            eprintln!(
                "kolo: {path}: {} rows are left out: not measured, not right, or without time_us_p50",
                run.left_out
            );
        }
        if run.is_doubtful {
            eprintln!("kolo: {path}: nodes are emulated, or ranks share cores");
        }
    }
    Ok(runs)
}

/// Draws the cases of each pair.
fn draw(compared: &Comparisons, first: &Run, others: &[Run], folder: &Path) -> Result<()> {
    let mut rows = plots::Rows::default();
    for (pair, second) in compared.pairs.iter().zip(others) {
        rows.add_changes(changes(pair, [first, second]));
    }
    let drawn = plots::draw(&rows, folder, plots::Options::default(), |_| {}).map_err(usage)?;
    let files = drawn.into_iter().filter_map(|figure| match figure.outcome {
        plots::Outcome::Files(files) => Some(files),
        plots::Outcome::Skipped(_) => None,
    });
    let is_png = |path: &PathBuf| path.extension().is_some_and(|end| end == "png");
    for path in files.flatten().filter(is_png) {
        eprintln!("figure {}", path.display());
    }
    Ok(())
}

fn changes(comparison: &Comparison, runs: [&Run; 2]) -> plots::Changes {
    let case = |case: &Compared| plots::Ratio {
        name: case.case.clone(),
        value: case.ratio.map_or(case.second_us / case.first_us, |ratio| ratio.ratio),
        // Those that the verdicts rest on.
        interval: case.joint.map(|ratio| (ratio.low, ratio.high)),
    };
    plots::Changes {
        runs: runs.map(|run| {
            let name = run.path.file_name().unwrap_or(run.path.as_os_str());
            name.to_string_lossy().into_owned()
        }),
        threshold: comparison.threshold,
        cases: comparison.cases.iter().map(case).collect(),
        interleaved: comparison.interleaved,
        origin: plots::Origin {
            is_doubtful: runs.iter().any(|run| run.is_doubtful),
            words: "Intervals hold for all cases together.".into(),
        },
    }
}

/// A text that is no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a percentage between 0% and 100%; write 2%")]
struct PercentError {
    text: String,
}

/// `2%`, as 0.02.
fn percent(text: &str) -> Result<f64, PercentError> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| PercentError { text: text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_percentages() {
        assert_eq!(percent("2%"), Ok(0.02));
        assert_eq!(percent("0.5 %"), Ok(0.005));
        for wrong in ["2", "200%", "x%", "-1%"] {
            let why = percent(wrong).unwrap_err().to_string();
            assert!(why.contains(&format!("{wrong:?} is not a percentage")), "{why}");
        }
    }
}
