//! The summary of a sweep of control planes.

use std::collections::HashMap;
use std::fmt::Write as _;

use algorithms::control::{bitvector, coordinator};

use super::Plan;
use super::config::{Case, ReadyOrder};
use super::transport::Transport;
use results::conclusion::Conclusion;
use results::row::{ControlResult, ControlRow};

/// World sizes in Romero et al., at which the summary compares.
const COMPARED_RANKS: [usize; 2] = [6000, 27_600];

/// The summary of all rows.
pub fn text(plan: &Plan, rows: &[ControlRow]) -> String {
    let summary = Summary::new(plan, rows);
    let mut text = String::new();
    summary.tables(&mut text);
    for complaint in rows.iter().filter_map(|row| row.outcome.complaint(&row.key.case)) {
        let _ = writeln!(text, "{complaint}");
    }
    summary.sentences(&mut text);
    text
}

/// The conclusion of the same rows: the last sentences of the summary.
pub fn conclusion(plan: &Plan, rows: &[ControlRow]) -> Conclusion {
    let mut text = String::new();
    Summary::new(plan, rows).sentences(&mut text);
    let verdicts = text.lines().filter(|line| !line.is_empty()).map(String::from).collect();
    Conclusion { verdicts, ..Conclusion::default() }
}

/// A world size or another condition, and its change of the base.
type Line<'a> = (String, Box<dyn Fn(&mut Case) + 'a>);

/// A row that is right, and its result.
type Right<'a> = (&'a ControlRow, &'a ControlResult);

struct Summary<'a> {
    plan: &'a Plan,
    /// Rows that are right with their results, by case.
    rows: HashMap<&'a str, Right<'a>>,
    /// The base of each plane.
    bases: Vec<Case>,
}

