//! The configuration of a sweep: parsing and checks.

mod also;
mod axes;
mod case;
mod host;
mod measure;
mod nodes;
mod scaling;
mod timelines;

use std::path::{Path, PathBuf};
use std::time::Duration;

use algorithms::control::{DataType, ReduceOp};
use algorithms::topology::Topology;
pub use also::Also;
pub use axes::Axes;
pub use case::{Case, Varied};
pub use host::Host;
pub use measure::Measure;
pub use nodes::{Allocation, Nodes};
use results::names::{check_op, parse_dtype, parse_op};
pub use scaling::Scaling;
use serde::{Deserialize, Serialize};
pub use timelines::Timelines;

use crate::back_ends;
use crate::environment::{MOST_CYCLE_TIME_MS, MOST_FUSION_THRESHOLD_BYTES};
use results::toml_file::{Checked, Invalid, at_least_1, control_plane, not_empty, within};
use results::units::MIB;
use training::back_end::{BackEndRef, MemoryKind};
use transports::allreduce::Sizes;
use transports::data_plane;
use workloads::framework::Framework;
use workloads::replay::StepTimes;
use workloads::workload::workload_path;

/// The longest part of a step, in milliseconds.
pub const MOST_STEP_MS: f64 = 1e5;

/// A name of a data plane: the allreduce of the transport's library.
pub const LIBRARY: &str = "library";

/// A sweep as written in TOML. Unknown keys are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A model in `workloads/` beside the configuration, or the path of a CSV file or a timeline.
    pub workload: String,
    /// The parts of a training step besides communication.
    pub step: Step,
    /// What the framework and the background loop do on the host.
    #[serde(default, skip_serializing_if = "Host::is_idle")]
    pub host: Host,
    /// The gradients' type and reduction.
    #[serde(default)]
    pub data: Data,
    /// The framework's options.
    #[serde(default)]
    pub framework: Framework,
    /// The axes of the sweep: every combination is a case.
    pub sweep: Axes,
    /// More cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Also>,
    /// How long and how often each case is measured.
    #[serde(default)]
    pub measure: Measure,
}

/// Lengths of the parts of a training step, which are replayed as time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "see `StepTimes`")]
pub struct Step {
    #[serde(default)]
    pub forward_ms: f64,
    pub backward_ms: f64,
    #[serde(default)]
    pub optimizer_ms: f64,
    #[serde(default, skip_serializing_if = "Scaling::is_weak")]
    pub scaling: Scaling,
}

/// The gradients' type and reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    /// Element type.
    pub dtype: String,
    /// Reduction.
    pub op: String,
}

impl Default for Data {
    fn default() -> Data {
        Data { dtype: "f32".into(), op: "average".into() }
    }
}

impl Config {
    /// The path of the workload, for a configuration at `path`.
    pub fn workload_path(&self, path: &Path) -> PathBuf {
        workload_path(&self.workload, path)
    }

    /// Element type of the gradients.
    pub fn dtype(&self) -> DataType {
        parse_dtype(&self.data.dtype).expect("the configuration was checked")
    }

    /// The type in which they travel.
    pub fn wire(&self) -> DataType {
        self.framework.wire(self.dtype())
    }

    /// Reduction.
    pub fn op(&self) -> ReduceOp {
        parse_op(&self.data.op).expect("the configuration was checked")
    }

    /// Lengths of the parts of a step, as configured; see [`Self::times_on`].
    pub fn times(&self) -> StepTimes {
        let time = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        StepTimes {
            forward: time(self.step.forward_ms),
            backward: time(self.step.backward_ms),
            optimizer: time(self.step.optimizer_ms),
            host: self.host.costs(),
        }
    }

    /// How large messages are cut over a transport.
    pub fn sizes(&self, transport: BackEndRef) -> Sizes {
        let Axes { segment_kib, packing_kib, .. } = self.sweep;
        let segment_bytes = segment_kib.map_or(transport.segment_bytes(), |kib| kib * 1024);
        Sizes { segment_bytes, packing_bytes: packing_kib * 1024 }
    }
}

