//! Draws figures from the rows that kolo writes.
//!
//! [`Rows`] reads CSV files by column name. [`draw`] passes them to every figure of a registry and
//! writes the pictures. Each figure is one file: it selects its rows and returns drawings. A drawing
//! is a list of marks, which `drawing.rs` writes as SVG and PNG. Tests check the same list for texts
//! that overlap or leave the page. To add a figure, add a file like the existing ones and a line in
//! the registry.
//!
//! The crate needs no fonts of the system: DejaVu Sans is in `fonts/` with its licence.
//!
//! | file                | content                                                       |
//! |---------------------|---------------------------------------------------------------|
//! | `rows.rs`           | a table, read by column name                                  |
//! | `fields.rs`         | the fields of one record                                      |
//! | `repeated.rs`       | cases that are in several files                               |
//! | `selection.rs`      | the rows of one picture, and the rows left out of it          |
//! | `surface.rs`        | step time over fusion threshold and cycle time                |
//! | `cell.rs`           | the cells of that heat map                                    |
//! | `color_bar.rs`      | its colour scale                                              |
//! | `defaults.rs`       | the marks of Horovod's defaults                               |
//! | `scaling.rs`        | step time over ranks, per algorithm with its fastest setting  |
//! | `predicted.rs`      | simulated steps beside measured ones                          |
//! | `bus_bandwidth.rs`  | bus bandwidth over message size, per algorithm                |
//! | `roofline.rs`       | share of the reference over message size, per algorithm       |
//! | `negotiation.rs`    | negotiation time and messages per step over cycle time        |
//! | `steps.rs`          | training steps that ran, distinguished by their settings      |
//! | `control_planes.rs` | time that control planes take of rank 0, over ranks           |
//! | `throughput.rs`     | simulated: samples per second over ranks, per policy          |
//! | `efficiency.rs`     | simulated: scaling efficiency over ranks, per policy          |
//! | `speedup.rs`        | simulated: throughput relative to a baseline, over ranks      |
//! | `breakdown.rs`      | simulated: the parts of a step's time, per policy             |
//! | `losses.rs`         | simulated: where efficiency goes, by number of ranks          |
//! | `crossover.rs`      | simulated: the fastest algorithm by message size and ranks    |
//! | `validation.rs`     | simulated relative to published and measured values           |
//! | `published.rs`      | one picture of it: points that others published               |
//! | `prediction.rs`     | the other: errors of algorithms, a row each                   |
//! | `against.rs`        | kolo's step time over that of real Horovod                    |
//! | `against_surface.rs` | both over fusion threshold and cycle time, side by side      |
//! | `comparison.rs`     | the lines of the files that these are drawn from              |
//! | `simulation.rs`     | simulated steps: workloads and their policies, over ranks     |
//! | `work.rs`           | the work of a rank in a simulated step                        |
//! | `policies.rs`       | the names of policies, and their order                        |
//! | `ends.rs`           | numbers at the right ends of lines                            |
//! | `series.rs`         | points with a line, markers and intervals                     |
//! | `line.rs`           | the values of an algorithm over message size                  |
//! | `engines.rs`        | the engines that predicted simulated allreduces, in words     |
//! | `layout.rs`         | the distribution of ranks over nodes                          |
//! | `page.rs`           | title, finding, legend and caption around a figure            |
//! | `panels.rs`         | small multiples on a page                                     |
//! | `frame.rs`          | the rectangle between a plot's axes                           |
//! | `caption.rs`        | the conditions of the values of a figure                      |
//! | `axis.rs`           | the mapping from values to pixels, and the ticks              |
//! | `theme.rs`          | colours, markers, sizes, numbers as text                      |
//! | `dash.rs`           | broken lines                                                  |
//! | `hatch.rs`          | slanted lines in a rectangle                                  |
//! | `distinct.rs`       | distinct values                                               |
//! | `drawing.rs`        | a list of marks, written as SVG and PNG                       |
#![forbid(unsafe_code)]

mod against;
mod against_surface;
mod axis;
mod breakdown;
mod bus_bandwidth;
mod caption;
mod cell;
mod color_bar;
mod comparison;
mod control_planes;
mod crossover;
mod dash;
mod defaults;
mod distinct;
mod drawing;
mod efficiency;
mod ends;
mod engines;
mod error;
mod fields;
mod frame;
mod hatch;
mod layout;
mod line;
mod losses;
mod negotiation;
mod page;
mod panels;
mod policies;
mod predicted;
mod prediction;
mod published;
mod published_efficiency;
mod repeated;
mod roofline;
mod rows;
mod scaling;
mod selection;
mod series;
mod simulation;
mod speedup;
mod steps;
mod surface;
#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;
mod theme;
mod throughput;
mod validation;
mod work;

use std::fs;
use std::path::{Path, PathBuf};

pub use error::PlotError;
pub use repeated::Repeated;
pub use rows::Rows;

use drawing::Drawing;

