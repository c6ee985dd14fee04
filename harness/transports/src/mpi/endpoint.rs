//! Sends and receives as nonblocking messages between processes.
//!
//! Contiguous data are sent from the buffer, and received into it if nothing else still uses the destination; all
//! other data go through staging memory.

use std::collections::VecDeque;
use std::rc::Rc;

use algorithms::program::{Kind, Op, Program};
use algorithms::schedule::Action;
use algorithms::topology::Rank;

use super::comm::{Comm, Requests};
use super::wait::Waiting;
use crate::memory::Memory;
use crate::transport::chunks::{MOST_MERGED, Place, combine, copy, size_bytes};
use crate::transport::{Collective, Transport, TransportError};

/// One process's end of a communicator.
pub struct Endpoint {
    comm: Rc<Comm>,
    waiting: Waiting,
    /// Sends of the running collective, and the staging memory that they read.
    sends: Vec<(Requests, Option<Memory>)>,
    /// How many of them have completed.
    settled: usize,
    /// Receives that have started and are not finished, in order.
    arriving: VecDeque<Arriving>,
    /// Data of staged receives.
    staged: Vec<Option<Memory>>,
    /// Staging memory, kept for reuse.
    spare: Vec<Memory>,
}

/// A receive that has started.
struct Arriving {
    op: Op,
    requests: Requests,
    /// Its destination, if not directly the buffer.
    aside: Option<Memory>,
}

