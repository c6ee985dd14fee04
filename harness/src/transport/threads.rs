//! Ranks are threads of one process; a receiver reads straight from the sender's buffer, or, for a
//! put, the sender writes straight into the receiver's.
//!
//! Between each ordered pair of ranks lies a `Line`: the sender counts up `posted`, the receiver
//! counts up `taken`, and as long as all goes well that is all the synchronisation there is. Both
//! sides derive from the schedule what the n-th message of a pair carries, so a message is no more
//! than the count and the address of the sender's buffer. Waiting spins a little, then yields, then
//! parks, so that ranks may outnumber cores. When a rank gives up, it tells the others, and nobody
//! frees memory that somebody may still touch.

mod mail;
mod ranks;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use algorithms::control::DataType;
use algorithms::program::{Kind, Op, Program};
use algorithms::schedule::Action;
use algorithms::topology::Rank;

use super::{Collective, Transport, TransportError};
use crate::element::{Combine, copy_kernel, kernel};
use crate::memory::{Buffer, Memory};

pub use mail::Mail;
pub use ranks::{is_pinned, run_ranks};

/// Its name in configurations and CSV files.
pub const NAME: &str = "threads";

/// A parked rank looks around this often, to notice that others have given up.
const PARK: Duration = Duration::from_millis(20);
const YIELDS: u32 = 50;

/// Everything between the ranks of one world.
pub struct Links {
    ranks: usize,
    lines: Vec<Line>,
    seats: Vec<Seat>,
    spins: u32,
    patience: Duration,
    aborted: AtomicBool,
    abortion: Mutex<Option<TransportError>>,
}

/// One direction between two ranks. The two halves are written by different ranks and lie on
/// different cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    sender: Sender,
    receiver: Receiver,
}

#[derive(Default)]
#[repr(align(64))]
struct Sender {
    /// Messages sent so far.
    posted: AtomicU64,
    /// What the newest message points to. In a collective all messages of a pair point to the same
    /// buffer, so looking ahead does no harm. Only who takes a message that is no put, or puts,
    /// follows the address; either keeps the buffer's owner inside its collective, so that the
    /// address is never that of an earlier or later one.
    address: AtomicPtr<()>,
    /// Its length, where the address alone does not say.
    length: AtomicUsize,
}

#[derive(Default)]
#[repr(align(64))]
struct Receiver {
    /// Messages taken so far: their memory is the sender's again.
    taken: AtomicU64,
}

/// Where a rank's thread can be woken.
#[derive(Default)]
#[repr(align(64))]
struct Seat {
    parked: AtomicBool,
    /// Touches no other rank's memory any more.
    left: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Links {
    /// Links for a world; a rank that waits longer than `patience` for another gives up. It then waits
    /// for those who may be touching its memory, however long that takes.
    pub fn new(ranks: usize, patience: Duration) -> Arc<Links> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Links {
            ranks,
            lines: (0..ranks * ranks).map(|_| Line::default()).collect(),
            seats: (0..ranks).map(|_| Seat::default()).collect(),
            // A waiting rank that spins keeps the core from the one it waits for, if they share it.
            spins: if ranks <= cores { 4000 } else { 20 },
            patience,
            aborted: AtomicBool::new(false),
            abortion: Mutex::new(None),
        })
    }

    /// This thread becomes `rank`. Once per rank.
    pub fn join(self: &Arc<Links>, rank: Rank) -> Endpoint {
        let fresh = self.seats[rank].thread.set(std::thread::current()).is_ok();
        assert!(fresh, "rank {rank} has joined before");
        // Pairs with the fence in `leave`: who gives up sees this rank, or this rank the abortion.
        fence(Ordering::SeqCst);
        Endpoint {
            links: self.clone(),
            rank,
            posted: vec![0; self.ranks],
            taken: vec![0; self.ranks],
            sends: Vec::new(),
            settled: 0,
            received: 0,
            aside: Vec::new(),
        }
    }

    fn line(&self, from: Rank, to: Rank) -> &Line {
        &self.lines[from * self.ranks + to]
    }

    /// Everybody who waits, now or later, gets this error.
    pub fn abort(&self, error: TransportError) {
        let mut abortion = self.abortion.lock().unwrap_or_else(PoisonError::into_inner);
        abortion.get_or_insert(error);
        self.aborted.store(true, Ordering::SeqCst);
        self.seats.iter().filter_map(|seat| seat.thread.get()).for_each(Thread::unpark);
    }

    fn abortion(&self) -> TransportError {
        let abortion = self.abortion.lock().unwrap_or_else(PoisonError::into_inner);
        abortion.clone().expect("the error is stored before the flag")
    }
}

