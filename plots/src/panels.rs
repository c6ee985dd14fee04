//! Small multiples: panels of one size on a page, two side by side, or on paper as many as its height asks for.

use crate::drawing::{Drawing, HARD_SPACE, Text, text_width};
use crate::frame::Frame;
use crate::page::Page;
use crate::theme;

const TITLE_HEIGHT: f64 = 70.0;
const TITLE_HEIGHT_ON_PAPER: f64 = 54.0;
/// The least height of a frame on paper in pixels, which is 0.8 inches.
const LEAST_HEIGHT: f64 = 204.0;
/// Room for what is below all panels on paper, in pixels.
const FOOT: f64 = 48.0;
/// Room below a frame with another panel below, for the labels of its axis, in pixels.
const BELOW_INNER: f64 = 54.0;
/// Room below a frame, for the labels and the title of its axis, in pixels.
pub(crate) const BELOW: f64 = 104.0;

/// The size of all panels of a page, in pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Room left of a frame.
    pub left: f64,
    /// Room right of a frame.
    pub right: f64,
    /// The height of a frame.
    pub height: f64,
    /// Whether the height is lower on paper.
    pub is_elastic: bool,
}

impl Shape {
    /// The shape for a number of panels. A single panel is higher.
    pub fn usual(left: f64, right: f64, panels: usize) -> Shape {
        let height = if panels == 1 { 860.0 } else { 620.0 };
        Shape { left, right, height, is_elastic: true }
    }
}

/// Lays out one panel as wide as the page, without a title, and draws it.
pub(crate) fn single(page: &mut Page, left: f64, height: f64, draw: impl Fn(&mut Drawing, Frame)) {
    let shape = Shape { left, right: 20.0, height, is_elastic: true };
    lay(page, &[String::new()], shape, |drawing, _, frame| draw(drawing, frame));
}

/// Lays out a panel for each title and calls `draw` with its index. A single panel is as wide as
/// the page. A row of panels whose titles are all empty has no room for titles.
///
/// On paper, frames are as much lower, and as many panels side by side, as the height of a page asks for. All panels of a
/// column have the same horizontal axis there, so the lowest alone has its title.
pub(crate) fn lay(
    page: &mut Page,
    titles: &[String],
    shape: Shape,
    draw: impl Fn(&mut Drawing, usize, Frame),
) {
    let Grid { columns, height } = Grid::of(page, titles, shape);
    let is_paper = page.view.is_paper() && shape.is_elastic;
    let width = (page.view.width() - 2.0 * theme::MARGIN) / columns as f64;
    let count = titles.len();
    for (row, titles) in titles.chunks(columns).enumerate() {
        let titled = titles.iter().any(|title| !title.is_empty());
        let top = page.y + above(titled, is_paper);
        for (column, title) in titles.iter().enumerate() {
            let left = theme::MARGIN + column as f64 * width + shape.left;
            let right = left + width - shape.left - shape.right;
            if titled {
                let title = title.replace(HARD_SPACE, " ");
                // A title that is wider than its frame begins further left.
                let most = left + width - shape.left - 8.0 - text_width(&title, theme::TICK, true);
                let at = (left.min(most).max(left - shape.left), top - 20.0);
                let title = Text::new(title, at, theme::TICK);
                page.drawing.text(Text { bold: true, ..title });
            }
            let index = row * columns + column;
            let has_panel_below = is_paper && index + columns < count;
            let frame = Frame { has_panel_below, ..Frame::new(left, top, right, top + height) };
            draw(&mut page.drawing, index, frame);
        }
        // Where the last row is not full, a panel of the row above it has the title of its axis.
        let is_inner = is_paper && (row + 2) * columns <= count;
        page.y = top + height + if is_inner { BELOW_INNER } else { BELOW };
    }
}

/// The number of panels side by side, and the height of their frames.
struct Grid {
    columns: usize,
    height: f64,
}

impl Grid {
    /// The usual grid if the page is high enough, otherwise the first whose frames are not too low, or else the one with
    /// the highest frames.
    fn of(page: &Page, titles: &[String], shape: Shape) -> Grid {
        let options = page.view.columns(titles.len());
        if !shape.is_elastic {
            return Grid { columns: options[0], height: shape.height };
        }
        let usual = page.view.height_share() * shape.height;
        let titled = titles.iter().any(|title| !title.is_empty());
        let grid = |&columns: &usize| {
            let rows = titles.len().div_ceil(columns) as f64;
            let is_paper = page.view.is_paper();
            let besides =
                rows * (above(titled, is_paper) + BELOW_INNER) + 2.0 * (BELOW - BELOW_INNER);
            let free = page.view.most_height() - page.y - FOOT - besides;
            Grid { columns, height: usual.min(free / rows) }
        };
        let mut grids: Vec<Grid> = options.iter().map(grid).collect();
        let enough = grids.iter().position(|grid| grid.height >= usual.min(LEAST_HEIGHT));
        let highest =
            || (0..grids.len()).max_by(|&a, &b| grids[a].height.total_cmp(&grids[b].height));
        let chosen = enough.or_else(highest).expect("there is an option");
        let Grid { columns, height } = grids.swap_remove(chosen);
        Grid { columns, height: height.max(usual.min(LEAST_HEIGHT)) }
    }
}

/// The room above a frame, in pixels.
fn above(titled: bool, is_paper: bool) -> f64 {
    match (titled, is_paper) {
        (false, _) => 16.0,
        (true, true) => TITLE_HEIGHT_ON_PAPER,
        (true, false) => TITLE_HEIGHT,
    }
}
