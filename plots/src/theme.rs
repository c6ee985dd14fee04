//! Colours, markers, sizes, and numbers as text.
//!
//! A page is printed about 160 mm wide, which is 90 % of the width of a two-column paper. At 12.5
//! pixels per millimetre, text of 28 pixels has a little more than 6 points.

use plotters::style::RGBColor;

use crate::drawing::{Drawing, Point};

/// The width of every page.
pub(crate) const WIDTH: f64 = 2000.0;
/// Free space at the edges of a page, in pixels.
pub(crate) const MARGIN: f64 = 30.0;

/// Text sizes, in pixels per em.
pub(crate) const TITLE: f64 = 44.0;
pub(crate) const BODY: f64 = 31.0;
pub(crate) const TICK: f64 = 28.0;
pub(crate) const SMALL: f64 = 26.0;

pub(crate) const PAPER: RGBColor = RGBColor(255, 255, 255);
pub(crate) const INK: RGBColor = RGBColor(0, 0, 0);
pub(crate) const SOFT: RGBColor = RGBColor(80, 80, 80);
pub(crate) const GRID: RGBColor = RGBColor(222, 222, 222);
pub(crate) const WARNING: RGBColor = RGBColor(213, 94, 0);
/// The band of a goal.
pub(crate) const BAND: RGBColor = RGBColor(226, 236, 244);

/// The colours of Okabe and Ito, which readers with any colour vision can distinguish, without
/// yellow, which is hard to see on white, and with grey.
const SERIES: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(128, 128, 128),
];

/// Ten equidistant colours of the viridis scale, from dark to bright.
const VIRIDIS: [RGBColor; 10] = [
    RGBColor(0x44, 0x01, 0x54),
    RGBColor(0x48, 0x28, 0x78),
    RGBColor(0x3e, 0x4a, 0x89),
    RGBColor(0x31, 0x68, 0x8e),
    RGBColor(0x26, 0x82, 0x8e),
    RGBColor(0x1f, 0x9e, 0x89),
    RGBColor(0x35, 0xb7, 0x79),
    RGBColor(0x6e, 0xce, 0x58),
    RGBColor(0xb5, 0xde, 0x2b),
    RGBColor(0xfd, 0xe7, 0x25),
];

/// The colour of the n-th line in a legend.
pub(crate) fn series(index: usize) -> RGBColor {
    SERIES[index % SERIES.len()]
}

/// A faint version of a colour, for the background.
pub(crate) fn faint(color: RGBColor) -> RGBColor {
    let towards = |channel: u8, paper: u8| {
        (0.35 * f64::from(channel) + 0.65 * f64::from(paper)).round() as u8
    };
    RGBColor(towards(color.0, PAPER.0), towards(color.1, PAPER.1), towards(color.2, PAPER.2))
}

/// The colour of the viridis scale at `part`, from 0 (dark) to 1 (bright).
pub(crate) fn viridis(part: f64) -> RGBColor {
    let place = part.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let below = (place as usize).min(VIRIDIS.len() - 2);
    let (low, high) = (VIRIDIS[below], VIRIDIS[below + 1]);
    let mix = |a: u8, b: u8| {
        (f64::from(a) + (f64::from(b) - f64::from(a)) * (place - below as f64)).round() as u8
    };
    RGBColor(mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2))
}

/// Black or white, whichever is easier to read on a colour. By WCAG's contrast ratio, black would be
/// chosen from a luminance of 0.18 on, where black on teal is hard to read.
pub(crate) fn readable_on(background: RGBColor) -> RGBColor {
    let light = |channel: u8| (f64::from(channel) / 255.0).powf(2.2);
    let luminance =
        0.2126 * light(background.0) + 0.7152 * light(background.1) + 0.0722 * light(background.2);
    if luminance > 0.25 { INK } else { PAPER }
}

/// The radius of a marker of a plot in which markers are at places of their own, in pixels.
pub(crate) const MARKER: f64 = 11.0;

/// The radius of the markers of the n-th line, in pixels. It shrinks from one line to the next, so that markers at the
/// same place stay visible.
pub(crate) fn radius(index: usize) -> f64 {
    [14.0, 13.0, 11.5, 10.0, 8.5, 7.0, 5.5][index % 7]
}

