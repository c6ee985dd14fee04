//! Compares published measurements with simulations.
//!
//! A point states whether any parameter of its machine was fitted to it; the others are tests.

use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::config::{Config, Model, Simulate};
use super::data_plane::{DataPlane, Engine};
use super::machine_file::MachineFile;
use super::policy::Policy;
use super::sweep::{CaseError, Plan, PlanError};
use super::tabulate;
use results::statistics::{Summary, median};
use results::toml_file::{Checked, ConfigError, Invalid};
use results::units::bus_factor;

/// Published points, as written in TOML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// Allreduces.
    #[serde(default)]
    pub allreduce: Vec<AllReduce>,
    /// Training steps.
    #[serde(default)]
    pub training: Vec<Training>,
}

/// Keys of all points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduce {
    /// A short name.
    pub name: String,
    /// A file in `machines/` beside this one.
    pub machine: String,
    /// World size.
    pub ranks: usize,
    /// Size of the buffer.
    pub size_bytes: f64,
    /// Data plane.
    pub data_plane: String,
    /// Microseconds, if that was published ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<f64>,
    /// ... or bus bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busbw_gb_s: Option<f64>,
    /// The publication.
    pub source: String,
    /// A parameter of the machine was fitted to it.
    #[serde(default)]
    pub fitted: bool,
    /// Why it is missed, if known.
    #[serde(default)]
    pub why: String,
}

/// A job on one and on several ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// A short name.
    pub name: String,
    /// A file in `machines/` beside this one.
    pub machine: String,
    /// World size.
    pub ranks: usize,
    /// A model in `workloads/` beside this file.
    pub workload: String,
    /// Samples per rank and step.
    pub batch: usize,
    /// Samples per second on one rank, published too.
    pub single_samples_s: f64,
    /// Samples per second on all.
    pub samples_s: f64,
    /// Control plane.
    pub control_plane: String,
    /// Data plane.
    pub data_plane: String,
    /// As in [`Policy`].
    #[serde(default = "one_ms")]
    pub cycle_time_ms: f64,
    /// As in [`Policy`].
    #[serde(default = "threshold_mib")]
    pub fusion_threshold_mib: f64,
    /// Type to which gradients are cast.
    #[serde(default)]
    pub compression: workloads::framework::Compression,
    /// The publication.
    pub source: String,
    /// A parameter of the machine was fitted to it.
    #[serde(default)]
    pub fitted: bool,
    /// Why it is missed, if known.
    #[serde(default)]
    pub why: String,
}

fn one_ms() -> f64 {
    1.0
}

fn threshold_mib() -> f64 {
    64.0
}

/// A point with its simulated value; a line of `published.csv`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "results/README.md explains each column")]
pub struct Compared {
    pub point: String,
    pub machine: String,
    pub ranks: usize,
    pub unit: &'static str,
    pub published: f64,
    pub simulated: f64,
    pub error: f64,
    pub fitted: bool,
    pub verdict: &'static str,
    pub why: String,
    pub source: String,
}

/// Tolerance of large messages and training steps, relative to the published value.
pub const LARGE: f64 = 0.15;

/// ... and messages below 1 MiB within this.
pub const SMALL: f64 = 0.30;

impl Checked for Points {
    fn check(&self) -> Result<(), Invalid> {
        let wrong = self
            .allreduce
            .iter()
            .find(|point| point.time_us.is_some() == point.busbw_gb_s.is_some());
        let Some(point) = wrong else { return Ok(()) };
        let (found, expected) = match point.time_us {
            Some(_) => ("both time_us and busbw_gb_s", "one of them"),
            None => ("without a result", "time_us or busbw_gb_s"),
        };
        Err(Invalid::value(format!("allreduce \"{}\"", point.name), found, expected))
    }
}

impl Points {
    /// Simulates every point, in order.
    ///
    /// # Errors
    /// When a machine or workload cannot be read, or a data plane does not exist.
    pub fn compare(&self, path: &Path) -> Result<Vec<Compared>, PointError> {
        let allreduces = self.allreduce.par_iter().map(|point| point.compare(path));
        let trainings = self.training.par_iter().map(|point| point.compare(path));
        allreduces.chain(trainings).collect()
    }
}

/// Why a published point cannot be compared.
#[derive(Debug, Error)]
#[error("{kind} \"{name}\": {cause}")]
pub struct PointError {
    /// The point's table.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Why.
    #[source]
    pub cause: Box<PointCause>,
}

