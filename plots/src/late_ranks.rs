//! Which rank was late: a heat map of ranks and blocks, a panel for each of the fastest settings.
//!
//! All ranks finish a step together, but for what a rank does alone at its end, and what it starts late. A cell is by
//! how much a rank's step was longer than that of the rank with the shortest, on average over the block's steps.

use std::collections::BTreeMap;

use crate::caption::Caption;
use crate::drawing::{Align, Drawing, Text, text_width};
use crate::frame::Frame;
use crate::logs::RankTimes;
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::{Row, Rows};
use crate::selection::Selection;
use crate::view::View;
use crate::{Figure, Sheet, steps, theme};

pub(crate) const FIGURE: Figure = Figure { name: "ranks", sheets };

/// The most settings of a picture.
const SHOWN: usize = 4;
/// Of more ranks, those that were last in most steps are shown.
const RANKS: usize = 32;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let selections = Selection::of(rows, "step", steps::settings).into_iter();
    let drawn = selections.filter_map(|mut selection| {
        let maps: Vec<Map> = steps::notable(&selection, SHOWN)
            .into_iter()
            .filter_map(|row| Map::of(&selection, row, &rows.ranks_of(row)))
            .collect();
        selection.rows = maps.iter().map(|map| map.row).collect();
        let suffix = selection.suffix.clone();
        (!maps.is_empty()).then(|| (suffix, draw(view, &selection, &maps)))
    });
    Sheet::all(drawn.collect(), || {
        "no ranks.csv is among the results, or no case in it has several ranks".to_string()
    })
}

/// One setting: its ranks, its blocks, and how late each rank was in each block.
struct Map<'a> {
    row: &'a Row,
    name: String,
    /// Rank and node, in the order of ranks.
    ranks: Vec<(u64, u64)>,
    blocks: Vec<u64>,
    /// By rank and block, in milliseconds.
    late_ms: BTreeMap<(u64, u64), f64>,
    /// In how many steps a rank was last.
    last: BTreeMap<u64, usize>,
    steps: usize,
}

impl<'a> Map<'a> {
    /// `None` if there are fewer than two ranks.
    fn of(selection: &Selection, row: &'a Row, times: &[&RankTimes]) -> Option<Map<'a>> {
        let mut of_blocks: BTreeMap<u64, Vec<&RankTimes>> = BTreeMap::new();
        for rank in times {
            of_blocks.entry(rank.block).or_default().push(rank);
        }
        let (mut late_ms, mut last, mut steps) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (block, ranks) in &of_blocks {
            let count = ranks.iter().map(|rank| rank.times_us.len()).min().unwrap_or_default();
            let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
            for step in 0..count {
                let time_us = |rank: &&&RankTimes| rank.times_us[step];
                let shortest =
                    ranks.iter().map(|rank| time_us(&rank)).fold(f64::INFINITY, f64::min);
                for rank in ranks {
                    *sums.entry(rank.rank).or_default() += rank.times_us[step] - shortest;
                }
                let slowest = ranks.iter().max_by(|a, b| time_us(a).total_cmp(&time_us(b)));
                *last.entry(slowest?.rank).or_default() += 1;
                steps += 1;
            }
            let means =
                sums.into_iter().map(|(rank, sum)| ((rank, *block), sum / count as f64 / 1e3));
            late_ms.extend(means);
        }
        let mut ranks: Vec<(u64, u64)> = times.iter().map(|rank| (rank.rank, rank.node)).collect();
        ranks.sort();
        ranks.dedup();
        if ranks.len() > RANKS {
            ranks.sort_by_key(|(rank, _)| std::cmp::Reverse(last.get(rank).copied().unwrap_or(0)));
            ranks.truncate(RANKS);
            ranks.sort();
        }
        let blocks = of_blocks.into_keys().collect();
        let name = steps::name(selection, row);
        (ranks.len() > 1 && steps > 0).then_some(Map {
            row,
            name,
            ranks,
            blocks,
            late_ms,
            last,
            steps,
        })
    }
}

const ROW: f64 = 46.0;
/// Room right of a panel for the colours.
const RIGHT: f64 = 40.0;

fn draw(view: View, selection: &Selection, maps: &[Map]) -> Drawing {
    let mut page = Page::new(view, "Which rank was late, by rank and block", &finding(maps));
    let most_ms = maps.iter().flat_map(|map| map.late_ms.values().copied()).fold(0.0, f64::max);
    scale(&mut page, most_ms);
    let ranks = maps.iter().map(|map| map.ranks.len()).max().unwrap_or_default();
    let labels = maps.iter().flat_map(|map| map.ranks.iter().map(|rank| label(*rank)));
    let wide = labels.map(|label| text_width(&label, theme::TICK, false)).fold(0.0, f64::max);
    let shape =
        Shape { left: wide + 84.0, right: RIGHT, height: ROW * ranks as f64, is_elastic: false };
    let titles: Vec<String> = maps.iter().map(|map| map.name.clone()).collect();
    panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
        maps[index].draw(drawing, frame, most_ms);
    });
    let mut note = "Late: by how much the rank's step was longer than that of the rank with the shortest, on average \
                    over the steps of the block."
        .to_string();
    if maps.iter().any(|map| map.row.ranks.is_some_and(|ranks| ranks > map.ranks.len() as f64)) {
        note += " Only the slowest ranks are shown.";
    }
    page.finish(&Caption::of(selection, |row| row.time_us, vec![note]))
}

