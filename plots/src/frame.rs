//! The rectangle between a plot's axes.

use crate::drawing::Drawing;

/// The edges of a plot, in pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
    /// Whether a panel below it has the title of its horizontal axis.
    pub has_panel_below: bool,
}

impl Frame {
    /// A frame with nothing below.
    pub fn new(left: f64, top: f64, right: f64, bottom: f64) -> Frame {
        Frame { left, top, right, bottom, has_panel_below: false }
    }
}

impl Frame {
    /// Draws the border.
    pub fn draw(self, drawing: &mut Drawing) {
        let (width, height) = (self.right - self.left, self.bottom - self.top);
        drawing.outline(self.left, self.top, width, height, 2.0);
    }
}
