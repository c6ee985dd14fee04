//! Published measurements, and how far simulations are from them.
//!
//! A point belongs to a series. Parameters may come from series for calibration; no parameter is set by looking at the
//! others, which are tests. [`compare`](Points::compare) simulates the points, and [`score`] says how far off they are,
//! beside models that know less.

mod compare;
mod part;
mod residuals;
pub mod score;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::machine_file::{MachineFile, Network};
use super::sweep::{CaseError, PlanError};
use results::toml_file::{Checked, ConfigError, Invalid, within};

pub use self::compare::{Compared, Group, LARGE, SMALL, Verdict};
pub use self::part::Part;
pub use self::residuals::{Ends, Residuals};
use self::score::Score;

/// Published points, as written in TOML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// Series of points.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Parameters that were fitted to points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<Fitted>,
    /// Published, but not enough to simulate it.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Allreduces.
    #[serde(default)]
    pub allreduce: Vec<AllReduce>,
    /// Training steps.
    #[serde(default)]
    pub training: Vec<Training>,
}

/// Points that were published together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// As points name it.
    pub name: String,
    /// What its points are for.
    #[serde(rename = "use")]
    pub used_for: UsedFor,
    /// The reason.
    pub why: String,
}

/// What a series is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsedFor {
    /// No parameter was set by looking at its points.
    #[default]
    Test,
    /// A parameter comes from it, or from numbers published with it.
    Calibration,
}

/// A published number that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// A short name.
    pub name: String,
    /// Its series.
    #[serde(default)]
    pub series: String,
    /// Throughput in parts of the number of ranks times that of one.
    pub efficiency: f64,
    /// The publication.
    pub source: String,
    /// What is missing.
    pub why: String,
}

/// A parameter that was fitted to points of a series for calibration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Its key.
    pub parameter: String,
    /// Its value.
    pub value: f64,
    /// The series.
    pub on: String,
    /// How it was chosen.
    pub how: String,
}

/// Keys of all points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduce {
    /// A short name.
    pub name: String,
    /// Its series; without one it is a test.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub series: String,
    /// It is nearly the same as the point of that name, with which it counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    /// A file in `machines/` beside this one.
    pub machine: String,
    /// What joins the nodes.
    #[serde(default)]
    pub network: Network,
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
    /// Its series; without one it is a test.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub series: String,
    /// It is nearly the same as the point of that name, with which it counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    /// A file in `machines/` beside this one.
    pub machine: String,
    /// What joins the nodes.
    #[serde(default)]
    pub network: Network,
    /// World size.
    pub ranks: usize,
    /// World size of the job that efficiency is relative to.
    #[serde(default = "one")]
    pub base_ranks: usize,
    /// A model in `workloads/` beside this file.
    pub workload: String,
    /// Samples per rank and backward pass.
    pub batch: usize,
    /// As in [`Policy`](super::policy::Policy).
    #[serde(default = "one")]
    pub backward_passes_per_step: usize,
    /// Samples per second on each rank of that job, published too; a point without it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_samples_s: Option<f64>,
    /// Samples per second on all.
    pub samples_s: f64,
    /// Control plane.
    pub control_plane: String,
    /// Data plane.
    pub data_plane: String,
    /// As in [`Policy`](super::policy::Policy).
    #[serde(default)]
    pub blocking: bool,
    /// As in [`Policy`](super::policy::Policy).
    #[serde(default)]
    pub priority: bool,
    /// As in [`Policy`](super::policy::Policy).
    #[serde(default)]
    pub launch_gradient_us: Option<f64>,
    /// As in [`Policy`](super::policy::Policy).
    #[serde(default = "one_ms")]
    pub cycle_time_ms: f64,
    /// As in [`Policy`](super::policy::Policy).
    #[serde(default = "threshold_mib")]
    pub fusion_threshold_mib: f64,
    /// KiB of the segments in which messages of this project's algorithms are pipelined.
    #[serde(default = "segment_kib")]
    pub segment_kib: f64,
    /// Type to which gradients are cast.
    #[serde(default)]
    pub compression: workloads::framework::Compression,
    /// The publication.
    pub source: String,
    /// Why it is missed, if known.
    #[serde(default)]
    pub why: String,
}

fn one() -> usize {
    1
}

fn one_ms() -> f64 {
    1.0
}

