//! Allreduces alone, by themselves or relative to the least of their size: what several figures have in common.
//!
//! Lines over message size, one per algorithm; each layout of ranks is a panel, and all panels have the same axes.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Align, Drawing, Text};
use crate::frame::Frame;
use crate::layout::Layout;
use crate::line::{self, Line, Point};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::{Estimate, Row, Rows};
use crate::selection::{self, Selection};
use crate::view::View;
use crate::{Sheet, theme};

/// Rows of steps have the same columns.
const KIND: &str = "allreduce";

/// Room for the labels of the values, in pixels.
const LEFT: f64 = 140.0;

/// What a figure shows of allreduces.
pub(crate) struct Relative {
    pub title: &'static str,
    /// The quantity whose least value all rows of a layout and size share.
    pub of: fn(&Row) -> Option<f64>,
    /// What is shown of a row, given that value.
    pub shown: fn(&Row, f64) -> Estimate,
    /// The columns that this needs, for people.
    pub needed: &'static str,
    /// Panels with fewer algorithms are left out.
    pub least_lines: usize,
    pub axis: fn(&[f64], f64, f64) -> Axis,
    pub axis_title: &'static str,
    /// A dashed line at this value, the word at its right end, and the room for it in pixels.
    pub mark: Option<(f64, &'static str, f64)>,
    pub finding: fn(&[Panel]) -> String,
    /// What the values are relative to.
    pub note: &'static str,
}

/// The lines of one layout of ranks.
pub(crate) struct Panel {
    pub layout: Layout,
    pub lines: Vec<Line>,
}

impl Relative {
    pub fn sheets(&'static self, rows: &Rows, view: View) -> Vec<Sheet> {
        let selections = Selection::over_layouts(rows, KIND, line::case).into_iter();
        let mut pictures: Vec<Picture> =
            selections.map(|selection| Picture::of(self, selection)).collect();
        if pictures.is_empty() {
            let reason = selection::none(rows, &[KIND], "`kolo bench --out FILE` writes them");
            return vec![Sheet::Skipped { reason }];
        }
        let panels = pictures.iter_mut().flat_map(|picture| &mut picture.panels);
        Line::style(panels.flat_map(|panel| &mut panel.lines));
        pictures.into_iter().map(|picture| picture.sheet(view)).collect()
    }

    /// The least value of each size, in bytes.
    fn least(&self, rows: &[&Row]) -> BTreeMap<u64, f64> {
        let mut least: BTreeMap<u64, f64> = BTreeMap::new();
        for row in rows {
            let (Some(size), Some(value)) = (row.size_bytes, (self.of)(row)) else { continue };
            let least = least.entry(size as u64).or_insert(value);
            *least = least.min(value);
        }
        least
    }

    /// What is shown of a row, given the least value of each size.
    fn estimate(&self, row: &Row, least: &BTreeMap<u64, f64>) -> Estimate {
        let least = row.size_bytes.and_then(|size| least.get(&(size as u64)).copied());
        least.map_or(Estimate { value: None, interval: None }, |least| (self.shown)(row, least))
    }
}

/// The content of one sheet.
struct Picture<'a> {
    relative: &'static Relative,
    selection: Selection<'a>,
    panels: Vec<Panel>,
}

impl<'a> Picture<'a> {
    fn of(relative: &'static Relative, mut selection: Selection<'a>) -> Picture<'a> {
        let alone = |row: &Row| relative.estimate(row, &relative.least(&[row]));
        selection.require(|row| Point::of(row, alone).is_some());
        selection.prefer_in_place();
        let mut layouts: BTreeMap<Layout, Vec<&Row>> = BTreeMap::new();
        for row in &selection.rows {
            layouts.entry(Layout::of(row)).or_default().push(row);
        }
        let panel = |(layout, rows): (Layout, Vec<&Row>)| {
            let least = relative.least(&rows);
            let lines = Line::all(&selection, &rows, |row| relative.estimate(row, &least));
            Panel { layout, lines }
        };
        let panels = layouts.into_iter().map(panel);
        let panels = panels.filter(|panel| panel.lines.len() >= relative.least_lines).collect();
        Picture { relative, selection, panels }
    }

    fn sheet(self, view: View) -> Sheet {
        if self.panels.is_empty() {
            let reason = self.selection.nothing_to_draw(KIND, self.relative.needed);
            return Sheet::Skipped { reason };
        }
        let drawing = self.draw(view);
        Sheet::Drawn { suffix: self.selection.suffix, drawing }
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.panels.iter().flat_map(|panel| &panel.lines)
    }

    fn draw(&self, view: View) -> Drawing {
        let Relative { title, axis, mark, finding, note, .. } = *self.relative;
        let mut page = Page::new(view, title, &finding(&self.panels));
        Line::legend(&mut page, self.lines());
        let points = || self.lines().flat_map(|line| &line.points);
        let sizes: Vec<f64> = points().map(|point| point.size).collect();
        let values: Vec<f64> = points().flat_map(Point::span).collect();
        let titles: Vec<String> = match self.panels.as_slice() {
            [_] => vec![String::new()],
            panels => panels.iter().map(|panel| panel.layout.to_string()).collect(),
        };
        let shape = Shape::usual(LEFT, mark.map_or(20.0, |(_, _, room)| room), titles.len());
        panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
            let x = Axis::bytes(&sizes, frame.left, frame.right);
            let y = axis(&values, frame.bottom, frame.top);
            self.relative.draw(&self.panels[index].lines, drawing, frame, (&x, &y));
        });
        let notes = vec![note.to_string(), line::note(&self.selection)];
        page.finish(&Caption::of(&self.selection, |row| row.time_us, notes))
    }
}

impl Relative {
    fn draw(&self, lines: &[Line], drawing: &mut Drawing, frame: Frame, (x, y): (&Axis, &Axis)) {
        let Frame { left, right, .. } = frame;
        x.draw_below(drawing, frame, "message size");
        y.draw_left(drawing, frame, self.axis_title);
        if let Some((value, word, _)) = self.mark {
            let at = y.at(value);
            drawing.dashes((left, at), (right, at), theme::INK, 3.0);
            let word = Text::new(word, (0.0, at), theme::TICK).centered();
            drawing.text(Text { align: Align::Left, at: (right + 14.0, word.at.1), ..word });
        }
        for line in lines {
            line.draw(drawing, x, y);
        }
        frame.draw(drawing);
    }
}
