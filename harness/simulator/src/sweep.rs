//! Runs a simulated sweep: every case of a configuration, on all cores; results do not depend on their number.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use algorithms::control::{ControlError, DataType, ReduceOp, Settings, TensorId, Tensors};
use algorithms::fusion;
use rayon::prelude::*;
use thiserror::Error;

use super::config::{Case, Config, Model, Simulate};
use super::data_plane::{DataPlane, DataPlaneError};
use super::jitter::Jitter;
use super::machine_file::MachineFile;
use super::policy::Policy;
use super::training::{self, Compute, Drive, Interference, Job, Step, TrainingError};
use results::provenance::Subject;
use results::toml_file::{Checked, ConfigError};
use results::units::MIB;
use workloads::framework::Framework;
use workloads::groups::GroupsError;
use workloads::workload::workload_path;
use workloads::workload::{Workload, WorkloadError};

/// The plan of a configuration.
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// Its machine.
    pub machine: MachineFile,
    /// How ranks differ: the configuration's jitter, or else the machine's, with its interruptions.
    pub jitter: Jitter,
    /// The workload of each model, in order.
    pub workloads: Vec<Workload>,
}

/// The result of one case: the measured steps of each seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// For each seed.
    pub steps: Vec<Vec<Step>>,
    /// With the first seed, with all parameters at the slower end of their ranges, and at the faster end; empty unless
    /// `simulate.vary_parameters`.
    pub at_ends: Vec<Vec<Step>>,
    /// The engine that simulated the messages.
    pub engine: &'static str,
    /// Which state machines ran.
    pub drive: Drive,
}

/// Why a plan cannot be made.
#[derive(Debug, Error)]
#[error(transparent)]
pub enum PlanError {
    /// The machine file.
    Machine(#[from] ConfigError),
    /// A workload.
    Workload(#[from] WorkloadError),
}

/// Data planes by name, segment and ranks, each created once.
type DataPlanes = BTreeMap<(String, u64, usize), Result<DataPlane, DataPlaneError>>;

/// Why a case cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The machine has no data plane of that name.
    #[error(transparent)]
    DataPlane(#[from] DataPlaneError),
    /// The machine file has no parameters of control planes.
    #[error(
        "machine {machine} has no [control], so the cost of negotiations is unknown; add it, or run \
         `kolo calibrate`"
    )]
    NoControl {
        /// The machine.
        machine: String,
    },
    /// Two gradients have one name.
    #[error(transparent)]
    Tensors(#[from] ControlError),
    /// The gradients cannot be split into groups.
    #[error("groups: {0}")]
    Groups(#[from] GroupsError),
    /// The training steps cannot be simulated.
    #[error(transparent)]
    Training(#[from] TrainingError),
}

impl Plan {
    /// Reads machine and workloads of a configuration at `path`.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn new(config: Config, path: &Path) -> Result<Plan, PlanError> {
        let machine = MachineFile::read(&MachineFile::path(&config.simulate.machine, path))?;
        let read = |model: &Model| Workload::read(&workload_path(&model.workload, path));
        let workloads = config.model.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Plan::of(config, machine, workloads))
    }

    /// With a machine and workloads that have been read.
    pub fn of(config: Config, machine: MachineFile, workloads: Vec<Workload>) -> Plan {
        let mut jitter = config.jitter.clone();
        if jitter.cv.is_none() {
            let control = machine.control.as_ref();
            let measured = control.and_then(|control| control.compute_cv.as_ref());
            jitter.cv = measured.map(|cv| cv.value);
            if let Some(variability) = &machine.variability {
                jitter.cv = Some(variability.step_cv.value);
                jitter.gpu_factors = variability.gpu_factors.clone();
                let correlation = variability.step_correlation.as_ref();
                jitter.step_correlation = correlation.map_or(0.0, |it| it.value);
            }
            jitter.interruptions = machine.interruptions();
        }
        Plan { config, machine, jitter, workloads }
    }

    /// Every case with its result, in the order of the configuration.
    pub fn run(&self, progress: impl Fn() + Sync) -> Vec<(Case<'_>, Result<Simulated, CaseError>)> {
        let data = self.data_planes();
        let ends = self.at_ends();
        let ends: Vec<_> = ends.iter().map(|plan| (plan, plan.data_planes())).collect();
        let cases = self.config.cases();
        let simulate = |case: &Case| {
            let mut simulated = self.simulate(case, &data)?;
            for (plan, data) in &ends {
                simulated.at_ends.extend(plan.simulate(case, data)?.steps);
            }
            Ok(simulated)
        };
        let run = |case: &Case| {
            let simulated = simulate(case);
            progress();
            simulated
        };
        // Spreads cases that share simulated messages.
        let results: Vec<_> = cases.par_iter().with_max_len(1).map(run).collect();
        cases.into_iter().zip(results).collect()
    }

    /// The same with one seed, on a machine with every parameter at the slower end of its range, and on one with all of them
    /// at the faster end; none unless the configuration varies parameters.
    fn at_ends(&self) -> Vec<Plan> {
        let Plan { config, machine, workloads, .. } = self;
        let ends: &[bool] = if config.simulate.vary_parameters { &[true, false] } else { &[] };
        let simulate = Simulate { seeds: 1, ..config.simulate.clone() };
        let config = Config { simulate, ..config.clone() };
        let of = |&slow| Plan::of(config.clone(), machine.at_ends(slow), workloads.clone());
        ends.iter().map(of).collect()
    }

    fn data_planes(&self) -> DataPlanes {
        let mut planes = DataPlanes::new();
        for Case { policy, ranks, .. } in self.config.cases() {
            let segment_bytes = policy.segment_bytes();
            planes.entry(key(policy, ranks)).or_insert_with(|| {
                let engine = self.config.simulate.engine;
                DataPlane::new(&policy.data_plane, &self.machine, ranks, segment_bytes, engine)
            });
        }
        planes
    }

    fn simulate(&self, case: &Case, data: &DataPlanes) -> Result<Simulated, CaseError> {
        let simulate = &self.config.simulate;
        let data = data[&key(case.policy, case.ranks)].as_ref().map_err(Clone::clone)?;
        let drive =
            if case.ranks <= simulate.drive_all_up_to { Drive::All } else { Drive::Classes };
        let mut all = Vec::new();
        for seed in simulate.seed..simulate.seed + simulate.seeds as u64 {
            let job = self.job(case, data, seed, drive)?;
            let steps = training::simulate(&job, simulate.warmup_steps + simulate.steps)?;
            all.push(steps[simulate.warmup_steps..].to_vec());
        }
        Ok(Simulated { steps: all, at_ends: Vec::new(), engine: data.engine(), drive })
    }

    /// The gradients of a model of this configuration.
    ///
    /// # Panics
    /// When the plan has no such model.
    pub fn workload(&self, model: &Model) -> &Workload {
        let place = self.config.model.iter().position(|other| other == model);
        &self.workloads[place.expect("a model of this configuration")]
    }

    /// The job of a case with one seed.
    ///
    /// # Errors
    /// When groups name unknown gradients, or the machine has no control parameters.
    pub fn job<'j>(
        &'j self,
        case: &Case<'j>,
        data: &'j DataPlane,
        seed: u64,
        drive: Drive,
    ) -> Result<Job<'j>, CaseError> {
        let Case { model, policy, ranks } = *case;
        let workload = self.workload(model);
        let missing = || CaseError::NoControl { machine: self.machine.name.clone() };
        let control = self.machine.control.as_ref().ok_or_else(missing)?;
        let framework = Framework { compression: model.compression, ..Framework::default() };
        let tensors = framework.tensors(workload, DataType::F32, ReduceOp::Average);
        let tensors = Arc::new(Tensors::new(tensors)?);
        let groups = policy.groups.as_ref().map_or(Ok(Vec::new()), |groups| groups.of(workload))?;
        let ready = ready(workload, &groups);
        let fusion_groups = policy.disable_group_fusion.then(|| fusion::Groups::new(groups).into());
        let imbalance = data.imbalance((0..tensors.len()).map(|id| tensors.size_bytes(id)));
        Ok(Job {
            tensors,
            imbalance,
            ready,
            compute: Compute {
                forward_s: model.forward_ms * 1e-3,
                backward_s: model.backward_ms * 1e-3,
                optimizer_s: model.optimizer_ms * 1e-3,
                passes: policy.backward_passes_per_step,
            },
            plane: &policy.control_plane,
            settings: Settings {
                fusion_threshold_bytes: policy.fusion_threshold_bytes(),
                cache_capacity: policy.cache_capacity,
                groups: fusion_groups,
                stall_check: None,
                ..Settings::new(0, 1)
            },
            cycle_s: policy.cycle_time_ms * 1e-3,
            ranks,
            control,
            data,
            partition_bytes: bytes_or_whole(policy.partition_mib),
            packing_bytes: bytes_or_whole(policy.packing_mib),
            overlap: policy.overlap(),
            needed: policy.priority.then(|| needed(workload)),
            blocking: policy.blocking,
            launch_gradient_s: policy.launch_gradient_us.map(|launch_us| launch_us * 1e-6),
            interference: match policy.slowdown {
                Some(slowdown) => Interference { fixed: slowdown - 1.0, ..Interference::default() },
                None => self.machine.interference(),
            },
            congestion: self.machine.congestion(ranks),
            input_s: self.machine.input_s(ranks, model.batch * policy.backward_passes_per_step),
            jitter: &self.jitter,
            seed,
            drive,
        })
    }
}

