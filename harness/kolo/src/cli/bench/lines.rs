//! The lines of the tables: measured, printed, and kept as rows.

use std::error::Error;
use std::io::Write;

use anyhow::Result;

use super::arguments::{Arguments, Layout};
use super::json::Report;
use super::line::{Line, outcome};
use super::out::{Out, append};
use super::request::{Asked, Request};
use super::sheet::Sheet;
use super::{Benched, osu, table};
use crate::cli::Exit;
use crate::cli::printed::{Format, print_rows};
use measure::bound::bound;
use measure::calibrate;
use results::provenance::Launch;
use results::row::{CaseOutcome, CollectiveResult, CollectiveRow, Key, Run};
use results::units::micros;
use transports::bench::{Bench, Start, Timed};
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
    let sheets = request.names.iter().map(|name| Sheet::create(arguments, name));
    let mut sheets = sheets.collect::<Result<Vec<_>>>()?;
    let (mut status, mut rows) = (Exit::Right, Vec::new());
    for (index, name) in request.names.iter().enumerate() {
        let Sheet { to, json } = &mut sheets[index];
        let is_first = index == 0 || arguments.out_prefix.is_some();
        for why in launch.forced.iter().filter(|_| is_first) {
            writeln!(to, "# warning: {why}")?;
        }
        match arguments.format {
            Layout::Osu => osu::preamble(to, arguments, request, name, &launch)?,
            _ => table::preamble(to, arguments, request, name, &launch)?,
        }
        if let Some(table) = launch.auto.get(&request.topology.to_string())
            && calibrate::chooses(name)
        {
            writeln!(to, "# {}\n#", calibrate::in_words(table))?;
        }
        let mut report = Report::new(arguments, request, name, &launch);
        let mut lines = Lines {
            arguments,
            request,
            launch: &launch,
            blocks,
            name,
            out: &mut out,
            rows: &mut rows,
            to,
            report: &mut report,
        };
        if lines.print(index, &planes[index], measure)? > 0 {
            status = Exit::Wrong;
        }
        let is_last = index + 1 == request.names.len() || arguments.out_prefix.is_some();
        if is_last && arguments.format != Layout::Osu {
            writeln!(to, "# Collective test concluded: all_reduce")?;
        }
        if let Some(json) = json {
            report.write(json)?;
        }
    }
    let benched = Benched::of(rows);
    match arguments.format {
        _ if arguments.as_json => println!("{}", serde_json::to_string_pretty(&benched)?),
        Layout::Markdown => print_rows(benched.csv()?.as_slice(), Format::Markdown)?,
        Layout::Csv => print_rows(benched.csv()?.as_slice(), Format::Csv)?,
        Layout::NcclTests | Layout::Osu => {}
    }
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
    /// All of them, of all planes.
    rows: &'a mut Vec<CollectiveRow>,
    to: &'a mut dyn Write,
    report: &'a mut Report,
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
        match arguments.format {
            Layout::Osu => osu::header(self.to)?,
            _ => table::header(self.to)?,
        }
        let (mut busbw, mut wrong, mut firsts) = (Vec::new(), 0, Vec::new());
        let (mut host, mut bounds) = (table::Host::default(), Vec::new());
        let mut starts = table::Starts::default();
        for Asked { dtype, op, elements, cycle } in request.lines() {
            let line = |in_place| Line { dtype, op, elements, in_place, cycle };
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
            let is_nccl_tests = arguments.format != Layout::Osu;
            if is_nccl_tests {
                write!(self.to, "{}", table::row_head(elements, dtype, op))?;
            }
            let (mut bodies, mut halves) = (String::new(), Vec::new());
            // osu_allreduce has different buffers for input and output.
            let places: &[bool] = if is_nccl_tests { &[false, true] } else { &[false] };
            for &in_place in places {
                let tensors = line(in_place).tensors(arguments, data_plane);
                let bench = line(in_place).bench(arguments, request, data_plane, &tensors);
                // Before and after, as the machine may change.
                let before = arguments.bound.then(|| bound(&bench)).transpose()?;
                let timed = measure(index, &bench, line(in_place))?;
                let after = arguments.bound.then(|| bound(&bench)).transpose()?;
                let bound_us = before.into_iter().chain(after).min().map(micros);
                let outcome = outcome(line(in_place), &bench, &timed, self.blocks, bound_us);
                let is_grouped = data_plane.grouping().is_some();
                let row = self.row(line(in_place), (is_grouped, timed.start), outcome);
                if let Some(why) = timed.unsynchronised {
                    starts.after_barrier(row.key.size_bytes, why);
                }
                self.keep(&row)?;
                let Some(result) = row.outcome.measured() else { continue };
                starts.add(row.key.size_bytes, result);
                if bound_us.is_some() {
                    bodies += &table::bound_body(result);
                }
                match arguments.format {
                    Layout::Osu => osu::row(self.to, row.key.size_bytes, result)?,
                    _ => write!(self.to, "{}", table::row_body(result))?,
                }
                host.add(result);
                busbw.push(result.bandwidths.as_ref().map_or(0.0, |of| of.busbw_gb_s));
                wrong += result.effort.wrong.unwrap_or(0);
                if !result.effort.first_wrong.is_empty() {
                    firsts
                        .push(format!("# wrong: {}: {}", row.key.case, result.effort.first_wrong));
                }
                halves.push(result.clone());
            }
            if is_nccl_tests {
                writeln!(self.to)?;
            }
            if !bodies.is_empty() {
                bounds.push(table::bound_line(elements * dtype.size_bytes(), &bodies));
            }
            self.report.add(line(false), &halves);
        }
        if !bounds.is_empty() {
            // In lines of their own: readers of nccl-tests' table know 13 columns.
            writeln!(
                self.to,
                "# bound: size (B), reference (us) and its share of the time, out of place, in place"
            )?;
        }
        for line in bounds.iter().chain(&firsts).chain(&starts.lines()) {
            writeln!(self.to, "{line}")?;
        }
        let average = busbw.iter().sum::<f64>() / busbw.len().max(1) as f64;
        if arguments.format != Layout::Osu {
            let verdict = match (arguments.check, wrong) {
                (0, _) => "unchecked",
                (_, 0) => "OK",
                _ => "FAILED",
            };
            writeln!(self.to, "# Out of bounds values : {wrong} {verdict}")?;
            writeln!(self.to, "# Avg bus bandwidth    : {average:.3} ")?;
        }
        self.report.conclude(wrong, average);
        if let Some(sentence) = host.sentence() {
            writeln!(self.to, "# {sentence}")?;
        }
        writeln!(self.to, "#")?;
        Ok(wrong)
    }

    fn unsupported(&mut self, line: Line, reason: &dyn Error) -> Result<()> {
        writeln!(self.to, "# unsupported: {reason}")?;
        let start = self.arguments.start(&self.request.placement);
        let row = self.row(line, (false, start), CaseOutcome::Unsupported(reason.to_string()));
        self.keep(&row)
    }

    /// Writes a row into the file of rows, and keeps it for `--json`.
    fn keep(&mut self, row: &CollectiveRow) -> Result<()> {
        if self.arguments.is_one_table() {
            self.rows.push(row.clone());
        }
        append(self.out, row)
    }

    /// The row of a line that ended so.
    fn row(
        &self,
        line: Line,
        (is_grouped, start): (bool, Start),
        outcome: CaseOutcome<CollectiveResult>,
    ) -> CollectiveRow {
        let Lines { arguments, request, launch, name, .. } = self;
        let Line { dtype, op, elements, in_place, cycle } = line;
        let (topology, back_end) = (&request.topology, request.back_end);
        let size_bytes = elements * dtype.size_bytes();
        let place = if in_place { "in-place" } else { "out-of-place" };
        let graph = if arguments.is_graph() { "/graph" } else { "" };
        let cycle = if cycle > 0 { format!("/cycle{cycle}") } else { String::new() };
        let (dtype, op) = (dtype.name(), op.name());
        let groups = if is_grouped { arguments.groups } else { 0 };
        let row = CollectiveRow {
            key: Key {
                case: format!(
                    "{back_end}/{topology}/{name}/{dtype}/{op}/{size_bytes}B/{place}{graph}{cycle}"
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
            sync: start.name().into(),
        };
        row.rounded()
    }
}
