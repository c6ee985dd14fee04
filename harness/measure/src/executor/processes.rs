//! Blocks that all processes of an MPI job carry out together.
//!
//! Every process has read the same configuration and made the same plan. Rank 0 leads: it sends the others the
//! next block, runs a rank itself, and gathers the logs of the others. A process without a rank in a case waits
//! without using a core.

use std::collections::BTreeMap;
use std::time::Duration;

use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};

use super::preflight;
use super::reports::Reports;
use super::{BlockExecutor, BlockRequest, BlockResult, ExecutorError, Local, back_ends_of};
use crate::back_ends::has_processes;
use crate::plan::{Plan, Planned, UnsupportedCase};
use cluster::failure_detector::activity::set_members;
use cluster::failure_detector::{self, DetectorError, FailureDetector, Limits};
use cluster::nodes::Node;
use cluster::preflight::{Finding, Severity};
use results::conditions::{Conditions, Counters, Elsewhere};
use results::inputs::fnv1a;
use results::journal::Journal;
use results::provenance::{Build, Launch, Subject};
use training::back_end::{BackEndRef, ProcessRank, RankKind};
use training::engine::{self, RankMemory};
use training::job::Job;
use training::outcome::{EngineError, Outcome, RankLog};
use training::timeline::anchor::{Anchor, Anchored, together};
use transports::clock::Clock;
use transports::mpi::{Connected, World, give_up, set_last_words};
use transports::pattern::Wrong;
use transports::transport::TransportError;

/// The length of a request: the position of a case, the seed, the warm-up, and whether it is the end ([`END`]).
const REQUEST_BYTES: usize = 25;

/// First bytes of requests.
const END: u8 = 0;
const BLOCK: u8 = 1;
/// A block of which rank 0 keeps a timeline.
const TIMELINE: u8 = 2;

/// One process's log of a block.
#[derive(Serialize, Deserialize)]
struct Reported {
    log: RankLog,
    wrong: Wrong,
    records: Anchored,
    /// What the system of its node did besides, if this process tells it, and the place of the node.
    conditions: Option<(usize, Conditions)>,
}

/// One process's view of all processes of a job.
pub struct Processes {
    world: World,
    reports: Reports,
    memory: RankMemory,
    /// Rank 0's, for cases on threads or GPUs of its own.
    local: Local,
    detector: Option<FailureDetector>,
    /// This process's rank, for each back end of the plan.
    ranks: Vec<(BackEndRef, Box<dyn ProcessRank>)>,
    /// Of back ends, for the preflight.
    findings: Vec<Finding>,
    /// This process's clock by that of the first of these processes, for timelines.
    clocks: BTreeMap<Vec<Rank>, Clock>,
    /// Rank 0's: what other nodes tell of a block.
    elsewhere: Elsewhere,
}

