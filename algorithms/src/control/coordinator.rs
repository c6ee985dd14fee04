//! The coordinator: every cycle, every rank tells rank 0 what became ready; rank 0 counts, and answers
//! with what is ready everywhere.
//!
//! As a star it is Horovod's original plane (v0.13.3 to v0.16.1), and to this day its slow path: a gather
//! of request lists and a broadcast of responses in every cycle, idle ones too. The work of rank 0 grows
//! with ranks x tensors. As a tree of some radix, ranks pass on what is ready in all of their
//! subtree, and no rank hears from more than `radix` others; after Kurth et al., "Exascale Deep Learning
//! for Climate Analytics", SC 2018.

use std::sync::Arc;

use super::answer::Answer;
use super::flaw::{Flaw, Flaws};
use super::negotiation::Negotiation;
use super::queue::Queue;
use super::{ControlError, ControlPlane, Effect, Event, Report, Settings, Tensors};
use crate::topology::Rank;

/// The star's name in configurations and CSV files.
pub const NAME: &str = "coordinator";

/// The tree's; its radix may follow, as in `tree:4`.
pub const TREE: &str = "tree";

/// A rank's children in a tree, unless the name says so.
pub const RADIX: usize = 4;

/// Asks rank 0 in every cycle.
pub struct Coordinator {
    name: String,
    queue: Queue,
    negotiation: Negotiation,
    ending: Ending,
    drained: Vec<u32>,
}

impl Coordinator {
    /// The plane of one rank, in which every rank talks to rank 0.
    pub fn star(tensors: Arc<Tensors>, settings: &Settings) -> Coordinator {
        Coordinator::new(NAME.into(), None, tensors, settings)
    }

    /// The plane of one rank, in which nobody hears from more than `radix` others.
    pub fn tree(tensors: Arc<Tensors>, settings: &Settings, radix: usize) -> Coordinator {
        Coordinator::new(format!("{TREE}:{radix}"), Some(radix), tensors, settings)
    }

    fn new(
        name: String,
        radix: Option<usize>,
        tensors: Arc<Tensors>,
        settings: &Settings,
    ) -> Coordinator {
        Coordinator {
            name,
            queue: Queue::new(tensors.clone()),
            negotiation: Negotiation::new(tensors, settings, radix),
            ending: Ending::new(settings.flaws),
            drained: Vec::new(),
        }
    }
}

impl ControlPlane for Coordinator {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError> {
        self.ending.check(self.negotiation.rank())?;
        let answer = match event {
            Event::Ready(ids) => return self.queue.push(ids),
            Event::ShutDown => {
                self.ending.wanted = true;
                return Ok(());
            }
            Event::Cycle(now) => {
                self.negotiation.report.cycles += 1;
                self.ending.wanted |= self.negotiation.look_for_stalls(now, out);
                self.queue.drain(&mut self.drained);
                let wanted = self.ending.raised();
                self.negotiation.request(&self.drained, Vec::new(), wanted, now, out)?
            }
            Event::Arrived { from, message } => {
                self.negotiation.arrived(from, message, &self.queue, out)?
            }
            Event::Combined(_) => return Err(self.negotiation.unexpected("Combined")),
        };
        if let Some(answer) = answer {
            self.ending.carry_out(answer, &mut self.queue, &mut self.negotiation.report, out);
        }
        Ok(())
    }

    fn waits_for(&self) -> Vec<Rank> {
        self.negotiation.waits_for()
    }

    fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.negotiation.report)
    }
}

/// How a cycle ends, and all of them.
pub(super) struct Ending {
    /// This rank wants all to stop.
    pub(super) wanted: bool,
    /// They have.
    is_over: bool,
    flaws: Flaws,
}

impl Ending {
    pub(super) fn new(flaws: Flaws) -> Ending {
        Ending { wanted: false, is_over: false, flaws }
    }

    /// Whether this rank tells the others that it wants to stop.
    pub(super) fn raised(&self) -> bool {
        self.wanted && !self.flaws.has(Flaw::ShutDownNotRaised)
    }

    pub(super) fn check(&self, rank: usize) -> Result<(), ControlError> {
        if self.is_over { Err(ControlError::ShutDown { rank }) } else { Ok(()) }
    }

    /// Ends the cycle with these responses, after which their tensors may become ready anew.
    pub(super) fn carry_out(
        &mut self,
        answer: Answer,
        queue: &mut Queue,
        report: &mut Report,
        out: &mut Vec<Effect>,
    ) {
        let dropped = answer.shut_down && self.flaws.has(Flaw::ShutDownDropsResponses);
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
