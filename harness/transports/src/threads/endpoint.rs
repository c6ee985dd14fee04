//! One rank's end of all its channels: sending, waiting, receiving, and giving up.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use algorithms::program::{Kind, Op, Program};
use algorithms::topology::Rank;

use super::Links;
use super::channel::{Channel, Message};
use crate::memory::Memory;
use crate::transport::chunks::{MOST_MERGED, Place, combine, copy, size_bytes};
use crate::transport::{Collective, Transport, TransportError};

/// How often a parked rank checks whether another rank has given up.
const PARK: Duration = Duration::from_millis(20);
/// How long a rank without wake-ups sleeps between checks once it has waited for longer than `AWAKE`.
const NAP: Duration = Duration::from_micros(100);
/// How long a waiting rank without wake-ups only yields.
const AWAKE: Duration = Duration::from_millis(10);
/// How long a waiting rank yields before it sleeps: waking an idle core is slow, above all in a virtual machine.
const YIELDING: Duration = Duration::from_micros(500);

/// One rank's end of all its channels.
pub struct Endpoint {
    pub(super) links: Arc<Links>,
    pub(super) rank: Rank,
    /// Messages sent to each rank, over all collectives.
    pub(super) posted: Vec<u64>,
    /// Messages taken from each rank.
    pub(super) taken: Vec<u64>,
    /// Messages that each rank is known to have taken from this one.
    acknowledged: Vec<u64>,
    /// The last message to each rank in each slot that was not posted beside the slot.
    last: Vec<[u64; 2]>,
    /// Number of the running collective.
    collective: u64,
    /// The last view that each rank has sent of its buffer, and the collective it belongs to.
    views: Vec<(u64, *const ())>,
    /// Sends of the running collective: the receiver, and the count at which the send has been taken.
    pub(super) sends: Vec<(Rank, u64)>,
    /// How many of them are known to have been taken.
    pub(super) settled: usize,
    /// Completed receives of the running collective.
    received: usize,
    /// Memory of staged receives, kept for reuse.
    aside: Vec<Memory>,
    /// Waiting ranks sleep soon and free their core.
    calm: bool,
}

impl Endpoint {
    pub(super) fn new(links: Arc<Links>, rank: Rank) -> Endpoint {
        let ranks = links.ranks;
        Endpoint {
            links,
            rank,
            posted: vec![0; ranks],
            taken: vec![0; ranks],
            acknowledged: vec![0; ranks],
            last: vec![[0; 2]; ranks],
            collective: 1,
            views: vec![(0, std::ptr::null()); ranks],
            sends: Vec::new(),
            settled: 0,
            received: 0,
            aside: Vec::new(),
            calm: false,
        }
    }

    /// Sends the address and length of bytes that stay unchanged until [`Self::is_taken`].
    pub(super) fn post(&mut self, to: Rank, address: *mut (), length: u64) {
        self.posted[to] += 1;
        let (channel, count) = (self.links.channel(self.rank, to), self.posted[to]);
        channel.post_aside(count, address, length, self.taken[to]);
        self.wake(to);
    }

    /// Marks the oldest message of `from` as taken.
    pub(super) fn take(&mut self, from: Rank) {
        self.taken[from] += 1;
        self.links.channel(from, self.rank).take(self.taken[from]);
        self.wake(from);
    }

    fn wake(&self, peer: Rank) {
        if self.links.parks {
            let thread = || self.links.places[peer].thread.get().expect("who parks has joined");
            self.links.parkers[peer].wake(|| thread().unpark());
        }
    }

