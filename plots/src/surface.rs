//! Step time over fusion threshold and cycle time: the fastest setting, and those that tie with it.
//!
//! The figure has a heat map for each algorithm (rows) and control plane (columns), all with the
//! same colour scale. Every setting that ties with the fastest one is outlined, because the samples
//! do not tell which of them is faster: by the comparison of their blocks, or where there was none,
//! because their intervals overlap. All cells have the same size, whatever
//! the values along the sides. Horovod's defaults have a corner, as they are what applies without
//! tuning.

use std::collections::HashMap;

use crate::caption::Caption;
use crate::cell::{Cell, OUTLINE, Shape};
use crate::color_bar::Colors;
use crate::defaults;
use crate::drawing::{Align, Drawing, Text, text_width};
use crate::hatch::{Hatch, Rectangle};
use crate::page::{Entry, Page};
use crate::rows::Rows;
use crate::selection::Selection;
use crate::view::View;
use crate::{Figure, Sheet, distinct, steps, theme};

pub(crate) const FIGURE: Figure = Figure { name: "surface", sheets };

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    steps::sheets(rows, view, sheet)
}

fn sheet(mut selection: Selection, view: View) -> Sheet {
    selection.require(|row| Cell::of(row).is_some());
    if selection.rows.is_empty() {
        let needed = "all of time_us_p50, fusion_threshold_bytes and cycle_time_ms";
        return Sheet::Skipped { reason: selection.nothing_to_draw("step", needed) };
    }
    let algorithms = selection.algorithms();
    let cells = selection
        .rows
        .iter()
        .filter_map(|row| Some(Cell { algorithm: algorithms.name(row), ..Cell::of(row)? }))
        .collect();
    let surface = Surface::of(cells, selection.control_planes(), Stars::One);
    let title = "Step time by fusion threshold and cycle time";
    let caption = Caption::of(&selection, |row| row.time_us, vec![surface.note(view)]);
    let drawing = surface.draw(view, title, &surface.finding(), &caption);
    Sheet::Drawn { suffix: selection.suffix, drawing }
}

/// Where the fastest setting is marked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stars {
    /// In the whole picture.
    One,
    /// In every heat map.
    Each,
}

/// The cells of one picture and the sorted values along its sides. Algorithms are its rows of heat maps, control
/// planes its columns.
pub(crate) struct Surface {
    cells: Vec<Cell>,
    algorithms: Vec<String>,
    planes: Vec<String>,
    thresholds: Vec<f64>,
    cycles: Vec<f64>,
    stars: Stars,
}

impl Surface {
    pub(crate) fn of(cells: Vec<Cell>, planes: Vec<String>, stars: Stars) -> Surface {
        let mut algorithms: Vec<String> = cells.iter().map(|cell| cell.algorithm.clone()).collect();
        algorithms.sort();
        algorithms.dedup();
        let numbers = |number: fn(&Cell) -> f64| distinct::ascending(cells.iter().map(number));
        let (thresholds, cycles) = (numbers(|cell| cell.threshold), numbers(|cell| cell.cycle));
        Surface { algorithms, planes, thresholds, cycles, cells, stars }
    }

    fn best(&self) -> &Cell {
        let best = self.cells.iter().min_by(|a, b| a.time.total_cmp(&b.time));
        best.expect("a surface is drawn when it has cells")
    }

    /// The fastest setting that a heat map marks: its own, or that of the picture.
    pub(crate) fn best_for(&self, algorithm: &str, plane: &str) -> &Cell {
        let own = |cell: &&Cell| cell.algorithm == algorithm && cell.plane == plane;
        let best = self.cells.iter().filter(own).min_by(|a, b| a.time.total_cmp(&b.time));
        best.filter(|_| self.stars == Stars::Each).unwrap_or_else(|| self.best())
    }