/// Draws the n-th marker, one of six shapes, in the colour of the n-th series.
pub(crate) fn marker(
    drawing: &mut Drawing,
    index: usize,
    center: Point,
    radius: f64,
    hollow: bool,
) {
    marker_in(drawing, index, center, radius, hollow, series(index));
}

/// Draws the n-th marker in a colour.
pub(crate) fn marker_in(
    drawing: &mut Drawing,
    index: usize,
    center: Point,
    radius: f64,
    hollow: bool,
    color: RGBColor,
) {
    let shape = |drawing: &mut Drawing, radius: f64, color: RGBColor| {
        let (x, y) = center;
        let around = |offsets: &[Point]| -> Vec<Point> {
            offsets.iter().map(|(dx, dy)| (x + dx * radius, y + dy * radius)).collect()
        };
        match index % 6 {
            0 => drawing.disc(center, radius, color),
            1 => {
                drawing.area(&around(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]), color)
            }
            2 => drawing.area(&around(&[(0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)]), color),
            3 => drawing.area(&around(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]), color),
            4 => drawing.area(&around(&[(0.0, 1.25), (1.15, -0.8), (-1.15, -0.8)]), color),
            _ => drawing.area(
                &around(&[
                    (-0.6, -1.1),
                    (0.6, -1.1),
                    (1.2, 0.0),
                    (0.6, 1.1),
                    (-0.6, 1.1),
                    (-1.2, 0.0),
                ]),
                color,
            ),
        }
    };
    shape(drawing, radius, color);
    if hollow {
        shape(drawing, radius * 0.55, PAPER);
    }
}

/// Draws an interval as a bar with ends.
pub(crate) fn interval(drawing: &mut Drawing, x: f64, low: f64, high: f64, color: RGBColor) {
    const HALF: f64 = 9.0;
    drawing.line(&[(x, low), (x, high)], color, 3.0);
    for end in [low, high] {
        drawing.line(&[(x - HALF, end), (x + HALF, end)], color, 3.0);
    }
}

/// Draws a horizontal interval as a bar with ends.
pub(crate) fn interval_across(drawing: &mut Drawing, y: f64, low: f64, high: f64, color: RGBColor) {
    const HALF: f64 = 9.0;
    drawing.line(&[(low, y), (high, y)], color, 3.0);
    for end in [low, high] {
        drawing.line(&[(end, y - HALF), (end, y + HALF)], color, 3.0);
    }
}

/// Draws a five-pointed star with a white rim.
pub(crate) fn star(drawing: &mut Drawing, center: Point, radius: f64) {
    for (radius, color) in [(radius * 1.4, PAPER), (radius, INK)] {
        let tip = |index: i32| {
            let angle = f64::from(index) * std::f64::consts::PI / 5.0;
            let reach = if index % 2 == 0 { radius } else { radius * 0.45 };
            (center.0 + angle.sin() * reach, center.1 - angle.cos() * reach)
        };
        drawing.area(&(0..10).map(tip).collect::<Vec<_>>(), color);
    }
}

/// A number with `digits` significant digits and a space between thousands: `0.012`, `12.3`,
/// `12 300`.
pub(crate) fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    // Rounding can add a digit: 9.996 to three digits is 10.0, not 10.00.
    let scale = 10f64.powi(digits - 1 - magnitude);
    let rounded = (value * scale).round() / scale;
    let magnitude = if rounded == 0.0 { magnitude } else { rounded.abs().log10().floor() as i32 };
    grouped(&format!("{rounded:.*}", (digits - 1 - magnitude).max(0) as usize))
}

/// The uncertainty of a value that is printed with three digits: two significant digits, but at most
/// one decimal place more than the value.
pub(crate) fn uncertainty(half_width: f64, value: f64) -> String {
    let places = |number: f64, digits: f64| {
        if number == 0.0 { 0.0 } else { (digits - 1.0 - number.log10().floor()).max(0.0) }
    };
    let most = places(half_width, 2.0);
    let text = format!("{half_width:.*}", most.min(places(value, 3.0) + 1.0) as usize);
    // Not `0.0`, which would say that there is none.
    if half_width > 0.0 && text.parse() == Ok(0.0) { significant(half_width, 1) } else { text }
}