/// The registry: every figure, in the order in which they are drawn.
const FIGURES: [Figure; 15] = [
    surface::FIGURE,
    bus_bandwidth::FIGURE,
    roofline::FIGURE,
    negotiation::FIGURE,
    control_planes::FIGURE,
    scaling::FIGURE,
    throughput::FIGURE,
    efficiency::FIGURE,
    speedup::FIGURE,
    breakdown::FIGURE,
    losses::FIGURE,
    crossover::FIGURE,
    validation::FIGURE,
    against::FIGURE,
    against_surface::FIGURE,
];

/// A figure: its name, with which its file names begin, and the function that draws it.
struct Figure {
    name: &'static str,
    sheets: fn(&Rows) -> Vec<Sheet>,
}

/// One picture of a figure, or the reason why there is none.
enum Sheet {
    /// `suffix` follows the figure's name in the file name. It is empty if there is one picture.
    Drawn { suffix: String, drawing: Drawing },
    /// The reason, in a sentence for the user.
    Skipped { reason: String },
}

impl Sheet {
    /// The sheets of pictures and their suffixes, or the reason why there are none.
    fn all(mut pictures: Vec<(String, Drawing)>, reason: impl FnOnce() -> String) -> Vec<Sheet> {
        match pictures.as_mut_slice() {
            [] => return vec![Sheet::Skipped { reason: reason() }],
            // A single picture needs no suffix.
            [(suffix, _)] => suffix.clear(),
            _ => {}
        }
        let drawn = |(suffix, drawing)| Sheet::Drawn { suffix, drawing };
        pictures.into_iter().map(drawn).collect()
    }
}

/// The result of drawing a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// The figure's name, such as `surface`.
    pub figure: &'static str,
    /// The files, or the reason why there are none.
    pub outcome: Outcome,
}

/// The files of a figure, or the reason why there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The files written: an SVG and a PNG for each combination of conditions in the rows.
    Files(Vec<PathBuf>),
    /// The reason why nothing was drawn, in a sentence.
    Skipped(String),
}

/// Draws every figure that the rows have data for, as `NAME.svg` and `NAME.png` in `folder`.
///
/// Rows of several workloads, transports, numbers of ranks and so on become several pictures, with the
/// differences in the file names. Returns one entry for each figure that was drawn, and one for each
/// figure or combination of conditions that was not.
///
/// # Errors
///
/// - [`PlotError::Folder`] if the folder cannot be created.
/// - [`PlotError::Write`] if a file cannot be written.
pub fn draw(rows: &Rows, folder: &Path) -> Result<Vec<Drawn>, PlotError> {
    fs::create_dir_all(folder)
        .map_err(|source| PlotError::Folder { folder: folder.to_path_buf(), source })?;
    let mut drawn = Vec::new();
    for figure in &FIGURES {
        let mut files = Vec::new();
        let mut skipped = Vec::new();
        for sheet in (figure.sheets)(rows) {
            match sheet {
                Sheet::Drawn { suffix, drawing } => {
                    let stem = if suffix.is_empty() {
                        figure.name.to_string()
                    } else {
                        format!("{}_{suffix}", figure.name)
                    };
                    for extension in ["svg", "png"] {
                        let file = folder.join(format!("{stem}.{extension}"));
                        drawing.write(&file)?;
                        files.push(file);
                    }
                }
                Sheet::Skipped { reason } => skipped.push(Outcome::Skipped(reason)),
            }
        }
        let outcomes = (!files.is_empty()).then_some(Outcome::Files(files));
        for outcome in outcomes.into_iter().chain(skipped) {
            drawn.push(Drawn { figure: figure.name, outcome });
        }
    }
    Ok(drawn)
}

#[cfg(test)]
impl Figure {
    /// The pictures of some rows. Checks that no text overlaps another or leaves the page.
    fn drawings(&self, rows: &[synthetic::Row]) -> Vec<Drawing> {
        let sheets = (self.sheets)(&Rows::of(&synthetic::table(rows)));
        let drawing = |sheet| match sheet {
            Sheet::Drawn { drawing, .. } => Some(drawing),
            Sheet::Skipped { .. } => None,
        };
        let drawings: Vec<Drawing> = sheets.into_iter().filter_map(drawing).collect();
        for drawing in &drawings {
            assert_eq!(drawing.faults(), Vec::<String>::new(), "in {}", self.name);
        }
        drawings
    }

    /// The picture of some rows that give exactly one.
    fn drawing(&self, rows: &[synthetic::Row]) -> Drawing {
        let mut drawings = self.drawings(rows);
        assert_eq!(drawings.len(), 1, "pictures of {}", self.name);
        drawings.remove(0)
    }

    /// The texts of the picture on one line.
    fn words(&self, rows: &[synthetic::Row]) -> String {
        self.drawing(rows).prose()
    }

    /// The reason why some rows give no picture.
    fn refusal(&self, rows: &[synthetic::Row]) -> String {
        match (self.sheets)(&Rows::of(&synthetic::table(rows))).as_slice() {
            [Sheet::Skipped { reason }] => reason.clone(),
            sheets => panic!("{} pictures in place of a refusal", sheets.len()),
        }
    }
}
