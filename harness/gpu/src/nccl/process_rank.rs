//! The GPU of a process that is one of several, and NCCL between them.

use std::collections::HashMap;
use std::env;
use std::rc::Rc;
use std::time::Duration;

use algorithms::topology::Rank;
use cluster::preflight::Finding;
use results::provenance::Launch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use training::back_end::{Exchange, ProcessRank};
use training::engine::RankMemory;
use training::job::Job;
use training::outcome::{BackEndError, EngineError, RankLog};
use transports::data_plane::nccl::Tuning;
use transports::mpi::Connected;
use transports::transport::{Connections, TransportError};

use super::allreduce::{DeviceAllReduce, NcclPlane};
use super::assignment::{Assignment, AssignmentError, assign, in_provenance};
use super::comm::Communicator;
use super::facts::Facts;
use super::findings::findings;
use super::library::{ID_BYTES, Nccl, UniqueId};
use super::{NAME, NcclError};
use crate::cuda::driver::Driver;
use crate::cuda::{devices, inventory};
use crate::trainer::{self, Devices};

/// NCCL's variable.
const BLOCKING: &str = "NCCL_COMM_BLOCKING";

/// Why processes cannot have their GPUs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// They do not hear of each other.
    #[error(transparent)]
    Exchange(#[from] TransportError),
    /// There are too few GPUs.
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    /// A process cannot have its own.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This process cannot have its own.
    #[error(transparent)]
    Nccl(#[from] NcclError),
}

/// What a process that cannot have a GPU tells all others.
#[derive(Clone, Debug, Serialize, Deserialize, Error)]
#[error("process {process}{}: {why}", host.as_ref().map_or(String::new(), |host| format!(" on {host}")))]
pub struct Refusal {
    /// The process.
    pub process: Rank,
    /// Where it runs, if that matters.
    pub host: Option<String>,
    /// Why it cannot have one.
    pub why: String,
}

/// This process's GPU.
pub struct GpuRank {
    /// By member processes and NCCL's settings. They are dropped before the driver.
    communicators: HashMap<(Vec<Rank>, Tuning), Rc<Communicator>>,
    nccl: Rc<Nccl>,
    devices: Devices<Driver>,
    /// Ranks on it.
    share: usize,
    /// Some GPU of the world has several.
    is_any_shared: bool,
    findings: Vec<Finding>,
    timeout: Duration,
}

impl GpuRank {
    /// Takes a GPU for each process. All processes take theirs, or none does.
    ///
    /// # Errors
    /// When some process cannot have one, with the same reason on all.
    pub fn join(
        processes: &mut dyn Exchange,
        timeout: Duration,
        launch: &mut Launch,
    ) -> Result<GpuRank, JoinError> {
        let rank = processes.rank();
        let facts = all_or_none(processes, look(rank, launch))?;
        let assignments = assign(&facts)?;
        let taken = GpuRank::take(rank, &facts, &assignments, timeout);
        let refused = |why: &NcclError| Refusal { process: rank, host: None, why: why.to_string() };
        all_or_none(processes, taken.as_ref().map(|_| ()).map_err(refused))?;
        let mut taken = taken?;
        taken.findings = findings(&facts, &assignments);
        let found = &taken.devices.streams.found;
        launch.gpus.extend(in_provenance(&taken.nccl, found, &facts, &assignments));
        launch.inventory.get_or_insert_with(inventory::before);
        Ok(taken)
    }

    fn take(
        process: Rank,
        facts: &[Facts],
        assignments: &[Assignment],
        timeout: Duration,
    ) -> Result<GpuRank, NcclError> {
        let uuid = |process: Rank| &facts[process].gpus[assignments[process].ordinal].uuid;
        let share = (0..assignments.len()).filter(|&other| uuid(other) == uuid(process)).count();
        let nccl = Nccl::open()?;
        let driver = Driver::take(devices::find()?, &[assignments[process].ordinal])?;
        Ok(GpuRank {
            communicators: HashMap::new(),
            nccl,
            devices: Devices::new(driver),
            share,
            is_any_shared: assignments.iter().any(|assignment| assignment.is_shared),
            findings: Vec::new(),
            timeout,
        })
    }
}

/// Horovod's communicators block the host until NCCL has launched a message. Nonblocking ones take longer for each, so
/// they would overstate what fusion saves. NCCL reads the variable once; the user's value stays.
fn block_like_horovod() {
    if env::var_os(BLOCKING).is_none() {
        // SAFETY: as in `Tuning::during`, no other thread uses variables while communicators are created.
        unsafe { env::set_var(BLOCKING, "1") };
    }
}

/// What this process has.
fn look(process: Rank, launch: &Launch) -> Result<Facts, Refusal> {
    let reported = || -> Result<Facts, NcclError> {
        Ok(Facts::here(launch, &*Nccl::open()?, &devices::find()?)?)
    };
    reported().map_err(|why| {
        let host = Some(launch.machine.host.clone());
        Refusal { process, host, why: why.to_string() }
    })
}

/// Gathers the reports of all processes; returns the first error of any on all of them.
fn all_or_none<T: Serialize + DeserializeOwned>(
    processes: &mut dyn Exchange,
    own: Result<T, Refusal>,
) -> Result<Vec<T>, JoinError> {
    let own = postcard::to_stdvec(&own).expect("plain data");
    let all = processes.share(own)?;
    let read = |bytes: &Vec<u8>| postcard::from_bytes(bytes).expect("the same program");
    Ok(all.iter().map(read).collect::<Result<_, Refusal>>()?)
}

impl ProcessRank for GpuRank {
    fn findings(&self) -> Vec<Finding> {
        self.findings.clone()
    }

    /// Cores have little to do there.
    fn is_oversubscribed(&self) -> Option<bool> {
        Some(self.is_any_shared)
    }

    fn refusal(&mut self, process: Rank, job: &Job) -> Option<String> {
        let room = self.devices.check_room_of(job, 0, self.share);
        room.err().map(|why| format!("process {process}, of its GPUs: {why}"))
    }

    fn run(
        &mut self,
        job: &Job,
        members: &[Rank],
        rank: Rank,
        connections: Connected,
        memory: &mut RankMemory,
    ) -> Result<RankLog, EngineError> {
        let Connections { data, bits, control, last_step } = connections;
        let plane = NcclPlane::of(job.data_plane);
        let plane = plane.map_err(|error| EngineError::BackEnd(BackEndError::new(NAME, error)))?;
        let tuning = plane.tuning();
        // NCCL takes the GPU that is this thread's.
        self.devices.streams.enter(0)?;
        let key = (members.to_vec(), tuning);
        if !self.communicators.contains_key(&key) {
            let own = match rank {
                0 => self.nccl.unique_id()?.0,
                _ => [0; ID_BYTES],
            };
            let id = UniqueId(data.comm().all_gather(own)?[0]);
            let place = (rank, members.len());
            block_like_horovod();
            let joined = tuning
                .during(|| Communicator::init(&self.nccl, id, place, self.timeout, &mut ()))?;
            self.communicators.insert(key.clone(), Rc::new(joined));
        }
        let (communicator, segment_bytes) =
            (self.communicators[&key].clone(), job.sizes.segment_bytes);
        let all_reduce =
            DeviceAllReduce::new(communicator, plane, job.topology, segment_bytes, &mut ())?;
        let beside = (bits, control, last_step);
        trainer::run_process(job, rank, beside, (&mut self.devices, self.share), all_reduce, memory)
    }
}