impl<'a> Summary<'a> {
    fn new(plan: &'a Plan, rows: &'a [ControlRow]) -> Summary<'a> {
        let right = |row: &'a ControlRow| Some((&*row.key.case, (row, row.outcome.right()?)));
        let mut bases: Vec<Case> = Vec::new();
        for case in &plan.cases {
            if !bases.iter().any(|base| base.plane == case.plane) {
                bases.push(case.clone());
            }
        }
        Summary { plan, rows: rows.iter().filter_map(right).collect(), bases }
    }

    fn row(&self, case: &Case) -> Option<Right<'a>> {
        self.rows.get(case.to_string().as_str()).copied()
    }

    /// World sizes of a transport.
    fn ranks(&self, transport: Transport) -> Vec<usize> {
        let cases = self.plan.cases.iter().filter(|case| case.transport == transport);
        let mut ranks: Vec<usize> = cases.map(|case| case.ranks).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    fn tables(&self, text: &mut String) {
        let base = &self.bases[0];
        let tensors = self.plan.list(base).len();
        let _ = writeln!(
            text,
            "{}: {tensors} tensors, all ready at once on every rank; per step, median in us",
            base.source,
        );
        let on_ranks = |transport: Transport| {
            let line = move |ranks: usize| -> Line<'a> {
                let change = move |case: &mut Case| {
                    (case.transport, case.ranks) = (transport, ranks);
                };
                (format!("{ranks} ranks"), Box::new(change))
            };
            self.ranks(transport).into_iter().map(line).collect::<Vec<_>>()
        };
        self.table(
            "rank 0's time, measured; all ranks in one thread, nothing travels",
            on_ranks(Transport::Lockstep),
            rank0_us,
            text,
        );
        self.table(
            &format!("the same in other conditions, {} ranks", base.ranks),
            self.conditions(),
            rank0_us,
            text,
        );
        let first: Line = ("first step".into(), Box::new(|_| ()));
        self.table(
            "the same when nothing is cached",
            vec![first],
            |result| result.clock.ranks()?.first_rank0_us,
            text,
        );
        self.table(
            &format!("on a network, ASSUMED to take {}; not measured", self.network()),
            on_ranks(Transport::Lockstep),
            |result| Some(result.network.network_us_p50),
            text,
        );
        self.table(
            "wall time on threads, measured",
            on_ranks(Transport::Threads),
            |result| Some(result.clock.steps()?.time_us_p50),
            text,
        );
    }

    fn network(&self) -> String {
        let network = &self.plan.config.network;
        format!(
            "{} us latency, {} us for each of many messages at rank 0, and {} GB/s",
            network.alpha_us, network.message_us, network.bandwidth_gb_s
        )
    }

    /// Whatever is varied but world sizes.
    fn conditions(&self) -> Vec<Line<'a>> {
        let vary = &self.plan.config.control.vary;
        let mut lines: Vec<Line> = vec![("base".into(), Box::new(|_| ()))];
        for source in &vary.tensors {
            let change = move |case: &mut Case| case.source = source.clone();
            lines.push((source.to_string(), Box::new(change)));
        }
        for &order in vary.ready_order.iter().filter(|order| **order != ReadyOrder::Same) {
            let change = move |case: &mut Case| case.ready_order = order;
            lines.push((format!("{} order", order.name()), Box::new(change)));
        }
        for &capacity in &vary.cache_capacity {
            let change = move |case: &mut Case| case.cache_capacity = capacity;
            lines.push((format!("cache of {capacity}"), Box::new(change)));
        }
        for &share in vary.miss_share.iter().filter(|share| **share > 0.0) {
            let change = move |case: &mut Case| case.miss_share = share;
            lines.push((format!("{} % new names", share * 100.0), Box::new(change)));
        }
        for &share in vary.invalid_share.iter().filter(|share| **share > 0.0) {
            let change = move |case: &mut Case| case.invalid_share = share;
            lines.push((format!("{} % new shapes", share * 100.0), Box::new(change)));
        }
        lines
    }

    /// A line per condition, a column per plane; conditions that no plane was measured in are left out.
    fn table(
        &self,
        title: &str,
        lines: Vec<Line>,
        value: fn(&ControlResult) -> Option<f64>,
        text: &mut String,
    ) {
        let known = lines.into_iter().filter_map(|(label, change)| {
            let of = |base: &Case| {
                let mut case = base.clone();
                change(&mut case);
                self.row(&case).and_then(|(_, result)| value(result))
            };
            let values: Vec<Option<f64>> = self.bases.iter().map(of).collect();
            values.iter().any(Option::is_some).then_some((label, values))
        });
        let known: Vec<_> = known.collect();
        if known.is_empty() {
            return;
        }
        let width = self.bases.iter().map(|base| base.plane.len()).max().unwrap_or(0).max(11);
        let _ = write!(text, "\n  {title}\n  {:<16}", "");
        for base in &self.bases {
            let _ = write!(text, " {:>width$}", base.plane);
        }
        text.push('\n');
        for (label, values) in known {
            let _ = write!(text, "  {label:<16}");
            for value in values {
                let _ = write!(text, " {:>width$}", value.map_or("-".into(), micros));
            }
            text.push('\n');
        }
    }

    fn sentences(&self, text: &mut String) {
        let base = |plane| self.bases.iter().find(|base| base.plane == plane);
        text.push('\n');
        if let Some(base) = base(coordinator::NAME) {
            self.growth(base, text);
        }
        if let Some(base) = base(bitvector::NAME) {
            self.flatness(base, text);
        }
        for ranks in COMPARED_RANKS {
            let row = |plane| self.row(&Case { ranks, ..base(plane)?.clone() });
            if let Some((star, bits)) = row(coordinator::NAME).zip(row(bitvector::NAME)) {
                self.compared(star, bits, text);
            }
        }
    }

    /// How rank 0's time grows with ranks x tensors.
    fn growth(&self, base: &Case, text: &mut String) {
        let other = |case: &&Case| {
            let alike = Case { ranks: base.ranks, source: base.source.clone(), ..(*case).clone() };
            alike == *base
        };
        let rows = self.plan.cases.iter().filter(other).filter_map(|case| self.row(case));
        let mut points: Vec<(&ControlRow, f64)> =
            rows.filter_map(|(row, result)| Some((row, rank0_us(result)?))).collect();
        points.sort_by_key(|(row, _)| row.key.ranks * row.tensors);
        let fitted: Vec<(f64, f64)> =
            points.iter().map(|(row, us)| ((row.key.ranks * row.tensors) as f64, *us)).collect();
        let Some(exponent) = exponent(&fitted) else { return };
        let list = points
            .iter()
            .map(|(row, us)| format!("{} x {}: {} us", row.key.ranks, row.tensors, micros(*us)));
        let _ = writeln!(
            text,
            "{}: rank 0's time grows as (ranks x tensors)^{exponent:.2}, fitted over {} points ({})",
            base.plane,
            points.len(),
            list.collect::<Vec<_>>().join(", "),
        );
    }

    /// How little rank 0's time depends on the number of ranks.
    fn flatness(&self, base: &Case, text: &mut String) {
        let of = |ranks| rank0_us(self.row(&Case { ranks, ..base.clone() })?.1);
        let ranks = self.ranks(Transport::Lockstep);
        let points: Vec<(f64, f64)> =
            ranks.into_iter().filter_map(|ranks| Some((ranks as f64, of(ranks)?))).collect();
        let Some(exponent) = exponent(&points) else { return };
        let (least, most) = points
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), (_, us)| (least.min(*us), most.max(*us)));
        let _ = writeln!(
            text,
            "{}: rank 0's time is {} to {} us from {} to {} ranks, as ranks^{exponent:.2}; its work does \
             not depend on ranks, but in large worlds its state no longer stays in the cache",
            base.plane,
            micros(least),
            micros(most),
            points[0].0,
            points[points.len() - 1].0,
        );
    }

    fn compared(&self, (star, star_result): Right, (bits, bits_result): Right, text: &mut String) {
        let Some((star_us, bits_us)) = rank0_us(star_result).zip(rank0_us(bits_result)) else {
            return;
        };
        let star_all = star_us + star_result.network.network_us_p50;
        let bits_all = bits_us + bits_result.network.network_us_p50;
        let _ = writeln!(
            text,
            "at {} ranks: {} {} us, {} {} us, ratio {} (rank 0's time, measured); with the assumed \
             network {} and {} us, ratio {}",
            star.key.ranks,
            star.control_plane,
            micros(star_us),
            bits.control_plane,
            micros(bits_us),
            micros(star_us / bits_us),
            micros(star_all),
            micros(bits_all),
            micros(star_all / bits_all),
        );
    }
}