impl Processes {
    /// The processes of a job that has begun.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn new(world: World, local: Local) -> Result<Processes, TransportError> {
        Ok(Processes {
            reports: Reports::new(&world)?,
            world,
            memory: RankMemory::default(),
            local,
            detector: None,
            ranks: Vec::new(),
            findings: Vec::new(),
            clocks: BTreeMap::new(),
            elsewhere: Elsewhere::default(),
        })
    }

    /// Allocates the resources of each back end whose ranks are processes; where that fails, its cases are left
    /// out, with the reason. All must call it.
    ///
    /// # Errors
    /// The reason, if no case remains.
    pub fn join_back_ends(
        &mut self,
        plan: &mut Plan,
        launch: &mut Launch,
    ) -> Result<(), ExecutorError> {
        for back_end in back_ends_of(plan, |kind| kind == RankKind::Process) {
            let joined = back_end.join(&mut self.reports, plan.timeout(), launch);
            let is_own = |planned: &&mut Planned| planned.case.transport == back_end;
            match joined {
                Ok(rank) => {
                    for planned in plan.cases.iter_mut().filter(is_own) {
                        let placement = &mut planned.placement;
                        let shared = rank.is_oversubscribed();
                        placement.oversubscribed = shared.unwrap_or(placement.oversubscribed);
                    }
                    self.findings.extend(rank.findings());
                    self.ranks.push((back_end, rank));
                }
                Err(why) => {
                    for planned in plan.cases.iter_mut().filter(is_own) {
                        planned.left.get_or_insert_with(|| why.source.to_string());
                    }
                    if plan.cases.iter().all(|planned| planned.case.transport == back_end) {
                        return Err(ExecutorError::BackEnd(why.source));
                    }
                }
            }
        }
        Ok(self.refuse_what_does_not_fit(plan)?)
    }

    /// Cases for which some process has too little memory are unsupported, with the figures.
    fn refuse_what_does_not_fit(&mut self, plan: &mut Plan) -> Result<(), TransportError> {
        let process = self.world.rank();
        let mut refusal = |(index, planned): (usize, &Planned)| {
            let (_, rank) = self.ranks.iter_mut().find(|it| it.0 == planned.case.transport)?;
            let runs = planned.data_plane.is_ok();
            runs.then(|| rank.refusal(process, &plan.job(plan.first_block(index), None))).flatten()
        };
        let own: Vec<Option<String>> = plan.cases.iter().enumerate().map(&mut refusal).collect();
        for reported in self.reports.share(own)? {
            for (planned, why) in plan.cases.iter_mut().zip(reported) {
                if let Some(reason) = why.filter(|_| planned.data_plane.is_ok()) {
                    planned.data_plane = Err(UnsupportedCase::Refused { reason });
                }
            }
        }
        Ok(())
    }

    /// Checks what processes run on, see [`preflight::check`]. Called by all.
    ///
    /// # Errors
    /// The failed checks, unless `forced`.
    pub fn look_around(&mut self, launch: &mut Launch, forced: bool) -> Result<(), ExecutorError> {
        let findings = std::mem::take(&mut self.findings);
        let processes = (&self.world, &mut self.reports);
        preflight::check(processes, launch, Severity::Refusal, findings, forced)
    }

    /// Starts the failure detector: from now on a process that is gone, or silent for longer than the timeout, ends the
    /// job. Called by all.
    ///
    /// # Errors
    /// When they cannot connect to each other.
    pub fn watch(&mut self, plan: &Plan) -> Result<(), TransportError> {
        let timeout = plan.timeout();
        let limits = Limits { timeout, standstill: Some(2 * timeout + plan.step_time()) };
        let world = &self.world;
        let mut job = failure_detector::Job {
            rank: world.rank(),
            ranks: world.comm().ranks(),
            is_one_node: world.nodes().len() == 1,
            broadcast: &mut |bytes| world.broadcast(bytes).map_err(Into::into),
        };
        let detector = FailureDetector::connect(&mut job, limits).map_err(|error| {
            let DetectorError { rank, peer, call, source } = error;
            TransportError::Failed { rank, peer, call: call.into(), why: source.to_string() }
        })?;
        if world.comm().ranks() > 1 {
            let last_words = detector.last_words();
            set_last_words(move |error| last_words(&error.to_string()));
        }
        self.detector = Some(detector);
        Ok(())
    }

    /// True for the process that leads, records and prints.
    pub fn leads(&self) -> bool {
        self.world.rank() == 0
    }

    /// Executes rank 0's requests until it ends the sweep.
    ///
    /// # Errors
    /// When rank 0 does not answer.
    pub fn follow(&mut self, plan: &Plan) -> Result<(), TransportError> {
        while let Some(request) = self.next_request()? {
            if let Some((_, reported)) = self.run_rank(plan, request)? {
                self.reports.send(&reported)?;
            }
        }
        Ok(())
    }

    /// Compares plans: processes that read different files, or run different programs, would wait for each
    /// other for ever.
    ///
    /// # Errors
    /// When a process has another plan than rank 0, or MPI refuses.
    pub fn agree_on(&self, plan: &Plan) -> Result<(), ExecutorError> {
        let text = format!("{} {} {}", Build::this().commit, plan.config(), plan.workload_digest());
        let own = fnv1a(text.as_bytes()).to_le_bytes();
        let all = self.world.comm().all_gather(own)?;
        match all.iter().position(|other| *other != all[0]) {
            None => Ok(()),
            Some(rank) => Err(ExecutorError::Disagreement { rank }),
        }
    }

    fn announce(&self, request: Option<BlockRequest>) -> Result<(), TransportError> {
        let mut bytes = [END; REQUEST_BYTES];
        if let Some(BlockRequest { index, seed, warmup_steps, is_recorded }) = request {
            bytes[0] = if is_recorded { TIMELINE } else { BLOCK };
            bytes[1..9].copy_from_slice(&(index as u64).to_le_bytes());
            bytes[9..17].copy_from_slice(&seed.to_le_bytes());
            bytes[17..].copy_from_slice(&(warmup_steps as u64).to_le_bytes());
        }
        self.world.broadcast(&mut bytes)
    }

    /// The next block; none at the end.
    fn next_request(&self) -> Result<Option<BlockRequest>, TransportError> {
        let mut bytes = [0; REQUEST_BYTES];
        self.world.broadcast(&mut bytes)?;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let request = BlockRequest {
            index: number(&bytes[1..9]) as usize,
            seed: number(&bytes[9..17]),
            warmup_steps: number(&bytes[17..]) as usize,
            is_recorded: bytes[0] == TIMELINE,
        };
        Ok((bytes[0] != END).then_some(request))
    }

    /// Runs this process's rank in a block, if it has one; returns the rank and its log. Clocks are compared only for a
    /// timeline.
    fn run_rank(
        &mut self,
        plan: &Plan,
        request: BlockRequest,
    ) -> Result<Option<(Rank, Reported)>, TransportError> {
        let planned = &plan.cases[request.index];
        let members = &planned.placement.members;
        let timeout = plan.timeout();
        let observed = self.observed(members).map(|node| (node, Counters::now()));
        let Some((rank, mut connections)) = self.world.connect(members, timeout)? else {
            return Ok(None);
        };
        set_members(members);
        let place = (rank, members.len());
        let clock = self.clocks.entry(members.clone()).or_insert_with(Clock::monotonic);
        if request.is_recorded {
            clock.compare(&mut connections.control, place)?;
        }
        // Control messages must not reach a rank that compares clocks.
        meet(&self.world, &connections, timeout)?;
        let recorder = plan.recorder(request);
        let anchor = recorder.as_ref().map(|recorder| Anchor::of(recorder, clock));
        let job: Job = plan.job(request, recorder.as_ref());
        let back_end = self.ranks.iter_mut().find(|it| it.0 == planned.case.transport);
        let (_, back_end) = back_end.expect("cases of back ends that nobody joined are left");
        let log = back_end.run(&job, members, rank, connections, &mut self.memory);
        // The others wait for this rank, and MPI cannot notify them.
        let log = log.unwrap_or_else(|error| {
            give_up(&TransportError::Aborted { by: rank, reason: error.to_string() })
        });
        if request.is_recorded {
            let connected = self.world.connect(members, timeout)?;
            let (_, mut connections) = connected.expect("it was among them");
            meet(&self.world, &connections, timeout)?;
            clock.compare(&mut connections.control, place)?;
        }
        let wrong = engine::check(&job, &log, std::iter::once((rank, &self.memory)));
        set_members(&[]);
        let records = anchor.zip(recorder).map(|(anchor, it)| anchor.anchored(clock, rank, it));
        let records = records.unwrap_or_default();
        let conditions = observed.map(|(node, counters)| (node, counters.until_now()));
        Ok(Some((rank, Reported { log, wrong, records, conditions })))
    }

    /// The node of which this process tells what its system did: as the first of these processes on it, unless rank 0 is
    /// there, which observes its node by itself.
    fn observed(&self, members: &[Rank]) -> Option<usize> {
        observed(self.world.nodes(), self.world.rank(), members)
    }

    /// Rank 0's side of a block.
    fn lead(&mut self, plan: &Plan, request: BlockRequest) -> Result<BlockResult, TransportError> {
        self.announce(Some(request))?;
        let members = plan.cases[request.index].placement.members.clone();
        let mut reported: Vec<Option<Reported>> = members.iter().map(|_| None).collect();
        if let Some((rank, own)) = self.run_rank(plan, request)? {
            reported[rank] = Some(own);
        }
        while let Some(missing) = reported.iter().position(Option::is_none) {
            let (from, report) = self.reports.receive(members[missing])?;
            let rank = members.iter().position(|&member| member == from);
            reported[rank.expect("only members tell")] = Some(report);
        }
        let (mut ranks, mut records, mut wrong) = (Vec::new(), Vec::new(), Wrong::default());
        for reported in reported.into_iter().flatten() {
            ranks.push(reported.log);
            records.push(reported.records);
            wrong = wrong.and(reported.wrong);
            let told = reported.conditions;
            told.into_iter().for_each(|(node, conditions)| self.elsewhere.tell(node, conditions));
        }
        let negotiated = plan.job(request, None).negotiates();
        let outcome = negotiated.map(|negotiated| Outcome { ranks, negotiated, wrong });
        let refused = |outcome: Outcome| outcome.refusal().map_or(Ok(outcome), Err);
        Ok(BlockResult {
            outcome: outcome.map_err(EngineError::from).and_then(refused),
            records: request.is_recorded.then(|| together(records)),
        })
    }
}

