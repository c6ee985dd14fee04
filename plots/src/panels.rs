//! Small multiples: panels of one size on a page, two side by side.

use crate::drawing::{Drawing, HARD_SPACE, Text};
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
}

impl Shape {
    /// The shape for a number of panels. A single panel is higher.
    pub fn usual(left: f64, right: f64, panels: usize) -> Shape {
        Shape { left, right, height: if panels == 1 { 860.0 } else { 620.0 } }
    }
}

/// Lays out one panel as wide as the page, without a title, and draws it.
pub(crate) fn single(page: &mut Page, left: f64, height: f64, draw: impl Fn(&mut Drawing, Frame)) {
    let shape = Shape { left, right: 20.0, height };
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
    let columns = if titles.len() == 1 { 1 } else { 2 };
    let width = (theme::WIDTH - 2.0 * theme::MARGIN) / columns as f64;
    for (row, titles) in titles.chunks(columns).enumerate() {
        let titled = titles.iter().any(|title| !title.is_empty());
        let top = page.y + if titled { TITLE_HEIGHT } else { 16.0 };
        for (column, title) in titles.iter().enumerate() {
            let left = theme::MARGIN + column as f64 * width + shape.left;
            let right = left + width - shape.left - shape.right;
            if titled {
                let title = title.replace(HARD_SPACE, " ");
                let title = Text::new(title, (left, top - 20.0), theme::TICK);
                page.drawing.text(Text { bold: true, ..title });
            }
            let frame = Frame { left, top, right, bottom: top + shape.height };
            draw(&mut page.drawing, row * columns + column, frame);
        }
        page.y = top + shape.height + BELOW;
    }
}
