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
//! | `distribution.rs`   | the share of steps that took at most so long                  |
//! | `late_ranks.rs`     | which rank was late, by rank and block                        |
//! | `logs.rs`           | the steps that these are drawn from                           |
//! | `gantt.rs`          | one training step of a timeline, a row per lane               |
//! | `timeline.rs`       | the stretches of time that it is drawn from                   |
//! | `gains.rs`          | what the tuner's setting saves over others                    |
//! | `changes.rs`        | how the times of two runs differ                              |
//! | `ratios.rs`         | the ratios that these two are drawn from                      |
//! | `predicted.rs`      | simulated steps beside measured ones                          |
//! | `bus_bandwidth.rs`  | bus bandwidth over message size, per algorithm                |
//! | `time_by_size.rs`   | time over message size, per algorithm                         |
//! | `over_fastest.rs`   | time over the shortest at the same size, per algorithm        |
//! | `roofline.rs`       | share of the reference over message size, per algorithm       |
//! | `kernels.rs`        | bandwidth of a GPU's kernels beside that of its copy          |
//! | `negotiation.rs`    | negotiation time and messages per step over cycle time        |
//! | `steps.rs`          | training steps that ran, distinguished by their settings      |
//! | `control_planes.rs` | time that control planes take of rank 0, over ranks           |
//! | `throughput.rs`     | throughput over ranks, per policy                             |
//! | `efficiency.rs`     | scaling efficiency over ranks, per policy                     |
//! | `speedup.rs`        | throughput relative to a baseline, over ranks                 |
//! | `breakdown.rs`      | the parts of a step's time, per policy                        |
//! | `shares.rs`         | those of measured steps                                       |
//! | `losses.rs`         | simulated: where efficiency goes, by number of ranks          |
//! | `crossover.rs`      | simulated: the fastest algorithm by message size and ranks    |
//! | `validation.rs`     | simulated relative to published and measured values           |
//! | `published.rs`      | one picture of it: points that others published               |
//! | `prediction.rs`     | the other: errors of algorithms, a row each                   |
//! | `against.rs`        | kolo's step time over that of real Horovod                    |
//! | `against_surface.rs` | both over fusion threshold and cycle time, side by side      |
//! | `autotune.rs`       | what Horovod's autotuner tried                                |
//! | `trials.rs`         | the settings that it is drawn from                            |
//! | `comparison.rs`     | the lines of the files that these are drawn from              |
//! | `training.rs`       | training steps over ranks: workloads and their policies       |
//! | `work.rs`           | the work of a rank in a simulated step                        |
//! | `policies.rs`       | the names of policies, and their order                        |
//! | `ends.rs`           | numbers at the right ends of lines                            |
//! | `series.rs`         | points with a line, markers and intervals                     |
//! | `relative.rs`       | allreduces, by themselves or relative to the least of their size |
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
//! | `look.rs`           | the colour and slanted lines of an area                       |
//! | `distinct.rs`       | distinct values                                               |
//! | `drawing.rs`        | a list of marks, written as SVG and PNG                       |
//! | `picture.rs`        | figures in memory, for pages that embed them                  |
//! | `pdf.rs`            | SVG as PDF (feature `pdf`)                                    |
//! | `view.rs`           | the medium of a figure: a screen, or a column of a paper      |
#![forbid(unsafe_code)]

mod against;
mod against_surface;
mod autotune;
mod axis;
mod breakdown;
mod bus_bandwidth;
mod caption;
mod cell;
mod changes;
mod color_bar;
mod comparison;
mod control_planes;
mod crossover;
mod dash;
mod defaults;
mod distinct;
mod distribution;
mod drawing;
mod efficiency;
mod ends;
mod engines;
mod error;
mod fields;
mod frame;
mod gains;
mod gantt;
mod hatch;
mod kernels;
mod late_ranks;
mod layout;
mod line;
mod logs;
mod look;
mod losses;
mod negotiation;
mod over_fastest;
mod page;
mod panels;
#[cfg(feature = "pdf")]
mod pdf;
mod picture;
mod policies;
mod predicted;
mod prediction;
mod published;
mod published_efficiency;
mod ratios;
mod relative;
mod repeated;
mod roofline;
mod rounds;
mod rows;
mod scaling;
mod selection;
mod series;
mod shares;
mod speedup;
mod steps;
mod surface;
#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;
mod theme;
mod throughput;
mod time_by_size;
mod timeline;
mod training;
mod trials;
mod validation;
mod view;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

