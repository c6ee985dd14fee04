//! One rank's clock: what the engines by rounds and by events agree on.

use super::Moment;
use super::machine::{Level, Machine, Reduction};
use crate::schedule::{Action, Part};

/// What one rank's clock is at.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// Everything of the steps so far is received and combined.
    pub now: Moment,
    /// The processor has handed over all messages.
    handed_over_s: f64,
    /// Ports, to the own node and to the network, have nothing more to send, or to let in.
    sent: [Moment; 2],
    let_in: [Moment; 2],
    /// Everything that came is combined.
    combined: Moment,
    /// It sends something in this step.
    is_sending: bool,
}

/// What a clock needs to know of a message.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub level: Level,
    pub action: Action,
    pub bytes: f64,
    pub kappa_s: f64,
    /// Seconds that its bytes take alone, and as they share the way.
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

    /// Sends a message, after those before it; returns when its first byte leaves.
    pub fn send(&mut self, load: &Load, machine: &Machine) -> Moment {
        let handed_over_s = self.now.at_s.max(self.handed_over_s) + machine.overhead_s;
        let ready = self.now.reduction(handed_over_s - self.now.at_s);
        self.handed_over_s = handed_over_s;
        let port = &mut self.sent[port(load.level)];
        let begins = ready.later(*port);
        *port = begins.bytes(load.alone_s, load.shared_s);
        begins
    }

    /// Lets a message in whose first byte is there, and combines it.
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
