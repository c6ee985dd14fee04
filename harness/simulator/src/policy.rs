//! A policy of a simulated sweep: how gradients are reduced.

use algorithms::control::buckets::{DDP, PACKS};
use serde::{Deserialize, Serialize};

use super::data_plane::{self, Overlap};
use results::toml_file::{Invalid, control_plane, within};
use results::units::MIB;
use workloads::groups::Groups;

/// A way to reduce gradients: Horovod in one version or setting, or another library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// As in rows and legends.
    pub name: String,
    /// Control plane.
    pub control_plane: String,
    /// Data plane: `nccl`, an algorithm, or `server-nodes`: servers on additional nodes.
    #[serde(default = "default_data_plane")]
    pub data_plane: String,
    /// Least time between the beginnings of two cycles.
    #[serde(default = "default_cycle_time_ms")]
    pub cycle_time_ms: f64,
    /// Size of fused messages in MiB; 0 turns fusion off.
    #[serde(default = "default_threshold_mib")]
    pub fusion_threshold_mib: f64,
    /// Responses that the bit-vector plane remembers.
    #[serde(default = "default_capacity")]
    pub cache_capacity: usize,
    /// Gradients that are handed over as a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// Groups are not fused with one another, nor with other gradients.
    #[serde(default)]
    pub disable_group_fusion: bool,
    /// Forward and backward passes whose gradients are accumulated before the reduction.
    #[serde(default = "one")]
    pub backward_passes_per_step: usize,
    /// KiB of the segments in which messages of this project's algorithms are pipelined; 0: no pipelining.
    #[serde(default)]
    pub segment_kib: f64,
    /// MiB of the pieces into which messages are split, one allreduce each; 0: whole messages.
    #[serde(default)]
    pub partition_mib: f64,
    /// MiB of the blocks in which messages of several tensors are packed, reduced and unpacked one after the other; 0: whole
    /// messages.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub packing_mib: f64,
    /// The latency of one message passes while the next ones travel, as with many messages in flight.
    #[serde(default)]
    pub overlap_latency: bool,
    /// The stages of the data plane overlap, too: one message crosses a node while another crosses the network.
    /// For this project's schedules.
    #[serde(default)]
    pub overlap_stages: bool,
    /// Messages are sent in the order in which the next forward pass needs them, and each of its layers waits only
    /// for its own gradients; without it, for all. Needs a control plane without negotiation.
    #[serde(default)]
    pub priority: bool,
    /// A cycle does not end before its messages are over, as with data on CPUs.
    #[serde(default)]
    pub blocking: bool,
    /// What the host of a framework that runs ahead of the GPU needs to launch the kernels of one gradient in a backward
    /// pass; half as much in a forward pass. Gradients are handed over then, and the background thread waits until they
    /// are computed. Needs a control plane that negotiates. Default: gradients are handed over when they are computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_gradient_us: Option<f64>,
    /// Computation takes longer by this factor while a message is under way. Default: as in the machine file, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
    /// The system that it models, and its assumptions.
    pub about: String,
}

fn default_data_plane() -> String {
    data_plane::NCCL.into()
}

fn default_cycle_time_ms() -> f64 {
    1.0
}

fn default_threshold_mib() -> f64 {
    128.0
}

fn default_capacity() -> usize {
    1024
}

fn one() -> usize {
    1
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Policy {
    /// A control plane and a data plane, with the defaults of every other key.
    pub fn new(name: &str, control_plane: &str, data_plane: &str) -> Policy {
        Policy {
            name: name.into(),
            control_plane: control_plane.into(),
            data_plane: data_plane.into(),
            cycle_time_ms: default_cycle_time_ms(),
            fusion_threshold_mib: default_threshold_mib(),
            cache_capacity: default_capacity(),
            groups: None,
            disable_group_fusion: false,
            backward_passes_per_step: 1,
            segment_kib: 0.0,
            partition_mib: 0.0,
            packing_mib: 0.0,
            overlap_latency: false,
            overlap_stages: false,
            priority: false,
            blocking: false,
            launch_gradient_us: None,
            slowdown: None,
            about: String::new(),
        }
    }

    /// Fusion threshold.
    pub fn fusion_threshold_bytes(&self) -> usize {
        (self.fusion_threshold_mib * MIB).round() as usize
    }

    /// Length of segments, as configured.
    pub fn segment_bytes(&self) -> f64 {
        self.segment_kib * 1024.0
    }

    /// Length of blocks that are packed at a time, as configured.
    pub fn packing_bytes(&self) -> f64 {
        self.packing_mib * MIB
    }

    /// The parts of a message that overlap with other messages in flight.
    pub fn overlap(&self) -> Overlap {
        match (self.overlap_stages, self.overlap_latency) {
            (true, _) => Overlap::Stages,
            (false, true) => Overlap::Latency,
            (false, false) => Overlap::Nothing,
        }
    }

    /// Checks combinations of values.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_keys().map_err(|problem| problem.below(&format!("policy \"{}\": ", self.name)))
    }

    fn check_keys(&self) -> Result<(), Invalid> {
        control_plane("control_plane", &self.control_plane)?;
        data_plane::check_name(&self.data_plane)
            .map_err(|cause| Invalid::because("data_plane", cause))?;
        within("cycle_time_ms", self.cycle_time_ms, 0.0, 1e4)?;
        within("fusion_threshold_mib", self.fusion_threshold_mib, 0.0, 1e6)?;
        within("segment_kib", self.segment_kib, 0.0, 1e9)?;
        within("partition_mib", self.partition_mib, 0.0, 1e6)?;
        within("packing_mib", self.packing_mib, 0.0, 1e6)?;
        self.slowdown.iter().try_for_each(|&factor| within("slowdown", factor, 1.0, 10.0))?;
        let launch_us = self.launch_gradient_us;
        launch_us.iter().try_for_each(|&us| within("launch_gradient_us", us, 0.01, 1e6))?;
        let passes = self.backward_passes_per_step as f64;
        within("backward_passes_per_step", passes, 1.0, 65536.0)?;
        let plane = self.control_plane.split(':').next().unwrap_or_default();
        if self.priority && ![DDP, PACKS].contains(&plane) {
            let expected = format!("false for control plane \"{plane}\"");
            let advice =
                format!("only {DDP} and {PACKS}, which do not negotiate, support priorities");
            return Err(Invalid::value("priority", true, expected).with_advice(advice));
        }
        if let (Some(launch_us), true) = (launch_us, [DDP, PACKS].contains(&plane)) {
            let expected =
                format!("no such key for control plane \"{plane}\", which does not negotiate");
            return Err(Invalid::value("launch_gradient_us", launch_us, expected));
        }
        match &self.groups {
            Some(groups) => groups.check().map_err(|cause| Invalid::because("groups", cause)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that a file leaves out have the constructor's values.
    #[test]
    fn defaults_are_the_same_in_files_and_in_code() {
        let text = "name = \"a\"\ncontrol_plane = \"ddp\"\nabout = \"\"\n";
        let read: Policy = toml::from_str(text).unwrap();
        assert_eq!(read, Policy::new("a", "ddp", data_plane::NCCL));
        read.check().unwrap();
    }

    #[test]
    fn priorities_need_a_plane_without_negotiation() {
        let policy = |plane: &str| Policy { priority: true, ..Policy::new("a", plane, "ring") };
        policy("ddp:1").check().unwrap();
        assert_eq!(
            policy("tree:4").check().unwrap_err().to_string(),
            "policy \"a\": priority is true, expected false for control plane \"tree\"; only ddp and \
             packs, which do not negotiate, support priorities"
        );
    }
}