pub use error::PlotError;
pub use picture::{Picture, Pictures, pictures};
pub use ratios::{Changes, Gains, Origin, Ratio};
pub use repeated::Repeated;
pub use rows::{OLDEST_SCHEMA, Rows, SCHEMA};
pub use timeline::{Activity, Lane, Stretch, Timeline};
pub use trials::{Trial, Trials};

use drawing::Drawing;
use view::{Medium, View};

/// The registry: every figure, in the order in which they are drawn.
const FIGURES: [Figure; 24] = [
    scaling::FIGURE,
    efficiency::FIGURE,
    throughput::FIGURE,
    speedup::FIGURE,
    surface::FIGURE,
    bus_bandwidth::FIGURE,
    time_by_size::FIGURE,
    over_fastest::FIGURE,
    roofline::FIGURE,
    negotiation::FIGURE,
    control_planes::FIGURE,
    distribution::FIGURE,
    late_ranks::FIGURE,
    gantt::FIGURE,
    gains::FIGURE,
    changes::FIGURE,
    breakdown::FIGURE,
    losses::FIGURE,
    crossover::FIGURE,
    validation::FIGURE,
    against::FIGURE,
    against_surface::FIGURE,
    autotune::FIGURE,
    kernels::FIGURE,
];

/// The number of figures, of which [`draw`] draws those that the rows have data for.
pub const FIGURE_COUNT: usize = FIGURES.len();

/// A figure: its name, with which its file names begin, and the function that draws it.
struct Figure {
    name: &'static str,
    sheets: fn(&Rows, View) -> Vec<Sheet>,
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

    /// The sheets of two kinds of pictures of one figure, or the reasons of the first if there are none. If there are
    /// pictures of both kinds, `suffix` distinguishes those of the second.
    fn either(first: Vec<Sheet>, second: Vec<Sheet>, suffix: &str) -> Vec<Sheet> {
        let is_drawn =
            |sheets: &[Sheet]| sheets.iter().any(|sheet| matches!(sheet, Sheet::Drawn { .. }));
        match (is_drawn(&first), is_drawn(&second)) {
            (_, false) => first,
            (false, true) => second,
            (true, true) => {
                let renamed = |sheet| match sheet {
                    Sheet::Drawn { suffix: own, drawing } if own.is_empty() => {
                        Sheet::Drawn { suffix: suffix.to_string(), drawing }
                    }
                    Sheet::Drawn { suffix: own, drawing } => {
                        Sheet::Drawn { suffix: format!("{suffix}_{own}"), drawing }
                    }
                    skipped => skipped,
                };
                first.into_iter().chain(second.into_iter().map(renamed)).collect()
            }
        }
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

/// What figures look like, and into which files they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// For papers: `NAME_single` (3.33 inches wide) and `NAME_double` (7 inches) with text of 8 points, without title,
    /// and the caption in `NAME.txt`.
    pub paper: bool,
    /// PDF besides SVG. Without the feature `pdf`, drawing fails.
    pub pdf: bool,
    /// Efficiency is relative to the same line on its fewest ranks, not to the fastest of all lines.
    pub own_base: bool,
}

impl Figure {
    /// The file name of a picture, without its extension.
    fn stem(&self, suffix: &str) -> String {
        match suffix {
            "" => self.name.to_string(),
            suffix => format!("{}_{suffix}", self.name),
        }
    }
}

impl Options {
    /// The views of every figure, and what follows its name in file names.
    fn views(self) -> Vec<(View, &'static str)> {
        let of = |medium| View { medium, own_base: self.own_base };
        if self.paper {
            vec![(of(Medium::SingleColumn), "_single"), (of(Medium::DoubleColumn), "_double")]
        } else {
            vec![(of(Medium::Screen), "")]
        }
    }

