//! A back end in one file: a loop-back that works for one rank alone. It is added by one line, and then configured,
//! planned, measured and recorded as every other.

use std::sync::Arc;
use std::time::Instant;

use algorithms::program::{Op, Program};
use algorithms::topology::{Rank, Topology};
use measure::back_ends;
use measure::config::Config;
use measure::plan::Plan;
use results::provenance::Launch;
use results::row::CaseOutcome;
use results::toml_file::Checked;
use training::back_end::{BackEnd, LocalRanks, RankKind, Shares};
use training::engine::{self, RankMemory};
use training::job::Job;
use training::outcome::{BackEndError, EngineError, Outcome};
use transports::data_plane::{DataPlane, DataPlaneError};
use transports::transport::{
    Collective, MessageChannel, NonblockingBarrier, Transport, TransportError,
};

use crate::rows::{rows, workload};

/// The back end.
struct Loopback;

impl BackEnd for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn rank_kind(&self) -> RankKind {
        RankKind::Thread
    }

    fn availability(&self) -> Result<String, BackEndError> {
        Ok("one rank, which talks to itself".into())
    }

    fn data_plane(&self, name: &str, topology: &Topology) -> Result<DataPlane, DataPlaneError> {
        if topology.ranks() > 1 {
            let reason = format!("back end loopback has one rank, not {}", topology.ranks());
            return Err(DataPlaneError::back_end(reason));
        }
        DataPlane::scheduled(name, self.name(), topology)
    }

    fn open(&self, _: &mut Launch) -> Result<Box<dyn LocalRanks>, BackEndError> {
        Ok(Box::new(OneRank))
    }
}

struct OneRank;

impl LocalRanks for OneRank {
    fn shares(&self, _: &Topology) -> Shares {
        Shares { emulated: false, oversubscribed: false }
    }

    fn run(&mut self, job: &Job, memories: &mut [RankMemory]) -> Result<Outcome, EngineError> {
        let schedules = job.data_plane.schedules("loopback");
        let schedules = schedules
            .map_err(|error| EngineError::BackEnd(BackEndError::new("loopback", error)))?;
        let all_reduce = |fusion_buffer| schedules.on(Alone, job.sizes, fusion_buffer);
        let log = engine::run_rank(job, 0, all_reduce, (Alone, Alone, Alone), &mut memories[0])?;
        let wrong = engine::check(job, &log, memories.iter().enumerate());
        Ok(Outcome { ranks: vec![log], negotiated: job.negotiates()?, wrong })
    }
}

/// The connections of a rank that has no peers.
struct Alone;

impl Transport for Alone {
    fn rank(&self) -> Rank {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn puts(&self) -> bool {
        false
    }

    fn prepare(&mut self, _: &Program, _: usize) {}

    fn begin(&mut self, _: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        assert!(batch.is_empty(), "one rank sends nothing");
        Ok(())
    }

    fn receive(&mut self, _: &Collective, _: &[Op]) -> Result<(), TransportError> {
        unreachable!("one rank receives nothing")
    }

    fn stage(&mut self, _: &Collective, _: &[Op]) -> Result<(), TransportError> {
        unreachable!("one rank receives nothing")
    }

    fn unstage(&mut self, _: &Collective, _: &[Op]) -> Result<(), TransportError> {
        unreachable!("one rank receives nothing")
    }

    fn settle(&mut self, _: usize) -> Result<(), TransportError> {
        Ok(())
    }

    fn finish(
        &mut self,
        _: &Collective,
        _: &Program,
        ended: Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        ended
    }
}

impl MessageChannel for Alone {
    fn send(&mut self, _: Rank, _: Arc<[u8]>) -> Result<(), TransportError> {
        unreachable!("one rank sends nothing")
    }

    fn receive(&mut self, _: Rank, _: &mut Vec<u8>) -> Result<Rank, TransportError> {
        unreachable!("one rank receives nothing")
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

impl NonblockingBarrier for Alone {
    fn arrive(&mut self) {}

    fn begun(&mut self) -> Option<Instant> {
        Some(Instant::now())
    }
}

#[test]
fn a_back_end_is_one_file_and_one_line() {
    back_ends::add(&Loopback);
    let text = "workload = \"uneven\"\n[step]\nbackward_ms = 0.5\n[sweep]\ntransport = [\"loopback\"]\n\
                topology = [\"1x1\", \"1x2\"]\ncontrol_plane = [\"coordinator\", \"bitvector\"]\n\
                algorithm = [\"ring\", \"grouped\"]\nfusion_threshold_mib = [64]\ncycle_time_ms = [0.2]\n\
                [measure]\nblocks_max = 2";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loopback.toml");
    std::fs::write(&path, text).unwrap();
    let plan = Plan::new(Config::read(&path).unwrap(), workload(12));
    let (alone, too_many): (Vec<_>, Vec<_>) =
        rows(plan).into_iter().partition(|row| row.setting.key.ranks == 1);
    assert_eq!((alone.len(), too_many.len()), (4, 4));
    for row in alone {
        assert_eq!(row.setting.run.transport, "loopback");
        let result = row.outcome.right().unwrap_or_else(|| panic!("{:?}", row.outcome));
        assert_eq!(result.effort.wrong, Some(0));
        assert!(result.times.time_us_p50 >= 500.0, "{:?}", result.times);
    }
    for row in too_many {
        let CaseOutcome::Unsupported(reason) = &row.outcome else { panic!("{:?}", row.outcome) };
        assert!(reason.contains("has one rank, not 2"), "{reason}");
    }
}

#[test]
fn the_error_of_an_unknown_back_end_lists_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.toml");
    let text = "workload = \"x\"\nstep = { backward_ms = 1 }\n[sweep]\ntransport = [\"rdma\"]\n\
                topology = [\"1x2\"]\ncontrol_plane = [\"ddp\"]\nalgorithm = [\"ring\"]\n\
                fusion_threshold_mib = [1]\ncycle_time_ms = [1]";
    std::fs::write(&path, text).unwrap();
    let error = Config::read(&path).unwrap_err().to_string();
    let expected = "sweep.transport is \"rdma\", expected one of threads, mpi, cuda, nccl";
    assert!(error.contains(expected), "{error}");
}