fn label((rank, node): (u64, u64)) -> String {
    format!("{rank} (node {node})")
}

impl Map<'_> {
    fn draw(&self, drawing: &mut Drawing, frame: Frame, most_ms: f64) {
        let Frame { left, right, top, .. } = frame;
        let (width, height) = ((right - left) / self.blocks.len() as f64, ROW);
        let mut free_from = f64::NEG_INFINITY;
        for (row, rank) in self.ranks.iter().enumerate() {
            let y = top + row as f64 * height;
            let name = Text::new(label(*rank), (left - 14.0, y + height / 2.0), theme::TICK);
            drawing.text(Text { align: Align::Right, ..name.centered() });
            for (column, block) in self.blocks.iter().enumerate() {
                let x = left + column as f64 * width;
                let Some(late_ms) = self.late_ms.get(&(rank.0, *block)) else { continue };
                let color = color(*late_ms, most_ms);
                drawing.rectangle(x, y, width - 2.0, height - 2.0, color);
                let words = milliseconds(*late_ms);
                if text_width(&words, theme::TICK, false) < width - 8.0 {
                    let at = (x + width / 2.0, y + height / 2.0);
                    let text = Text::new(words, at, theme::TICK).centered();
                    drawing.text(Text { color: theme::readable_on(color), ..text });
                }
            }
        }
        for (column, block) in self.blocks.iter().enumerate() {
            let words = theme::plain(*block as f64);
            let x = left + (column as f64 + 0.5) * width;
            let half = text_width(&words, theme::TICK, false) / 2.0;
            if x - half >= free_from {
                let bottom = top + self.ranks.len() as f64 * height;
                let text = Text::new(words, (x, bottom + 40.0), theme::TICK);
                drawing.text(Text { align: Align::Middle, ..text });
                free_from = x + half + 12.0;
            }
        }
        let bottom = top + self.ranks.len() as f64 * height;
        let at = ((left + right) / 2.0, bottom + 92.0);
        drawing.text(Text { align: Align::Middle, ..Text::new("block", at, theme::BODY) });
    }
}

/// At most two decimal places.
fn milliseconds(late_ms: f64) -> String {
    if late_ms < 0.1 {
        theme::tick((100.0 * late_ms).round() / 100.0)
    } else {
        theme::significant(late_ms, 2)
    }
}