    /// The formats of a picture, by the ends of their files' names.
    fn formats(self) -> &'static [&'static str] {
        match (self.paper, self.pdf) {
            (false, false) => &["svg", "png"],
            (false, true) => &["svg", "png", "pdf"],
            (true, false) => &["svg"],
            (true, true) => &["svg", "pdf"],
        }
    }
}

/// Draws every figure that the rows have data for, as `NAME.svg` and `NAME.png` in `folder`, and calls `done` with each
/// figure once its files are written.
///
/// Rows of several workloads, transports, numbers of ranks and so on become several pictures, with the
/// differences in the file names. Returns one entry for each figure that was drawn, and one for each
/// figure or combination of conditions that was not.
///
/// # Errors
///
/// - [`PlotError::Folder`] if the folder cannot be created or written to; then nothing is drawn.
/// - [`PlotError::Write`] if a file cannot be written.
/// - [`PlotError::NoPdf`] if PDF is wanted of a build without it.
pub fn draw(
    rows: &Rows,
    folder: &Path,
    options: Options,
    mut done: impl FnMut(&'static str),
) -> Result<Vec<Drawn>, PlotError> {
    if options.pdf && !cfg!(feature = "pdf") {
        return Err(PlotError::NoPdf);
    }
    writable(folder)?;
    let planned: Vec<PlannedFigure> =
        FIGURES.iter().map(|figure| PlannedFigure::of(figure, rows, options)).collect();
    let mut files = write_all(&planned, folder, options, |at| done(FIGURES[at].name))?;
    let mut drawn = Vec::new();
    for (figure, (planned, files)) in FIGURES.iter().zip(planned.into_iter().zip(&mut files)) {
        let files = std::mem::take(files);
        let outcomes = (!files.is_empty()).then_some(Outcome::Files(files));
        for outcome in outcomes.into_iter().chain(planned.skipped) {
            drawn.push(Drawn { figure: figure.name, outcome });
        }
    }
    Ok(drawn)
}

/// The pictures of a figure, and why others are not drawn.
struct PlannedFigure {
    pictures: Vec<PictureFiles>,
    skipped: Vec<Outcome>,
}

impl PlannedFigure {
    fn of(figure: &Figure, rows: &Rows, options: Options) -> PlannedFigure {
        let (mut pictures, mut skipped) = (Vec::new(), Vec::new());
        for (view, end) in options.views() {
            for sheet in (figure.sheets)(rows, view) {
                let reason = match sheet {
                    Sheet::Drawn { suffix, drawing } => {
                        let stem = figure.stem(&suffix);
                        match unfit(&drawing) {
                            Some(reason) => reason,
                            None => {
                                pictures.push(PictureFiles { drawing, stem, end });
                                continue;
                            }
                        }
                    }
                    Sheet::Skipped { reason } => reason,
                };
                // Of two columns, once is enough.
                let reason = Outcome::Skipped(reason);
                if !skipped.contains(&reason) {
                    skipped.push(reason);
                }
            }
        }
        PlannedFigure { pictures, skipped }
    }
}

/// A drawing, and the name of its files without the column of a paper, and with it.
struct PictureFiles {
    drawing: Drawing,
    stem: String,
    end: &'static str,
}

/// The most pictures that are written at once, as each takes up to 100 MB.
const WRITERS: usize = 4;

/// Writes the pictures of all figures, several at once, and calls `done` with the position of each figure whose pictures are
/// written. Returns the files of each figure in the order of its pictures.
fn write_all(
    figures: &[PlannedFigure],
    folder: &Path,
    options: Options,
    mut done: impl FnMut(usize),
) -> Result<Vec<Vec<PathBuf>>, PlotError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(WRITERS);
    let all = figures.iter().enumerate();
    let pictures: Vec<(usize, &PictureFiles)> = all
        .flat_map(|(at, figure)| figure.pictures.iter().map(move |picture| (at, picture)))
        .collect();
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let mut left: Vec<usize> = figures.iter().map(|figure| figure.pictures.len()).collect();
    (0..left.len()).filter(|&at| left[at] == 0).for_each(&mut done);
    let mut written = thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next, pictures) = (send.clone(), &next, &pictures);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, picture)) = pictures.get(index) else { return };
                    // Who receives it waits for this thread.
                    let _ = send.send((index, picture.write(folder, options)));
                }
            });
        }
        drop(send);
        let mut written = Vec::new();
        for (index, files) in receive {
            let (at, _) = pictures[index];
            left[at] -= 1;
            if left[at] == 0 {
                done(at);
            }
            written.push((index, files));
        }
        written
    });
    written.sort_by_key(|(index, _)| *index);
    let mut files: Vec<Vec<PathBuf>> = figures.iter().map(|_| Vec::new()).collect();
    for (index, own) in written {
        files[pictures[index].0].extend(own?);
    }
    for &(at, picture) in pictures.iter().filter(|_| options.paper) {
        let file = folder.join(format!("{}.txt", picture.stem));
        // Both columns of a paper have one caption.
        if !files[at].contains(&file) {
            picture.write_caption(&file)?;
            files[at].push(file);
        }
    }
    Ok(files)
}

