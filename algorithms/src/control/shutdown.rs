//! The end of a cycle, and the shutdown of all ranks after it.

use super::answer::Answer;
use super::error::ControlError;
use super::mutation::{Mutation, Mutations};
use super::plane::Effect;
use super::queue::Queue;
use super::report::Report;

/// Whether this rank wants to shut down, and whether all ranks have.
pub(super) struct Shutdown {
    /// This rank wants all ranks to shut down.
    pub(super) is_wanted: bool,
    /// All ranks have shut down.
    is_over: bool,
    mutations: Mutations,
}

impl Shutdown {
    pub(super) fn new(mutations: Mutations) -> Shutdown {
        Shutdown { is_wanted: false, is_over: false, mutations }
    }

    /// Whether this rank sends the others its wish to shut down.
    pub(super) fn raised(&self) -> bool {
        self.is_wanted && !self.mutations.has(Mutation::ShutDownNotRaised)
    }

    pub(super) fn check(&self, rank: usize) -> Result<(), ControlError> {
        if self.is_over { Err(ControlError::ShutDown { rank }) } else { Ok(()) }
    }

    /// Ends the cycle with these responses, after which their tensors may become ready again.
    pub(super) fn end_cycle(
        &mut self,
        answer: Answer,
        queue: &mut Queue,
        report: &mut Report,
        out: &mut Vec<Effect>,
    ) {
        let dropped = answer.shut_down && self.mutations.has(Mutation::ShutDownDropsResponses);
        for response in answer.responses.into_iter().filter(|_| !dropped) {
            report.stops[response.stop as usize] += 1;
            queue.finish_all(&response.tensors);
            out.push(Effect::Execute(response));
        }
        if answer.shut_down {
            self.is_over = true;
            out.push(Effect::Stop(queue.unfinished()));
        }
        out.push(Effect::EndCycle);
    }
}
