//! Drives a control plane over a transport: performs its effects, until the cycle is over.

use std::sync::Arc;
use std::time::Instant;

use algorithms::algorithm::Algorithm;
use algorithms::control::{
    Bitwise, ControlError, ControlPlane, DataType, Effect, Event, Report, Response, Stalled,
    TensorId,
};
use algorithms::program::Program;
use algorithms::recursive_doubling::RecursiveDoubling;
use algorithms::topology::Topology;
use thiserror::Error;

use transports::execute::execute;
use transports::kernel::ElementOp;
use transports::memory::{Buffer, Memory};
use transports::transport::{MessageChannel, Transport, TransportError};

/// The algorithm that combines bits.
const BITS: RecursiveDoubling = RecursiveDoubling;

/// Why a cycle did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NegotiateError {
    /// The control plane reported an error.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A rank does not answer.
    #[error("control plane: {0}")]
    Transport(#[from] TransportError),
}

/// One rank's control plane and its connections.
pub struct Negotiator<B, M> {
    plane: Box<dyn ControlPlane>,
    start: Instant,
    /// Bits are combined by an allreduce of words, by the same executor that moves gradients.
    bits: B,
    control: M,
    program: Program,
    words: Memory,
    effects: Vec<Effect>,
    message: Vec<u8>,
    /// Bytes of control messages that this rank has sent.
    sent_bytes: usize,
    warnings: Vec<Stalled>,
    stopped: Option<Vec<TensorId>>,
    /// Nothing became ready in the last cycle.
    was_idle: bool,
}

impl<B: Transport, M: MessageChannel> Negotiator<B, M> {
    /// A plane with links of its own for messages and for bits.
    pub fn new(plane: Box<dyn ControlPlane>, control: M, bits: B) -> Self {
        let world = Topology::flat(bits.ranks());
        let schedule = BITS.schedule(&world).expect("it fits every world");
        Negotiator {
            plane,
            start: Instant::now(),
            control,
            program: Program::compile(&*schedule, bits.rank()),
            bits,
            words: Memory::new(0),
            effects: Vec::new(),
            message: Vec::new(),
            sent_bytes: 0,
            warnings: Vec::new(),
            stopped: None,
            was_idle: false,
        }
    }

    /// Bytes of control messages that this rank has sent since the last call.
    pub fn take_sent_bytes(&mut self) -> usize {
        std::mem::take(&mut self.sent_bytes)
    }

    /// The plane's report since the last call.
    pub fn take_report(&mut self) -> Report {
        self.plane.take_report()
    }

    /// Stalled tensors reported since the last call.
    pub fn take_warnings(&mut self) -> Vec<Stalled> {
        std::mem::take(&mut self.warnings)
    }

    /// After all ranks have stopped: this rank's tensors that were ready and not reduced.
    pub fn stopped(&self) -> Option<&[TensorId]> {
        self.stopped.as_deref()
    }

    /// Requests a shutdown of all ranks from the next cycle on.
    ///
    /// # Errors
    /// When they have already stopped.
    pub fn shut_down(&mut self) -> Result<(), NegotiateError> {
        Ok(self.plane.on(Event::ShutDown, &mut self.effects)?)
    }

    /// False if the plane runs a cycle whenever a tensor is ready, whatever the cycle time.
    pub fn is_paced(&self) -> bool {
        self.plane.is_paced()
    }

    /// One cycle: passes newly ready tensors to the plane, and appends the messages that all ranks execute now.
    ///
    /// # Errors
    /// When the control plane reports an error, or a message does not arrive in time.
    pub fn cycle(
        &mut self,
        ready: &[TensorId],
        responses: &mut Vec<Response>,
    ) -> Result<(), NegotiateError> {
        // A rank that has been idle for two cycles does not wait urgently.
        let calm = ready.is_empty() && self.was_idle;
        self.was_idle = ready.is_empty();
        self.bits.set_calm(calm);
        self.control.set_calm(calm);
        let mut effects = std::mem::take(&mut self.effects);
        if !ready.is_empty() {
            self.plane.on(Event::Ready(ready), &mut effects)?;
        }
        self.plane.on(Event::Cycle(self.start.elapsed()), &mut effects)?;
        let mut next = Vec::new();
        let mut is_over = false;
        while !is_over {
            if effects.is_empty() {
                let mut message = std::mem::take(&mut self.message);
                let expecting = self.plane.waits_for().first().copied().unwrap_or(0);
                let from = self.control.receive(expecting, &mut message)?;
                self.plane.on(Event::Arrived { from, message: &message }, &mut next)?;
                self.message = message;
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Send { to, message } => {
                        self.sent_bytes += message.len();
                        self.control.send(to, message)?;
                    }
                    Effect::Broadcast(message) => self.broadcast(&message)?,
                    Effect::Bitwise(bitwise, words) => {
                        self.combine(bitwise, &words)?;
                        let combined = &self.words.elements()[..words.len()];
                        self.plane.on(Event::Combined(combined), &mut next)?;
                    }
                    Effect::Execute(response) => responses.push(response),
                    Effect::Warn(stalled) => self.warnings.push(stalled),
                    Effect::Stop(unfinished) => self.stopped = Some(unfinished),
                    Effect::EndCycle => is_over = true,
                }
            }
            std::mem::swap(&mut effects, &mut next);
        }
        self.effects = effects;
        Ok(())
    }

    /// Everything that was sent has been read; the memory of messages may go.
    ///
    /// # Errors
    /// When a message is not read in time.
    pub fn flush(&mut self) -> Result<(), NegotiateError> {
        Ok(self.control.flush()?)
    }

    fn broadcast(&mut self, message: &Arc<[u8]>) -> Result<(), NegotiateError> {
        let me = self.bits.rank();
        for to in (0..self.bits.ranks()).filter(|&to| to != me) {
            self.sent_bytes += message.len();
            self.control.send(to, message.clone())?;
        }
        Ok(())
    }

    /// Leaves these words, combined over all ranks, in the first of `self.words`.
    fn combine(&mut self, bitwise: Bitwise, words: &[u64]) -> Result<(), NegotiateError> {
        let size_bytes = size_of_val(words);
        if self.words.size_bytes() < size_bytes {
            self.words = Memory::new(size_bytes);
        }
        self.words.elements_mut()[..words.len()].copy_from_slice(words);
        let combine = match bitwise {
            Bitwise::And => ElementOp::And,
            Bitwise::Or => ElementOp::Or,
        };
        let mut buffer = Buffer::new(DataType::I64);
        buffer.push_first(&mut self.words, size_bytes);
        execute(&mut self.bits, &self.program, &mut buffer, combine)?;
        self.sent_bytes += self.program.sends * size_bytes;
        Ok(())
    }
}
