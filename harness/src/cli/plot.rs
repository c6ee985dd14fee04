//! `kolo plot`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Exit, usage};

/// Draw figures, as SVG and PNG, from one or more folders of results or CSV files.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folders that a run wrote, or CSV files with its columns
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Where figures go [default: figures in the first folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let first = &arguments.results[0];
    let beside = if first.is_dir() { first.as_path() } else { first.parent().unwrap_or(first) };
    let folder = arguments.out.clone().unwrap_or_else(|| beside.join("figures"));
    let (drawn, not_drawn) = draw(&arguments.results, &folder)?;
    print!("{drawn}");
    eprint!("{not_drawn}");
    Ok(Exit::Right)
}

/// Draws whatever the results hold data for; returns a line for each figure. Where there is none, says why.
pub fn figures(results: &[PathBuf], folder: &Path) -> Result<String> {
    let (drawn, not_drawn) = draw(results, folder)?;
    if drawn.is_empty() {
        eprint!("{not_drawn}");
    }
    Ok(drawn)
}

/// A line for each figure, and one for each that could not be drawn.
fn draw(results: &[PathBuf], folder: &Path) -> Result<(String, String)> {
    let (mut lines, mut not_drawn) = (String::new(), String::new());
    let mut files = Vec::new();
    for result in results {
        if result.is_dir() {
            let own = ["rows.csv", "bandwidth.csv", "published.csv", "validation.csv"]
                .map(|name| result.join(name));
            files.extend(own.into_iter().filter(|path| path.exists()));
        } else {
            files.push(result.clone());
        }
    }
    if files.is_empty() {
        let names: Vec<_> = results.iter().map(|path| path.display().to_string()).collect();
        return Err(usage(format!(
            "{}: no rows.csv there, nor published.csv or validation.csv",
            names.join(", ")
        )));
    }
    let rows = plots::Rows::read(&files).map_err(usage)?;
    for drawn in plots::draw(&rows, folder)? {
        match drawn.outcome {
            plots::Outcome::Files(files) => {
                let png = files.iter().find(|file| file.extension().is_some_and(|e| e == "png"));
                lines += &format!("figure {}\n", png.unwrap_or(&files[0]).display());
            }
            plots::Outcome::Skipped(reason) => {
                not_drawn += &format!("figure {} not drawn: {reason}\n", drawn.figure);
            }
        }
    }
    Ok((lines, not_drawn))
}
