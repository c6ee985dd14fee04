//! Blocks that this process carries out alone: a thread for each rank, and GPUs where ranks train on them.

use super::{BlockExecutor, Ended, ExecutorError, Order};
use crate::plan::{Placement, Plan};
use gpu::cuda::driver::Driver;
use gpu::cuda::inventory;
use gpu::cuda::streams::Streams;
use gpu::cuda::{self, CudaError};
use gpu::trainer::{self, Devices};
use results::provenance::Launch;
use training::engine::{self, RankMemory};

/// Ranks of this process.
#[derive(Default)]
pub struct Local {
    /// Of as many ranks as the largest case had so far.
    memories: Vec<RankMemory>,
    /// If a case needs them.
    gpus: Option<Devices<Driver>>,
}

impl Local {
    /// Takes this machine's GPUs for the cases of transport `cuda`; without GPUs those are left, with the
    /// reason, and what does not fit on them is unsupported.
    ///
    /// # Errors
    /// The reason, if there is no other case.
    pub fn on_gpus(plan: &mut Plan, launch: &mut Launch) -> Result<Local, ExecutorError> {
        let devices = match Driver::open() {
            Ok(driver) => Some(Devices::new(driver)),
            Err(why) => {
                leave(plan, &why)?;
                None
            }
        };
        let mut local = Local { gpus: devices, ..Local::default() };
        let Some(devices) = &mut local.gpus else { return Ok(local) };
        let names = devices.streams.devices();
        launch.gpus = vec![devices.streams.found.about()];
        let name = |(at, name): (usize, &String)| format!("GPU {at}: {name}");
        launch.gpus.extend(names.iter().enumerate().map(name));
        launch.inventory = Some(inventory::before());
        for index in 0..plan.cases.len() {
            let planned = &plan.cases[index];
            if planned.case.transport != cuda::NAME || planned.data_plane.is_err() {
                continue;
            }
            let room = devices.check_room(&plan.job(planned, 0, None));
            let topology = &planned.case.topology;
            let placement = Placement {
                members: Vec::new(),
                emulated: topology.nodes() > 1,
                oversubscribed: topology.ranks() > names.len(),
            };
            let planned = &mut plan.cases[index];
            planned.placement = placement;
            if let Err(why) = room {
                planned.data_plane = Err(why.to_string());
            }
        }
        Ok(local)
    }
}

/// Leaves all cases on GPUs, for that reason.
fn leave(plan: &mut Plan, why: &CudaError) -> Result<(), ExecutorError> {
    let on_gpus = plan.cases.iter_mut().filter(|planned| planned.case.transport == cuda::NAME);
    on_gpus.for_each(|planned| planned.left = Some(why.to_string()));
    if plan.cases.iter().all(|planned| planned.left.is_some()) {
        Err(ExecutorError(why.to_string()))
    } else {
        Ok(())
    }
}

impl BlockExecutor for Local {
    fn run(&mut self, plan: &Plan, order: Order) -> Ended {
        let planned = &plan.cases[order.index];
        let ranks = planned.case.topology.ranks();
        self.memories.resize_with(self.memories.len().max(ranks), RankMemory::default);
        let (memories, recorder) = (&mut self.memories[..ranks], plan.recorder(planned));
        let job = plan.job(planned, order.seed, recorder.as_ref());
        let outcome = match (planned.case.transport == cuda::NAME, &mut self.gpus) {
            (true, Some(devices)) => trainer::run(&job, memories, devices),
            (true, None) => {
                let outcome = Err("there is no GPU for it".into());
                return Ended { outcome, records: None };
            }
            (false, _) => engine::run(&job, memories),
        };
        let outcome = outcome.and_then(|outcome| outcome.refusal().map_or(Ok(outcome), Err));
        Ended {
            outcome: outcome.map_err(|error| error.to_string()),
            records: recorder.map(|recorder| recorder.into_records()),
        }
    }
}
