//! Figures from kolo's rows.
//!
//! [`Rows`] reads CSV files by column name; [`draw`] gives them to every figure of a registry and
//! writes what comes back. A figure is one file: it chooses its rows, and returns *drawings*. A
//! drawing is a plain list of marks, which `drawing.rs` copies into an SVG and a PNG, and in which
//! tests look for texts that overlap or leave the page. A new figure is a new file shaped like its
//! neighbours, and one line in the registry.
//!
//! Nothing is asked of the system: the fonts, DejaVu Sans, are in `fonts/` with their licence.
//!
//! | file                | holds                                                         |
//! |---------------------|---------------------------------------------------------------|
//! | `rows.rs`           | a table read by column name                                   |
//! | `fields.rs`         | one record of it                                              |
//! | `repeated.rs`       | cases that several files hold                                 |
//! | `selection.rs`      | the rows that belong in one drawing, and those left out       |
//! | `surface.rs`        | step time over fusion threshold and cycle time                |
//! | `cell.rs`           | a cell of that map                                            |
//! | `color_bar.rs`      | its colour scale                                              |
//! | `defaults.rs`       | Horovod's defaults on it                                      |
//! | `scaling.rs`        | step time over ranks, per algorithm at its fastest setting    |
//! | `bus_bandwidth.rs`  | bus bandwidth over message size, per algorithm                |
//! | `roofline.rs`       | share of the bound over message size, per algorithm           |
//! | `negotiation.rs`    | negotiation time and messages per step, over cycle time       |
//! | `control_planes.rs` | what control planes take of rank 0, over ranks                |
//! | `throughput.rs`     | simulated: samples per second over ranks, per policy          |
//! | `efficiency.rs`     | simulated: scaling efficiency over ranks, per policy          |
//! | `speedup.rs`        | simulated: throughput over that of one policy, over ranks     |
//! | `breakdown.rs`      | simulated: where a step's time goes, per policy               |
//! | `crossover.rs`      | simulated: the fastest algorithm by message size and ranks    |
//! | `validation.rs`     | what is simulated over what was published or measured         |
//! | `published.rs`      | one picture of it: points that others published               |
//! | `prediction.rs`     | the other: errors of algorithms, a row each                   |
//! | `comparison.rs`     | the lines of files that both are drawn from                   |
//! | `simulation.rs`     | simulated steps: workloads, their policies, over ranks        |
//! | `work.rs`           | what a rank computes in one of them: a panel each             |
//! | `policies.rs`       | how policies are called, and in which order                   |
//! | `ends.rs`           | numbers at the right ends of lines                            |
//! | `line.rs`           | an algorithm's values over message size, as a line            |
//! | `engines.rs`        | what predicted simulated allreduces, in words                 |
//! | `layout.rs`         | how ranks are spread over nodes                               |
//! | `page.rs`           | title, finding, legend and caption around a figure            |
//! | `panels.rs`         | small multiples on a page                                     |
//! | `caption.rs`        | under which conditions the numbers arose                      |
//! | `axis.rs`           | from values to pixels, and the ticks                          |
//! | `theme.rs`          | colours, markers, sizes, numbers as text                      |
//! | `dash.rs`           | broken lines                                                  |
//! | `hatch.rs`          | slanted lines in a rectangle                                  |
//! | `drawing.rs`        | the list of marks, and its way to SVG and PNG                 |
#![forbid(unsafe_code)]

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
mod drawing;
mod efficiency;
mod ends;
mod engines;
mod error;
mod fields;
mod hatch;
mod layout;
mod line;
mod negotiation;
mod page;
mod panels;
mod policies;
mod predicted;
mod prediction;
mod published;
mod repeated;
mod roofline;
mod rows;
mod scaling;
mod selection;
mod simulation;
mod speedup;
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

/// Every figure, in the order in which they are drawn.
const FIGURES: [Figure; 12] = [
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
    crossover::FIGURE,
    validation::FIGURE,
];

/// A figure: its name, which begins its file names, and what it makes of the rows.
struct Figure {
    name: &'static str,
    sheets: fn(&Rows) -> Vec<Sheet>,
}

/// One picture of a figure, or why there is none.
enum Sheet {
    /// `suffix` follows the figure's name in the file name; empty where one picture shows all.
    Drawn { suffix: String, drawing: Drawing },
    /// A sentence for the user.
    Skipped { reason: String },
}

impl Sheet {
    /// Pictures, each with what tells it from those that others could have been; or why there is
    /// none.
    fn all(mut pictures: Vec<(String, Drawing)>, reason: impl FnOnce() -> String) -> Vec<Sheet> {
        match pictures.as_mut_slice() {
            [] => return vec![Sheet::Skipped { reason: reason() }],
            // What tells it from pictures that are not drawn need not be said.
            [(suffix, _)] => suffix.clear(),
            _ => {}
        }
        let drawn = |(suffix, drawing)| Sheet::Drawn { suffix, drawing };
        pictures.into_iter().map(drawn).collect()
    }
}

/// What became of a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// The figure's name, such as `surface`.
    pub figure: &'static str,
    /// Files, or why there are none.
    pub outcome: Outcome,
}

/// What [`draw`] made of one figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The files written: an SVG and a PNG for each combination of conditions in the rows.
    Files(Vec<PathBuf>),
    /// Why nothing was drawn, in a sentence.
    Skipped(String),
}

/// Draws every figure that the rows hold data for, as NAME.svg and NAME.png, into `folder`.
///
/// Rows of several workloads, transports, numbers of ranks and so on become several pictures, with
/// what tells them apart in the file name. Returns what was drawn and, for the rest, why not: one
/// entry per figure with files, and one per figure or combination without.
///
/// # Errors
///
/// When the folder or a file in it cannot be written.
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
    /// The pictures of some rows, each looked through for texts that collide or are cut off.
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

    /// Why some rows give no picture.
    fn refusal(&self, rows: &[synthetic::Row]) -> String {
        match (self.sheets)(&Rows::of(&synthetic::table(rows))).as_slice() {
            [Sheet::Skipped { reason }] => reason.clone(),
            sheets => panic!("{} pictures in place of a refusal", sheets.len()),
        }
    }
}