/// An error in a published point.
#[derive(Debug, Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum PointCause {
    /// The machine file cannot be read.
    Machine(#[from] ConfigError),
    /// The machine file or the workload cannot be read.
    Plan(#[from] PlanError),
    /// It cannot be simulated.
    Case(#[from] CaseError),
}

impl PointError {
    fn at(kind: &'static str, name: &str) -> impl Fn(PointCause) -> PointError {
        move |cause| PointError { kind, name: name.into(), cause: cause.into() }
    }
}

impl AllReduce {
    fn compare(&self, path: &Path) -> Result<Compared, PointError> {
        let refuse = PointError::at("allreduce", &self.name);
        let machine = MachineFile::read(&MachineFile::path(&self.machine, path));
        let machine = machine.map_err(|error| refuse(error.into()))?;
        let segment_bytes = 512.0 * 1024.0;
        let data =
            DataPlane::new(&self.data_plane, &machine, self.ranks, segment_bytes, Engine::Rounds);
        let data = data.map_err(|error| refuse(CaseError::from(error).into()))?;
        let time_us = 1e6 * data.time(self.size_bytes).at_s;
        let (unit, published, simulated) = match self.time_us {
            Some(published) => ("us", published, time_us),
            None => {
                let busbw = self.size_bytes / time_us / 1e3 * bus_factor(self.ranks);
                ("GB/s bus", self.busbw_gb_s.expect("it was checked"), busbw)
            }
        };
        let within = if self.size_bytes < f64::from(1 << 20) { SMALL } else { LARGE };
        Ok(Compared {
            point: self.name.clone(),
            machine: machine.name,
            ranks: self.ranks,
            unit,
            published,
            fitted: self.fitted,
            why: self.why.clone(),
            source: self.source.clone(),
            ..compared(published, simulated, within)
        })
    }
}

impl Training {
    fn compare(&self, path: &Path) -> Result<Compared, PointError> {
        let refuse = PointError::at("training", &self.name);
        let step_ms = 1e3 * self.batch as f64 / self.single_samples_s;
        let model = Model {
            workload: self.workload.clone(),
            batch: self.batch,
            forward_ms: step_ms / 3.0,
            backward_ms: step_ms * 2.0 / 3.0,
            optimizer_ms: 0.0,
            compression: self.compression,
            source: self.source.clone(),
        };
        let policy = Policy {
            cycle_time_ms: self.cycle_time_ms,
            fusion_threshold_mib: self.fusion_threshold_mib,
            segment_kib: 512.0,
            ..Policy::new(&self.control_plane, &self.control_plane, &self.data_plane)
        };
        let simulate = Simulate { seeds: 5, ..Simulate::new(&self.machine, vec![self.ranks]) };
        let config = Config::plain(simulate, model, vec![policy]);
        let plan = Plan::new(config, path).map_err(|error| refuse(error.into()))?;
        let (case, result) = plan.run(|| ()).swap_remove(0);
        let simulated =
            tabulate::throughputs(&case, &result.map_err(|error| refuse(error.into()))?);
        let simulated = Summary::of(&simulated).expect("there is a seed").p50;
        Ok(Compared {
            point: self.name.clone(),
            machine: plan.machine.name.clone(),
            ranks: self.ranks,
            unit: "samples/s",
            fitted: self.fitted,
            why: self.why.clone(),
            source: self.source.clone(),
            ..compared(self.samples_s, simulated, LARGE)
        })
    }
}

fn compared(published: f64, simulated: f64, within: f64) -> Compared {
    let error = simulated / published - 1.0;
    Compared {
        point: String::new(),
        machine: String::new(),
        ranks: 0,
        unit: "",
        published,
        simulated: (simulated * 1e3).round() / 1e3,
        error: (error * 1e4).round() / 1e4,
        fitted: false,
        verdict: if error.abs() <= within { "met" } else { "missed" },
        why: String::new(),
        source: String::new(),
    }
}

/// The comparison as text.
pub fn text(compared: &[Compared]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "published points beside SIMULATED ones; met: within 15 %, or 30 % for messages below 1 MiB\n",
    );
    for one in compared {
        let _ = writeln!(
            text,
            "{:<46} {:>9.1} {:<9} simulated {:>9.1} {:+6.1} %  {}{}",
            one.point,
            one.published,
            one.unit,
            one.simulated,
            100.0 * one.error,
            one.verdict,
            if one.fitted { " (fitted)" } else { "" },
        );
        if one.verdict == "missed" && !one.why.is_empty() {
            let _ = writeln!(text, "    {}", one.why);
        }
    }
    let errors: Vec<f64> =
        compared.iter().filter(|one| !one.fitted).map(|one| one.error.abs()).collect();
    let count = errors.len();
    if let Some(median) = median(errors) {
        let met = compared.iter().filter(|one| !one.fitted && one.verdict == "met").count();
        let _ = writeln!(
            text,
            "{met} of {} points not used for fitting are met; median error {:.1} %",
            count,
            100.0 * median
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> (Points, std::path::PathBuf) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/published.toml");
        (Points::read(Path::new(path)).unwrap(), path.into())
    }

    #[test]
    fn most_points_are_met_and_every_miss_has_a_reason() {
        let (points, path) = shipped();
        let compared = points.compare(&path).unwrap();
        let missed: Vec<_> = compared.iter().filter(|one| one.verdict == "missed").collect();
        assert!(missed.iter().all(|one| !one.why.is_empty()), "{missed:#?}");
        assert!(missed.len() * 5 <= compared.len(), "{missed:#?}");
        assert!(compared.iter().all(|one| !one.fitted));
        let text = text(&compared);
        assert!(text.contains("SIMULATED") && text.contains("points not used for fitting"));
    }

    #[test]
    fn a_point_needs_one_figure_and_a_machine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.toml");
        let point = "[[allreduce]]\nname = \"a\"\nmachine = \"m\"\nranks = 2\nsize_bytes = 1e6\n\
                     data_plane = \"ring\"\nsource = \"s\"\n";
        std::fs::write(&path, point).unwrap();
        let error = Points::read(&path).unwrap_err();
        assert_eq!(
            error.problem.to_string(),
            "allreduce \"a\" is without a result, expected time_us or busbw_gb_s"
        );
        std::fs::write(&path, format!("{point}time_us = 3\n")).unwrap();
        let why = Points::read(&path).unwrap().compare(&path).unwrap_err().to_string();
        assert!(why.contains("machines/m.toml"), "{why}");
    }
}
