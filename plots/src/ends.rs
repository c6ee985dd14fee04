//! Numbers and names at the right ends of lines, moved apart so that none covers another.

use crate::drawing::{Align, Drawing, Text, text_width};
use crate::frame::Frame;
use crate::theme;
use crate::view::View;

/// The room right of a frame for numbers without names, in pixels.
const ROOM: f64 = 165.0;
/// The text size of names, small enough that they take less than half a panel.
const NAME: f64 = 21.0;
/// The smallest distance between numbers, in pixels: on a screen, and on paper.
const APART: f64 = 34.0;
const APART_ON_PAPER: f64 = 29.0;

/// The last point of a line.
pub(crate) struct End {
    /// Its vertical pixel.
    pub y: f64,
    pub style: usize,
    /// Whether its marker is hollow.
    pub hollow: bool,
    pub words: String,
    pub name: String,
}

/// The room that numbers and names need right of a frame, in pixels.
pub(crate) fn room<'a>(view: View, names: impl Iterator<Item = &'a str>) -> f64 {
    if view.is_paper() {
        return ROOM;
    }
    ROOM + names.map(|name| text_width(name, NAME, false)).fold(0.0, f64::max)
}

/// Draws markers, numbers and names right of a frame, each with a thin line from its point.
pub(crate) fn draw(view: View, drawing: &mut Drawing, frame: Frame, mut ends: Vec<End>) {
    ends.sort_by(|a, b| a.y.total_cmp(&b.y));
    let heights: Vec<f64> = ends.iter().map(|end| end.y).collect();
    let apart = if view.is_paper() { APART_ON_PAPER } else { APART };
    let places = spread(&heights, apart, (frame.top + apart / 2.0, frame.bottom - apart / 2.0));
    for (end, y) in ends.iter().zip(places) {
        let x = frame.right;
        drawing.line(
            &[(x, end.y), (x + 8.0, end.y), (x + 26.0, y), (x + 34.0, y)],
            theme::SOFT,
            2.0,
        );
        theme::marker(drawing, end.style, (x + 48.0, y), 9.0, end.hollow);
        let words = Text::new(&end.words, (x + 64.0, y), view.small()).centered();
        drawing.text(Text { align: Align::Left, ..words });
        // On paper the legend names the markers.
        if view.is_paper() {
            continue;
        }
        let x = x + 64.0 + text_width(&end.words, theme::SMALL, false) + 10.0;
        let name = Text::new(&end.name, (x, y), NAME).centered();
        drawing.text(Text { align: Align::Left, color: theme::SOFT, ..name });
    }
}

/// Moves sorted heights so that they are at least so far apart, and between top and bottom as long as
/// there is room. The middle of a crowd stays where it is.
fn spread(heights: &[f64], apart: f64, (top, bottom): (f64, f64)) -> Vec<f64> {
    // Each crowd is its middle and its number of heights. Neighbours that touch are merged.
    let mut crowds: Vec<(f64, usize)> = Vec::new();
    for height in heights {
        let mut crowd = (*height, 1);
        loop {
            let half = apart * (crowd.1 as f64 - 1.0) / 2.0;
            crowd.0 = crowd.0.min(bottom - half).max(top + half);
            let Some((middle, count)) = crowds.last().copied() else { break };
            let reach = apart * (count + crowd.1) as f64 / 2.0;
            if crowd.0 - middle >= reach {
                break;
            }
            crowds.pop();
            let all = count + crowd.1;
            crowd = ((middle * count as f64 + crowd.0 * crowd.1 as f64) / all as f64, all);
        }
        crowds.push(crowd);
    }
    let places = |(middle, count): (f64, usize)| {
        (0..count).map(move |index| middle + apart * (index as f64 - (count as f64 - 1.0) / 2.0))
    };
    crowds.into_iter().flat_map(places).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowded_heights_are_spread_and_others_stay() {
        assert_eq!(spread(&[100.0, 200.0], APART, (0.0, 1000.0)), [100.0, 200.0]);
        assert_eq!(spread(&[100.0, 100.0, 500.0], APART, (0.0, 1000.0)), [83.0, 117.0, 500.0]);
        assert_eq!(spread(&[5.0, 5.0], APART, (0.0, 1000.0)), [0.0, 34.0]);
        assert_eq!(spread(&[999.0, 1000.0], APART, (0.0, 1000.0)), [966.0, 1000.0]);
        assert_eq!(spread(&[], APART, (0.0, 1000.0)), [0.0; 0]);
        for count in 1..12 {
            let heights: Vec<f64> =
                (0..count).map(|index| 400.0 + f64::from(index) * 7.0).collect();
            let places = spread(&heights, APART, (0.0, 500.0));
            assert_eq!(places.len(), heights.len());
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] > APART - 1e-6), "{places:?}");
            assert!(
                places.iter().all(|place| (-1e-6..=500.0 + 1e-6).contains(place)),
                "{places:?}"
            );
        }
    }
}