    /// The cells of one heat map, by the bits of threshold and cycle time; of equal settings the first.
    fn cells_of(&self, algorithm: &str, plane: &str) -> HashMap<(u64, u64), &Cell> {
        let own = self.cells.iter().filter(|it| it.algorithm == algorithm && it.plane == plane);
        own.rev().map(|cell| ((cell.threshold.to_bits(), cell.cycle.to_bits()), cell)).collect()
    }

    /// The finding of the picture in a sentence.
    fn finding(&self) -> String {
        let best = self.best();
        let tied = self.cells.iter().filter(|cell| cell.ties_with(best)).count() - 1;
        let tie = match (tied, self.cells.len() - 1) {
            (_, 0) => "It is the only setting.".to_string(),
            (0, 1) => "The other setting does not tie with it.".to_string(),
            (1, 1) => "The other setting ties with it.".to_string(),
            (0, others) => format!("None of {others} other settings ties with it."),
            (1, others) => format!("1 of {others} other settings ties with it."),
            (tied, others) => format!("{tied} of {others} other settings tie with it."),
        };
        format!("Fastest: {} ms with {}. {tie}", best.value(), best.setting())
    }

    pub(crate) fn draw(
        &self,
        view: View,
        title: &str,
        finding: &str,
        caption: &Caption,
    ) -> Drawing {
        let mut page = Page::new(view, title, finding);
        let colors = Colors::over(&self.cells);
        let mut entries = self.entries();
        entries.extend(colors.entry());
        page.legend(&entries);
        let shape = self.shape(view);
        let panels_top = page.y + 16.0;

        for (row, algorithm) in self.algorithms.iter().enumerate() {
            let top = panels_top
                + row as f64 * (shape.panel_height() + TITLE_HEIGHT + PANEL_GAP)
                + TITLE_HEIGHT;
            for (column, plane) in self.planes.iter().enumerate() {
                let left = left_of(view) + column as f64 * (shape.panel_width() + PANEL_GAP);
                let title =
                    Text::new(format!("{algorithm}, {plane}"), (left, top - 20.0), theme::TICK);
                page.drawing.text(Text { bold: true, ..title });
                let panel = Panel { algorithm, plane, left, top };
                self.draw_panel(&mut page.drawing, &shape, &colors, &panel);
            }
            let cycles = self.cycles.iter().enumerate();
            for (index, cycle) in cycles.filter(|(index, _)| shape.labels_cycle(*index)) {
                let at =
                    (left_of(view) - 16.0, shape.cell_top(top, index) + shape.cell_height / 2.0);
                let label = Text::new(theme::tick(*cycle), at, theme::TICK).centered();
                page.drawing.text(Text { align: Align::Right, ..label });
            }
            page.y = top + shape.panel_height();
        }
        for column in 0..self.planes.len() {
            let left = left_of(view) + column as f64 * (shape.panel_width() + PANEL_GAP);
            let thresholds = self.thresholds.iter().enumerate();
            for (index, threshold) in thresholds.filter(|(index, _)| shape.labels_threshold(*index))
            {
                let words = theme::threshold_mib(*threshold);
                let mut x = left + (index as f64 + 0.5) * shape.cell_width;
                if shape.is_dense {
                    // Labels of neighbouring maps do not meet.
                    let half = text_width(&words, shape.label_size, false) / 2.0;
                    x = x.min(left + shape.panel_width() - half).max(left + half);
                }
                let label = Text::new(words, (x, page.y + 38.0), shape.label_size);
                page.drawing.text(Text { align: Align::Middle, ..label });
            }
            let at = (left + shape.panel_width() / 2.0, page.y + 84.0);
            let label = Text::new("fusion threshold (MiB)", at, theme::BODY);
            page.drawing.text(Text { align: Align::Middle, ..label });
        }
        let panels_top = panels_top + TITLE_HEIGHT;
        let middle = (theme::MARGIN + 26.0, (panels_top + page.y) / 2.0);
        let label = Text::new("cycle time (ms)", middle, theme::BODY);
        page.drawing.text(Text { upwards: true, ..label }.centered());
        colors.draw_bar(&mut page.drawing, view.width() - RIGHT + 40.0, panels_top, page.y);
        page.y += 96.0;

        page.finish(caption)
    }

