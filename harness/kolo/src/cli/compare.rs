//! `kolo compare`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Exit, usage};
use results::compare::{Compared, Comparison, Run, Verdict, compare};
use results::logs::Log;

/// Compare the times of two runs, case by case and all together
///
/// Cases are matched by name. First come the facts in which the runs differ, such as commit, kernel and environment. A
/// case is slower or faster if the 95 % interval of the ratio says so, and the same if the interval is within the
/// threshold. Four blocks of a case in each run are the fewest for an interval.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 the same or faster, 1 slower, 3 cannot be said

Examples:
  kolo compare results/BEFORE results/AFTER --figure figures
  kolo compare before.csv after.csv --threshold 5% --format markdown
  kolo compare nccl-before.log nccl-after.log")]
pub struct Arguments {
    /// A folder of results, a CSV file of rows, or a log of nccl-tests, osu_allreduce or Horovod's autotuner
    first: PathBuf,
    /// Another, which is said to be slower or faster
    second: PathBuf,
    /// Difference that does not matter
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "2%")]
    threshold: f64,
    /// How to print
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Draw the cases into this folder, as changes.svg and changes.png
    #[arg(long, value_name = "DIR")]
    figure: Option<PathBuf>,
    /// List all cases, not only the most different ones
    #[arg(long)]
    all: bool,
}

/// How a comparison is printed.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A table for a terminal
    Text,
    /// A table for a page
    Markdown,
    /// For programs
    Json,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let read = |path: &PathBuf| -> Result<Run> {
        if let Some(log) = if path.is_dir() { None } else { Log::find(path).map_err(usage)? } {
            log.notes().for_each(|note| eprintln!("kolo: {note}"));
        }
        let run = Run::read(path).map_err(usage)?;
        if run.left_out > 0 {
            eprintln!(
                "kolo: {}: {} rows are left out: not measured, not right, or without time_us_p50",
                path.display(),
                run.left_out
            );
        }
        if run.is_doubtful {
            eprintln!("kolo: {}: nodes are emulated, or ranks share cores", path.display());
        }
        Ok(run)
    };
    let (first, second) = (read(&arguments.first)?, read(&arguments.second)?);
    let comparison = compare(&first, &second, arguments.threshold).map_err(usage)?;
    match arguments.format {
        Format::Text => print!("{}", comparison.text(arguments.all)),
        Format::Markdown => print!("{}", comparison.markdown()),
        Format::Json => println!("{}", serde_json::to_string_pretty(&comparison)?),
    }
    if let Some(folder) = &arguments.figure {
        draw(&comparison, [&first, &second], folder)?;
    }
    Ok(match comparison.verdict() {
        Verdict::Slower => Exit::Wrong,
        Verdict::Unknown => Exit::Inconclusive,
        Verdict::Same | Verdict::Faster => Exit::Right,
    })
}

/// Draws the cases.
fn draw(comparison: &Comparison, runs: [&Run; 2], folder: &Path) -> Result<()> {
    let case = |case: &Compared| plots::Ratio {
        name: case.case.clone(),
        value: case.ratio.map_or(case.second_us / case.first_us, |ratio| ratio.ratio),
        interval: case.ratio.map(|ratio| (ratio.low, ratio.high)),
    };
    let mut rows = plots::Rows::default();
    rows.add_changes(plots::Changes {
        runs: runs.map(|run| {
            let name = run.path.file_name().unwrap_or(run.path.as_os_str());
            name.to_string_lossy().into_owned()
        }),
        threshold: comparison.threshold,
        cases: comparison.cases.iter().map(case).collect(),
        origin: plots::Origin {
            is_doubtful: runs.iter().any(|run| run.is_doubtful),
            words: String::new(),
        },
    });
    plots::draw(&rows, folder, plots::Options::default(), |_| {}).map_err(usage)?;
    eprintln!("figure {}", folder.join("changes.png").display());
    Ok(())
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
