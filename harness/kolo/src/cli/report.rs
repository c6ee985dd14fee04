//! `kolo report`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use report::{FILE, Report, Said};
use results::files::{check_writable, write_whole};
use schemars::JsonSchema;
use serde::Serialize;

use super::printed::Printed;
use super::{Exit, usage};

/// Write a run, or several of the same workload, as one page: report.html
///
/// The page has the verdict, lines to copy, figures, tables that sort and filter, step times with their intervals, a
/// step's timeline, warnings, provenance, and how to repeat the run. It is one file that asks for no other, so it opens
/// from a disk, as an attachment or as an artifact of CI. A sweep writes it at its end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo report results/RUN
  kolo report results/BEFORE results/AFTER --out compared.html")]
pub struct Arguments {
    /// Folders that a run wrote, or CSV files with the same columns
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The file to write [default: report.html in the first folder]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    #[command(flatten)]
    printed: Printed,
}

/// Version of [`Written`] as JSON.
const SCHEMA: u32 = 1;

/// A page, and what it says first of each run.
#[derive(Serialize, JsonSchema)]
pub struct Written {
    /// Version of this structure.
    schema: u32,
    /// The page.
    file: String,
    /// How large it is.
    size_bytes: usize,
    /// The runs, in the order in which they were given.
    runs: Vec<Verdict>,
}

/// What the page says first of a run, in sentences.
#[derive(Serialize, JsonSchema)]
struct Verdict {
    /// The run, as it was given.
    run: String,
    /// The verdict; empty where the run wrote no conclusion.
    verdicts: Vec<String>,
    /// What limits it.
    limits: Vec<String>,
    /// What makes its numbers less than they seem.
    warnings: Vec<String>,
    /// Files that the report uses and that the run lacks.
    missing: Vec<String>,
}

impl Verdict {
    fn of(said: &Said) -> Verdict {
        let Said { name, verdicts, limits, warnings, missing, .. } = said;
        Verdict {
            run: name.clone(),
            verdicts: verdicts.clone(),
            limits: limits.clone(),
            warnings: warnings.clone(),
            missing: missing.clone(),
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let first = &arguments.results[0];
    let beside = if first.is_dir() { first.as_path() } else { first.parent().unwrap_or(first) };
    let file = arguments.out.clone().unwrap_or_else(|| beside.join(FILE));
    let written = write(&arguments.results, &file)?;
    if arguments.printed.is_text() {
        println!("report {}", written.file);
    }
    arguments.printed.print(&written, "/runs")?;
    Ok(Exit::Right)
}

/// Writes the report of some results; returns a line about it.
///
/// # Errors
/// As [`write`].
pub fn report(results: &[PathBuf], file: &Path) -> Result<String> {
    Ok(format!("report {}\n", write(results, file)?.file))
}

/// Writes the report of some results.
///
/// # Errors
/// When the file cannot be written, which is known before anything is drawn, or the results cannot be read.
fn write(results: &[PathBuf], file: &Path) -> Result<Written> {
    check_writable(file)?;
    let progress = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{elapsed_precise} report: {msg}");
    progress.set_style(style.expect("a template that indicatif accepts"));
    let begins = |next: &str| {
        progress.set_message(next.to_string());
        progress.tick();
    };
    let report = Report::read(results, begins).map_err(usage)?;
    let html = report.html();
    progress.finish_and_clear();
    write_whole(file, html.as_bytes())?;
    Ok(Written {
        schema: SCHEMA,
        file: file.display().to_string(),
        size_bytes: html.len(),
        runs: report.said().iter().map(Verdict::of).collect(),
    })
}
