//! Blocks that this process carries out alone, with all ranks of a case.

use super::{BlockExecutor, BlockRequest, BlockResult, ExecutorError, back_ends_of};
use crate::plan::{Placement, Plan, UnsupportedCase};
use results::provenance::Launch;
use training::back_end::{BackEndRef, LocalRanks, RankKind, Shares};
use training::engine::RankMemory;
use training::outcome::BackEndError;

/// Ranks of this process.
#[derive(Default)]
pub struct Local {
    /// Memory for as many ranks as the largest case so far.
    memories: Vec<RankMemory>,
    /// The back ends of the plan, opened.
    open: Vec<(BackEndRef, Box<dyn LocalRanks>)>,
}

impl Local {
    /// Opens the back ends of a plan whose ranks are in this process. Cases of an unavailable back end are left
    /// out, with the reason; cases with too little memory become unsupported.
    ///
    /// # Errors
    /// The reason, if no case remains.
    pub fn open(plan: &mut Plan, launch: &mut Launch) -> Result<Local, ExecutorError> {
        let mut local = Local::default();
        for back_end in back_ends_of(plan, |kind| kind != RankKind::Process) {
            let mut ranks = match back_end.open(launch) {
                Ok(ranks) => ranks,
                Err(why) => {
                    leave(plan, back_end, why)?;
                    continue;
                }
            };
            for index in 0..plan.cases.len() {
                let planned = &plan.cases[index];
                if planned.case.transport != back_end || planned.data_plane.is_err() {
                    continue;
                }
                let room = ranks.check_room(&plan.job(plan.first_block(index), None));
                let Shares { emulated, oversubscribed } = ranks.shares(&planned.case.topology);
                let planned = &mut plan.cases[index];
                planned.placement = Placement { members: Vec::new(), emulated, oversubscribed };
                if let Err(why) = room {
                    planned.data_plane = Err(UnsupportedCase::Room(why.source));
                }
            }
            local.open.push((back_end, ranks));
        }
        Ok(local)
    }
}

/// Leaves all cases of a back end, for that reason.
fn leave(plan: &mut Plan, back_end: BackEndRef, why: BackEndError) -> Result<(), ExecutorError> {
    let reason = why.source.to_string();
    let cases = plan.cases.iter_mut().filter(|planned| planned.case.transport == back_end);
    cases.for_each(|planned| planned.left = Some(reason.clone()));
    if plan.cases.iter().all(|planned| planned.left.is_some()) {
        Err(ExecutorError::BackEnd(why.source))
    } else {
        Ok(())
    }
}

impl BlockExecutor for Local {
    fn run(&mut self, plan: &Plan, request: BlockRequest) -> BlockResult {
        let planned = &plan.cases[request.index];
        let ranks = planned.case.topology.ranks();
        self.memories.resize_with(self.memories.len().max(ranks), RankMemory::default);
        let (memories, recorder) = (&mut self.memories[..ranks], plan.recorder(request));
        let job = plan.job(request, recorder.as_ref());
        let open = self.open.iter_mut().find(|(back_end, _)| *back_end == planned.case.transport);
        let (_, back_end) = open.expect("cases of back ends that are not open are left");
        let outcome = back_end.run(&job, memories);
        let outcome = outcome.and_then(|outcome| outcome.refusal().map_or(Ok(outcome), Err));
        BlockResult { outcome, records: recorder.map(|recorder| recorder.into_records()) }
    }
}
