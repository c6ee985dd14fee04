//! Scaling efficiency over ranks, one line per policy and a panel per workload. Efficiency is
//! throughput per rank, as a share of that of the fastest policy on the fewest ranks: all policies
//! of a panel share one base. Where a simulation lacks throughput, each row's own efficiency is
//! drawn. Beside measured steps are predictions of the same settings, relative to the fastest
//! prediction on as many ranks as the base has.

use crate::axis::Axis;
use crate::distinct;
use crate::drawing::{Drawing, HARD_SPACE};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rounds::Rounds;
use crate::rows::{Estimate, Row, Rows};
use crate::selection::ranks_of;
use crate::training::{Line, POINTS, Panel, Training, Wanted};
use crate::view::View;
use crate::{Figure, Sheet, steps, theme};

pub(crate) const FIGURE: Figure = Figure { name: "efficiency", sheets };

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.efficiency.value.is_some() || row.throughput().value > Some(0.0),
        columns: "efficiency_p50, or a measured time_us_p50,",
        ranks_min: 2,
        predictions: true,
    };
    Training::sheets(rows, view, &wanted, |training| {
        let rounds = Rounds::of(rows, training.selection.rows.iter().copied());
        Some(draw(training, &rounds))
    })
}

fn draw(training: &Training, rounds: &Rounds) -> Drawing {
    let mut page = Page::new(
        training.view,
        "Scaling efficiency by number of ranks",
        &finding(training, rounds),
    );
    training.legend(&mut page, None, None);
    let values = training.panels.iter().flat_map(|panel| {
        let base = Base::of(training.view, panel);
        panel.lines.iter().flat_map(move |line| {
            line.rows.iter().map(move |row| base.efficiency(rounds, line, row))
        })
    });
    let predicted = training.panels.iter().flat_map(|panel| {
        let lines = panel.lines.iter().filter_map(|line| Some((line, line.predicted.as_ref()?)));
        lines.flat_map(move |(line, predicted)| {
            let rows = predicted.rows.iter();
            rows.map(move |row| predicted_efficiency(training.view, panel, line, row))
        })
    });
    let values = values.chain(predicted).flat_map(Estimate::ends);
    let values: Vec<f64> = values.collect();
    let titles = training.titles();
    panels::lay(
        &mut page,
        &titles,
        Shape::usual(130.0, training.ends_room(), titles.len()),
        |drawing, index, frame| {
            let panel = &training.panels[index];
            let x = training.ranks_axis(drawing, frame);
            let y = Axis::efficiencies(&values, frame.bottom, frame.top);
            let base = Base::of(training.view, panel);
            // The caption names the base, too; in a column its words are too long.
            let words = if training.view.is_paper() { String::new() } else { base.words(panel) };
            y.draw_left(drawing, frame, &format!("efficiency{words}"));
            let whole = y.at(1.0);
            drawing.dashes((frame.left, whole), (frame.right, whole), theme::INK, 3.0);
            let view = training.view;
            training.draw_predictions(panel, drawing, (&x, &y), |line, row| {
                predicted_efficiency(view, panel, line, row)
            });
            for line in &panel.lines {
                training.draw_line(line, drawing, &x, &y, |row| base.efficiency(rounds, line, row));
            }
            frame.draw(drawing);
            let lines = panel.lines.iter();
            training.draw_ends(lines, drawing, frame, &y, |line, row| match row.of_machine() {
                true if training.is_predicted => predicted_efficiency(view, panel, line, row).value,
                _ => base.efficiency(rounds, line, row).value,
            });
        },
    );
    let note = if training.is_simulated() {
        "Efficiency: samples per second and rank, as a share of those of the base."
    } else if training.is_strong() {
        "Efficiency: ranks times step time of the base over ranks times step time. All ranks together have the same work \
         (strong scaling)."
    } else {
        "Efficiency: step time of the base over step time. Every rank has the same work (weak scaling)."
    };
    let note = format!(
        "{note} {}{}{} {}: ideal.{}",
        bases(training),
        if training.view.own_base {
            "Each line has its own base, on the fewest ranks that it has."
        } else {
            "All lines of a panel have the same base."
        },
        predicted_bases(training),
        if training.is_predicted { "Dashed in black" } else { "Dashed" },
        Axis::efficiencies(&values, 1.0, 0.0).bend_in_words(),
    );
    let notes = vec![note, POINTS.to_string()];
    let drawn = |row: &Row| {
        let lines = training.panels.iter().flat_map(|panel| {
            panel.lines.iter().map(move |line| (Base::of(training.view, panel), line))
        });
        let mut own = lines.filter(|(_, line)| line.rows.iter().any(|it| std::ptr::eq(*it, row)));
        match own.next() {
            // The base has no interval, because it is what all others are relative to.
            Some((base, line)) if !row.is_simulated() => {
                let is_base = base.row(line).is_some_and(|base| std::ptr::eq(base, row));
                if is_base { Estimate::default() } else { base.efficiency(rounds, line, row) }
            }
            _ => row.efficiency,
        }
    };
    page.finish(&training.caption_of_ratios(drawn, notes))
}

