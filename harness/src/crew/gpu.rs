//! The GPU of a process that is one of several, and NCCL between them.

use std::collections::HashMap;
use std::env;
use std::rc::Rc;
use std::time::Duration;

use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};

use super::CrewError;
use crate::cuda::driver::Driver;
use crate::cuda::{devices, preflight};
use crate::data_plane::DataPlane;
use crate::engine::device::{self, Devices};
use crate::engine::{EngineError, Job, RankLog, RankMemory};
use crate::nccl::allreduce::DeviceAllReduce;
use crate::nccl::comm::Communicator;
use crate::nccl::data_plane::{Native, Tuning};
use crate::nccl::library::{Nccl, UniqueId, in_words};
use crate::nccl::rendezvous::Facts;
use crate::nccl::seat::{Seat, assign, gpus};
use crate::nccl::{NcclError, SHARE_GPUS};
use crate::transport::Connections;
use crate::transport::mpi::Connected;

/// Bytes of what ranks of one communicator find each other by.
const ID_BYTES: usize = 128;

/// What a process tells of its GPUs, or why it cannot use any.
pub type Told = Result<Seen, String>;

/// The GPUs and the NCCL of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    facts: Facts,
    found: preflight::Facts,
}

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
    patience: Duration,
}

/// What this process has.
pub fn look(process: Rank, host: &str) -> Told {
    let seen = || -> Result<Seen, NcclError> {
        let nccl = Nccl::open()?;
        let found = devices::find()?;
        let facts = Facts {
            host: host.into(),
            pid: std::process::id(),
            gpus: gpus(&found)?,
            nccl: nccl.version,
            command: Vec::new(),
        };
        let version = Some(in_words(nccl.version));
        let found = preflight::Facts::here((process, 0), host.into(), &found, version)?;
        Ok(Seen { facts, found })
    };
    seen().map_err(|why| format!("process {process} on {host}: {why}"))
}

/// The GPU of each process.
///
/// # Errors
/// Why they cannot have one each.
pub fn seats(told: &[Told]) -> Result<Vec<Seat>, CrewError> {
    let seen: Result<Vec<&Seen>, &String> = told.iter().map(Result::as_ref).collect();
    let seen = seen.map_err(|why| CrewError(why.clone()))?;
    let facts: Vec<Facts> = seen.iter().map(|seen| seen.facts.clone()).collect();
    let shares = env::var(SHARE_GPUS).is_ok_and(|value| value.trim() == "1");
    assign(&facts, shares).map_err(|why| CrewError(why.to_string()))
}

/// What makes figures on these GPUs doubtful; those that are shared on purpose are looked at once.
pub fn problems(told: &[Told], seats: &[Seat]) -> Vec<String> {
    let mut facts: Vec<preflight::Facts> = Vec::new();
    for (seen, seat) in told.iter().flatten().zip(seats) {
        let own = preflight::Facts { local_rank: seat.ordinal, ..seen.found.clone() };
        let uuid = |facts: &preflight::Facts| {
            Some((facts.host.clone(), facts.gpus.get(facts.local_rank)?.uuid.clone()))
        };
        if !seat.is_shared || facts.iter().all(|other| uuid(other) != uuid(&own)) {
            facts.push(own);
        }
    }
    preflight::wrong(&facts)
}

/// Library, driver, and the GPU of each process, in words.
pub fn in_provenance(told: &[Told], seats: &[Seat]) -> Vec<String> {
    let seen: Vec<&Seen> = told.iter().flatten().collect();
    let Some(first) = seen.first() else { return Vec::new() };
    let nccl = first.found.nccl.as_deref().unwrap_or("unknown");
    let mut lines = vec![format!("NCCL {nccl}, CUDA {}", first.found.driver)];
    lines.extend(seen.iter().zip(seats).enumerate().map(|(process, (seen, seat))| {
        let gpu = &seen.facts.gpus[seat.ordinal];
        let (ordinal, host) = (seat.ordinal, &seen.facts.host);
        format!("process {process}: GPU {ordinal} ({}): {} on {host}", gpu.bus, gpu.name)
    }));
    lines
}

impl Gpu {
    /// Takes that of a process.
    ///
    /// # Errors
    /// What the driver says.
    pub fn take(
        process: Rank,
        told: &[Told],
        seats: &[Seat],
        patience: Duration,
    ) -> Result<Gpu, NcclError> {
        let place = |process: Rank| {
            let seen = told[process].as_ref().ok()?;
            Some((&seen.facts.host, &seen.facts.gpus[seats[process].ordinal].bus))
        };
        let share = (0..seats.len()).filter(|&other| place(other) == place(process)).count();
        let nccl = Nccl::open()?;
        let driver = Driver::take(devices::find()?, &[seats[process].ordinal])?;
        let (devices, communicators) = (Devices::new(driver), HashMap::new());
        let is_any_shared = seats.iter().any(|seat| seat.is_shared);
        Ok(Gpu { communicators, nccl, devices, share, is_any_shared, patience })
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
                .during(|| Communicator::init(&self.nccl, id, place, self.patience, &mut ()))?;
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
        device::run_process(job, rank, beside, (&mut self.devices, self.share), all_reduce, memory)
    }
}
