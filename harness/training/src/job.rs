//! One training job, as described to all its ranks.

use std::sync::Arc;
use std::time::Duration;

use algorithms::control::{
    self, ControlPlane, DataType, ReduceOp, Settings, StallCheck, Tensor, TensorId, Tensors,
};
use algorithms::fusion::Groups;
use algorithms::topology::{Rank, Topology};
use transports::allreduce::Sizes;
use transports::data_plane::DataPlane;
use transports::pattern::Pattern;
use workloads::framework::Framework;
use workloads::replay::StepTimes;
use workloads::workload::Workload;

use crate::fault::Fault;
use crate::negotiate::NegotiateError;
use crate::timeline::record::Recorder;

/// One training job.
pub struct Job<'a> {
    /// Gradients.
    pub workload: &'a Workload,
    /// Lengths of the parts of a step.
    pub times: StepTimes,
    /// Ranks on nodes.
    pub topology: &'a Topology,
    /// Element type of the gradients.
    pub dtype: DataType,
    /// How they are combined.
    pub op: ReduceOp,
    /// How messages are reduced.
    pub data_plane: &'a DataPlane,
    /// The framework's options.
    pub framework: &'a Framework,
    /// Gradients that are handed over as a unit; the others are by themselves.
    pub groups: &'a [Vec<TensorId>],
    /// Groups are not fused with one another, nor with other gradients (`HOROVOD_DISABLE_GROUP_FUSION`).
    pub disable_group_fusion: bool,
    /// Control plane, one of [`control::NAMES`].
    pub control_plane: &'a str,
    /// Whether to check for gradients that are stalled.
    pub stall_check: Option<StallCheck>,
    /// Effective fusion threshold, see [`algorithms::fusion::effective_threshold_bytes`].
    pub fusion_threshold_bytes: usize,
    /// Deadline from the beginning of one cycle to that of the next.
    pub cycle_time: Duration,
    /// Responses that the bit-vector plane remembers.
    pub cache_capacity: usize,
    /// How large messages are cut.
    pub sizes: Sizes,
    /// The timeout for waiting on another rank.
    pub timeout: Duration,
    /// Steps to run; the data of the last one are checked.
    pub steps: usize,
    /// Seed of the data.
    pub seed: u64,
    /// Records events for a timeline, if there is one.
    pub recorder: Option<&'a Recorder>,
    /// An injected fault, in tests.
    pub fault: Option<Fault>,
}

impl Job<'_> {
    /// The type in which gradients travel.
    pub fn wire(&self) -> DataType {
        self.framework.wire(self.dtype)
    }

    /// The tensors that a rank registers.
    ///
    /// # Errors
    /// When gradients have the same name.
    pub fn tensors(&self, rank: Rank) -> Result<Tensors, NegotiateError> {
        let mut list: Vec<Tensor> = self.framework.tensors(self.workload, self.dtype, self.op);
        match self.fault {
            Some(Fault::Mismatch { rank: who, gradient }) if who == rank => {
                list[gradient].shape.push(1);
            }
            _ => {}
        }
        Ok(Tensors::new(list)?)
    }

    /// A rank's control plane.
    pub(crate) fn plane(&self, rank: Rank, tensors: Arc<Tensors>) -> Box<dyn ControlPlane> {
        let plane = control::find(self.control_plane, tensors, &self.settings(rank));
        plane.expect("the configuration was checked")
    }

    /// Whether cycles negotiate between all ranks; with static buckets each rank has its own cycles.
    ///
    /// # Errors
    /// When gradients cannot be registered.
    pub fn negotiates(&self) -> Result<bool, NegotiateError> {
        Ok(self.plane(0, Arc::new(self.tensors(0)?)).is_paced())
    }

    /// The settings of a rank's control plane.
    fn settings(&self, rank: Rank) -> Settings {
        let groups = self.disable_group_fusion.then(|| Groups::new(self.groups.to_vec()).into());
        Settings {
            fusion_threshold_bytes: self.fusion_threshold_bytes,
            cache_capacity: self.cache_capacity,
            groups,
            stall_check: self.stall_check,
            ..Settings::new(rank, self.topology.ranks())
        }
    }
}

/// Verifiable data for a job's gradients, with the effect of the framework's options.
pub fn pattern(
    framework: &Framework,
    ranks: usize,
    dtype: DataType,
    op: ReduceOp,
    seed: u64,
) -> Pattern {
    let wire = framework.wire(dtype);
    Pattern {
        passes: framework.backward_passes_per_step,
        average_passes: framework.average_aggregated_gradients,
        wire: (wire != dtype).then_some(wire),
        ..Pattern::of(ranks, framework.reduction(op), seed)
    }
}
