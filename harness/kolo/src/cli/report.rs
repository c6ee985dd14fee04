//! `kolo report`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use report::{FILE, Report};
use results::files::{check_writable, write_whole};

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
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let first = &arguments.results[0];
    let beside = if first.is_dir() { first.as_path() } else { first.parent().unwrap_or(first) };
    let file = arguments.out.clone().unwrap_or_else(|| beside.join(FILE));
    print!("{}", report(&arguments.results, &file)?);
    Ok(Exit::Right)
}

/// Writes the report of some results; returns a line about it.
///
/// # Errors
/// When the file cannot be written, which is known before anything is drawn, or the results cannot be read.
pub fn report(results: &[PathBuf], file: &Path) -> Result<String> {
    check_writable(file)?;
    let progress = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{elapsed_precise} report: {msg}");
    progress.set_style(style.expect("a template that indicatif accepts"));
    let begins = |next: &str| {
        progress.set_message(next.to_string());
        progress.tick();
    };
    let html = Report::read(results, begins).map_err(usage)?.html();
    progress.finish_and_clear();
    write_whole(file, html.as_bytes())?;
    Ok(format!("report {}\n", file.display()))
}