fn threshold_mib() -> f64 {
    64.0
}

fn segment_kib() -> f64 {
    compare::SEGMENT_KIB
}

impl Checked for Points {
    fn check(&self) -> Result<(), Invalid> {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        for point in self.points() {
            let Point { kind, name, series, like, .. } = point;
            let key = |field: &str| format!("{kind} \"{name}\": {field}");
            if !series.is_empty() && !names.contains(&series) {
                return Err(Invalid::name(key("series"), series, names));
            }
            if let Some(like) = like
                && !self.points().any(|other| other.name == like && other.like.is_none())
            {
                let points = self.points().filter(|other| other.like.is_none());
                return Err(Invalid::name(key("like"), like, points.map(|other| other.name)));
            }
        }
        for LeftOut { name, series, .. } in &self.left_out {
            if !series.is_empty() && !names.contains(&series.as_str()) {
                return Err(Invalid::name(format!("left_out \"{name}\": series"), series, names));
            }
        }
        for Fitted { parameter, on, .. } in &self.fitted {
            let calibration = |series: &&Series| series.used_for == UsedFor::Calibration;
            let mut calibration = self.series.iter().filter(calibration);
            if !calibration.clone().any(|series| series.name == *on) {
                let names = calibration.by_ref().map(|series| series.name.as_str());
                return Err(Invalid::name(format!("fitted \"{parameter}\": on"), on, names)
                    .with_advice("a parameter is fitted on a series for calibration"));
            }
        }
        for Training { name, ranks, base_ranks, single_samples_s, samples_s, .. } in &self.training
        {
            let key = |field: &str| format!("training \"{name}\": {field}");
            within(&key("base_ranks"), *base_ranks as f64, 1.0, *ranks as f64)?;
            within(&key("samples_s"), *samples_s, 1e-6, 1e12)?;
            let single = single_samples_s.iter();
            single.copied().try_for_each(|it| within(&key("single_samples_s"), it, 1e-6, 1e12))?;
        }
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

/// What all points have.
struct Point<'p> {
    kind: &'static str,
    name: &'p str,
    series: &'p str,
    like: Option<&'p str>,
}

impl Points {
    /// What a series is for; unknown ones are tests.
    fn used_for(&self, series: &str) -> UsedFor {
        let known = self.series.iter().find(|other| other.name == series);
        known.map_or(UsedFor::Test, |series| series.used_for)
    }

    /// Simulates every point, in order. Ranges of training points reach as far as points for calibration are missed by.
    ///
    /// # Errors
    /// When a machine or workload cannot be read, or a data plane does not exist.
    pub fn compare(&self, path: &Path) -> Result<Vec<Compared>, PointError> {
        let used_for = |series: &str| self.used_for(series);
        let allreduces = self
            .allreduce
            .par_iter()
            .map(|point| compare::allreduce(point, used_for(&point.series), path));
        let trainings = self
            .training
            .par_iter()
            .filter(|point| point.single_samples_s.is_some())
            .map(|point| compare::training(point, used_for(&point.series), path));
        let mut compared: Vec<Compared> = allreduces.chain(trainings).collect::<Result<_, _>>()?;
        let residuals = Residuals::of(compared.iter());
        compared.iter_mut().for_each(|point| point.widen(&residuals));
        Ok(compared)
    }

    /// How far published efficiencies are from simulated ones, by the points for calibration.
    ///
    /// # Errors
    /// As [`compare`](Points::compare).
    pub fn residuals(&self, path: &Path) -> Result<Residuals, PointError> {
        let points = self.with_base(UsedFor::Calibration);
        let compared: Vec<Compared> = points
            .par_iter()
            .map(|point| compare::training_without(point, &[], path))
            .collect::<Result<_, _>>()?;
        let compared = compared.into_iter().map(|point| Compared { fitted: true, ..point });
        Ok(Residuals::of(compared.collect::<Vec<_>>().iter()))
    }