impl Checked for Config {
    fn check(&self) -> Result<(), Invalid> {
        let axes = &self.sweep;
        for (key, length) in [
            ("sweep.transport", axes.transport.len()),
            ("sweep.control_plane", axes.control_plane.len()),
            ("sweep.algorithm", axes.algorithm.len()),
            ("sweep.fusion_threshold_mib", axes.fusion_threshold_mib.len()),
            ("sweep.cycle_time_ms", axes.cycle_time_ms.len()),
        ] {
            not_empty(key, length)?;
        }
        axes.check_nodes()?;
        self.also.iter().try_for_each(Also::check)?;
        for name in &axes.transport {
            if !back_ends::names().contains(&name.as_str()) {
                return Err(Invalid::name("sweep.transport", name, back_ends::names()));
            }
        }
        let parts = self.parts();
        for (axes, table) in parts.iter().zip(self.tables()) {
            for name in &axes.control_plane {
                control_plane(&format!("{table}.control_plane"), name)?;
            }
            for name in axes.algorithm.iter().filter(|name| *name != LIBRARY) {
                let refuse = |error| Invalid::because(format!("{table}.algorithm"), error);
                data_plane::spelling(name).map_err(refuse)?;
            }
        }
        for text in &axes.topology {
            text.parse::<Topology>().map_err(|error| Invalid::because("sweep.topology", error))?;
        }
        let dtype =
            parse_dtype(&self.data.dtype).map_err(|error| Invalid::because("data.dtype", error))?;
        let op = parse_op(&self.data.op).map_err(|error| Invalid::because("data.op", error))?;
        check_op(dtype, op).map_err(|error| Invalid::because("data.op", error))?;
        self.framework.check(dtype, op)?;
        for varied in axes.varied() {
            let checked = varied.apply(&self.framework).check(dtype, op);
            checked.map_err(|problem| Invalid::because("sweep.compression", problem))?;
        }
        for (key, ms) in [
            ("step.forward_ms", self.step.forward_ms),
            ("step.backward_ms", self.step.backward_ms),
            ("step.optimizer_ms", self.step.optimizer_ms),
        ] {
            within(key, ms, 0.0, MOST_STEP_MS)?;
        }
        let in_host_memory = |name: &String| back_ends::named(name).memory() == MemoryKind::Host;
        self.host.check(axes.transport.iter().any(in_host_memory))?;
        for (axes, table) in parts.iter().zip(self.tables()) {
            for &ms in &axes.cycle_time_ms {
                within(&format!("{table}.cycle_time_ms"), ms, 0.0, MOST_CYCLE_TIME_MS)?;
            }
            let most_mib = MOST_FUSION_THRESHOLD_BYTES as f64 / MIB;
            for &mib in &axes.fusion_threshold_mib {
                within(&format!("{table}.fusion_threshold_mib"), mib, 0.0, most_mib)?;
            }
        }
        self.step.check_scaling()?;
        at_least_1("sweep.groups", axes.groups)?;
        self.measure.check()?;
        parts.iter().try_for_each(|axes| self.check_repeated(axes))
    }
}

