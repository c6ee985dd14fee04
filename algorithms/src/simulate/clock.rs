//! One rank's clock: what the engines by rounds and by events agree on.

use super::Moment;
use super::machine::{Level, Machine, Reduction};
use crate::schedule::{Action, Part};

/// The clock of one rank.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// When all messages of the steps so far are received and reduced.
    pub now: Moment,
    /// When the processor has posted all messages.
    handed_over_s: f64,
    /// When each port (to the own node, to the network) has sent, or received, all its messages.
    sent: [Moment; 2],
    let_in: [Moment; 2],
    /// When all received messages are reduced.
    combined: Moment,
    /// Whether it sends in this step.
    is_sending: bool,
}

/// The properties of a message that a clock needs.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub level: Level,
    pub action: Action,
    pub bytes: f64,
    pub kappa_s: f64,
    /// Seconds that its bytes take without contention, and with it.
    pub alone_s: f64,
    pub shared_s: f64,
}

impl Clock {
    /// A rank that begins at this time.
    pub fn start(at_s: f64) -> Clock {
        let now = Moment::start(at_s);
        let never = [Moment::default(); 2];
        Clock {
            now,
            handed_over_s: at_s,
            sent: never,
            let_in: never,
            combined: now,
            is_sending: false,
        }
    }

    /// Begins a step.
    pub fn step(&mut self, part: &Part) {
        self.is_sending = !part.sends.is_empty();
    }

    /// Sends a message that is there at `ready`, after those before it; returns when its first byte leaves.
    pub fn send(&mut self, ready: Moment, load: &Load, machine: &Machine) -> Moment {
        let handed_over_s = ready.at_s.max(self.handed_over_s) + machine.overhead_s;
        let ready = ready.reduction(handed_over_s - ready.at_s);
        self.handed_over_s = handed_over_s;
        let port = &mut self.sent[port(load.level)];
        let begins = ready.later(*port);
        *port = begins.bytes(load.alone_s, load.shared_s);
        begins
    }

    /// Receives a message whose first byte has arrived, and reduces it.
    pub fn take(&mut self, first_byte: Moment, load: &Load, machine: &Machine) {
        let port = &mut self.let_in[port(load.level)];
        let here = first_byte.later(*port).bytes(load.alone_s, load.shared_s);
        *port = here;
        let Reduction { sending, silent } = machine.reduction;
        let rates = if self.is_sending { sending } else { silent };
        let per_byte = match load.action {
            Action::Reduce => rates.gamma_s,
            Action::Copy => rates.copy_s,
        };
        self.combined = here.later(self.combined).reduction(load.kappa_s + load.bytes * per_byte);
        self.now = self.now.later(self.combined);
    }
}

/// A rank's port for that kind of link.
fn port(level: Level) -> usize {
    usize::from(level == Level::Network)
}
