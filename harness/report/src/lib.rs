//! A run, or several of the same workload, as one page: `report.html`.
//!
//! The page is one file that asks for nothing else: its style sheet, its script and its figures are in it. It can be
//! read without the script, which only sorts, filters, hovers and zooms. The same results give the same bytes.
//!
//! | file            | content                                                              |
//! |-----------------|----------------------------------------------------------------------|
//! | `run.rs`        | one run: what is in its folder                                       |
//! | `tables.rs`     | its tables, as files and as a page shows them                        |
//! | `surface.rs`    | step time over fusion threshold and cycle time, with intervals       |
//! | `timeline.rs`   | one training step                                                    |
//! | `warnings.rs`   | what makes numbers less than they seem                               |
//! | `compared.rs`   | several runs beside each other                                       |
//! | `origin.rs`     | provenance, and how to repeat a run                                  |
//! | `words.rs`      | small changes of words                                               |
//! | `page.rs`       | all of it, as the template's data                                    |
//! | `report.html`   | the template; `report.css` and `report.js` are put into it           |
//! | `table.html`    | the template of a table with its filter                              |
#![forbid(unsafe_code)]

mod compared;
mod error;
mod origin;
mod page;
mod run;
mod surface;
mod tables;
mod timeline;
mod warnings;
mod words;

use std::io::Read;
use std::path::PathBuf;

pub use error::ReportError;
use page::Page;
pub use page::Said;
use plots::Rows;
use results::columnar::{self, is_columnar};
pub use run::PREDICTED;
use run::Run;
pub use timeline::fastest_timeline;

/// The columns of samples that figures are drawn from.
const OF_SAMPLES: [&str; 6] = ["case", "block", "launch", "order", "step", "time_us"];

/// Reads tables for figures: files of CSV, and samples by columns.
///
/// # Errors
/// When a file cannot be read, or has no such table.
pub fn rows(paths: &[PathBuf]) -> Result<Rows, ReportError> {
    let (by_columns, texts): (Vec<_>, Vec<_>) =
        paths.iter().cloned().partition(|path| is_columnar(path));
    let mut rows = Rows::read(&texts)?;
    for path in by_columns {
        let mut text = Vec::new();
        columnar::open(&path, Some(&OF_SAMPLES))?
            .read_to_end(&mut text)
            .map_err(|cause| ReportError::Io { path: path.clone(), cause })?;
        rows.add_table(&path, &text)?;
    }
    Ok(rows)
}

/// The file's name in a folder of results.
pub const FILE: &str = "report.html";

/// A report of results.
#[derive(Debug)]
pub struct Report {
    page: Page,
}

impl Report {
    /// Reads folders of results, or CSV files of rows, and draws their figures. `begins` hears what is done next.
    ///
    /// # Errors
    /// - [`ReportError::NoResults`] where no results are.
    /// - [`ReportError::Schema`] and [`ReportError::Columns`] for files of other versions.
    /// - [`ReportError::Workloads`] and [`ReportError::Gradients`] if the runs are of different workloads.
    /// - Others if a file cannot be read.
    pub fn read(results: &[PathBuf], mut begins: impl FnMut(&str)) -> Result<Report, ReportError> {
        begins("reading");
        let runs = results.iter().map(|path| Run::read(path)).collect::<Result<Vec<Run>, _>>()?;
        for (at, run) in runs.iter().enumerate() {
            runs[..at].iter().try_for_each(|earlier| earlier.same_workload(run))?;
        }
        Ok(Report { page: Page::of(&runs, begins)? })
    }

    /// What the page says first of each run, in the order in which they were given.
    pub fn said(&self) -> &[Said] {
        &self.page.runs
    }

    /// The page: one HTML file.
    pub fn html(&self) -> String {
        self.page.html()
    }
}
