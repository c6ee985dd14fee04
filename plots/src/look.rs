//! The look of an area: a colour, and slanted lines that distinguish it without colour.

use plotters::style::RGBColor;

use crate::drawing::Drawing;
use crate::hatch::{Hatch, Rectangle};
use crate::page::Entry;
use crate::theme;

/// Slanted lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Slant {
    None,
    Rising,
    Falling,
}

/// A colour and slanted lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    pub color: RGBColor,
    pub slant: Slant,
}

impl Look {
    pub const fn new((red, green, blue): (u8, u8, u8), slant: Slant) -> Look {
        Look { color: RGBColor(red, green, blue), slant }
    }

    /// Fills a rectangle.
    pub fn fill(self, drawing: &mut Drawing, rectangle: Rectangle) {
        let [left, top, width, height] = rectangle;
        drawing.rectangle(left, top, width, height, self.color);
        if self.slant != Slant::None {
            let falling = self.slant == Slant::Falling;
            Hatch { color: theme::INK, every: 12.0, width: 2.0, falling }.draw(drawing, rectangle);
        }
    }

    /// Its legend entry.
    pub fn entry(self, label: &str) -> Entry<'static> {
        Entry {
            sign: Box::new(move |drawing, (x, y)| {
                self.fill(drawing, [x - 30.0, y - 15.0, 60.0, 30.0]);
            }),
            label: label.to_string(),
        }
    }
}