/// One rank's end of all its lines.
pub struct Endpoint {
    links: Arc<Links>,
    rank: Rank,
    /// Messages sent to each rank, over all collectives.
    posted: Vec<u64>,
    /// Messages taken from each rank.
    taken: Vec<u64>,
    /// Sends of the running collective: to whom, and the count that says it was taken.
    sends: Vec<(Rank, u64)>,
    /// How many of them are known to have been taken.
    settled: usize,
    /// Receives of the running collective that are over.
    received: usize,
    /// Memory for staged receives, kept.
    aside: Vec<Memory>,
}

impl Endpoint {
    /// Sends the address of something that stays where it is until [`Self::is_taken`].
    fn post(&mut self, to: Rank, address: *mut (), length: usize) {
        let line = self.links.line(self.rank, to);
        line.sender.address.store(address, Ordering::Relaxed);
        line.sender.length.store(length, Ordering::Relaxed);
        self.posted[to] += 1;
        line.sender.posted.store(self.posted[to], Ordering::Release);
        self.wake(to);
    }

    /// Tells `from` that its oldest message may go.
    fn take(&mut self, from: Rank) {
        self.taken[from] += 1;
        let line = self.links.line(from, self.rank);
        line.receiver.taken.store(self.taken[from], Ordering::Release);
        self.wake(from);
    }

    fn wake(&self, peer: Rank) {
        // Pairs with the fence in `wait`: either the peer sees the new count, or we see it parked.
        fence(Ordering::SeqCst);
        let seat = &self.links.seats[peer];
        if seat.parked.load(Ordering::Relaxed) && seat.parked.swap(false, Ordering::Acquire) {
            seat.thread.get().expect("who parks has joined").unpark();
        }
    }

    /// Waits for a condition that some rank, `peer` if it is known, will make true.
    fn wait(
        &self,
        peer: impl Fn() -> Rank,
        condition: impl Fn(&Links) -> bool,
    ) -> Result<(), TransportError> {
        for _ in 0..self.links.spins {
            if condition(&self.links) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if condition(&self.links) {
                return Ok(());
            }
            std::thread::yield_now();
        }
        let seat = &self.links.seats[self.rank];
        let start = Instant::now();
        loop {
            seat.parked.store(true, Ordering::Release);
            fence(Ordering::SeqCst);
            if condition(&self.links) {
                seat.parked.store(false, Ordering::Relaxed);
                return Ok(());
            }
            if self.links.aborted.load(Ordering::SeqCst) {
                return Err(self.links.abortion());
            }
            let waited = start.elapsed();
            if waited > self.links.patience {
                return Err(TransportError::Silent { rank: self.rank, peer: peer(), waited });
            }
            std::thread::park_timeout(PARK);
        }
    }

    /// Waits for the next message of a rank; returns what it points to.
    fn arrived(&self, from: Rank) -> Result<(*mut (), usize), TransportError> {
        self.still_here()?;
        let next = self.taken[from] + 1;
        let line = self.links.line(from, self.rank);
        self.wait(|| from, |_| line.sender.posted.load(Ordering::Acquire) >= next)?;
        Ok((
            line.sender.address.load(Ordering::Relaxed),
            line.sender.length.load(Ordering::Relaxed),
        ))
    }