/// 0 stands for whole messages.
fn bytes_or_whole(mib: f64) -> f64 {
    if mib > 0.0 { mib * MIB } else { f64::INFINITY }
}

impl Subject for Plan {
    fn config(&self) -> serde_json::Value {
        let plain = |value| serde_json::to_value(value).expect("a configuration is plain data");
        let machine = serde_json::to_value(&self.machine).expect("a machine file is plain data");
        let mut config = plain(&self.config);
        config["machine_file"] = machine;
        config
    }

    fn seed(&self) -> u64 {
        self.config.simulate.seed
    }

    fn workload_digest(&self) -> String {
        self.workloads.iter().map(Workload::digest).collect::<Vec<_>>().join(" ")
    }
}

fn key(policy: &Policy, ranks: usize) -> (String, u64, usize) {
    (policy.data_plane.clone(), policy.segment_kib.to_bits(), ranks)
}

/// The part of the forward pass at which each gradient's layer begins: the backward pass in reverse.
fn needed(workload: &Workload) -> Vec<f64> {
    workload.gradients.iter().map(|gradient| 1.0 - gradient.ready_fraction).collect()
}

/// When each gradient is handed over: a group with its last one.
pub fn ready(workload: &Workload, groups: &[Vec<TensorId>]) -> Vec<(TensorId, f64)> {
    let of = |id: TensorId| workload.gradients[id].ready_fraction;
    let mut fractions: Vec<f64> = (0..workload.gradients.len()).map(of).collect();
    for group in groups {
        let last = group.iter().map(|&id| of(id)).fold(0.0, f64::max);
        group.iter().for_each(|&id| fractions[id] = last);
    }
    let mut ready: Vec<(TensorId, f64)> =
        workload.ready_order.iter().map(|&id| (id, fractions[id])).collect();
    ready.sort_by(|a, b| a.1.total_cmp(&b.1));
    ready
}
