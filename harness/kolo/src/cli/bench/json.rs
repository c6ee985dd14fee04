//! The JSON that nccl-tests writes with `-J` (version 3, `src/util.cu`). Truth values are text, as there. `nccl_version`
//! is null, and `env` has the variables that kolo's provenance has.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::line::Line;
use super::request::{Request, device_of};
use super::table::{dtype_name, op_name, rank_kind};
use crate::cli::sizes::{Sizes, Stride};
use results::provenance::{Launch, now};
use results::row::CollectiveResult;

/// The version of the layout.
const VERSION: u32 = 3;

/// One algorithm's results.
pub struct Report {
    file: Value,
    results: Vec<Value>,
    name: String,
}

impl Report {
    pub fn new(arguments: &Arguments, request: &Request, name: &str, launch: &Launch) -> Report {
        let Sizes { from, to, stride } = request.sizes;
        let (step, by) = match stride {
            Stride::Factor(factor) => ("step_factor", factor),
            Stride::Bytes(bytes) => ("step_bytes", bytes),
        };
        let device = |(rank, process): (usize, &super::request::Process)| {
            let info = process.device.as_ref().unwrap_or(&launch.machine.cpu);
            json!({
                "rank": rank,
                "group": 0,
                "pid": process.pid,
                "hostname": process.host,
                "device": device_of(&request.processes, rank),
                "device_hex": format!("node {}", request.topology.node_of(rank)),
                "device_info": format!("{info} ({})", rank_kind(request)),
            })
        };
        let devices: Vec<Value> = request.processes.iter().enumerate().map(device).collect();
        let has_gpus = request.processes.iter().any(|process| process.device.is_some());
        let ranks = request.topology.ranks();
        let mut config = json!({
            "nthreads": if has_gpus { 1 } else { ranks },
            "ngpus": if has_gpus { ranks } else { 0 },
            "minimum_bytes": from,
            "maximum_bytes": to,
        });
        config[step] = json!(by);
        for (key, value) in [
            ("warmup_iters", json!(arguments.warmup_iters)),
            ("iterations", json!(arguments.iters)),
            ("aggregated_iterations", json!(1)),
            ("validation", json!(arguments.check)),
            ("graph", json!(u8::from(arguments.is_graph()))),
            // Every repetition starts after a barrier.
            ("blocking_collectives", truth(true)),
            ("per_iter_timing", truth(false)),
            ("per_iter_skip", json!(0)),
            ("parallel_init", truth(false)),
            ("devices", json!(devices)),
        ] {
            config[key] = value;
        }
        let env: Vec<String> =
            launch.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let file = json!({
            "version": VERSION,
            "start_time": launch.started,
            "args": std::env::args().collect::<Vec<_>>(),
            "env": env,
            "nccl_version": null,
            "config": config,
        });
        Report { file, results: Vec::new(), name: name.into() }
    }

    /// Adds a line of the table: its halves, out of place and in place.
    pub fn add(&mut self, line: Line, halves: &[CollectiveResult]) {
        let half = |index: usize| {
            let Some(result) = halves.get(index) else { return Value::Null };
            json!({
                "time": result.times.as_ref().map(|times| times.time_us_p50),
                "alg_bw": result.bandwidths.as_ref().map(|of| of.algbw_gb_s),
                "bus_bw": result.bandwidths.as_ref().map(|of| of.busbw_gb_s),
                "nwrong": result.effort.wrong.map(|wrong| wrong as f64),
            })
        };
        let iterations = halves.iter().map(|result| result.effort.samples).max().unwrap_or(0);
        self.results.push(json!({
            "size": line.elements * line.dtype.size_bytes(),
            "count": line.elements,
            "type": dtype_name(line.dtype),
            "redop": op_name(line.op),
            "root": format!("{:>6}", -1),
            "out_of_place": half(0),
            "in_place": half(1),
            "actual_iterations": iterations,
            "experiment_name": self.name,
        }));
    }

    /// Adds the last lines of the table.
    pub fn conclude(&mut self, wrong: usize, average_gb_s: f64) {
        self.file["results"] = json!(self.results);
        self.file["out_of_bounds"] = json!({ "count": wrong, "okay": truth(wrong == 0) });
        self.file["average_bus_bandwidth"] =
            json!({ "bandwidth": average_gb_s, "okay": "unchecked" });
        self.file["errors"] = json!([]);
    }

    pub fn write(mut self, to: &mut dyn Write) -> Result<()> {
        self.file["end_time"] = json!(now());
        writeln!(to, "{}", self.file)?;
        Ok(())
    }
}

/// As nccl-tests writes it.
fn truth(value: bool) -> Value {
    json!(if value { "true" } else { "false" })
}