    fn shape(&self, view: View) -> Shape {
        let panels = self.planes.len() as f64;
        let room = (view.width() - left_of(view) - RIGHT - (panels - 1.0) * PANEL_GAP) / panels;
        let rows = self.cycles.len();
        Shape::of(view, &self.cells, &self.thresholds, rows, room, self.algorithms.len())
    }

    pub(crate) fn note(&self, view: View) -> String {
        let any_interval = self.cells.iter().any(|cell| cell.interval.is_some());
        let is_compared = |cell: &Cell| cell.over_best.is_some();
        let tie = if self.cells.iter().all(is_compared) {
            "Settings tie with the fastest of their run unless their ratio, round by round, says otherwise; the truly \
             fastest is among them in 95 % of runs."
        } else if any_interval {
            "Two settings tie when their intervals overlap, without correction for their number."
        } else {
            "Without intervals, settings tie only when their times are equal."
        };
        let small = if any_interval && self.shape(view).has_spreads() {
            " Small figures: half the interval's width, or its ends where that would mislead."
        } else {
            ""
        };
        let dense = if self.shape(view).is_dense {
            " Cells are too small for numbers; rows.csv has them."
        } else {
            ""
        };
        format!("{tie}{small}{dense}")
    }

    fn draw_panel(&self, drawing: &mut Drawing, shape: &Shape, colors: &Colors, panel: &Panel) {
        let Panel { algorithm, plane, left, top } = *panel;
        let best = self.best_for(algorithm, plane);
        let mut star = None;
        let cells = self.cells_of(algorithm, plane);
        for (column, threshold) in self.thresholds.iter().enumerate() {
            for (row, cycle) in self.cycles.iter().enumerate() {
                let x = left + column as f64 * shape.cell_width + shape.gap / 2.0;
                let y = shape.cell_top(top, row) + shape.gap / 2.0;
                let (width, height) = (shape.cell_width - shape.gap, shape.cell_height - shape.gap);
                let cell = cells.get(&(threshold.to_bits(), cycle.to_bits())).copied();
                let ink = match cell {
                    Some(cell) => {
                        let fill = colors.of(cell);
                        drawing.rectangle(x, y, width, height, fill);
                        shape.write(drawing, cell, (x + width / 2.0, y + height / 2.0), fill);
                        if cell.ties_with(best) {
                            outline(drawing, shape.outline, [x, y, width, height]);
                        }
                        if cell == best {
                            star = Some(if shape.is_dense {
                                // Larger than its cell, or it would not be seen.
                                ((x + width / 2.0, y + height / 2.0), STAR)
                            } else {
                                // In the corner, so that it hides no digit.
                                let radius = STAR.min(width * 0.09).min(height * 0.14);
                                let inside = OUTLINE + 1.1 * radius;
                                ((x + inside, y + inside), radius)
                            });
                        }
                        theme::readable_on(fill)
                    }
                    None => {
                        Hatch::missing(drawing, [x, y, width, height]);
                        theme::INK
                    }
                };
                let size = (height * 0.34).min(width * 0.15).min(26.0);
                let setting = (*threshold, *cycle);
                let edge = cell.filter(|cell| cell.ties_with(best)).map_or(0.0, |_| shape.outline);
                let corner = (x + width - edge, y + edge);
                defaults::mark(drawing, setting, corner, height - 2.0 * edge, size, ink);
            }
        }
        // Drawn last so that no text of a cell covers it.
        if let Some((at, radius)) = star {
            theme::star(drawing, at, radius);
        }
    }