impl PictureFiles {
    /// Writes the drawing in all formats.
    fn write(&self, folder: &Path, options: Options) -> Result<Vec<PathBuf>, PlotError> {
        let PictureFiles { drawing, stem, end } = self;
        let mut files = Vec::new();
        for extension in options.formats() {
            let file = folder.join(format!("{stem}{end}.{extension}"));
            drawing.write(&file)?;
            files.push(file);
        }
        Ok(files)
    }

    /// Writes title, finding and caption, a line each.
    fn write_caption(&self, file: &Path) -> Result<(), PlotError> {
        let words = self.drawing.said.paragraphs();
        let words = words.iter().filter(|words| !words.is_empty());
        let words: Vec<String> =
            words.map(|words| words.replace(drawing::HARD_SPACE, " ")).collect();
        fs::write(file, words.join("\n") + "\n")
            .map_err(|source| PlotError::Write { file: file.to_path_buf(), source: source.into() })
    }
}

/// Why a drawing does not fit a column of a paper.
fn unfit(drawing: &Drawing) -> Option<String> {
    let column = match drawing.view.medium {
        Medium::Screen => return None,
        Medium::SingleColumn => "a single column",
        Medium::DoubleColumn => "two columns",
    };
    let faults = drawing.faults();
    let first = faults.first()?;
    let more = match faults.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("does not fit {column}: {first}{more}"))
}

/// Creates a folder, and a file in it to know that there can be some.
fn writable(folder: &Path) -> Result<(), PlotError> {
    let probe = folder.join(".kolo-plot");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe))
        .map_err(|source| PlotError::Folder { folder: folder.to_path_buf(), source })
}

#[cfg(test)]
impl Figure {
    /// The pictures of some rows. Checks that no text overlaps another or leaves the page.
    fn drawings(&self, rows: &[synthetic::Row]) -> Vec<Drawing> {
        let sheets = (self.sheets)(&Rows::of(&synthetic::table(rows)), View::default());
        let drawing = |sheet| match sheet {
            Sheet::Drawn { drawing, .. } => Some(drawing),
            Sheet::Skipped { .. } => None,
        };
        let drawings: Vec<Drawing> = sheets.into_iter().filter_map(drawing).collect();
        for drawing in &drawings {
            assert_eq!(drawing.faults(), Vec::<String>::new(), "in {}", self.name);
        }
        // On paper a figure may have too much for a column, which is told; it must not have less.
        for medium in [Medium::SingleColumn, Medium::DoubleColumn] {
            let view = View { medium, ..View::default() };
            let sheets = (self.sheets)(&Rows::of(&synthetic::table(rows)), view);
            let count = sheets.iter().filter(|sheet| matches!(sheet, Sheet::Drawn { .. })).count();
            assert_eq!(count, drawings.len(), "pictures of {} on paper", self.name);
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
        match (self.sheets)(&Rows::of(&synthetic::table(rows)), View::default()).as_slice() {
            [Sheet::Skipped { reason }] => reason.clone(),
            sheets => panic!("{} pictures in place of a refusal", sheets.len()),
        }
    }
}
