//! Drives a control plane over threads: performs its effects, until the cycle is over.

use std::sync::Arc;

use algorithms::control::{ControlError, ControlPlane, Effect, Event, Response, TensorId};
use algorithms::program::Program;
use algorithms::registry::Algorithm;
use algorithms::topology::Topology;
use algorithms::tree::Tree;
use thiserror::Error;

use crate::execute::execute;
use crate::memory::{Buffer, Memory};
use crate::transport::threads::{BITS, Endpoint, Mail};
use crate::transport::{Transport, TransportError};

/// Why a cycle did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NegotiateError {
    /// The control plane refuses to go on.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A rank does not answer.
    #[error("control plane: {0}")]
    Transport(#[from] TransportError),
}

/// One rank's control plane and its connections.
pub struct Negotiator {
    plane: Box<dyn ControlPlane>,
    /// The AND is a tree allreduce over the words, by the same executor that moves gradients.
    bits: Endpoint,
    mail: Mail,
    tree: Program,
    words: Memory,
    effects: Vec<Effect>,
    message: Vec<u8>,
    /// Bytes of control messages that this rank has sent.
    sent_bytes: usize,
}

impl Negotiator {
    /// A plane with links of its own for messages and for bits.
    pub fn new(plane: Box<dyn ControlPlane>, mail: Mail, bits: Endpoint) -> Negotiator {
        let world = Topology::flat(bits.ranks());
        let tree = Tree.schedule(&world).expect("a tree fits every world");
        Negotiator {
            plane,
            mail,
            tree: Program::compile(&*tree, bits.rank()),
            bits,
            words: Memory::new(0),
            effects: Vec::new(),
            message: Vec::new(),
            sent_bytes: 0,
        }
    }

    /// Bytes of control messages that this rank has sent since it was last asked.
    pub fn take_sent_bytes(&mut self) -> usize {
        std::mem::take(&mut self.sent_bytes)
    }

    /// One cycle: tells the plane what became ready and appends what all ranks do now.
    pub fn cycle(
        &mut self,
        ready: &[TensorId],
        responses: &mut Vec<Response>,
    ) -> Result<(), NegotiateError> {
        for &id in ready {
            self.plane.on(Event::Ready(id), &mut self.effects)?;
        }
        self.plane.on(Event::Cycle, &mut self.effects)?;
        loop {
            let effects = std::mem::take(&mut self.effects);
            let waiting = effects.is_empty();
            for effect in effects {
                match effect {
                    Effect::Send { to, message } => {
                        self.sent_bytes += message.len();
                        self.mail.send(to, message.into())?;
                    }
                    Effect::Broadcast(message) => self.broadcast(&message)?,
                    Effect::AllAnd(words) => {
                        self.all_and(&words)?;
                        let anded = &self.words.elements()[..words.len()];
                        self.plane.on(Event::AllAnded(anded), &mut self.effects)?;
                    }
                    Effect::Execute(response) => responses.push(response),
                    Effect::EndCycle => return Ok(()),
                }
            }
            if waiting {
                let mut message = std::mem::take(&mut self.message);
                let from = self.mail.receive(0, &mut message)?;
                self.plane.on(Event::Arrived { from, message: &message }, &mut self.effects)?;
                self.message = message;
            }
        }
    }

    /// Everything that was sent has been read; the memory of messages may go.
    pub fn flush(&mut self) -> Result<(), NegotiateError> {
        Ok(self.mail.flush()?)
    }

    fn broadcast(&mut self, message: &Arc<[u8]>) -> Result<(), NegotiateError> {
        let me = self.bits.rank();
        for to in (0..self.bits.ranks()).filter(|&to| to != me) {
            self.sent_bytes += message.len();
            self.mail.send(to, message.clone())?;
        }
        Ok(())
    }

    /// Leaves the bitwise AND of these words over all ranks in the first of `self.words`.
    fn all_and(&mut self, words: &[u64]) -> Result<(), NegotiateError> {
        let size_bytes = size_of_val(words);
        if self.words.size_bytes() < size_bytes {
            self.words = Memory::new(size_bytes);
        }
        self.words.elements_mut()[..words.len()].copy_from_slice(words);
        let (dtype, and) = BITS;
        let mut buffer = Buffer::new(dtype);
        buffer.push_first(&mut self.words, size_bytes);
        execute(&mut self.bits, &self.tree, &mut buffer, and)?;
        self.sent_bytes += self.tree.sends * size_bytes;
        Ok(())
    }
}