/// Rank 0's time, where ranks ran one after the other.
fn rank0_us(result: &ControlResult) -> Option<f64> {
    Some(result.clock.ranks()?.rank0_us_p50)
}

/// The slope of a straight line through the logarithms, by least squares; none below two places.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let logs = || points.iter().map(|(x, y)| (x.ln(), y.ln()));
    let mean = |of: fn((f64, f64)) -> f64| logs().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|(x, _)| x), mean(|(_, y)| y));
    let spread: f64 = logs().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let together: f64 = logs().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    Some(together / spread).filter(|exponent| exponent.is_finite())
}

/// Three digits, or all before the point.
fn micros(value: f64) -> String {
    let places = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::control_sweep::config::Config;
    use crate::control_sweep::tabulate::row_of;
    use results::provenance::Launch;
    use results::row::{
        AssumedNetwork, CaseOutcome, Clock, Effort, Negotiation, RankTimes, ThreadTimes, Times,
    };

    #[test]
    fn an_exponent_is_a_slope() {
        let points = |power: f64| [6.0_f64, 96.0, 6000.0].map(|x| (x, 3.0 * x.powf(power)));
        for power in [0.0, 0.5, 1.0] {
            assert!((exponent(&points(power)).unwrap() - power).abs() < 1e-9);
        }
        assert_eq!(exponent(&[]), None);
        assert_eq!(exponent(&points(1.0)[..1]), None);
    }

    #[test]
    fn growth_flatness_ratio_and_missing_cases_are_in_the_summary() {
        let config: Config = toml::from_str(
            "[control]\nplane = [\"coordinator\", \"bitvector\"]\n[control.base]\nranks = 6000\n\
             tensors = 32\n[control.vary]\nranks = [6, 27600]\ntensors = [1000]\n\
             miss_share = [0.1]\nthread_ranks = [2]",
        )
        .unwrap();
        let plan = Plan::new(config, Path::new("test.toml")).unwrap();
        let row = |case: &Case| {
            let tensors = plan.list(case).len();
            let us = match case.plane.as_str() {
                "coordinator" => (case.ranks * tensors) as f64 / 1e3,
                _ => 2.0,
            };
            let clock = if case.transport == Transport::Lockstep {
                Clock::Lockstep(RankTimes { rank0_us_p50: us, ..RankTimes::default() })
            } else {
                let times = Times { time_us_p50: us * 100.0, ..Times::default() };
                Clock::Threads(ThreadTimes { times, ..ThreadTimes::default() })
            };
            let result = ControlResult {
                effort: Effort::default(),
                clock,
                negotiation: Negotiation::default(),
                network: AssumedNetwork { network_us_p50: 8.0, ..AssumedNetwork::default() },
                context_switches_mean: None,
                cycles_p50: 1.0,
                idle_cycles_p50: 0.0,
                messages_p50: 1.0,
            };
            let case_name = case.to_string();
            let outcome = if case_name.contains("coordinator") && case_name.contains("miss-0.1") {
                CaseOutcome::Wrong { result, reason: "step 3: rank 1".into() }
            } else {
                CaseOutcome::Ok(result)
            };
            row_of(&plan, case, &Launch::default(), outcome)
        };
        let rows: Vec<ControlRow> = plan.cases.iter().map(row).collect();
        let text = text(&plan, &rows);
        for expected in [
            "synthetic-32: 32 tensors, all ready at once on every rank; per step, median in us\n",
            "                   coordinator   bitvector\n  6 ranks                 0.19        2.00\n",
            "  27600 ranks              883        2.00\n",
            "  synthetic-1000          6000        2.00\n",
            "  10 % new names             -        2.00\n",
            "ASSUMED to take 1.5 us latency, 0.5 us for each of many messages at rank 0, and 23 GB/s; not \
             measured\n",
            "wall time on threads, measured\n",
            "WRONG       lockstep/6000/coordinator/synthetic-32/same/cache-1024/miss-0.1/invalid-0: \
             step 3: rank 1\n",
            "coordinator: rank 0's time grows as (ranks x tensors)^1.00, fitted over 4 points \
             (6 x 32: 0.19 us, 6000 x 32: 192 us, 27600 x 32: 883 us, 6000 x 1000: 6000 us)\n",
            "bitvector: rank 0's time is 2.00 to 2.00 us from 6 to 27600 ranks, as ranks^0.00; ",
            "at 6000 ranks: coordinator 192 us, bitvector 2.00 us, ratio 96.0 (rank 0's time, \
             measured); with the assumed network 200 and 10.0 us, ratio 20.0\n",
            "at 27600 ranks: ",
        ] {
            assert!(text.contains(expected), "{text}\nexpected {expected}");
        }
    }
}
