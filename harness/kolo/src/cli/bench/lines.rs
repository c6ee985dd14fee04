//! The lines of the tables: measured, printed, and kept as rows.

use std::error::Error;

use anyhow::Result;

use super::arguments::Arguments;
use super::line::{Line, outcome};
use super::out::{Out, append};
use super::request::Request;
use super::table;
use crate::cli::Exit;
use measure::bound::bound;
use measure::calibrate;
use results::provenance::Launch;
use results::row::{CaseOutcome, CollectiveResult, CollectiveRow, Key, Run};
use results::units::micros;
use transports::bench::{Bench, Timed};
use transports::data_plane::{DataPlane, DataPlaneError};
use transports::threads::is_pinned;

/// Measures one line of a plane, the index of which is given.
pub type Measure<'m> = &'m mut dyn FnMut(usize, &Bench, Line) -> Result<Timed>;

/// Prints a table for each data plane.
pub fn tables(
    arguments: &Arguments,
    request: &Request,
    planes: &[Result<DataPlane, DataPlaneError>],
    launch: Launch,
    blocks: usize,
    measure: Measure,
) -> Result<Exit> {
    let mut out = arguments.out.as_ref().map(|path| Out::create(path, &launch)).transpose()?;
    let mut status = Exit::Right;
    launch.forced.iter().for_each(|why| println!("# warning: {why}"));
    for (index, name) in request.names.iter().enumerate() {
        table::preamble(arguments, request, name, &launch);
        if let Some(table) = launch.auto.get(&request.topology.to_string())
            && calibrate::chooses(name)
        {
            println!("# {}\n#", calibrate::in_words(table));
        }
        let mut lines = Lines { arguments, request, launch: &launch, blocks, name, out: &mut out };
        if lines.print(index, &planes[index], measure)? > 0 {
            status = Exit::Wrong;
        }
    }
    println!("# Collective test concluded: all_reduce");
    Ok(status)
}

/// One data plane's lines.
struct Lines<'a> {
    arguments: &'a Arguments,
    request: &'a Request,
    launch: &'a Launch,
    /// In which the repetitions come.
    blocks: usize,
    name: &'a str,
    out: &'a mut Option<Out>,
}

impl Lines<'_> {
    /// Prints them; returns the number of wrong elements.
    fn print(
        &mut self,
        index: usize,
        data_plane: &Result<DataPlane, DataPlaneError>,
        measure: Measure,
    ) -> Result<usize> {
        let (arguments, request) = (self.arguments, self.request);
        table::header(arguments.bound);
        let (mut busbw, mut wrong, mut firsts) = (Vec::new(), 0, Vec::new());
        let mut host = table::Host::default();
        for (dtype, op, elements) in request.lines() {
            let line = |in_place| Line { dtype, op, elements, in_place };
            let unchecked = request.unchecked(arguments, dtype, op);
            let data_plane = match (data_plane, unchecked) {
                (Err(why), _) => {
                    self.unsupported(line(true), why)?;
                    continue;
                }
                (_, Some(why)) => {
                    self.unsupported(line(true), &why)?;
                    continue;
                }
                (Ok(data_plane), None) => data_plane,
            };
            print!("{}", table::row_head(elements, dtype, op));
            let mut bounds = String::new();
            for in_place in [false, true] {
                let tensors = line(in_place).tensors(arguments, data_plane);
                let bench =
                    line(in_place).bench(arguments, &request.topology, data_plane, &tensors);
                // Before and after, as the machine may change.
                let before = arguments.bound.then(|| bound(&bench)).transpose()?;
                let timed = measure(index, &bench, line(in_place))?;
                let after = arguments.bound.then(|| bound(&bench)).transpose()?;
                let bound_us = before.into_iter().chain(after).min().map(micros);
                let outcome =
                    outcome(line(in_place), &request.topology, &timed, self.blocks, bound_us);
                let row = self.row(line(in_place), data_plane.grouping().is_some(), outcome);
                append(self.out, &row)?;
                let Some(result) = row.outcome.measured() else { continue };
                if bound_us.is_some() {
                    bounds += &table::bound_body(result);
                }
                print!("{}", table::row_body(result));
                host.add(result);
                busbw.push(result.bandwidths.as_ref().map_or(0.0, |of| of.busbw_gb_s));
                wrong += result.effort.wrong.unwrap_or(0);
                if !result.effort.first_wrong.is_empty() {
                    firsts
                        .push(format!("# wrong: {}: {}", row.key.case, result.effort.first_wrong));
                }
            }
            println!("{bounds}");
        }
        firsts.iter().for_each(|line| println!("{line}"));
        let verdict = match (arguments.check, wrong) {
            (0, _) => "unchecked",
            (_, 0) => "OK",
            _ => "FAILED",
        };
        println!("# Out of bounds values : {wrong} {verdict}");
        let average = busbw.iter().sum::<f64>() / busbw.len().max(1) as f64;
        println!("# Avg bus bandwidth    : {average:.3} ");
        host.sentence().iter().for_each(|sentence| println!("# {sentence}"));
        println!("#");
        Ok(wrong)
    }

    fn unsupported(&mut self, line: Line, reason: &dyn Error) -> Result<()> {
        println!("# unsupported: {reason}");
        let row = self.row(line, false, CaseOutcome::Unsupported(reason.to_string()));
        append(self.out, &row)
    }

    /// The row of a line that ended so.
    fn row(
        &self,
        line: Line,
        is_grouped: bool,
        outcome: CaseOutcome<CollectiveResult>,
    ) -> CollectiveRow {
        let Lines { arguments, request, launch, name, .. } = self;
        let Line { dtype, op, elements, in_place } = line;
        let (topology, back_end) = (&request.topology, request.back_end);
        let size_bytes = elements * dtype.size_bytes();
        let place = if in_place { "in-place" } else { "out-of-place" };
        let graph = if arguments.graph { "/graph" } else { "" };
        let (dtype, op) = (dtype.name(), op.name());
        let groups = if is_grouped { arguments.groups } else { 0 };
        let row = CollectiveRow {
            key: Key {
                case: format!(
                    "{back_end}/{topology}/{name}/{dtype}/{op}/{size_bytes}B/{place}{graph}"
                ),
                nodes: topology.nodes(),
                local_size: topology.local_size(),
                ranks: topology.ranks(),
                dtype: dtype.into(),
                op: op.into(),
                in_place,
                size_bytes,
            },
            run: Run {
                emulated: request.placement.emulated,
                oversubscribed: request.placement.oversubscribed,
                pinned: back_end.pins() && is_pinned(),
                host: launch.machine.host.clone(),
                commit: launch.commit.clone(),
                started: launch.started.clone(),
                seed: arguments.seed,
                transport: back_end.name().into(),
            },
            outcome,
            algorithm: name.to_string(),
            groups,
            tensors: groups.max(1),
            segment_bytes: arguments.cut().segment_bytes,
            packing_bytes: arguments.packing,
            warmup: arguments.warmup_iters,
        };
        row.rounded()
    }
}
