//! Small multiples: panels of one shape on a page, two beside each other.

use crate::drawing::{Drawing, HARD_SPACE, Text};
use crate::page::Page;
use crate::theme;

const TITLE_HEIGHT: f64 = 70.0;

/// Where a panel's axes are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// How large all panels of a page are.
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
    /// Of so many panels over numbers: one alone is large.
    pub fn usual(left: f64, right: f64, panels: usize) -> Shape {
        Shape { left, right, height: if panels == 1 { 860.0 } else { 620.0 } }
    }
}

/// Lays out a panel for each title, empty titles without room for one, and has each drawn by its
/// index. A panel alone is as wide as the page.
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
        page.y = top + shape.height + 104.0;
    }
}
