//! What a sweep of control planes says in the end, in words.

use std::collections::HashMap;
use std::fmt::Write as _;

use algorithms::control::{bitvector, coordinator};

use super::Plan;
use super::config::{Case, LOCKSTEP, ReadyOrder};
use results::row::{Row, Status};

/// World sizes that Romero et al. speak of, and at which the summary compares.
const COMPARED_RANKS: [usize; 2] = [6000, 27_600];

/// The summary of all rows.
pub fn text(plan: &Plan, rows: &[Row]) -> String {
    let summary = Summary::new(plan, rows);
    let mut text = String::new();
    summary.tables(&mut text);
    for row in rows.iter().filter(|row| row.status != Status::Ok) {
        let status = match row.status {
            Status::Wrong => "WRONG",
            Status::Failed => "failed",
            _ => "unsupported",
        };
        let _ = writeln!(text, "{status:<11} {}: {}", row.case, row.reason);
    }
    summary.sentences(&mut text);
    text
}

/// A world size or another condition, and what differs there from the base.
type Line<'a> = (String, Box<dyn Fn(&mut Case) + 'a>);

struct Summary<'a> {
    plan: &'a Plan,
    /// Rows that are right, by case.
    rows: HashMap<&'a str, &'a Row>,
    /// The base of each plane.
    bases: Vec<Case>,
}

impl<'a> Summary<'a> {
    fn new(plan: &'a Plan, rows: &'a [Row]) -> Summary<'a> {
        let right = rows.iter().filter(|row| row.status == Status::Ok);
        let mut bases: Vec<Case> = Vec::new();
        for case in &plan.cases {
            if !bases.iter().any(|base| base.plane == case.plane) {
                bases.push(case.clone());
            }
        }
        Summary { plan, rows: right.map(|row| (row.case.as_str(), row)).collect(), bases }
    }

    fn row(&self, case: &Case) -> Option<&'a Row> {
        self.rows.get(case.to_string().as_str()).copied()
    }

    /// World sizes of a transport.
    fn ranks(&self, transport: &str) -> Vec<usize> {
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
        let on_ranks = |transport: &'static str| {
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
            on_ranks(LOCKSTEP),
            |row| row.rank0_us_p50,
            text,
        );
        self.table(
            &format!("the same in other conditions, {} ranks", base.ranks),
            self.conditions(),
            |row| row.rank0_us_p50,
            text,
        );
        let first: Line = ("first step".into(), Box::new(|_| ()));
        self.table("the same when nothing is cached", vec![first], |row| row.first_rank0_us, text);
        self.table(
            &format!("on a network, ASSUMED to take {}; not measured", self.network()),
            on_ranks(LOCKSTEP),
            |row| row.network_us_p50,
            text,
        );
        self.table(
            "wall time on threads, measured",
            on_ranks(transports::threads::NAME),
            |row| row.time_us_p50,
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
        value: fn(&Row) -> Option<f64>,
        text: &mut String,
    ) {
        let known = lines.into_iter().filter_map(|(label, change)| {
            let of = |base: &Case| {
                let mut case = base.clone();
                change(&mut case);
                self.row(&case).and_then(value)
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
        let mut points: Vec<(&Row, f64)> =
            rows.filter_map(|row| Some((row, row.rank0_us_p50?))).collect();
        points.sort_by_key(|(row, _)| row.ranks * row.tensors);
        let fitted: Vec<(f64, f64)> =
            points.iter().map(|(row, us)| ((row.ranks * row.tensors) as f64, *us)).collect();
        let Some(exponent) = exponent(&fitted) else { return };
        let list = points
            .iter()
            .map(|(row, us)| format!("{} x {}: {} us", row.ranks, row.tensors, micros(*us)));
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
        let of = |ranks| self.row(&Case { ranks, ..base.clone() })?.rank0_us_p50;
        let ranks = self.ranks(LOCKSTEP);
        let points: Vec<(f64, f64)> =
            ranks.into_iter().filter_map(|ranks| Some((ranks as f64, of(ranks)?))).collect();
        let Some(exponent) = exponent(&points) else { return };
        let (least, most) = points
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), (_, us)| (least.min(*us), most.max(*us)));
        let _ = writeln!(
            text,
            "{}: rank 0's time is {} to {} us from {} to {} ranks, as ranks^{exponent:.2}; its work is \
             the same in each, and in large worlds its state has left the processor's caches",
            base.plane,
            micros(least),
            micros(most),
            points[0].0,
            points[points.len() - 1].0,
        );
    }

    fn compared(&self, star: &Row, bits: &Row, text: &mut String) {
        let Some((star_us, bits_us)) = star.rank0_us_p50.zip(bits.rank0_us_p50) else { return };
        let with_network =
            |row: &Row| row.rank0_us_p50.unwrap_or(0.0) + row.network_us_p50.unwrap_or(0.0);
        let (star_all, bits_all) = (with_network(star), with_network(bits));
        let _ = writeln!(
            text,
            "at {} ranks: {} {} us, {} {} us, ratio {} (rank 0's time, measured); with the assumed \
             network {} and {} us, ratio {}",
            star.ranks,
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
    fn growth_flatness_and_ratio_are_said_and_cases_left_out_named() {
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
            Row {
                case: case.to_string(),
                control_plane: case.plane.clone(),
                ranks: case.ranks,
                tensors,
                rank0_us_p50: (case.transport == LOCKSTEP).then_some(us),
                time_us_p50: (case.transport != LOCKSTEP).then_some(us * 100.0),
                network_us_p50: Some(8.0),
                ..Row::default()
            }
        };
        let mut rows: Vec<Row> = plan.cases.iter().map(row).collect();
        let wrong = rows
            .iter_mut()
            .find(|row| row.case.contains("coordinator") && row.case.contains("miss-0.1"));
        let wrong = wrong.unwrap();
        (wrong.status, wrong.reason) = (Status::Wrong, "step 3: rank 1".into());
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
