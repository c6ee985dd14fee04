//! Step time over fusion threshold and cycle time, as tables whose cells carry their intervals.

use serde::Serialize;

use crate::run::Run;
use crate::tables::{Record, short};
use crate::words::capital;

/// The most maps of a surface; the others are in the table of rows.
const MOST_MAPS: usize = 24;

/// The most settings of the maps of a page, measured or not.
const MOST_SETTINGS: usize = 5000;

/// Maps of one condition: they share a colour scale and a fastest setting.
#[derive(Debug, Serialize)]
pub struct Surface {
    /// What its maps have in common.
    pub title: String,
    /// The maps, the one with the fastest setting first.
    pub maps: Vec<Map>,
    /// Maps that are not shown.
    pub left_out: usize,
}

/// The map of one algorithm and control plane.
#[derive(Debug, Serialize)]
pub struct Map {
    /// Algorithm and control plane.
    pub title: String,
    /// Fusion thresholds in MiB, ascending.
    pub thresholds: Vec<String>,
    /// A line for each cycle time.
    pub lines: Vec<Line>,
}

/// The settings of one cycle time.
#[derive(Debug, Serialize)]
pub struct Line {
    /// In milliseconds.
    pub cycle_ms: String,
    /// By threshold; none where nothing was measured.
    pub cells: Vec<Option<Cell>>,
}

/// A setting.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Median step time in milliseconds.
    pub time_ms: String,
    /// Its 95 % interval; empty if there is none.
    pub interval_ms: String,
    /// What the map does not say about it, in a sentence.
    pub words: String,
    /// From 0, the fastest of the surface, to 100, the slowest, on a logarithmic scale.
    pub heat: u8,
    /// It is the fastest.
    pub is_best: bool,
    /// The fastest may be no faster.
    pub is_tied: bool,
}

/// A setting while its surface is made.
struct Point<'r> {
    record: Record<'r>,
    condition: String,
    ranks: f64,
    map: String,
    threshold: f64,
    cycle_ms: f64,
    time_us: f64,
    ends_us: Option<(f64, f64)>,
}

/// Columns whose values distinguish surfaces, each with a word for its values.
const CONDITIONS: [(&str, &str); 11] = [
    ("source", ""),
    ("workload", ""),
    ("machine", "on"),
    ("batch", "batch"),
    ("transport", "over"),
    ("nodes", "nodes"),
    ("ranks", "ranks"),
    ("dtype", ""),
    ("op", ""),
    ("compression", "compression"),
    ("backward_passes_per_step", "backward passes"),
];

/// The surfaces of all runs. Where no map has two settings there is no surface.
pub fn of(runs: &[Run]) -> Vec<Surface> {
    let mut points: Vec<Point> = runs.iter().flat_map(points_of).collect();
    points.sort_by(|one, other| one.ranks.total_cmp(&other.ranks));
    let mut surfaces = Vec::new();
    let mut room = MOST_SETTINGS;
    while let Some(first) = points.first() {
        let condition = first.condition.clone();
        let (alike, others) = points.into_iter().partition(|point| point.condition == condition);
        surfaces.extend(surface(condition, alike, &mut room));
        points = others;
    }
    surfaces
}

fn points_of(run: &Run) -> Vec<Point<'_>> {
    let files = run.files.iter().filter(|file| file.is_of_rows());
    files.flat_map(|file| file.records()).filter_map(Point::of).collect()
}

