//! `kolo plot`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Exit, usage};

/// Draw figures from one or more folders of results or CSV files, as SVG and PNG
///
/// All results go into the same figures. If a case occurs in several runs, the latest counts. To compare runs, plot
/// each by itself, with its own --out.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo plot results/RUN
  kolo plot results/RUN1 results/RUN2 --out figures --verbose")]
pub struct Arguments {
    /// Folders that a run wrote, or CSV files with the same columns
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Folder for the figures [default: figures in the first folder]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Print why a figure is not drawn
    #[arg(long, help_heading = "Output")]
    verbose: bool,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let results = &arguments.results;
    let first = &results[0];
    let beside = if first.is_dir() { first.as_path() } else { first.parent().unwrap_or(first) };
    let folder = arguments.out.clone().unwrap_or_else(|| beside.join("figures"));
    let figures = Figures::draw(results, &folder)?;
    print!("{}", figures.drawn);
    eprint!("{}", figures.repeated);
    // Without any figure, the user needs the reasons.
    let verbose = arguments.verbose || figures.drawn.is_empty();
    eprint!("{}", if verbose { figures.reasons() } else { figures.in_short() });
    Ok(Exit::Right)
}

/// Draws every figure for which the results have data; returns a line for each figure, or the reason why there is none.
pub fn figures(results: &[PathBuf], folder: &Path) -> Result<String> {
    let figures = Figures::draw(results, folder)?;
    if figures.drawn.is_empty() {
        eprint!("{}", figures.reasons());
    }
    Ok(figures.drawn)
}

/// The outcome of drawing some results, as lines of text.
struct Figures {
    /// A line for each figure.
    drawn: String,
    /// Their names.
    names: Vec<&'static str>,
    /// A line for each pair of results that have cases in common.
    repeated: String,
    /// Figures that could not be drawn, each with the reason.
    not_drawn: Vec<(&'static str, String)>,
}

impl Figures {
    fn draw(results: &[PathBuf], folder: &Path) -> Result<Figures> {
        let files = files(results)?;
        let rows = plots::Rows::read(&files).map_err(usage)?;
        let (mut drawn, mut names, mut not_drawn) = (String::new(), Vec::new(), Vec::new());
        for figure in plots::draw(&rows, folder)? {
            match figure.outcome {
                plots::Outcome::Files(files) => {
                    let png = |file: &&PathBuf| file.extension().is_some_and(|end| end == "png");
                    let file = files.iter().find(png).unwrap_or(&files[0]);
                    drawn += &format!("figure {}\n", file.display());
                    names.push(figure.figure);
                }
                plots::Outcome::Skipped(reason) => not_drawn.push((figure.figure, reason)),
            }
        }
        Ok(Figures { drawn, names, repeated: repeated(&rows.repeated(), results), not_drawn })
    }

    /// A line for each figure that could not be drawn.
    fn reasons(&self) -> String {
        self.not_drawn.iter().map(reason).collect()
    }

    /// One line for all of them, and the reasons of those that are drawn in part.
    fn in_short(&self) -> String {
        let (in_part, whole): (Vec<_>, Vec<_>) =
            self.not_drawn.iter().partition(|(figure, _)| self.names.contains(figure));
        let reasons = in_part.into_iter().map(reason).collect();
        let mut names: Vec<&str> = whole.into_iter().map(|(figure, _)| *figure).collect();
        names.dedup();
        match names.as_slice() {
            [] => reasons,
            names => format!("{reasons}not drawn: {} (--verbose says why)\n", names.join(", ")),
        }
    }
}

fn reason((figure, reason): &(&str, String)) -> String {
    format!("figure {figure} not drawn: {reason}\n")
}

/// The tables of folders, and files as they are.
fn files(results: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for result in results {
        if result.is_dir() {
            let own =
                ["rows.csv", "bandwidth.csv", "published.csv", "validation.csv", "comparison.csv"]
                    .map(|name| result.join(name));
            files.extend(own.into_iter().filter(|path| path.exists()));
        } else {
            files.push(result.clone());
        }
    }
    if files.is_empty() {
        let names: Vec<_> = results.iter().map(|path| path.display().to_string()).collect();
        return Err(usage(format!(
            "{}: no rows.csv there, nor published.csv, validation.csv or comparison.csv",
            names.join(", ")
        )));
    }
    Ok(files)
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
mod tests {
    use std::fs;

    use super::*;

    /// A bench that is kept as a reference, with some of its text replaced.
    fn bench(from: &str, to: &str) -> String {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/bench/4-ranks.csv");
        fs::read_to_string(path).unwrap().replace(from, to)
    }

    #[test]
    fn figures_that_are_not_drawn_are_one_line_and_verbose_has_the_reasons() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("b.csv");
        fs::write(&file, bench(",2026-", ",2026-")).unwrap();
        let figures = Figures::draw(&[file], folder.path()).unwrap();
        assert_eq!(figures.names, ["bus_bandwidth", "roofline"]);
        assert_eq!(figures.drawn.lines().count(), 2, "{}", figures.drawn);
        let short = "not drawn: surface, negotiation, control_planes, scaling, throughput, \
                     efficiency, speedup, breakdown, losses, crossover, validation, against, against_surface (--verbose says why)\n";
        assert_eq!(figures.in_short(), short);
        let reasons = figures.reasons();
        assert_eq!(reasons.lines().count(), 13, "{reasons}");
        assert!(
            reasons.starts_with("figure surface not drawn: no row of kind `step`"),
            "{reasons}"
        );
        assert_eq!(figures.repeated, "");
    }

    #[test]
    fn a_figure_that_is_drawn_in_part_has_the_reason() {
        let figures = Figures {
            drawn: "figure surface.png\n".to_string(),
            names: vec!["surface"],
            repeated: String::new(),
            not_drawn: vec![("surface", "1 failed".to_string()), ("scaling", "none".to_string())],
        };
        let short = "figure surface not drawn: 1 failed\nnot drawn: scaling (--verbose says why)\n";
        assert_eq!(figures.in_short(), short);
    }

    #[test]
    fn cases_of_two_runs_are_reported_with_the_run_that_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str, text: String| {
            let run = folder.path().join(name);
            fs::create_dir(&run).unwrap();
            fs::write(run.join("rows.csv"), text).unwrap();
            run
        };
        let later = run("a", bench(",2026-", ",2027-"));
        let earlier = run("b", bench(",2026-", ",2026-"));
        let figures =
            Figures::draw(&[later.clone(), earlier.clone()], &folder.path().join("out")).unwrap();
        let (earlier, later) = (earlier.display(), later.display());
        let expected = format!(
            "182 cases occur in {earlier} and {later}; those of {later}, the newer run, are drawn; \
             to compare runs, plot them apart\n"
        );
        assert_eq!(figures.repeated, expected);
    }
}
