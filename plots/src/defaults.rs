//! Horovod's defaults, and the corners that mark their cells.

use plotters::style::RGBColor;

use crate::drawing::{Drawing, Point};
use crate::page::Entry;
use crate::theme;

/// A fusion threshold in bytes and a cycle time in milliseconds.
type Setting = (f64, f64);

/// Horovod's default fusion threshold and cycle time since version 0.21.
const DEFAULT: Setting = (128.0 * theme::MIB, 1.0);
/// Horovod's defaults before version 0.21.
const FORMER_DEFAULT: Setting = (64.0 * theme::MIB, 5.0);

/// Whether a setting is a default.
pub(crate) fn is_one(setting: Setting) -> bool {
    setting == DEFAULT || setting == FORMER_DEFAULT
}

/// Marks a cell whose setting is a default, at its top right or bottom right corner.
pub(crate) fn mark(
    drawing: &mut Drawing,
    setting: Setting,
    corner: Point,
    height: f64,
    size: f64,
    ink: RGBColor,
) {
    if setting == DEFAULT {
        fold(drawing, corner, size, true, ink);
    }
    if setting == FORMER_DEFAULT {
        fold(drawing, (corner.0, corner.1 + height), size, false, ink);
    }
}

/// The legend entries of those defaults that were tried.
pub(crate) fn entries(tried: impl Fn(Setting) -> bool) -> impl Iterator<Item = Entry<'static>> {
    let since = [(DEFAULT, true, "since"), (FORMER_DEFAULT, false, "before")];
    let entry = |(_, at_top, when): (Setting, bool, &str)| Entry {
        sign: Box::new(move |drawing: &mut Drawing, (x, y)| {
            drawing.rectangle(x - 24.0, y - 16.0, 48.0, 32.0, theme::GRID);
            let y = if at_top { y - 16.0 } else { y + 16.0 };
            fold(drawing, (x + 24.0, y), 22.0, at_top, theme::INK);
        }),
        label: format!("Horovod's default {when} 0.21"),
    };
    since.into_iter().filter(move |(setting, ..)| tried(*setting)).map(entry)
}

/// Draws a corner at the top right of a cell, or at the bottom right.
fn fold(drawing: &mut Drawing, corner: Point, size: f64, at_top: bool, color: RGBColor) {
    // A distance to the edge keeps a white corner from looking like a missing one.
    let off = (size / 5.0).min(4.0);
    let down = if at_top { 1.0 } else { -1.0 };
    let (x, y) = (corner.0 - off, corner.1 + down * off);
    let inwards = down * size;
    drawing.area(&[(x - size, y), (x, y), (x, y + inwards)], color);
}