impl<'r> Point<'r> {
    fn of(record: Record<'r>) -> Option<Point<'r>> {
        if record.text("kind") != "step" || record.text("status") != "ok" {
            return None;
        }
        let said = |(column, word): &(&str, &str)| {
            let value = record.text(column);
            let is_usual = matches!(
                (*column, value),
                ("compression", "none") | ("backward_passes_per_step", "1")
            );
            let is_said = !value.is_empty() && !is_usual;
            match *word {
                _ if !is_said => None,
                "" => Some(value.to_string()),
                "on" | "over" | "batch" | "compression" => Some(format!("{word} {value}")),
                plural if value == "1" => Some(format!("1 {}", plural.trim_end_matches('s'))),
                plural => Some(format!("{value} {plural}")),
            }
        };
        let condition: Vec<String> = CONDITIONS.iter().filter_map(said).collect();
        let ends_us = record.number("time_us_p50_low").zip(record.number("time_us_p50_high"));
        let parts = ["policy", "algorithm", "control_plane"].map(|column| record.text(column));
        let groups = match record.text("grouping") {
            "" => String::new(),
            grouping => format!("groups {grouping}"),
        };
        let parts = parts.into_iter().chain([groups.as_str()]).filter(|part| !part.is_empty());
        Some(Point {
            record,
            condition: condition.join(", "),
            ranks: record.number("ranks").unwrap_or_default(),
            map: parts.collect::<Vec<_>>().join(", "),
            threshold: record.number("fusion_threshold_bytes")? / 1_048_576.0,
            cycle_ms: record.number("cycle_time_ms")?,
            time_us: record.number("time_us_p50").filter(|&time_us| time_us > 0.0)?,
            ends_us,
        })
    }

    fn ties_with(&self, best: &Point) -> bool {
        let is_of_run = self.record.text("started") == best.record.text("started");
        let is_best = best.record.number("over_best") == Some(1.0);
        if let Some(low) = self.record.number("over_best_low").filter(|_| is_of_run && is_best) {
            return low <= 1.0;
        }
        match self.ends_us.zip(best.ends_us) {
            Some(((low, high), (best_low, best_high))) => low <= best_high && best_low <= high,
            None => self.time_us == best.time_us,
        }
    }
}

fn ascending(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers
}

/// A surface, whose maps take no more settings than there is room for.
fn surface(condition: String, mut points: Vec<Point>, room: &mut usize) -> Option<Surface> {
    points.sort_by(|a, b| a.time_us.total_cmp(&b.time_us));
    let thresholds = ascending(points.iter().map(|point| point.threshold));
    let cycles = ascending(points.iter().map(|point| point.cycle_ms));
    let (best, slowest) = (points.first()?, points.last()?);
    let span = (slowest.time_us / best.time_us).ln().max(f64::MIN_POSITIVE);
    let mut titles: Vec<&str> = Vec::new();
    for point in &points {
        if !titles.contains(&&*point.map) {
            titles.push(&point.map);
        }
    }
    let cell = |point: &Point| Cell {
        time_ms: format!("{:.1}", point.time_us / 1e3),
        interval_ms: interval_ms(point.ends_us),
        words: words(point, best),
        heat: (100.0 * (point.time_us / best.time_us).ln() / span).round() as u8,
        is_best: std::ptr::eq(point, best),
        is_tied: point.ties_with(best),
    };
    let map = |title: &&str| {
        let own: Vec<&Point> = points.iter().filter(|point| point.map == *title).collect();
        let at = |threshold: f64, cycle_ms: f64| {
            let is_there =
                |point: &&&Point| point.threshold == threshold && point.cycle_ms == cycle_ms;
            let there = own.iter().filter(is_there);
            // Of a setting that several runs have, the latest counts, as in figures.
            there.max_by_key(|point| point.record.text("started")).map(|point| cell(point))
        };
        let line = |&cycle_ms: &f64| Line {
            cycle_ms: short(cycle_ms),
            cells: thresholds.iter().map(|&threshold| at(threshold, cycle_ms)).collect(),
        };
        Map {
            title: title.to_string(),
            thresholds: thresholds.iter().copied().map(short).collect(),
            lines: cycles.iter().map(line).collect(),
        }
    };
    let settings_each = thresholds.len() * cycles.len();
    let most = (*room / settings_each).min(MOST_MAPS);
    let maps: Vec<Map> = titles.iter().take(most).map(map).collect();
    let settings =
        |map: &Map| map.lines.iter().flat_map(|line| line.cells.iter().flatten()).count();
    if most > 0 && maps.iter().all(|map| settings(map) < 2) {
        return None;
    }
    *room -= maps.len() * settings_each;
    let left_out = titles.len() - maps.len();
    // Measured: resnet50, over threads, ...
    let title = capital(&condition.replacen(", ", ": ", 1));
    Some(Surface { title, maps, left_out })
}

fn interval_ms(ends_us: Option<(f64, f64)>) -> String {
    let text = |(low, high): (f64, f64)| format!("[{:.1}, {:.1}]", low / 1e3, high / 1e3);
    ends_us.map_or(String::new(), text)
}

fn words(point: &Point, best: &Point) -> String {
    let mut parts = Vec::new();
    let count =
        |column, what| point.record.number(column).map(|count| format!("{} {what}", short(count)));
    parts.extend(count("messages_p50", "messages a step"));
    parts.extend(count("samples", "samples"));
    let ratio = 100.0 * (point.time_us / best.time_us - 1.0);
    parts.push(match () {
        () if std::ptr::eq(point, best) => "the fastest".into(),
        () if point.ties_with(best) => format!("{ratio:+.1} %, ties with the fastest"),
        () => format!("{ratio:+.1} % over the fastest"),
    });
    parts.join("; ")
}