    /// The legend: those signs that occur.
    fn entries(&self) -> Vec<Entry<'static>> {
        let mut entries = vec![
            Entry {
                sign: Box::new(|drawing, at| theme::star(drawing, at, STAR)),
                label: "fastest".to_string(),
            },
            Entry {
                sign: Box::new(|drawing, (x, y)| {
                    drawing.outline(x - 24.0, y - 16.0, 48.0, 32.0, 5.0);
                }),
                label: "ties with the fastest".to_string(),
            },
        ];
        let tried = |(threshold, cycle): (f64, f64)| {
            self.thresholds.contains(&threshold) && self.cycles.contains(&cycle)
        };
        entries.extend(defaults::entries(tried));
        let whole =
            self.algorithms.len() * self.planes.len() * self.thresholds.len() * self.cycles.len();
        if self.cells.len() < whole {
            entries.push(Entry {
                sign: Box::new(|drawing, (x, y)| {
                    Hatch::missing(drawing, [x - 24.0, y - 16.0, 48.0, 32.0])
                }),
                label: "no value".to_string(),
            });
        }
        entries
    }
}

/// Room left of the heat maps, in pixels.
fn left_of(view: View) -> f64 {
    if view.is_paper() { 150.0 } else { 190.0 }
}

/// Room for the colour bar, in pixels.
const RIGHT: f64 = 250.0;
const TITLE_HEIGHT: f64 = 54.0;
const PANEL_GAP: f64 = 30.0;
const STAR: f64 = 17.0;

/// Outlines a cell along the inside of its edges, with a white line between outline and cell, whose
/// colour may be dark.
fn outline(drawing: &mut Drawing, outline: f64, [x, y, width, height]: Rectangle) {
    let mut inner = |edge: f64, color, stroke| {
        let (w, h) = (width - 2.0 * edge, height - 2.0 * edge);
        drawing.outline_in(color, x + edge, y + edge, w, h, stroke);
    };
    // Small cells have no room for it.
    if outline == OUTLINE {
        inner(outline + 1.0, theme::PAPER, 2.0);
    }
    inner(outline / 2.0, theme::INK, outline);
}