    /// Waits for a condition that depends on another rank; `peer` names it, if known.
    #[inline]
    pub(super) fn wait(
        &self,
        peer: impl Fn() -> Rank,
        condition: impl Fn(&Links) -> bool,
    ) -> Result<(), TransportError> {
        // If ranks share a core, a spinning rank keeps the core from the rank it waits for.
        let spins = if self.links.crowded || self.calm { 20 } else { 4000 };
        for _ in 0..spins {
            if condition(&self.links) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.wait_long(peer, condition)
    }

    #[cold]
    fn wait_long(
        &self,
        peer: impl Fn() -> Rank,
        condition: impl Fn(&Links) -> bool,
    ) -> Result<(), TransportError> {
        let waits = &self.links.waits[self.rank];
        waits.store(peer() + 1, Ordering::Relaxed);
        self.wait_patiently(peer, condition)?;
        // A rank that gives up stays marked as waiting, so that others do not blame it.
        waits.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn wait_patiently(
        &self,
        peer: impl Fn() -> Rank,
        condition: impl Fn(&Links) -> bool,
    ) -> Result<(), TransportError> {
        let start = Instant::now();
        let mut waited = Duration::ZERO;
        loop {
            let sleeps = (waited >= YIELDING || self.calm) && self.links.parks;
            let holds = if sleeps {
                self.links.parkers[self.rank].is_up(|| condition(&self.links))
            } else {
                condition(&self.links)
            };
            if holds {
                return Ok(());
            }
            if self.links.aborted.load(Ordering::SeqCst) {
                return Err(self.links.abortion());
            }
            if waited > self.links.timeout {
                let peer = self.links.blame(self.rank, peer());
                return Err(TransportError::Silent { rank: self.rank, peer, waited });
            }
            match sleeps {
                true => std::thread::park_timeout(PARK),
                false if waited < AWAKE => std::thread::yield_now(),
                false => std::thread::sleep(NAP),
            }
            waited = start.elapsed();
        }
    }

    /// The next message from a rank.
    pub(super) fn next(&self, from: Rank) -> (&Channel, u64) {
        (self.links.channel(from, self.rank), self.taken[from] + 1)
    }

    /// Waits for the next message of a rank.
    #[inline]
    pub(super) fn arrived(&mut self, from: Rank) -> Result<(), TransportError> {
        self.still_here()?;
        let next = self.taken[from] + 1;
        let channel = self.links.channel(from, self.rank);
        self.wait(|| from, |_| channel.is_posted(next))?;
        self.acknowledged[from] = self.acknowledged[from].max(channel.acknowledged(next));
        Ok(())
    }

    /// After an abort, senders leave without waiting for receivers that begin to read now.
    fn still_here(&self) -> Result<(), TransportError> {
        if self.links.aborted.load(Ordering::SeqCst) { Err(self.links.abortion()) } else { Ok(()) }
    }

    fn is_taken(&self, to: Rank, count: u64) -> bool {
        self.acknowledged[to] >= count || self.links.channel(self.rank, to).is_taken(count)
    }

    pub(super) fn wait_taken(&self, to: Rank, count: u64) -> Result<(), TransportError> {
        self.wait(|| to, |_| self.is_taken(to, count))
    }

    /// Gives up: notifies the others, and waits until none of them can be reading this rank's memory or putting
    /// into it. `due` lists ranks with the message count of their last put.
    pub(super) fn leave(&mut self, error: TransportError, due: &[(Rank, u64)]) -> TransportError {
        let error = match error {
            TransportError::Aborted { .. } => error,
            other => TransportError::Aborted { by: self.rank, reason: other.to_string() },
        };
        self.links.abort(error);
        self.links.places[self.rank].left.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let wait_for = |peer: Rank, is_over: &dyn Fn() -> bool| {
            let place = &self.links.places[peer];
            // A rank that has not joined yet sees the abort before it accesses anything.
            let gone = || place.thread.get().is_none() || place.left.load(Ordering::Acquire);
            while !is_over() && !gone() {
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        for &(to, count) in &self.sends[self.settled..] {
            wait_for(to, &|| self.is_taken(to, count));
        }
        for &(from, count) in due {
            wait_for(from, &|| self.links.channel(from, self.rank).is_posted(count));
        }
        self.links.abortion()
    }

    /// The puts of a program into this rank: the sender, and the number of its message.
    fn due(&self, collective: &Collective, program: &Program) -> Vec<(Rank, u64)> {
        let travels = |op: &&Op| size_bytes(collective, op) > 0;
        let mut count = self.taken.clone();
        for op in program.receives[..self.received].iter().filter(travels) {
            count[op.entry.peer()] -= 1;
        }
        let mut due = Vec::new();
        for op in program.receives.iter().filter(travels) {
            let from = op.entry.peer();
            count[from] += 1;
            if self.is_put(op, size_bytes(collective, op)) {
                due.push((from, count[from]));
            }
        }
        due
    }

    /// Sends chunks: inline if they are small, by a put if that is possible, otherwise by the view of this rank's
    /// buffer. Returns the message that must be taken before the chunks may be overwritten; 0 for none.
    #[inline]
    fn send(&mut self, collective: &Collective, op: &Op) -> u64 {
        let (to, size) = (op.entry.peer(), size_bytes(collective, op));
        if size == 0 {
            return 0;
        }
        let is_put = self.is_put(op, size);
        let links = &*self.links;
        let (channel, count, taken) =
            (links.channel(self.rank, to), self.posted[to] + 1, self.taken[to]);
        let (view, shape) = (collective.buffer.view(), collective.buffer.shape());
        let last = &mut self.last[to][(count % 2) as usize];
        let mut until = count;
        if is_put {
            let (of, view) = self.views[to];
            assert_eq!(of, self.collective, "a put into a rank that has sent nothing");
            // SAFETY: the view is of the buffer that the receiver announced in an earlier message of this
            // collective, which this rank has taken; the receiver cannot end the collective before this message.
            // No other rank reads or writes the range, see `Program::compile_world`.
            unsafe { copy(collective, op, Place::Own, Place::View(view)) };
            channel.post_nothing(count, taken);
            until = 0;
        } else if !channel.has_room(*last, &mut self.acknowledged[to]) {
            channel.post_aside(count, view, shape, taken);
        } else {
            *last = count;
            let mut message = Message::Address(view, shape);
            if size <= links.most_carried {
                // SAFETY: there is room; the program forbids writes to the chunks while this send starts.
                unsafe {
                    channel
                        .fill(count, |into| copy(collective, op, Place::Own, Place::Bytes(into)));
                }
                (message, until) = (Message::Bytes(size), 0);
            }
            // SAFETY: there is room.
            unsafe { channel.post(count, message, taken) };
        }
        self.posted[to] = count;
        self.wake(to);
        until
    }

    /// Waits for the data of the first of these receives, `size` bytes, and combines or copies them, together with
    /// any further receives whose data have arrived. Returns the number of finished receives.
    fn receive_first(
        &mut self,
        collective: &Collective,
        batch: &[Op],
        size: usize,
    ) -> Result<usize, TransportError> {
        let op = &batch[0];
        let from = op.entry.peer();
        self.arrived(from)?;
        let (channel, next) = self.next(from);
        if self.is_put(op, size) {
            self.take(from);
            return Ok(1);
        }
        let (address, shape) = match channel.message(next) {
            Message::Address(address, shape) => (address, shape),
            Message::Bytes(bytes) => {
                assert_eq!(bytes, size, "ranks with different buffers");
                let result = channel.read(next, |bytes| Place::Bytes(bytes.cast_mut()));
                // SAFETY: the bytes of a message stay until it is taken. The schedule forbids other writes to the
                // range meanwhile, see `crate::execute`.
                unsafe { combine(collective, op, &[result]) };
                self.take(from);
                return Ok(1);
            }
        };
        let mut places = [Place::Own; MOST_MERGED];
        places[0] = self.view(collective, from, (address, shape));
        let mut here = 1;
        for other in batch[1..].iter().take(MOST_MERGED - 1).map(|op| op.entry.peer()) {
            let (channel, next) = self.next(other);
            if !channel.is_posted(next) {
                break;
            }
            let Message::Address(address, shape) = channel.message(next) else { break };
            places[here] = self.view(collective, other, (address, shape));
            here += 1;
        }
        // SAFETY: a sender posts the view of its buffer, which has this one's shape and stays until the message is
        // taken. The schedule forbids writes to the range meanwhile.
        unsafe { combine(collective, op, &places[..here]) };
        batch[..here].iter().for_each(|op| self.take(op.entry.peer()));
        Ok(here)
    }

    /// The view of a rank's buffer from a message.
    fn view(
        &mut self,
        collective: &Collective,
        from: Rank,
        (view, shape): (*mut (), u64),
    ) -> Place {
        assert_eq!(shape, collective.buffer.shape(), "ranks with different buffers");
        self.views[from] = (self.collective, view);
        Place::View(view)
    }

    /// Allocates memory for the receive at `index` of a staged batch.
    fn room_aside(&mut self, index: usize, size_bytes: usize) {
        if self.aside.len() <= index {
            self.aside.resize_with(index + 1, || Memory::new(0));
        }
        if self.aside[index].size_bytes() < size_bytes {
            self.aside[index] = Memory::new(size_bytes);
        }
    }

    /// Whether a transfer of `size_bytes` is a put; both ends must agree. Messages that fit inline are not. For
    /// longer ones the receiver has announced its address before.
    fn is_put(&self, op: &Op, size_bytes: usize) -> bool {
        op.put && size_bytes > self.links.most_carried
    }
}

impl Transport for Endpoint {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.links.ranks
    }

    fn puts(&self) -> bool {
        true
    }

    /// Only for links from [`Links::beside`].
    fn set_calm(&mut self, calm: bool) {
        self.calm = calm;
    }

    fn prepare(&mut self, program: &Program, most_bytes: usize) {
        self.sends.reserve(program.sends);
        let mut done = 0;
        while done < program.receives.len() {
            let batch = program.batch(done);
            done += batch.len();
            for (index, op) in batch.iter().filter(|op| op.staged).enumerate() {
                // A chunk ends at an element boundary, and no element is longer than 8 bytes.
                let chunk_bytes = most_bytes / program.chunks + 8;
                self.room_aside(index, op.entry.chunks().len() * chunk_bytes);
            }
        }
    }

    fn begin(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        for op in batch.iter().filter(|op| op.kind == Kind::Send) {
            if op.put {
                self.still_here()?;
            }
            let until = self.send(collective, op);
            self.sends.push((op.entry.peer(), until));
        }
        Ok(())
    }

    fn receive(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        let mut rest = batch;
        while let Some(op) = rest.first() {
            let finished = match size_bytes(collective, op) {
                0 => 1,
                size => self.receive_first(collective, rest, size)?,
            };
            self.received += finished;
            rest = &rest[finished..];
        }
        Ok(())
    }

    fn stage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        for (index, op) in batch.iter().enumerate() {
            let size = size_bytes(collective, op);
            self.room_aside(index, size);
            if size > 0 {
                let from = op.entry.peer();
                let into = self.aside[index].elements_mut::<u8>().as_mut_ptr();
                self.arrived(from)?;
                let (channel, next) = self.next(from);
                let place = match channel.message(next) {
                    Message::Bytes(bytes) => {
                        assert_eq!(bytes, size, "ranks with different buffers");
                        channel.read(next, |bytes| Place::Bytes(bytes.cast_mut()))
                    }
                    Message::Address(address, shape) => {
                        self.view(collective, from, (address, shape))
                    }
                };
                // SAFETY: as in `receive_first`; the staging memory is large enough.
                unsafe { copy(collective, op, place, Place::Bytes(into)) };
                self.take(from);
            }
            self.received += 1;
        }
        Ok(())
    }

    fn unstage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        let mut done = 0;
        while let Some(first) = batch.get(done) {
            let merges = |op: &&Op| first.merges_with(op);
            let count = batch[done..].iter().take(MOST_MERGED).take_while(merges).count().max(1);
            let mut places = [Place::Own; MOST_MERGED];
            for (place, aside) in places.iter_mut().zip(&mut self.aside[done..done + count]) {
                *place = Place::Bytes(aside.elements_mut::<u8>().as_mut_ptr());
            }
            // SAFETY: the range is this rank's to write, since its own sends are settled.
            unsafe { combine(collective, first, &places[..count]) };
            done += count;
        }
        Ok(())
    }

    fn settle(&mut self, sends: usize) -> Result<(), TransportError> {
        while self.settled < sends {
            let (to, count) = self.sends[self.settled];
            self.wait_taken(to, count)?;
            self.settled += 1;
        }
        Ok(())
    }

    fn finish(
        &mut self,
        collective: &Collective,
        program: &Program,
        ended: Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        let ended = ended.map_err(|error| {
            let due = self.due(collective, program);
            self.leave(error, &due)
        });
        self.sends.clear();
        (self.settled, self.received) = (0, 0);
        self.collective += 1;
        ended
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.links.places[self.rank].left.store(true, Ordering::Release);
        if std::thread::panicking() {
            let reason = "its thread panicked".to_string();
            self.links.abort(TransportError::Aborted { by: self.rank, reason });
        }
    }
}