/// The shortest exact form of a number: `0.5`, `64`, `1000`.
pub(crate) fn plain(value: f64) -> String {
    format!("{value}")
}

/// The exact form of a number with a space between thousands: `0.5`, `12 288`.
pub(crate) fn exact(value: f64) -> String {
    grouped(&plain(value))
}

/// A tick's label: four significant digits without trailing zeros after the point.
pub(crate) fn tick(value: f64) -> String {
    let text = significant(value, 4);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

/// A number of bytes in the largest binary unit that fits: `64 KiB`, `1.5 MiB`.
pub(crate) fn bytes(value: f64) -> String {
    let mut scaled = value;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = larger;
    }
    format!("{} {unit}", tick(scaled))
}

/// A fusion threshold in MiB for an axis: `off`, `0.5`, `64`.
pub(crate) fn threshold_mib(bytes: f64) -> String {
    if bytes == 0.0 { "off".to_string() } else { tick(bytes / MIB) }
}

/// A fusion threshold for a sentence: `fusion off`, `64 MiB`.
pub(crate) fn threshold(bytes: f64) -> String {
    if bytes == 0.0 { "fusion off".to_string() } else { format!("{} MiB", tick(bytes / MIB)) }
}

pub(crate) const MIB: f64 = 1048576.0;

/// `1 rank`, `27 600 ranks`.
pub(crate) fn ranks(number: f64) -> String {
    format!("{} rank{}", exact(number), if number == 1.0 { "" } else { "s" })
}

/// `1 case`, `2 cases`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Puts a narrow space between thousands of numbers from 10 000 on.
fn grouped(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    if whole < 5 {
        return number.to_string();
    }
    let mut text = String::new();
    for (index, c) in number.char_indices() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (123.456, "123"),
            (12.3456, "12.3"),
            (9.996, "10.0"),
            (1234.0, "1230"),
            (0.012345, "0.0123"),
            (1234567.0, "1\u{202f}230\u{202f}000"),
        ] {
            assert_eq!(significant(value, 3), text);
        }
    }

    #[test]
    fn numbers_that_were_set_keep_every_digit() {
        assert_eq!(exact(12288.0), "12\u{202f}288");
        assert_eq!((exact(0.5), exact(6000.0)), ("0.5".to_string(), "6000".to_string()));
    }

    #[test]
    fn an_uncertainty_has_one_more_decimal_than_its_value() {
        assert_eq!(uncertainty(0.934, 123.0), "0.9");
        assert_eq!(uncertainty(0.934, 12.3), "0.93");
        assert_eq!(uncertainty(1.26, 12.3), "1.3");
        assert_eq!(uncertainty(26.4, 1234.0), "26");
        assert_eq!(uncertainty(0.0, 123.0), "0");
        assert_eq!(uncertainty(0.02, 123.0), "0.02");
    }

    #[test]
    fn bytes_take_their_largest_unit() {
        assert_eq!(bytes(1000.0), "1000 B");
        assert_eq!(bytes(65536.0), "64 KiB");
        assert_eq!(bytes(1.5 * MIB), "1.5 MiB");
        assert_eq!(threshold_mib(0.0), "off");
        assert_eq!(threshold_mib(128.0 * MIB), "128");
    }

    #[test]
    fn viridis_grows_brighter_and_its_text_stays_readable() {
        let brightness = |part| {
            let RGBColor(r, g, b) = viridis(part);
            0.3 * f64::from(r) + 0.59 * f64::from(g) + 0.11 * f64::from(b)
        };
        for step in 0..100 {
            let part = f64::from(step) / 100.0;
            assert!(brightness(part) < brightness(part + 0.01), "at {part}");
        }
        assert_eq!(readable_on(viridis(0.0)), PAPER);
        assert_eq!(readable_on(viridis(1.0)), INK);
    }

    #[test]
    fn series_differ_in_colour_until_colours_run_out_and_then_in_marker() {
        let drawn = |index| {
            let mut drawing = Drawing::default();
            marker(&mut drawing, index, (0.0, 0.0), MARKER, false);
            format!("{:?}", drawing.marks)
        };
        for index in 0..20 {
            for other in 0..index {
                assert_ne!(drawn(index), drawn(other));
                assert!(index >= 7 || series(index) != series(other));
            }
        }
    }
}