impl Endpoint {
    /// An endpoint that nothing else uses.
    pub fn new(comm: Rc<Comm>, waiting: Waiting) -> Endpoint {
        Endpoint {
            comm,
            waiting,
            sends: Vec::new(),
            settled: 0,
            arriving: VecDeque::new(),
            staged: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The communicator.
    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Staging memory of at least that size: the smallest that is free, or a new block.
    fn aside(&mut self, size_bytes: usize) -> Memory {
        let fits = |(index, memory): (usize, &Memory)| {
            Some((memory.size_bytes(), index)).filter(|(size, _)| *size >= size_bytes)
        };
        match self.spare.iter().enumerate().filter_map(fits).min() {
            Some((_, index)) => self.spare.swap_remove(index),
            // It replaces a block that is too small, so that there are never more blocks than are needed at once.
            None => {
                drop(self.spare.pop());
                Memory::new(size_bytes)
            }
        }
    }

    fn send(&mut self, collective: &Collective, op: &Op) -> Result<(), TransportError> {
        let (to, size) = (op.entry.peer(), size_bytes(collective, op));
        if size == 0 {
            self.sends.push((Requests::none(self.comm.rank(), Some(to)), None));
            return Ok(());
        }
        let (bytes, aside) = match only_piece(collective, op) {
            Some(bytes) => (bytes, None),
            None => {
                let mut aside = self.aside(size);
                let bytes = aside.elements_mut::<u8>().as_mut_ptr();
                // SAFETY: the buffer is this rank's to read while the send starts, and there is room.
                unsafe { copy(collective, op, Place::Own, Place::Bytes(bytes)) };
                (bytes, Some(aside))
            }
        };
        // SAFETY: the program forbids writes to the chunks before the send is settled; staging memory is kept
        // until then.
        let requests = unsafe { self.comm.send(bytes, size, to)? };
        self.sends.push((requests, aside));
        Ok(())
    }

    fn begin_to_receive(&mut self, collective: &Collective, op: &Op) -> Result<(), TransportError> {
        let (from, size) = (op.entry.peer(), size_bytes(collective, op));
        if size == 0 {
            let requests = Requests::none(self.comm.rank(), Some(from));
            self.arriving.push_back(Arriving { op: *op, requests, aside: None });
            return Ok(());
        }
        let (into, aside) = match self.straight(collective, op)? {
            Some(into) => (into, None),
            None => {
                let mut aside = self.aside(size);
                (aside.elements_mut::<u8>().as_mut_ptr(), Some(aside))
            }
        };
        // SAFETY: there is room, in staging memory or where no rank reads or writes, see `straight`.
        let requests = unsafe { self.comm.receive(into, size, from)? };
        self.arriving.push_back(Arriving { op: *op, requests, aside });
        Ok(())
    }

    /// The address for receiving directly into the buffer: the data overwrite one piece, all sends from it have
    /// completed, and no earlier receive is still to write it.
    fn straight(
        &mut self,
        collective: &Collective,
        op: &Op,
    ) -> Result<Option<*mut u8>, TransportError> {
        if op.entry.action != Action::Copy || op.staged {
            return Ok(None);
        }
        while self.settled < (op.after_sends as usize).min(self.sends.len())
            && self.sends[self.settled].0.is_over()?
        {
            self.settle_next();
        }
        let own = op.entry.chunks();
        let touches = |other: &Arriving| {
            let other = other.op.entry.chunks();
            other.start < own.end && own.start < other.end
        };
        let is_free = self.settled >= op.after_sends as usize && !self.arriving.iter().any(touches);
        Ok(only_piece(collective, op).filter(|_| is_free))
    }

    fn settle_next(&mut self) {
        self.spare.extend(self.sends[self.settled].1.take());
        self.settled += 1;
    }

    /// Waits for the oldest receive.
    fn first(&mut self) -> Result<Option<Memory>, TransportError> {
        let mut first = self.arriving.pop_front().expect("receives begin before they are finished");
        self.waiting.request(&mut first.requests)?;
        Ok(first.aside)
    }

    /// Combines staged data with the buffer, and keeps the memory.
    fn combine(&mut self, collective: &Collective, op: &Op, asides: &mut [Option<Memory>]) {
        let mut places = [Place::Own; MOST_MERGED];
        for (place, aside) in places.iter_mut().zip(&mut *asides) {
            let aside = aside.as_mut().expect("it was put aside");
            *place = Place::Bytes(aside.elements_mut::<u8>().as_mut_ptr());
        }
        // SAFETY: the chunks are this rank's to write, since the program has waited for its own sends of them; the
        // staged data have the same length.
        unsafe { combine(collective, op, &places[..asides.len()]) };
        self.spare.extend(asides.iter_mut().filter_map(Option::take));
    }
}

/// The address of the chunks of a transfer, if they are contiguous.
fn only_piece(collective: &Collective, op: &Op) -> Option<*mut u8> {
    let buffer = collective.buffer;
    let mut pieces = buffer.pieces(collective.bounds.elements(&op.entry));
    let (block, offset, _) = pieces.next()?;
    pieces.next().is_none().then(|| buffer.address(block, offset))
}

impl Transport for Endpoint {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn ranks(&self) -> usize {
        self.comm.ranks()
    }

    fn puts(&self) -> bool {
        false
    }

    fn prepare(&mut self, program: &Program, most_bytes: usize) {
        self.sends.reserve(program.sends);
        // As many receives as two steps have; that many are in flight at once.
        let mut steps: Vec<(u32, usize, usize)> = Vec::new();
        for op in &program.receives {
            let bytes = op.entry.chunks().len() * (most_bytes / program.chunks + 8);
            match steps.last_mut().filter(|(step, ..)| *step == op.step) {
                Some((_, count, most)) => (*count, *most) = (*count + 1, bytes.max(*most)),
                None => steps.push((op.step, 1, bytes)),
            }
        }
        let together = steps.windows(2).map(|pair| pair[0].1 + pair[1].1).max();
        let count = together.or(steps.first().map(|step| step.1)).unwrap_or(0);
        let most_bytes = steps.iter().map(|step| step.2).max().unwrap_or(0);
        let enough = self.spare.iter().filter(|memory| memory.size_bytes() >= most_bytes).count();
        self.spare.extend((enough..count).map(|_| Memory::new(most_bytes)));
    }

    fn begin(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        // A message whose receive has already started needs no buffering.
        for op in batch.iter().filter(|op| op.kind == Kind::Receive) {
            self.begin_to_receive(collective, op)?;
        }
        for op in batch.iter().filter(|op| op.kind == Kind::Send) {
            self.send(collective, op)?;
        }
        Ok(())
    }

    fn receive(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        let mut rest = batch;
        while let Some(op) = rest.first() {
            let mut asides = [const { None }; MOST_MERGED];
            asides[0] = self.first()?;
            let mut here = 1;
            if asides[0].is_some() {
                while here < rest.len().min(MOST_MERGED)
                    && self.arriving.front_mut().is_some_and(|next| next.aside.is_some())
                    && self.arriving[0].requests.is_over()?
                {
                    asides[here] = self.first()?;
                    here += 1;
                }
                self.combine(collective, op, &mut asides[..here]);
            }
            rest = &rest[here..];
        }
        Ok(())
    }

    fn stage(&mut self, _: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        for _ in batch {
            let aside = self.first()?;
            self.staged.push(aside);
        }
        Ok(())
    }

    fn unstage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        let mut staged = std::mem::take(&mut self.staged);
        let mut done = 0;
        while let Some(first) = batch.get(done) {
            let merges = |op: &&Op| first.merges_with(op);
            let count = batch[done..].iter().take(MOST_MERGED).take_while(merges).count().max(1);
            if size_bytes(collective, first) > 0 {
                self.combine(collective, first, &mut staged[done..done + count]);
            }
            done += count;
        }
        staged.clear();
        self.staged = staged;
        Ok(())
    }

    fn settle(&mut self, sends: usize) -> Result<(), TransportError> {
        while self.settled < sends {
            self.waiting.request(&mut self.sends[self.settled].0)?;
            self.settle_next();
        }
        Ok(())
    }

    /// After an error, messages may still be in flight into memory that the caller is about to free: the process
    /// ends, see [`super::give_up`].
    fn finish(
        &mut self,
        _: &Collective,
        _: &Program,
        ended: Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        if let Err(error) = ended {
            super::give_up(&error);
        }
        self.sends.clear();
        self.settled = 0;
        Ok(())
    }
}