/// What efficiency is relative to.
#[derive(Clone, Copy)]
enum Base<'a> {
    /// The fastest policy on the fewest ranks.
    Fastest(&'a Row),
    /// The same line on its fewest ranks.
    Line,
    /// Each row's own base.
    Own,
}

/// Throughput of each rank.
fn per_rank(row: &Row) -> Option<f64> {
    row.throughput().value.filter(|all| *all > 0.0).map(|all| all / ranks_of(row))
}

impl<'a> Base<'a> {
    fn of(view: View, panel: &Panel<'a>) -> Base<'a> {
        let rows = || panel.lines.iter().flat_map(|line| &line.rows);
        let ranks = rows().map(|row| ranks_of(row)).fold(f64::INFINITY, f64::min);
        let all = rows().copied().filter(|row| ranks_of(row) == ranks);
        let known = all.filter_map(|row| Some((per_rank(row)?, row)));
        match known.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
            None => Base::Own,
            Some(_) if view.own_base => Base::Line,
            Some((_, fastest)) => Base::Fastest(fastest),
        }
    }

    /// The row that those of a line are relative to; none if each has its own.
    fn row(self, line: &Line<'a>) -> Option<&'a Row> {
        match self {
            Base::Fastest(base) => Some(base),
            Base::Line => line.rows.first().copied(),
            Base::Own => None,
        }
    }

    /// Throughput per rank as a share of the base's.
    fn efficiency(self, rounds: &Rounds, line: &Line<'a>, row: &Row) -> Estimate {
        if matches!(self, Base::Own) {
            return row.efficiency;
        }
        let base = self.row(line).and_then(|row| Some((row, per_rank(row)?)));
        let Some((base, base_per_rank)) = base else { return Estimate::default() };
        if std::ptr::eq(base, row) {
            return Estimate { value: Some(1.0), interval: None };
        }
        if !row.is_simulated() {
            let work = if row.is_strong() { ranks_of(base) / ranks_of(row) } else { 1.0 };
            return rounds.ratio(base, row).map(|ratio| work * ratio);
        }
        let share = |throughput: f64| throughput / ranks_of(row) / base_per_rank;
        let Estimate { value, interval } = row.throughput();
        let value = value.map(share);
        let Estimate { value: own, interval: of_own } = row.efficiency;
        let interval = match (value, own, of_own) {
            // What changes the base as well hardly changes the efficiency.
            (Some(value), Some(own), Some((low, high))) => {
                Some((value * low / own, value * high / own))
            }
            _ => interval.map(|(low, high)| (share(low), share(high))),
        };
        Estimate { value, interval }
    }

    /// In words; empty if it is not known.
    fn words(self, panel: &Panel) -> String {
        match self {
            Base::Fastest(base) => {
                return format!(" relative to the fastest on {}", theme::ranks(ranks_of(base)));
            }
            Base::Line => return " relative to the fewest ranks".to_string(),
            Base::Own => {}
        }
        let rows = panel.lines.iter().flat_map(|line| &line.rows);
        let bases = distinct::ascending(rows.filter_map(|row| row.efficiency_base_ranks));
        let bases: Vec<String> = bases.into_iter().map(theme::ranks).collect();
        match bases.as_slice() {
            [] => String::new(),
            bases => format!(" relative to {}", bases.join(" or ")),
        }
    }
}

/// The fastest prediction of a panel on as many ranks as the base has; relative to itself, that of the line.
fn predicted_base<'a>(view: View, panel: &Panel<'a>, line: &Line<'a>) -> Option<&'a Row> {
    if view.own_base {
        return line.predicted.as_ref()?.at(ranks_of(line.rows.first()?));
    }
    let ranks = panel.lines.iter().flat_map(|line| &line.rows).map(|row| ranks_of(row));
    let ranks = ranks.fold(f64::INFINITY, f64::min);
    let at = panel.lines.iter().filter_map(|line| line.predicted.as_ref()?.at(ranks));
    at.min_by(|a, b| a.time_us.value.partial_cmp(&b.time_us.value).expect("numbers"))
}

/// The efficiency of a prediction; nothing if there is no prediction on as many ranks as the base has.
fn predicted_efficiency(view: View, panel: &Panel, line: &Line, row: &Row) -> Estimate {
    let per_rank = |row: &Row| line.predicted_steps_s(row).map(|steps_s| steps_s / ranks_of(row));
    let base = predicted_base(view, panel, line).and_then(|base| per_rank(base).value);
    base.map_or(Estimate::default(), |base| per_rank(row).map(|steps_s| steps_s / base))
}

/// The base of the predictions of each panel in a sentence.
fn predicted_bases(training: &Training) -> String {
    if !training.is_predicted {
        return String::new();
    }
    if training.view.own_base {
        return " Predictions are relative to the prediction of the same line on its fewest measured ranks.".into();
    }
    let of = |panel: &Panel| {
        let bases = panel.lines.iter().filter_map(|line| {
            let base = predicted_base(training.view, panel, line)?;
            let is_of_line =
                line.predicted.iter().flat_map(|it| &it.rows).any(|row| std::ptr::eq(*row, base));
            is_of_line.then_some((base, &line.policy))
        });
        let (base, policy) = bases.take(1).next()?;
        let time = theme::significant(base.time_us.value? / 1e3, 3);
        let ranks = theme::ranks(ranks_of(base));
        Some(format!("{}{HARD_SPACE}{policy} on {ranks}, {time} ms", panel.name))
    };
    let bases: Vec<String> = training.panels.iter().filter_map(of).collect();
    match bases.as_slice() {
        [] => " There is no prediction on as many ranks as the base has, so none is drawn.".into(),
        bases => {
            format!(
                " Predictions have a base of their own, the fastest of them: {}. Their bands are those of step times over its \
                 median.",
                bases.join("; ")
            )
        }
    }
}

/// The base of each panel in a sentence.
fn bases(training: &Training) -> String {
    let of = |panel: &Panel| {
        let Base::Fastest(row) = Base::of(training.view, panel) else { return None };
        let has = |line: &&Line| line.rows.iter().any(|own| std::ptr::eq(*own, row));
        let line = panel.lines.iter().find(has)?;
        let setting = match row.time_us.value {
            Some(time_us) if !training.is_simulated() => {
                let time = theme::significant(time_us / 1e3, 3);
                format!("{}, {time} ms", steps::name(&training.selection, row))
            }
            _ => line.policy.clone(),
        };
        Some(format!("{}{HARD_SPACE}{setting} on {}", panel.name, theme::ranks(ranks_of(row))))
    };
    let bases: Vec<String> = training.panels.iter().filter_map(of).collect();
    if bases.is_empty() { String::new() } else { format!("Base: {}. ", bases.join("; ")) }
}

/// The finding of the picture in a sentence.
fn finding(training: &Training, rounds: &Rounds) -> String {
    let Some(ranks) = training.selection.ranks().pop() else { return String::new() };
    let of = |panel: &Panel| {
        let base = Base::of(training.view, panel);
        let at = |line: &Line| base.efficiency(rounds, line, line.at(ranks)?).value;
        let mut known: Vec<(f64, &str)> =
            panel.lines.iter().filter_map(|line| Some((at(line)?, line.policy.as_str()))).collect();
        known.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let described = |(efficiency, policy): &(f64, &str)| {
            format!("{} ({policy})", theme::significant(*efficiency, 2))
        };
        let (first, last) = (known.first()?, known.last()?);
        let to = if known.len() > 1 { format!(" to {}", described(last)) } else { String::new() };
        Some(format!("{}{HARD_SPACE}{}{to}", panel.name, described(first)))
    };
    let each: Vec<String> = training.panels.iter().filter_map(of).collect();
    let predicted: Vec<String> =
        training.panels.iter().filter_map(|panel| predicted_span(training, panel, ranks)).collect();
    let predicted = match predicted.as_slice() {
        [] => String::new(),
        each => format!(" Predicted: {}.", each.join("; ")),
    };
    format!("Efficiency on {} ranks: {}.{predicted}", theme::exact(ranks), each.join("; "))
}

/// The predicted efficiencies of a panel on as many ranks, the highest and the lowest.
fn predicted_span(training: &Training, panel: &Panel, ranks: f64) -> Option<String> {
    let at = |line: &Line| {
        let row = line.predicted.as_ref()?.at(ranks)?;
        predicted_efficiency(training.view, panel, line, row).value
    };
    let known: Vec<f64> = panel.lines.iter().filter_map(at).collect();
    let (low, high) =
        (known.iter().copied().reduce(f64::min)?, known.iter().copied().reduce(f64::max)?);
    let words = |efficiency: f64| theme::significant(efficiency, 2);
    let to = if words(low) == words(high) { String::new() } else { format!(" to {}", words(low)) };
    Some(format!("{}{HARD_SPACE}{}{to}", panel.name, words(high)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, POLICIES, RANKS, WORKLOADS, policy, scaling, step};

    #[test]
    fn all_policies_have_one_base_and_the_best_and_worst_are_said() {
        // 100 samples per second and rank at the base are the fastest policy's.
        let rows: Vec<_> =
            [("ddp", 100, 87.5), ("byteps", 80, 50.0), ("horovod-bitvector", 95, 70.0)]
                .into_iter()
                .flat_map(|(name, first, last)| {
                    let row = |ranks: u32, per_rank: f64| {
                        let all = per_rank * f64::from(ranks);
                        policy("vgg16", name, ranks).with_estimate(
                            "throughput_samples_s_p50",
                            all,
                            0.01 * all,
                        )
                    };
                    [row(6, f64::from(first)), row(96, last)]
                })
                .collect();
        let said = FIGURE.words(&rows);
        assert!(said.contains("on 96 ranks: vgg16 0.88 (ddp) to 0.50 (byteps). "), "{said}");
        for expected in [
            "efficiency relative to the fastest on 6 ranks",
            " 0.875 ddp 0.700 horovod-bitvector 0.500 byteps ",
            "SIMULATED on",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
    }

    #[test]
    fn without_samples_each_row_has_its_own_base() {
        let row = |ranks: u32, share: &str| {
            let row = policy("vgg16", "ddp", ranks).with("efficiency_p50", share);
            row.with("throughput_samples_s_p50", "")
                .with("throughput_samples_s_p50_low", "")
                .with("throughput_samples_s_p50_high", "")
        };
        let rows = [row(6, "0.9"), row(96, "0.8")];
        assert!(FIGURE.words(&rows).contains("efficiency relative to 6 ranks"));
        let other: Vec<_> = rows.iter().map(|row| row.with("efficiency_base_ranks", "1")).collect();
        assert!(FIGURE.words(&other).contains("efficiency relative to 1 rank "));
        let unknown: Vec<_> =
            rows.iter().map(|row| row.with("efficiency_base_ranks", "")).collect();
        assert!(!FIGURE.words(&unknown).contains("relative"));
    }

    /// Every rank has the same work, so 100 ms after 80 ms is an efficiency of 0.8.
    #[test]
    fn measured_steps_have_the_efficiency_of_their_times() {
        let on = |algorithm: &str, ranks: &str, time_us: f64| {
            let row = step(algorithm, "bitvector", 64.0, 5.0).with("ranks", ranks);
            row.with("nodes", ranks).with_estimate("time_us_p50", time_us, 1000.0)
        };
        let rows = [
            on("ring", "2", 80e3),
            on("ring", "4", 100e3),
            on("tree", "2", 90e3),
            on("tree", "4", 160e3),
        ];
        let said = FIGURE.words(&rows);
        assert!(said.contains("on 4 ranks: resnet50 0.80 (ring) to 0.50 (tree). "), "{said}");
        assert!(
            said.contains("Base: resnet50 ring, bitvector, 64 MiB, 5 ms, 80.0 ms on 2 ranks."),
            "{said}"
        );
        assert!(said.contains("MEASURED") && !said.contains("SIMULATED"), "{said}");
        assert!(FIGURE.refusal(&rows[..1]).ends_with("for several numbers of ranks"));
        // Relative to itself, the tree has 90 of 160 ms.
        let table = synthetic::table(&rows);
        let view = View { own_base: true, ..View::default() };
        let mut own = sheets(&Rows::of(&table), view);
        let Some(Sheet::Drawn { drawing, .. }) = own.pop() else { panic!("it is drawn") };
        let said = drawing.prose();
        assert!(said.contains("0.80 (ring) to 0.56 (tree)"), "{said}");
        assert!(said.contains("Each line has its own base"), "{said}");
        // Beside rows of other policies they have a picture of their own.
        let both = [rows.to_vec(), scaling(&["vgg16"], &["ddp"], &[6, 12])].concat();
        assert_eq!(FIGURE.drawings(&both).len(), 2);
        let sheets = sheets(&Rows::of(&synthetic::table(&both)), View::default());
        let suffixes: Vec<&str> = sheets
            .iter()
            .map(|sheet| match sheet {
                Sheet::Drawn { suffix, .. } => suffix.as_str(),
                Sheet::Skipped { reason } => panic!("{reason}"),
            })
            .collect();
        assert_eq!(suffixes, ["", "measured"]);
    }

    /// 100 and 200 ms were predicted where 80 and 100 ms were measured.
    #[test]
    fn predictions_are_beside_measured_steps_with_a_base_of_their_own() {
        let on = |algorithm: &str, ranks: &str, time_us: f64| {
            let row = step(algorithm, "bitvector", 64.0, 5.0).with("ranks", ranks);
            row.with("nodes", ranks).with_estimate("time_us_p50", time_us, 1000.0)
        };
        let predicted = |algorithm: &str, ranks: &str, time_us: f64| {
            let row = on(algorithm, ranks, time_us).with("source", "simulated");
            row.with("machine", "here").with("emulated", "false")
        };
        let measured = [on("ring", "2", 80e3), on("ring", "4", 100e3), on("tree", "2", 90e3)];
        let simulated = [predicted("ring", "2", 100e3), predicted("ring", "4", 200e3)];
        let words = |rows: &[&[synthetic::Row]]| FIGURE.words(&rows.concat());
        let said = words(&[&measured, &simulated]);
        for expected in [
            "on 4 ranks: resnet50 0.80 (ring). Predicted: resnet50 0.50. ",
            "SIMULATED: the same settings on the calibrated machine",
            "MEASURED (points) · ",
            " · SIMULATED (dashed, bands) ",
            "Base: resnet50 ring, bitvector, 64 MiB, 5 ms, 80.0 ms on 2 ranks. All lines of a panel have the same base. Predictions have a base of their \
             own, the fastest of them: resnet50 ring on 2 ranks, 100 ms. Their bands are those of step times over its median. Dashed in black: ideal.",
            "There is no prediction of tree; beside their points is the fastest prediction of other algorithms.",
            "SIMULATED on machine here",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
        // Another workload has other predictions, and without a base there are none.
        let other: Vec<_> = simulated.iter().map(|row| row.with("backward_ms", "1")).collect();
        assert!(!words(&[&measured, &other]).contains("SIMULATED"));
        let said = words(&[&measured, &simulated[1..]]);
        assert!(said.contains("There is no prediction on as many ranks as the base has"), "{said}");
        assert!(!said.contains("Predicted:"), "{said}");
        // Where they reach further, the numbers at the right are theirs.
        let said = words(&[&measured, &simulated, &[predicted("ring", "16", 400e3)]]);
        assert!(said.contains(" 16 ") && said.contains(" 0.250 ring "), "{said}");
    }

    /// Steps of 100 ms should take 50 ms on twice as many ranks, and take 62.5 ms: 0.8.
    #[test]
    fn with_strong_scaling_all_ranks_have_the_same_work() {
        let on = |ranks: &str, backward_ms: &str, time_us: f64| {
            let row =
                step("ring", "bitvector", 64.0, 5.0).with("ranks", ranks).with("nodes", ranks);
            let case = format!("threads/{ranks}x1/bitvector/ring/64MiB/5ms/strong");
            row.with("case", &case)
                .with("forward_ms", "0")
                .with("backward_ms", backward_ms)
                .with_estimate("time_us_p50", time_us, 100.0)
        };
        let rows = [on("2", "80", 100e3), on("4", "40", 62.5e3)];
        let said = FIGURE.words(&rows);
        assert!(said.contains("on 4 ranks: resnet50 0.80 (ring). "), "{said}");
        assert!(said.contains("All ranks together have the same work (strong scaling)."), "{said}");
        assert!(said.contains("resnet50, strong scaling"), "{said}");
        // What was predicted has the same work, and other scaling another picture.
        let predicted = |row: &synthetic::Row, time_us: f64| {
            let row = row.with("source", "simulated").with("machine", "here").with("case", "other");
            row.with_estimate("time_us_p50", time_us, 100.0)
        };
        let beside = [predicted(&rows[0], 50e3), predicted(&rows[1], 50e3)];
        let said = FIGURE.words(&[&rows[..], &beside].concat());
        assert!(said.contains("Predicted: resnet50 0.50."), "{said}");
        let weak = |row: &synthetic::Row| row.with("case", "other").with("backward_ms", "80");
        let weak = rows.each_ref().map(weak);
        let both = Rows::of(&synthetic::table(&[rows, weak].concat()));
        let suffixes: Vec<String> = sheets(&both, View::default())
            .into_iter()
            .map(|sheet| match sheet {
                Sheet::Drawn { suffix, .. } => suffix,
                Sheet::Skipped { reason } => panic!("{reason}"),
            })
            .collect();
        assert_eq!(suffixes, ["strong-scaling_backward-160", "weak-scaling_backward-80"]);
    }

    #[test]
    fn all_workloads_fit() {
        FIGURE.words(&scaling(&WORKLOADS, &POLICIES, &RANKS));
        FIGURE.words(&scaling(&WORKLOADS[..1], &POLICIES, &RANKS));
    }
}
