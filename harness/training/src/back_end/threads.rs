//! Ranks are threads of this process, which read and write each other's memory.

use algorithms::topology::Topology;
use results::provenance::{Launch, cores};
use transports::bench::{Bench, Timed};
use transports::threads;

use super::{BackEnd, LocalRanks, RankKind, Shares};
use crate::engine::{self, RankMemory};
use crate::job::Job;
use crate::outcome::{BackEndError, EngineError, Outcome};

/// The back end.
pub struct Threads;

impl BackEnd for Threads {
    fn name(&self) -> &'static str {
        threads::NAME
    }

    fn rank_kind(&self) -> RankKind {
        RankKind::Thread
    }

    fn availability(&self) -> Result<String, BackEndError> {
        Ok("ranks are threads of one process".into())
    }

    fn puts(&self) -> bool {
        true
    }

    fn pins(&self) -> bool {
        true
    }

    fn open(&self, _: &mut Launch) -> Result<Box<dyn LocalRanks>, BackEndError> {
        Ok(Box::new(ThreadRanks))
    }
}

struct ThreadRanks;

impl LocalRanks for ThreadRanks {
    fn shares(&self, topology: &Topology) -> Shares {
        Shares { emulated: topology.nodes() > 1, oversubscribed: topology.ranks() > cores() }
    }

    fn run(&mut self, job: &Job, memories: &mut [RankMemory]) -> Result<Outcome, EngineError> {
        engine::run(job, memories)
    }

    fn bench(&mut self, bench: &Bench) -> Result<Timed, EngineError> {
        Ok(transports::bench::run(bench)?)
    }
}