/// Dark is late.
fn color(late_ms: f64, most_ms: f64) -> plotters::style::RGBColor {
    theme::viridis(1.0 - if most_ms > 0.0 { late_ms / most_ms } else { 0.0 })
}

/// Draws the scale of the colours from left to right.
fn scale(page: &mut Page, most_ms: f64) {
    const STEPS: usize = 60;
    const HEIGHT: f64 = 26.0;
    let (left, width) = (theme::MARGIN, 400.0_f64.min(page.view.width() / 3.0));
    let top = page.y + 8.0;
    let step = width / STEPS as f64;
    let label = Text::new("late by 0", (left, top + HEIGHT / 2.0), theme::TICK).centered();
    let from = left + text_width("late by 0", theme::TICK, false) + 12.0;
    page.drawing.text(Text { align: Align::Left, ..label });
    for index in 0..STEPS {
        let part = (index as f64 + 0.5) / STEPS as f64;
        let x = from + index as f64 * step;
        page.drawing.rectangle(x, top, step + 1.0, HEIGHT, color(part, 1.0));
    }
    let words = format!("{} ms", theme::significant(most_ms, 2));
    let at = (from + width + 12.0, top + HEIGHT / 2.0);
    page.drawing.text(Text { align: Align::Left, ..Text::new(words, at, theme::TICK).centered() });
    page.y = top + HEIGHT + 10.0;
}

/// The finding of the picture in a sentence: the rank that was last most often.
fn finding(maps: &[Map]) -> String {
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    for (rank, count) in maps.iter().flat_map(|map| &map.last) {
        *last.entry(*rank).or_default() += count;
    }
    let steps: usize = maps.iter().map(|map| map.steps).sum();
    let Some((rank, count)) = last.into_iter().max_by_key(|(_, count)| *count) else {
        return String::new();
    };
    let ranks = maps.iter().filter_map(|map| map.row.ranks).fold(0.0, f64::max);
    let share = theme::significant(100.0 * count as f64 / steps as f64, 2);
    let chance = theme::significant(100.0 / ranks.max(1.0), 2);
    format!(
        "Rank {rank} was the last most often, in {share} % of {steps} steps; by chance it would be {chance} %."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{step, table};

    fn run(lines: &str) -> Rows {
        let ring = step("ring", "coordinator", 64.0, 5.0).with("case", "ring").with("ranks", "2");
        let header = "case,block,launch,ranks,rank,node,steps,time_us_p50,time_us_max,data_us_p50,times_us\n";
        Rows::of_run(&[&table(&[ring]), &format!("{header}{lines}")])
    }

    #[test]
    fn a_cell_is_the_mean_excess_over_the_shortest_step() {
        let rows = run("ring,0,1,2,0,0,2,1,1,1,10000 10000\n\
                        ring,0,1,2,1,1,2,1,1,1,12000 14000\n\
                        ring,1,1,2,0,0,2,1,1,1,11000 10000\n\
                        ring,1,1,2,1,1,2,1,1,1,10000 15000\n");
        let Some(Sheet::Drawn { drawing, .. }) = sheets(&rows, View::default()).pop() else {
            panic!("it is drawn")
        };
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let said = drawing.prose();
        let finding =
            "Rank 1 was the last most often, in 75 % of 4 steps; by chance it would be 50 %.";
        assert!(said.contains(finding), "{said}");
        assert!(said.contains(" 0 (node 0) 0 0.50 1 (node 1) 3.0 2.5 0 1 block "), "{said}");
    }

    #[test]
    fn one_rank_alone_is_never_late() {
        let rows = run("ring,0,1,2,0,0,2,1,1,1,10000 10000\n");
        let reason = "no ranks.csv is among the results, or no case in it has several ranks";
        match sheets(&rows, View::default()).as_slice() {
            [Sheet::Skipped { reason: found }] => assert_eq!(found, reason),
            _ => panic!("a refusal"),
        }
    }
}
