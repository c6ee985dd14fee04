//! Ranks are streams of this process, on one or several GPUs.

use algorithms::topology::Topology;
use results::provenance::Launch;
use training::back_end::{BackEnd, LocalRanks, MemoryKind, RankKind, Shares};
use training::engine::RankMemory;
use training::job::Job;
use training::outcome::{BackEndError, EngineError, Outcome};

use super::driver::Driver;
use super::streams::Streams;
use super::{CudaError, NAME, devices, inventory};
use crate::trainer::{self, Devices};

/// The back end.
pub struct Cuda;

impl BackEnd for Cuda {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank_kind(&self) -> RankKind {
        RankKind::Stream
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Device
    }

    /// A device moves more bytes in the time of a launch than such a segment has.
    fn segment_bytes(&self) -> usize {
        0
    }

    fn availability(&self) -> Result<String, BackEndError> {
        let found = devices::find().map_err(error)?;
        Ok(format!("ranks are streams of one process on {} GPU(s)", found.devices.len()))
    }

    fn open(&self, launch: &mut Launch) -> Result<Box<dyn LocalRanks>, BackEndError> {
        let devices = Devices::new(Driver::open().map_err(error)?);
        launch.gpus = vec![devices.streams.found.about()];
        let name = |(at, name): (usize, &String)| format!("GPU {at}: {name}");
        launch.gpus.extend(devices.streams.devices().iter().enumerate().map(name));
        launch.inventory = Some(inventory::before());
        Ok(Box::new(CudaRanks(devices)))
    }
}

/// GPUs that are kept between jobs.
struct CudaRanks(Devices<Driver>);

impl LocalRanks for CudaRanks {
    fn shares(&self, topology: &Topology) -> Shares {
        let gpus = self.0.streams.devices().len();
        Shares { emulated: topology.nodes() > 1, oversubscribed: topology.ranks() > gpus }
    }

    fn check_room(&mut self, job: &Job) -> Result<(), BackEndError> {
        self.0.check_room(job).map_err(error)
    }

    fn run(&mut self, job: &Job, memories: &mut [RankMemory]) -> Result<Outcome, EngineError> {
        trainer::run(job, memories, &mut self.0)
    }
}

fn error(error: CudaError) -> BackEndError {
    BackEndError::new("device", error)
}
