//! Interprets one rank's records. Times are in nanoseconds, as in the records; spans without an end have none.

use std::collections::HashMap;

use super::record::{Event, Record};

/// The history of one rank.
#[derive(Debug, Default)]
pub struct History {
    pub steps: Vec<Step>,
    pub cycles: Vec<Cycle>,
    pub messages: Vec<Message>,
    pub reductions: Vec<Reduction>,
    /// The bound of the errors of its times.
    pub clock_error_ns: u64,
    /// The last known time.
    pub last_ns: u64,
    /// Number of finished messages, and the end of the last.
    over: usize,
    over_ns: u64,
}

/// A training step.
#[derive(Debug)]
pub struct Step {
    pub begin_ns: u64,
    pub end_ns: Option<u64>,
}

/// A cycle of the background loop.
#[derive(Debug)]
pub struct Cycle {
    pub begin_ns: u64,
    /// Start of its negotiation.
    pub negotiation_ns: Option<u64>,
    pub negotiated_ns: Option<u64>,
    /// Messages agreed on, and those of them that have not finished.
    pub messages: u32,
    pub left: u32,
    /// The end of its last message, or of the negotiation if there is none.
    pub end_ns: Option<u64>,
}

/// An allreduce of one or several tensors.
#[derive(Debug)]
pub struct Message {
    pub begin_ns: u64,
    pub end_ns: Option<u64>,
    pub packing_ns: u64,
    pub unpacking_ns: u64,
    pub tensors: Vec<u32>,
    /// Position in the history.
    pub cycle: usize,
}

/// A tensor's way from ready to reduced.
#[derive(Debug)]
pub struct Reduction {
    pub tensor: u32,
    /// How often it had been ready before.
    pub round: usize,
    pub ready_ns: u64,
    /// The message that carries it: position in the history.
    pub message: Option<usize>,
}

impl History {
    /// Reads a rank's records.
    pub fn of(records: &[Record]) -> History {
        let mut history = History::default();
        // Per tensor: how often it was ready, and its reduction that waits for a message.
        let mut tensors: HashMap<u32, (usize, Option<usize>)> = HashMap::new();
        for &Record { time_ns, event } in records {
            history.last_ns = history.last_ns.max(time_ns);
            match event {
                Event::Ready(tensor) => {
                    let (round, open) = tensors.entry(tensor).or_default();
                    *open = Some(history.reductions.len());
                    let reduction =
                        Reduction { tensor, round: *round, ready_ns: time_ns, message: None };
                    history.reductions.push(reduction);
                    *round += 1;
                }
                Event::Tensor(tensor) => {
                    let open = tensors.get_mut(&tensor).and_then(|(_, open)| open.take());
                    if let Some(index) = open {
                        history.reductions[index].message = history.messages.len().checked_sub(1);
                    }
                    if let Some(message) = history.messages.last_mut() {
                        message.tensors.push(tensor);
                    }
                }
                other => history.happened(time_ns, other),
            }
        }
        history
    }

    /// Events without a tensor.
    fn happened(&mut self, time_ns: u64, event: Event) {
        let (steps, cycles) = (&mut self.steps, &mut self.cycles);
        match (event, steps.last_mut(), cycles.last_mut()) {
            (Event::Step, ..) => steps.push(Step { begin_ns: time_ns, end_ns: None }),
            (Event::StepEnded, Some(step), _) => step.end_ns = Some(time_ns),
            (Event::Cycle, ..) => cycles.push(Cycle {
                begin_ns: time_ns,
                negotiation_ns: None,
                negotiated_ns: None,
                messages: 0,
                left: 0,
                end_ns: None,
            }),
            (Event::Negotiation, _, Some(cycle)) => cycle.negotiation_ns = Some(time_ns),
            (Event::Negotiated { messages }, _, Some(cycle)) => {
                cycle.negotiated_ns = Some(time_ns);
                (cycle.messages, cycle.left) = (messages, messages);
                cycle.end_ns = (messages == 0).then_some(time_ns);
            }
            (Event::Message, ..) => self.messages.push(Message {
                begin_ns: time_ns,
                end_ns: None,
                packing_ns: 0,
                unpacking_ns: 0,
                tensors: Vec::new(),
                cycle: cycles.len().saturating_sub(1),
            }),
            (Event::Clock { error_ns }, ..) => self.clock_error_ns = error_ns,
            (Event::Reduced { packing_ns, unpacking_ns }, ..) => {
                self.reduced(time_ns, packing_ns, unpacking_ns);
            }
            _ => {}
        }
    }

    /// Ends the oldest message in flight. Devices reduce messages one after the other: one starts when the
    /// previous one has finished.
    fn reduced(&mut self, end_ns: u64, packing_ns: u64, unpacking_ns: u64) {
        let Some(message) = self.messages.get_mut(self.over) else { return };
        message.begin_ns = message.begin_ns.max(self.over_ns);
        message.end_ns = Some(end_ns);
        (message.packing_ns, message.unpacking_ns) = (packing_ns, unpacking_ns);
        (self.over, self.over_ns) = (self.over + 1, end_ns);
        if let Some(cycle) = self.cycles.get_mut(message.cycle) {
            cycle.left = cycle.left.saturating_sub(1);
            cycle.end_ns = (cycle.left == 0).then_some(end_ns);
        }
    }

    /// The time at which the rank agreed to reduce a tensor.
    pub fn agreed_ns(&self, reduction: &Reduction) -> Option<u64> {
        let message = &self.messages[reduction.message?];
        self.cycles.get(message.cycle)?.negotiated_ns
    }

    /// The message is not the first of its cycle.
    pub fn is_queued(&self, message: usize) -> bool {
        message > 0 && self.messages[message - 1].cycle == self.messages[message].cycle
    }
}