    /// The score of test points across nodes without some parts of the model: without each, and without all.
    ///
    /// # Errors
    /// As [`compare`](Points::compare).
    pub fn ablation(&self, path: &Path) -> Result<Vec<(String, Option<Score>)>, PointError> {
        let points = self.with_base(UsedFor::Test);
        let without = |parts: &[Part]| -> Result<Option<Score>, PointError> {
            let compared: Vec<Compared> = points
                .par_iter()
                .map(|point| compare::training_without(point, parts, path))
                .collect::<Result<_, _>>()?;
            Ok(Score::of(compared.iter().filter(|point| point.group.is_across_nodes())))
        };
        let mut rows = vec![("the whole model".to_string(), without(&[])?)];
        for part in Part::ALL {
            rows.push((format!("without {}", part.name()), without(&[part])?));
        }
        rows.push(("without any of these".into(), without(&Part::ALL)?));
        Ok(rows)
    }

    /// Training points of series for that use, if their efficiency is known.
    fn with_base(&self, used_for: UsedFor) -> Vec<&Training> {
        let is_used = |point: &&Training| {
            point.single_samples_s.is_some() && self.used_for(&point.series) == used_for
        };
        self.training.iter().filter(is_used).collect()
    }

    /// One line that names the machine files without newer tables, if there are some.
    ///
    /// # Errors
    /// When a machine file cannot be read.
    pub fn older_machines(&self, path: &Path) -> Result<Option<String>, ConfigError> {
        let trained = self.training.iter().map(|point| point.machine.as_str());
        let reduced = self.allreduce.iter().map(|point| point.machine.as_str());
        let machines: BTreeSet<&str> = trained.chain(reduced).collect();
        let mut without: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for machine in &machines {
            let file = MachineFile::read(&MachineFile::path(machine, path))?;
            for table in file.missing_tables() {
                without.entry(table).or_default().push(file.name.clone());
            }
        }
        let of = |(table, names): (&&str, &Vec<String>)| match names.len() {
            count if count > 1 && count == machines.len() => format!("all without {table}"),
            _ => format!("{} without {table}", names.join(", ")),
        };
        let files = without.iter().map(of).collect::<Vec<_>>().join("; ");
        Ok((!without.is_empty())
            .then(|| format!("machine files without newer tables, simulated as before: {files}")))
    }

    fn points(&self) -> impl Iterator<Item = Point<'_>> {
        let allreduces = self.allreduce.iter().map(|AllReduce { name, series, like, .. }| Point {
            kind: "allreduce",
            name,
            series,
            like: like.as_deref(),
        });
        let trainings = self.training.iter().map(|Training { name, series, like, .. }| Point {
            kind: "training",
            name,
            series,
            like: like.as_deref(),
        });
        allreduces.chain(trainings)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> (Points, std::path::PathBuf) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/published.toml");
        (Points::read(Path::new(path)).unwrap(), path.into())
    }

    #[test]
    fn shipped_points_have_a_series_and_are_simulated() {
        let (points, path) = shipped();
        assert!(points.points().all(|point| !point.series.is_empty()));
        let used = |series: &Series| points.points().any(|point| point.series == series.name);
        let left_out = |series: &Series| points.left_out.iter().any(|it| it.series == series.name);
        assert!(points.series.iter().all(|series| used(series) || left_out(series)));
        let compared = points.compare(&path).unwrap();
        assert_eq!(compared.len(), points.points().count());
        for one in &compared {
            let range = one.simulated_low..=one.simulated_high;
            assert!(range.contains(&one.simulated) && one.simulated > 0.0, "{one:#?}");
        }
        let text = text::text(&points, &compared);
        for words in ["SIMULATED", "across nodes, both", "not simulated", "series for calibration"]
        {
            assert!(text.contains(words), "{text}");
        }
    }

    /// The shipped machine files and workloads, with noise that shows in the median of the points.
    fn noisy_machines(points: &Path) -> tempfile::TempDir {
        let (from, folder) = (points.parent().unwrap(), tempfile::tempdir().unwrap());
        for part in ["machines", "machines/published", "workloads"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
            for file in std::fs::read_dir(from.join(part)).unwrap().map(Result::unwrap) {
                let to = folder.path().join(part).join(file.file_name());
                if file.file_type().unwrap().is_file() {
                    let text = std::fs::read_to_string(file.path()).unwrap();
                    let noise = "step_cv = { value = 0.005, low = 0.002";
                    let text = text.replace(noise, "step_cv = { value = 0.016, low = 0.003");
                    std::fs::write(to, text).unwrap();
                }
            }
        }
        folder
    }