impl Config {
    /// The names of the tables of [`Self::parts`].
    fn tables(&self) -> impl Iterator<Item = &'static str> {
        ["sweep"].into_iter().chain(["also"].into_iter().cycle())
    }

    /// No value is given twice.
    fn check_repeated(&self, axes: &Axes) -> Result<(), Invalid> {
        let mut names: Vec<_> = self.combinations(axes).iter().map(Case::to_string).collect();
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                let twice = Invalid::value(format!("case {}", pair[0]), "given twice", "once");
                Err(twice.with_advice("remove the repeated value"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
workload = "resnet50"
[step]
backward_ms = 20
[sweep]
topology = ["2x2"]
control_plane = ["coordinator", "bitvector"]
algorithm = ["ring", "hierarchical:ring"]
fusion_threshold_mib = [0, 0.5, 64]
cycle_time_ms = [1, 2.5]
"#;

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.toml");
        std::fs::write(&path, text).unwrap();
        let strip = format!("{}/", folder.path().display());
        Config::read(&path).map_err(|error| error.to_string().replace(&strip, ""))
    }

    #[test]
    fn every_combination_is_a_case() {
        let cases = read(GOOD).unwrap().cases();
        assert_eq!(cases.len(), 2 * 2 * 3 * 2);
        let names: Vec<_> = cases.iter().map(Case::to_string).collect();
        assert_eq!(names[0], "threads/2x2/coordinator/ring/0MiB/1ms");
        assert_eq!(names[9], "threads/2x2/coordinator/hierarchical/0.5MiB/2.5ms");
    }

    const ALSO: &str = r#"
[[also]]
control_plane = ["bitvector"]
algorithm = ["tree", "ring"]
fusion_threshold_mib = [64]
[[also]]
cycle_time_ms = [5]
fusion_threshold_mib = [128]
"#;

    /// A table of other cases has the values of `[sweep]` for what it does not name; a case of two tables is one.
    #[test]
    fn cases_beside_the_sweep_come_after_it_and_once() {
        let cases = read(&format!("{GOOD}{ALSO}")).unwrap().cases();
        let names: Vec<_> = cases.iter().map(Case::to_string).collect();
        assert_eq!(names.len(), 24 + 2 + 4);
        assert_eq!(
            names[24..27],
            [
                "threads/2x2/bitvector/tree/64MiB/1ms",
                "threads/2x2/bitvector/tree/64MiB/2.5ms",
                "threads/2x2/coordinator/ring/128MiB/5ms",
            ]
        );
    }

    #[test]
    fn a_library_is_the_transports_own() {
        let text = GOOD.replace("\"hierarchical:ring\"", "\"library\"");
        let algorithms = |transport: &str| {
            let text = text.replace("[sweep]", &format!("[sweep]\ntransport = [\"{transport}\"]"));
            let mut names: Vec<String> =
                read(&text).unwrap().cases().into_iter().map(|case| case.algorithm).collect();
            names.dedup();
            names.truncate(2);
            names
        };
        for transport in ["threads", "cuda"] {
            assert_eq!(algorithms(transport), ["ring"]);
        }
        assert_eq!(algorithms("mpi"), ["ring", "mpi-allreduce"]);
        assert_eq!(algorithms("nccl"), ["ring", "nccl-allreduce"]);
    }

    /// The same work for all ranks together: passes are shorter where there are more of them, the optimizer is not.
    #[test]
    fn strong_scaling_shortens_the_passes() {
        let text =
            GOOD.replace("topology = [\"2x2\"]", "nodes = [4, 1, 2]\nranks_per_node = 2").replace(
                "backward_ms = 20",
                "backward_ms = 20\noptimizer_ms = 3\nscaling = \"strong\"",
            );
        let config = read(&text).unwrap();
        let cases = config.cases();
        assert_eq!(cases[0].to_string(), "threads/4x2/coordinator/ring/0MiB/1ms/strong");
        let times = |name: &str| {
            let times = config.times_on(&name.parse().unwrap());
            (times.backward.as_millis(), times.optimizer.as_millis())
        };
        assert_eq!([times("1x2"), times("2x2"), times("4x2")], [(20, 3), (10, 3), (5, 3)]);
        let weak = read(&text.replace("strong", "weak")).unwrap();
        assert_eq!(weak.times_on(&"4x2".parse().unwrap()), weak.times());
    }

    #[test]
    fn the_timeout_is_read_under_its_old_name_too() {
        for key in ["timeout_seconds", "patience_seconds"] {
            let text = format!("{GOOD}\n[measure]\n{key} = 7");
            assert_eq!(read(&text).unwrap().measure.timeout_seconds, 7.0);
        }
    }

    #[test]
    fn mistakes_are_named_with_file_key_and_choices() {
        for (from, to, expected) in [
            (
                "\"ring\", ",
                "\"rign\", ",
                "test.toml: sweep.algorithm: algorithm \"rign\" is unknown; did you mean ring?",
            ),
            (
                "cycle_time_ms",
                "cycle_ms",
                "test.toml: line 10: unknown field `cycle_ms`, expected one of",
            ),
            ("backward_ms = 20", "", "test.toml: line 3: missing field `backward_ms`"),
            (
                "\"coordinator\"",
                "\"boss\"",
                "test.toml: sweep.control_plane is \"boss\", expected one of coordinator, \
                 tree, point-to-point, bitvector, ddp, packs",
            ),
            ("2x2", "two", "test.toml: sweep.topology: \"two\" is not a topology; write nodes x"),
            ("[1, 2.5]", "[1, -1]", "test.toml: sweep.cycle_time_ms is -1, expected 0 to 10000"),
            (
                "[1, 2.5]",
                "[]",
                "test.toml: sweep.cycle_time_ms is empty, expected at least one value",
            ),
            (
                "topology = [\"2x2\"]",
                "",
                "test.toml: sweep.topology is empty, expected at least one value; or give sweep.nodes",
            ),
            (
                "topology = [\"2x2\"]",
                "nodes = \"power\"",
                "test.toml: line 6: invalid value: string \"power\", expected \"powers\" or a list of numbers of \
                 nodes",
            ),
            (
                "topology = [\"2x2\"]",
                "nodes = 4",
                "test.toml: line 6: invalid type: integer `4`, expected \"powers\" or a list of numbers of nodes",
            ),
            (
                "topology = [\"2x2\"]",
                "nodes = [2, 0]",
                "test.toml: sweep.nodes is 0, expected 1 to 4096",
            ),
            (
                "topology = [\"2x2\"]",
                "nodes = []",
                "test.toml: sweep.nodes is empty, expected at least one value",
            ),
            (
                "topology = [\"2x2\"]",
                "nodes = [2, 1, 2]\nranks_per_node = 1",
                "test.toml: case threads/2x1/bitvector/hierarchical/0.5MiB/1ms is given twice",
            ),
            (
                "topology",
                "nodes = \"powers\"\ntopology",
                "test.toml: sweep.nodes is given beside sweep.topology, expected one of them; leave one out",
            ),
            (
                "topology",
                "ranks_per_node = 2\ntopology",
                "test.toml: sweep.ranks_per_node is 2, expected none with sweep.topology; it belongs to sweep.nodes",
            ),
            (
                "backward_ms = 20",
                "backward_ms = 0\nscaling = \"strong\"",
                "test.toml: step.scaling is \"strong\", expected a computation that can shrink; give step.forward_ms",
            ),
            (
                "cycle_time_ms = [1, 2.5]",
                "[[also]]\ntopology = [\"2x1\"]",
                "test.toml: line 11: unknown field `topology`, expected one of `control_plane`, `algorithm`",
            ),
            (
                "cycle_time_ms = [1, 2.5]",
                "[[also]]",
                "test.toml: also is empty, expected another list of control planes, algorithms, thresholds or cycle",
            ),
            (
                "cycle_time_ms = [1, 2.5]",
                "[[also]]\nalgorithm = [\"rign\"]",
                "test.toml: also.algorithm: algorithm \"rign\" is unknown; did you mean ring?",
            ),
            (
                "cycle_time_ms = [1, 2.5]",
                "[[also]]\nfusion_threshold_mib = [4, 4]",
                "test.toml: case threads/2x2/bitvector/hierarchical/4MiB/1ms is given twice, expected once; remove",
            ),
            (
                "\"hierarchical:ring\"",
                "\"ring\"",
                "test.toml: case threads/2x2/bitvector/ring/0.5MiB/1ms is given twice, expected once; remove",
            ),
            (
                "[sweep]",
                "[data]\ndtype = \"i32\"\n[sweep]",
                "test.toml: data.op: average of i32 would have to round; use sum",
            ),
            (
                "[sweep]",
                "[framework]\ncompression = \"fp8\"\n[sweep]",
                "test.toml: line 6: unknown variant `fp8`, expected one of `none`, `fp16`, `bf16`",
            ),
            (
                "[sweep]",
                "[framework]\nbackward_passes_per_step = 0\n[sweep]",
                "test.toml: framework.backward_passes_per_step is 0, expected 1 to 65536",
            ),
            (
                "[sweep]",
                "[measure]\nblocks_max = 1\n[sweep]",
                "test.toml: measure.blocks_max is 1, expected at least blocks_min (2)",
            ),
            (
                "[sweep]",
                "[host]\nadd_mb_us = -1\n[sweep]",
                "test.toml: host.add_mb_us is -1, expected 0 to 1000000",
            ),
            (
                "[sweep]",
                "[host]\nlaunch_gradient_us = 5\n[sweep]",
                "test.toml: host.launch_gradient_us is 5, expected 0, or only transports cuda and nccl: without a device",
            ),
            (
                "[sweep]",
                "[host]\nframework_mib = -1\n[sweep]",
                "test.toml: host.framework_mib is -1, expected 0 to 65536",
            ),
            (
                "[sweep]",
                "[measure]\nbudget_seconds = 0\n[sweep]",
                "test.toml: measure.budget_seconds is 0, expected more; to measure as little as possible",
            ),
            (
                "[sweep]",
                "[measure]\nseed = \"x\"\n[sweep]",
                "test.toml: line 6: invalid type: string \"x\", expected a whole number from 0",
            ),
            (
                "[0, 0.5, 64]",
                "[\"4MiB\"]",
                "test.toml: line 9: invalid type: string \"4MiB\", expected a number",
            ),
            (
                "[sweep]",
                "[measure]\nstall_check = 1\n[sweep]",
                "test.toml: line 6: invalid type: integer `1`, expected true or false",
            ),
            (
                "[\"2x2\"]",
                "\"2x2\"",
                "test.toml: line 6: invalid type: string \"2x2\", expected a list",
            ),
            (
                "[sweep]",
                "[measure]\nsteps_per_block = -1\n[sweep]",
                "test.toml: line 6: invalid value: integer `-1`, expected a whole number from 0",
            ),
        ] {
            let error = read(&GOOD.replace(from, to)).unwrap_err();
            assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        }
    }
}
