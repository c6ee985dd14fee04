//! The coordinator: every cycle, every rank sends rank 0 the tensors that became ready; rank 0 counts, and
//! answers with those that are ready on all ranks.
//!
//! As a star it is Horovod's original plane (v0.13.3 to v0.16.1), and still its slow path: a gather of
//! request lists and a broadcast of responses in every cycle, even idle ones. The work of rank 0 grows with
//! ranks x tensors. As a tree, each rank has at most `radix` children and passes on the tensors that are
//! ready in all of its subtree; after Kurth et al., "Exascale Deep Learning for Climate Analytics", SC 2018.

use std::sync::Arc;

use super::error::ControlError;
use super::negotiation::Negotiation;
use super::plane::{ControlPlane, Effect, Event};
use super::queue::Queue;
use super::report::Report;
use super::settings::Settings;
use super::shutdown::Shutdown;
use super::tensors::Tensors;
use crate::topology::Rank;

/// The star's name in configurations and CSV files.
pub const NAME: &str = "coordinator";

/// The tree's name; its radix may follow, as in `tree:4`.
pub const TREE: &str = "tree";

/// The default radix: a rank has at most this many children.
pub const RADIX: usize = 4;

/// Negotiates by rank 0 in every cycle.
pub struct Coordinator {
    name: String,
    queue: Queue,
    negotiation: Negotiation,
    shutdown: Shutdown,
    drained: Vec<u32>,
}

impl Coordinator {
    /// The plane of one rank in a star: every rank sends to rank 0.
    pub fn star(tensors: Arc<Tensors>, settings: &Settings) -> Coordinator {
        Coordinator::new(NAME.into(), None, tensors, settings)
    }

    /// The plane of one rank in a tree: every rank has at most `radix` children.
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
            shutdown: Shutdown::new(settings.mutations),
            drained: Vec::new(),
        }
    }
}

impl ControlPlane for Coordinator {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError> {
        self.shutdown.check(self.negotiation.rank())?;
        let answer = match event {
            Event::Ready(ids) => return self.queue.push(ids),
            Event::ShutDown => {
                self.shutdown.is_wanted = true;
                return Ok(());
            }
            Event::Cycle(now) => {
                self.negotiation.report.cycles += 1;
                self.shutdown.is_wanted |= self.negotiation.look_for_stalls(now, out);
                self.queue.drain(&mut self.drained);
                let wanted = self.shutdown.raised();
                self.negotiation.request(&self.drained, Vec::new(), wanted, now, out)?
            }
            Event::Arrived { from, message } => {
                self.negotiation.arrived(from, message, &self.queue, out)?
            }
            Event::Combined(_) => return Err(self.negotiation.unexpected("Combined")),
        };
        if let Some(answer) = answer {
            self.shutdown.end_cycle(answer, &mut self.queue, &mut self.negotiation.report, out);
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