    #[test]
    fn parts_of_the_model_are_switched_off_one_by_one_and_all_together() {
        let (mut points, path) = shipped();
        points.training.retain(|point| point.ranks <= 64);
        let folder = noisy_machines(&path);
        let rows = points.ablation(&folder.path().join("published.toml")).unwrap();
        assert_eq!(rows.len(), Part::ALL.len() + 2);
        let lost = |row: usize| rows[row].1.as_ref().unwrap().lost.unwrap()[1];
        let (whole, none) = (lost(0), lost(rows.len() - 1));
        assert!(none < 0.5 * whole && lost(1) < whole && lost(2) < whole, "{rows:#?}");
        let text = text::ablation(&rows);
        assert!(text.contains("without noise from step to step"), "{text}");
    }

    #[test]
    fn points_without_a_base_are_left_out_and_listed() {
        let (mut points, path) = shipped();
        points.allreduce.clear();
        points.training.truncate(2);
        points.training[1].single_samples_s = None;
        let compared = points.compare(&path).unwrap();
        assert_eq!(compared.len(), 1);
        let text = text::text(&points, &compared);
        let line =
            format!("  {:<54} no base: single_samples_s is missing\n", points.training[1].name);
        assert!(text.contains(&line), "{text}");
    }

    #[test]
    fn machine_files_without_newer_tables_are_named_in_one_line() {
        let (mut points, path) = shipped();
        points.allreduce.clear();
        points.training.retain(|point| point.series == "S2 MPI" || point.series == "S7");
        assert_eq!(
            points.older_machines(&path).unwrap().unwrap(),
            "machine files without newer tables, simulated as before: p100-25gbe-roce-mpi, p100-25gbe-tcp-mpi without \
             [interference]; all without [interruptions]"
        );
        points.training.retain(|point| point.series == "S7");
        assert_eq!(
            points.older_machines(&path).unwrap().unwrap(),
            "machine files without newer tables, simulated as before: 2080-10g without [interruptions]"
        );
    }

    /// A machine file and its points agree on what joins the nodes, since ranges depend on it.
    #[test]
    fn machine_files_say_what_joins_their_nodes() {
        let (points, path) = shipped();
        for point in &points.training {
            let file = MachineFile::read(&MachineFile::path(&point.machine, &path)).unwrap();
            assert_eq!(file.node.network, point.network, "{}", point.name);
        }
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
        let refused = |more: &str| {
            std::fs::write(&path, format!("{point}time_us = 3\n{more}")).unwrap();
            Points::read(&path).unwrap_err().problem.to_string()
        };
        let said = refused(
            "[[training]]\nname = \"t\"\nmachine = \"m\"\nranks = 2\nworkload = \"w\"\nbatch = 1\n\
             single_samples_s = -1\nsamples_s = 1\ncontrol_plane = \"ddp\"\ndata_plane = \"nccl\"\nsource = \"s\"\n",
        );
        assert!(said.starts_with("training \"t\": single_samples_s is -1, expected"), "{said}");
        let series = "series = \"b\"\n[[series]]\nname = \"c\"\nuse = \"test\"\nwhy = \"w\"\n";
        let said = refused(series);
        assert!(said.starts_with("allreduce \"a\": series is \"b\", expected"), "{said}");
        let said = refused(
            "[[left_out]]\nname = \"l\"\nseries = \"b\"\nefficiency = 0.9\nsource = \"s\"\nwhy = \"w\"\n",
        );
        assert!(said.starts_with("left_out \"l\": series is \"b\", expected"), "{said}");
        // A parameter must not be fitted on test points.
        let said = refused(
            "[[series]]\nname = \"t\"\nuse = \"test\"\nwhy = \"w\"\n[[series]]\nname = \"c\"\nuse = \"calibration\"\n\
             why = \"w\"\n[[fitted]]\nparameter = \"p\"\nvalue = 1\non = \"t\"\nhow = \"h\"\n",
        );
        assert!(said.starts_with("fitted \"p\": on is \"t\", expected \"c\""), "{said}");
        let said = refused("like = \"b\"\n");
        assert!(said.starts_with("allreduce \"a\": like is \"b\", expected"), "{said}");
        std::fs::write(&path, format!("{point}time_us = 3\n")).unwrap();
        let why = Points::read(&path).unwrap().compare(&path).unwrap_err().to_string();
        assert!(why.contains("machines/m.toml"), "{why}");
    }
}