    /// Once somebody has given up, senders leave without waiting for who begins to read now.
    fn still_here(&self) -> Result<(), TransportError> {
        match self.links.aborted.load(Ordering::SeqCst) {
            true => Err(self.links.abortion()),
            false => Ok(()),
        }
    }

    fn is_taken(&self, to: Rank, count: u64) -> bool {
        self.links.line(self.rank, to).receiver.taken.load(Ordering::Acquire) >= count
    }

    fn wait_taken(&self, to: Rank, count: u64) -> Result<(), TransportError> {
        self.wait(|| to, |_| self.is_taken(to, count))
    }

    /// Gives up: tells the others, and waits until none of them can be reading this rank's memory, nor
    /// putting into it what is `due`: messages of a rank up to a count.
    fn leave(&mut self, error: TransportError, due: &[(Rank, u64)]) -> TransportError {
        let error = match error {
            TransportError::Aborted { .. } => error,
            other => TransportError::Aborted { by: self.rank, reason: other.to_string() },
        };
        self.links.abort(error);
        self.links.seats[self.rank].left.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let wait_for = |peer: Rank, is_over: &dyn Fn() -> bool| {
            let seat = &self.links.seats[peer];
            // Who has not joined by now will find the abortion before it touches anything.
            let gone = || seat.thread.get().is_none() || seat.left.load(Ordering::Acquire);
            while !is_over() && !gone() {
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        for &(to, count) in &self.sends[self.settled..] {
            wait_for(to, &|| self.is_taken(to, count));
        }
        for &(from, count) in due {
            let posted = &self.links.line(from, self.rank).sender.posted;
            wait_for(from, &|| posted.load(Ordering::Acquire) >= count);
        }
        self.links.abortion()
    }

    /// The puts of a program into this rank: from whom, and the how-manieth message of that rank each
    /// is.
    fn due(&self, collective: &Collective, program: &Program) -> Vec<(Rank, u64)> {
        let travels = |op: &&Op| !Endpoint::is_empty(collective, op);
        let mut count = self.taken.clone();
        for op in program.receives[..self.received].iter().filter(travels) {
            count[op.entry.peer()] -= 1;
        }
        let mut due = Vec::new();
        for op in program.receives.iter().filter(travels) {
            let from = op.entry.peer();
            count[from] += 1;
            if op.put {
                due.push((from, count[from]));
            }
        }
        due
    }

    /// Combines what `source`, the buffer of another rank, holds into this rank's.
    fn combine(collective: &Collective, op: &Op, source: *const ()) {
        let dtype = collective.buffer.dtype();
        let kernel = match op.entry.action {
            Action::Reduce => kernel(dtype, collective.combine),
            Action::Copy => copy_kernel(dtype),
        };
        // SAFETY: the sender posts the address of its buffer, which stays until this message is
        // taken. The schedule lets nobody write the range meanwhile, see `crate::execute`, and all
        // ranks' buffers are made of blocks of the same lengths.
        unsafe {
            let source = &*source.cast::<Buffer>();
            assert!(source.is_like(collective.buffer), "ranks with different buffers");
            for (block, offset, elements) in
                collective.buffer.pieces(collective.bounds.elements(&op.entry))
            {
                let into = collective.buffer.address(block, offset);
                kernel(into, source.address(block, offset), elements);
            }
        }
    }

    /// Copies this rank's chunks into the buffer of another.
    fn put(collective: &Collective, op: &Op, target: *const ()) {
        let copy = copy_kernel(collective.buffer.dtype());
        // SAFETY: `target` is the buffer that the receiver has announced with an earlier message of
        // this collective, which this rank has taken; the receiver cannot end the collective before
        // this message. Nobody else reads or writes the range, see `Program::compile_world`.
        unsafe {
            assert!(!target.is_null(), "a put into a rank that has sent nothing");
            let target = &*target.cast::<Buffer>();
            assert!(target.is_like(collective.buffer), "ranks with different buffers");
            for (block, offset, elements) in
                collective.buffer.pieces(collective.bounds.elements(&op.entry))
            {
                let from = collective.buffer.address(block, offset);
                copy(target.address(block, offset), from, elements);
            }
        }
    }

    /// What the newest message of a rank points to.
    fn address_of(&self, from: Rank) -> *const () {
        self.links.line(from, self.rank).sender.address.load(Ordering::Acquire)
    }

    fn is_empty(collective: &Collective, op: &Op) -> bool {
        collective.bounds.elements(&op.entry).is_empty()
    }
}

impl Transport for Endpoint {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.links.ranks
    }

    fn begin(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        for op in batch.iter().filter(|op| op.kind == Kind::Send) {
            let to = op.entry.peer();
            if !Endpoint::is_empty(collective, op) {
                if op.put {
                    self.still_here()?;
                    Endpoint::put(collective, op, self.address_of(to));
                }
                let buffer: *const Buffer = collective.buffer;
                self.post(to, buffer.cast_mut().cast(), 0);
            }
            // An empty send counts as its predecessor to that rank, which is taken no later; what
            // was put needs nobody to take it.
            self.sends.push((to, if op.put { 0 } else { self.posted[to] }));
        }
        Ok(())
    }

    fn receive(&mut self, collective: &Collective, op: &Op) -> Result<(), TransportError> {
        if !Endpoint::is_empty(collective, op) {
            let (source, _) = self.arrived(op.entry.peer())?;
            if !op.put {
                Endpoint::combine(collective, op, source);
            }
            self.take(op.entry.peer());
        }
        self.received += 1;
        Ok(())
    }

    fn stage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        let element = collective.buffer.dtype().size_bytes();
        let copy = copy_kernel(collective.buffer.dtype());
        for (index, op) in batch.iter().enumerate() {
            let range = collective.bounds.elements(&op.entry);
            if range.is_empty() {
                self.received += 1;
                continue;
            }
            if self.aside.len() <= index {
                self.aside.resize_with(index + 1, || Memory::new(0));
            }
            if self.aside[index].size_bytes() < range.len() * element {
                self.aside[index] = Memory::new(range.len() * element);
            }
            let (source, _) = self.arrived(op.entry.peer())?;
            let mut at = self.aside[index].elements_mut::<u8>().as_mut_ptr();
            // SAFETY: as in `combine`; the memory put aside is large enough.
            unsafe {
                let source = &*source.cast::<Buffer>();
                assert!(source.is_like(collective.buffer), "ranks with different buffers");
                for (block, offset, elements) in source.pieces(range) {
                    copy(at, source.address(block, offset), elements);
                    at = at.add(elements * element);
                }
            }
            self.take(op.entry.peer());
            self.received += 1;
        }
        Ok(())
    }

    fn unstage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        let dtype = collective.buffer.dtype();
        for (index, op) in batch.iter().enumerate() {
            let kernel = match op.entry.action {
                Action::Reduce => kernel(dtype, collective.combine),
                Action::Copy => copy_kernel(dtype),
            };
            let range = collective.bounds.elements(&op.entry);
            let mut done = 0;
            for (block, offset, elements) in collective.buffer.pieces(range) {
                let from = &self.aside[index].elements::<u8>()[done..];
                // SAFETY: the range is this rank's to write, since its own sends are settled.
                unsafe {
                    kernel(collective.buffer.address(block, offset), from.as_ptr(), elements)
                };
                done += elements * dtype.size_bytes();
            }
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
        ended
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.links.seats[self.rank].left.store(true, Ordering::Release);
        if std::thread::panicking() {
            let reason = "its thread panicked".to_string();
            self.links.abort(TransportError::Aborted { by: self.rank, reason });
        }
    }
}

/// The element type in which bit vectors travel.
pub const BITS: (DataType, Combine) = (DataType::I64, Combine::And);
