//! The GPU of a process that is one of several, and NCCL between them.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use algorithms::topology::Rank;

use gpu::cuda::devices;
use gpu::cuda::driver::Driver;
use gpu::nccl::NcclError;
use gpu::nccl::allreduce::DeviceAllReduce;
use gpu::nccl::assignment::{Assignment, in_provenance};
use gpu::nccl::comm::Communicator;
use gpu::nccl::facts::Facts;
use gpu::nccl::library::{ID_BYTES, Nccl, UniqueId};
use gpu::trainer::{self, Devices};
use results::provenance::Launch;
use training::engine::RankMemory;
use training::job::Job;
use training::outcome::EngineError;
use training::outcome::RankLog;
use transports::data_plane::DataPlane;
use transports::data_plane::nccl::{Native, Tuning};
use transports::mpi::Connected;
use transports::transport::Connections;

/// What a process tells of itself, or why it cannot use a GPU.
pub type Reported = Result<Facts, String>;

/// This process's GPU.
pub struct Gpu {
    /// By the processes that are in it, and what NCCL is held to. They go before the driver does.
    communicators: HashMap<(Vec<Rank>, Tuning), Rc<Communicator>>,
    nccl: Rc<Nccl>,
    devices: Devices<Driver>,
    /// Ranks on it.
    share: usize,
    /// Some GPU of the world has several.
    pub is_any_shared: bool,
    timeout: Duration,
}

/// What this process has.
pub fn look(process: Rank, launch: &Launch) -> Reported {
    let reported = || -> Result<Facts, NcclError> {
        Ok(Facts::here(launch, &*Nccl::open()?, &devices::find()?)?)
    };
    reported().map_err(|why| format!("process {process} on {}: {why}", launch.machine.host))
}

impl Gpu {
    /// Takes that of a process.
    ///
    /// # Errors
    /// What the driver says.
    pub fn take(
        process: Rank,
        facts: &[Facts],
        assignments: &[Assignment],
        timeout: Duration,
    ) -> Result<Gpu, NcclError> {
        let uuid = |process: Rank| &facts[process].gpus[assignments[process].ordinal].uuid;
        let share = (0..assignments.len()).filter(|&other| uuid(other) == uuid(process)).count();
        let nccl = Nccl::open()?;
        let driver = Driver::take(devices::find()?, &[assignments[process].ordinal])?;
        let (devices, communicators) = (Devices::new(driver), HashMap::new());
        let is_any_shared = assignments.iter().any(|assignment| assignment.is_shared);
        Ok(Gpu { communicators, nccl, devices, share, is_any_shared, timeout })
    }

    /// Libraries, and the GPU of each process, in words.
    pub fn in_provenance(&self, facts: &[Facts], assignments: &[Assignment]) -> Vec<String> {
        in_provenance(&self.nccl, &self.devices.streams.found, facts, assignments)
    }

    /// Why a job does not fit, if so.
    pub fn refusal(&mut self, process: Rank, job: &Job) -> Option<String> {
        let room = self.devices.check_room_of(job, 0, self.share);
        room.err().map(|why| format!("process {process}, of its GPUs: {why}"))
    }

    /// Plays a rank in a block; all processes in it do.
    ///
    /// # Errors
    /// When ranks disagree, one does not answer, or driver or NCCL refuse.
    pub fn play(
        &mut self,
        job: &Job,
        members: &[Rank],
        rank: Rank,
        connections: Connected,
        memory: &mut RankMemory,
    ) -> Result<RankLog, EngineError> {
        let Connections { data, bits, mail, last_step } = connections;
        let tuning = match job.data_plane {
            DataPlane::Nccl(Native::AllReduce(tuning)) => *tuning,
            _ => Tuning::default(),
        };
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
            let joined = tuning
                .during(|| Communicator::init(&self.nccl, id, place, self.timeout, &mut ()))?;
            self.communicators.insert(key.clone(), Rc::new(joined));
        }
        let (communicator, segment_bytes) =
            (self.communicators[&key].clone(), job.sizes.segment_bytes);
        let all_reduce = DeviceAllReduce::new(
            communicator,
            job.data_plane,
            job.topology,
            segment_bytes,
            &mut (),
        )?;
        let beside = (bits, mail, last_step);
        trainer::run_process(job, rank, beside, (&mut self.devices, self.share), all_reduce, memory)
    }
}
