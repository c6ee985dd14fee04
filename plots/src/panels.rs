//! Small multiples: panels of one size on a page, two side by side.

use crate::drawing::{Drawing, HARD_SPACE, Text, text_width};
use crate::frame::Frame;
use crate::page::Page;
use crate::theme;

const TITLE_HEIGHT: f64 = 70.0;
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
pub(crate) fn lay(
    page: &mut Page,
    titles: &[String],
    shape: Shape,
    draw: impl Fn(&mut Drawing, usize, Frame),
) {
    let columns = page.view.columns(titles.len());
    let share = if shape.is_elastic { page.view.height_share() } else { 1.0 };
    let height = share * shape.height;
    let width = (page.view.width() - 2.0 * theme::MARGIN) / columns as f64;
    for (row, titles) in titles.chunks(columns).enumerate() {
        let titled = titles.iter().any(|title| !title.is_empty());
        let top = page.y + if titled { TITLE_HEIGHT } else { 16.0 };
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
            let frame = Frame { left, top, right, bottom: top + height };
            draw(&mut page.drawing, row * columns + column, frame);
        }
        page.y = top + height + BELOW;
    }
}
