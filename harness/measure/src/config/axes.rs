//! The axes of a sweep.

use algorithms::grouped::DEFAULT_GROUPS;
use serde::{Deserialize, Serialize};

use super::case::Varied;
use super::nodes::Nodes;
use crate::back_ends;
use crate::environment::Environment;
use results::units::MIB;
use transports::allreduce::PACKING_BYTES;
use workloads::framework::Compression;

/// The axes of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axes {
    /// Transports.
    #[serde(default = "default_transports")]
    pub transport: Vec<String>,
    /// Nodes x ranks per node (`2x4`), or the ranks of each node (`3+1`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology: Vec<String>,
    /// In place of topologies: numbers of nodes with as many ranks each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// Ranks of each of `nodes`; none: as the allocation has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<usize>,
    /// Control planes.
    pub control_plane: Vec<String>,
    /// Data planes.
    pub algorithm: Vec<String>,
    /// Fusion thresholds in MiB; 0 turns fusion off.
    #[serde(default = "default_thresholds")]
    pub fusion_threshold_mib: Vec<f64>,
    /// Cycle times in ms.
    #[serde(default = "default_cycle_times")]
    pub cycle_time_ms: Vec<f64>,
    /// Number of groups into which grouped algorithms split the gradients, unless `framework.groups` defines the
    /// groups.
    #[serde(default = "default_groups")]
    pub groups: usize,
    /// Responses that the bit-vector plane remembers.
    #[serde(default = "default_capacity")]
    pub cache_capacity: usize,
    /// Types to which gradients are cast; overrides `framework`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compression: Vec<Compression>,
    /// Numbers of groups in which gradients are handed over; overrides `framework`. 0: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub num_groups: Vec<usize>,
    /// Groups are not fused with one another, nor with other gradients.
    #[serde(default)]
    pub disable_group_fusion: bool,
    /// KiB of the segments in which large messages are pipelined; 0: no pipelining. Unless given, the transport's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_kib: Option<usize>,
    /// KiB of several gradients that are packed, reduced and unpacked at a time; 0: whole messages, as in Horovod.
    #[serde(default = "default_packing")]
    pub packing_kib: usize,
}

impl Axes {
    /// Every combination of options of the framework.
    pub(super) fn varied(&self) -> Vec<Varied> {
        let compressions: Vec<Option<Compression>> = if self.compression.is_empty() {
            vec![None]
        } else {
            self.compression.iter().copied().map(Some).collect()
        };
        let groups: Vec<Option<usize>> = if self.num_groups.is_empty() {
            vec![None]
        } else {
            self.num_groups.iter().copied().map(Some).collect()
        };
        let of =
            |compression| groups.iter().map(move |&num_groups| Varied { compression, num_groups });
        compressions.into_iter().flat_map(of).collect()
    }
}

impl Default for Axes {
    /// No case; Horovod's defaults for axes that are not given.
    fn default() -> Axes {
        Axes {
            transport: default_transports(),
            topology: Vec::new(),
            nodes: None,
            ranks_per_node: None,
            control_plane: Vec::new(),
            algorithm: Vec::new(),
            fusion_threshold_mib: default_thresholds(),
            cycle_time_ms: default_cycle_times(),
            groups: default_groups(),
            cache_capacity: default_capacity(),
            compression: Vec::new(),
            num_groups: Vec::new(),
            disable_group_fusion: false,
            segment_kib: None,
            packing_kib: default_packing(),
        }
    }
}

fn default_transports() -> Vec<String> {
    vec![back_ends::default().name().into()]
}

fn default_groups() -> usize {
    DEFAULT_GROUPS
}

fn default_thresholds() -> Vec<f64> {
    vec![Environment::default().fusion_threshold_bytes.value as f64 / MIB]
}

fn default_cycle_times() -> Vec<f64> {
    vec![Environment::default().cycle_time_ms.value]
}

fn default_capacity() -> usize {
    Environment::default().cache_capacity.value
}

fn default_packing() -> usize {
    PACKING_BYTES / 1024
}
