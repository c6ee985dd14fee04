//! The rectangle between a plot's axes.

use crate::drawing::Drawing;

/// The edges of a plot, in pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Frame {
    /// Draws the border.
    pub fn draw(self, drawing: &mut Drawing) {
        let (width, height) = (self.right - self.left, self.bottom - self.top);
        drawing.outline(self.left, self.top, width, height, 2.0);
    }
}