/// See [`Processes::observed`].
fn observed(nodes: &[Node], process: Rank, members: &[Rank]) -> Option<usize> {
    let place = nodes.iter().position(|node| node.ranks.contains(&process))?;
    let of_node = &nodes[place].ranks;
    let first = members.iter().filter(|member| of_node.contains(member)).min();
    (first == Some(&process) && !of_node.contains(&0)).then_some(place)
}

/// A barrier of the ranks of a case. The timeout ends the process.
fn meet(world: &World, connections: &Connected, timeout: Duration) -> Result<(), TransportError> {
    let mut barrier = connections.data.comm().barrier()?;
    let waited = world.waiting(timeout).request(&mut barrier);
    waited.unwrap_or_else(|error| give_up(&error));
    Ok(())
}

/// The others end with rank 0, however its sweep ends. Rank 0's detector waits for them.
impl Drop for Processes {
    fn drop(&mut self) {
        // Without a detector the others do not wait for orders yet.
        let Some(mut detector) = self.detector.take() else { return };
        if self.leads()
            && let Err(error) = self.announce(None)
        {
            eprintln!("kolo: {error}");
        }
        detector.finish();
    }
}

impl BlockExecutor for Processes {
    fn run(&mut self, plan: &Plan, request: BlockRequest) -> BlockResult {
        if !has_processes(plan.cases[request.index].case.transport) {
            return self.local.run(plan, request);
        }
        self.lead(plan, request).unwrap_or_else(|error| give_up(&error))
    }

    fn counters(&self) -> Option<Counters> {
        Some(Counters::now().beside(&self.elsewhere))
    }

    fn keeps(&mut self, journal: &Journal) -> bool {
        if let Some(detector) = &self.detector {
            let journal = journal.clone();
            detector.on_loss(move |reason| {
                if let Err(error) = journal.broke(reason) {
                    eprintln!("kolo: {error}");
                }
            });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each node that has ranks of the case, but for that of rank 0, is observed once.
    #[test]
    fn the_first_rank_of_each_other_node_observes_it() {
        let nodes = [vec![0, 2], vec![1, 4], vec![3, 5]];
        let nodes = nodes.map(|ranks| Node { ranks, ..Node::default() });
        let observers = |members: &[Rank]| -> Vec<(Rank, usize)> {
            let node = |&process: &Rank| Some((process, observed(&nodes, process, members)?));
            members.iter().filter_map(node).collect()
        };
        assert_eq!(observers(&[0, 1, 2, 3, 4, 5]), [(1, 1), (3, 2)]);
        assert_eq!(observers(&[0, 4, 5]), [(4, 1), (5, 2)]);
        assert_eq!(observers(&[0, 2]), []);
    }
}