/// The algorithm and control plane of a heat map, and its position.
struct Panel<'a> {
    algorithm: &'a str,
    plane: &'a str,
    left: f64,
    top: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, grid, step};

    fn outlined(drawing: &Drawing) -> usize {
        let outline = |mark: &&Mark| matches!(mark, Mark::Line { width, .. } if *width == OUTLINE);
        drawing.marks.iter().filter(outline).count()
    }

    /// A ring's step over cycle times 1, 2, 3 ...: milliseconds and the interval, if any.
    fn column(times: &[(f64, Option<(f64, f64)>)]) -> Vec<synthetic::Row> {
        let mut rows = Vec::new();
        for (index, (time, interval)) in times.iter().enumerate() {
            let micros = |part: fn((f64, f64)) -> f64| {
                interval.map_or(String::new(), |ends| format!("{}", part(ends) * 1e3))
            };
            let row = step("ring", "coordinator", 64.0, index as f64 + 1.0)
                .with("time_us_p50", &format!("{}", time * 1e3))
                .with("time_us_p50_low", &micros(|(low, _)| low))
                .with("time_us_p50_high", &micros(|(_, high)| high));
            rows.push(row);
        }
        rows
    }

    #[test]
    fn exactly_the_settings_that_tie_with_the_fastest_are_outlined() {
        let drawing = FIGURE.drawing(&column(&[
            (100.0, Some((98.0, 102.0))),  // the fastest
            (101.0, Some((99.0, 103.0))),  // overlaps
            (104.0, Some((102.0, 106.0))), // touches
            (110.0, Some((102.1, 113.0))), // just above
            (103.0, None),                 // alone, above
            (101.5, None),                 // alone, within
        ]));
        assert_eq!(outlined(&drawing), 4);
        assert!(drawing.words().contains("Fastest: 100 ms with ring, coordinator, 64 MiB, 1 ms."));
        assert!(drawing.words().contains("3 of 5 other settings tie with it."));
    }

    /// Intervals overlap, and blocks side by side tell the settings apart; and the other way round.
    #[test]
    fn a_comparison_with_the_fastest_counts_more_than_intervals() {
        let interval = Some((90.0, 120.0));
        let rows = column(&[(100.0, interval), (103.0, interval), (130.0, Some((128.0, 132.0)))]);
        let compared = |(row, [ratio, low]): (synthetic::Row, [&str; 2])| {
            row.with("over_best", ratio).with("over_best_low", low)
        };
        let with =
            |ends: [[&str; 2]; 3]| rows.iter().cloned().zip(ends).map(compared).collect::<Vec<_>>();
        let drawing = FIGURE.drawing(&with([["1", "1"], ["1.03", "1.01"], ["1.3", "0.9"]]));
        assert_eq!(outlined(&drawing), 2);
        assert!(drawing.words().contains("1 of 2 other settings ties with it."));
        assert!(drawing.words().contains("unless their ratio, round by round, says otherwise"));
        // What was compared with a setting that is not in the picture says nothing.
        let drawing = FIGURE.drawing(&with([["1.1", "1.05"], ["1.13", "1.1"], ["1.4", "0.9"]]));
        assert!(drawing.words().contains("1 of 2 other settings ties with it."));
        assert_eq!(outlined(&drawing), 2);
    }

    #[test]
    fn outlines_and_the_star_stay_within_their_cells() {
        let same = |row: synthetic::Row| row.with_estimate("time_us_p50", 1e5, 1e3);
        let mut rows: Vec<_> =
            grid(&["ring"], &[64.0, 128.0], &[1.0, 5.0]).into_iter().map(same).collect();
        rows[0] = rows[0].with("time_us_p50", "99200");
        let drawing = FIGURE.drawing(&rows);
        let area = |mark: &Mark| match mark {
            Mark::Area { points, color }
                if points.len() == 4
                    && (points[2].0 - points[0].0) > 100.0
                    && *color != theme::PAPER =>
            {
                Some((points[0], points[2]))
            }
            _ => None,
        };
        let cells: Vec<_> = drawing.marks.iter().filter_map(area).collect();
        let within = |points: &[(f64, f64)], stroke: f64| {
            cells.iter().any(|((left, top), (right, bottom))| {
                points.iter().all(|(x, y)| {
                    let (across, down) =
                        (left + stroke..=right - stroke, top + stroke..=bottom - stroke);
                    across.contains(x) && down.contains(y)
                })
            })
        };
        let mut seen = (0, 0);
        for mark in &drawing.marks {
            match mark {
                Mark::Line { points, width, .. } if *width == OUTLINE => {
                    assert!(within(points, OUTLINE / 2.0), "{points:?} leaves its cell");
                    seen.0 += 1;
                }
                // The legend has a star too, of paper and of ink.
                Mark::Area { points, .. } if points.len() == 10 => {
                    seen.1 += usize::from(within(points, 0.0));
                }
                _ => {}
            }
        }
        assert_eq!(seen, (8, 2));
    }

    #[test]
    fn ties_reach_over_algorithms_and_control_planes() {
        let rows = grid(&["ring", "tree"], &[64.0], &[5.0]);
        let same = |row: synthetic::Row| row.with_estimate("time_us_p50", 1e5, 1e3);
        let rows: Vec<_> = rows.into_iter().map(same).collect();
        assert_eq!(outlined(&FIGURE.drawing(&rows)), 4);
    }

    /// 8 maps of 50 x 25 settings have no room for numbers, but for every label that is drawn.
    #[test]
    fn very_many_settings_are_cells_without_numbers() {
        let thresholds: Vec<f64> = (1..=50).map(f64::from).collect();
        let cycles: Vec<f64> = (1..=25).map(|tenths| f64::from(tenths) / 10.0).collect();
        let drawing = FIGURE.drawing(&grid(&["ring", "tree"], &thresholds, &cycles));
        assert!(drawing.height < 3000.0, "{}", drawing.height);
        let texts = drawing.texts();
        assert!(texts.len() < 200, "{}", texts.len());
        assert!(texts.iter().all(|text| text.size > 20.0));
        for label in ["50", "2.5"] {
            assert!(texts.iter().any(|text| text.words == label), "{label}");
        }
        assert!(drawing.prose().contains("Cells are too small for numbers; rows.csv has them."));
    }

    #[test]
    fn cells_show_value_and_interval() {
        let words =
            FIGURE.drawing(&column(&[(12.345, Some((12.0, 14.4))), (1234.0, None)])).prose();
        assert!(words.contains("12.3 12.0–14.4 1230"), "{words}");
        assert!(words.contains("1 of 2 points has no interval"), "{words}");
    }

    #[test]
    fn defaults_of_horovod_are_explained_where_they_were_tried() {
        let words = FIGURE.drawing(&grid(&["ring"], &[64.0, 128.0], &[1.0, 5.0])).words();
        assert!(words.contains("Horovod's default since 0.21\nHorovod's default before 0.21"));
        let words = FIGURE.drawing(&grid(&["ring"], &[64.0, 128.0], &[1.0])).words();
        assert!(words.contains("Horovod's default since 0.21"));
        assert!(!words.contains("Horovod's default before"));
    }

    #[test]
    fn a_setting_without_value_is_explained_and_counted() {
        let mut rows = grid(&["ring"], &[0.0, 64.0], &[1.0, 5.0]);
        rows[0] = rows[0].with("status", "wrong");
        rows[1] = rows[1].with("time_us_p50", "");
        let words = FIGURE.drawing(&rows).prose();
        assert!(words.contains("no value"));
        assert!(words.contains("2 cases left out: 1 without a value, 1 wrong."), "{words}");
        assert!(!FIGURE.drawing(&grid(&["ring"], &[0.0], &[1.0])).words().contains("no value"));
    }

    #[test]
    fn settings_are_sorted_and_no_fusion_is_off() {
        let words = FIGURE.drawing(&grid(&["ring"], &[128.0, 0.0, 0.5], &[5.0])).words();
        assert!(words.contains("off\n0.5\n128\nfusion threshold (MiB)"), "{words}");
        let planes = (words.find("ring, coordinator\n"), words.find("ring, bitvector\n"));
        assert!(planes.0 < planes.1, "the coordinator stands left");
    }

    #[test]
    fn any_number_of_settings_fits() {
        let thresholds = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
        let cycles = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0];
        let algorithms = ["ring", "tree", "hierarchical", "hierarchical:tree", "grouped"];
        let all = std::env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1");
        let sizes = |most| if all { vec![1, 2, most] } else { vec![1, most] };
        for columns in sizes(thresholds.len()) {
            for rows in sizes(cycles.len()) {
                for panels in [1, algorithms.len()] {
                    FIGURE.drawing(&grid(
                        &algorithms[..panels],
                        &thresholds[..columns],
                        &cycles[..rows],
                    ));
                }
            }
        }
        FIGURE.drawing(&[step("ring", "coordinator", 0.0, 0.0)]);
    }

    #[test]
    fn without_a_step_there_is_nothing_to_draw() {
        let reason = "no row of kind `step`; run a sweep of training steps";
        assert_eq!(FIGURE.refusal(&[]), reason);
        let failed = step("ring", "coordinator", 64.0, 5.0).with("status", "failed");
        let reason = "no row of kind `step` has status ok and all of time_us_p50, \
                      fusion_threshold_bytes and cycle_time_ms; 1 case left out: 1 failed";
        assert_eq!(FIGURE.refusal(&[failed]), reason);
    }
}
