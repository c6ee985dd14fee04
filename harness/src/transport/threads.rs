//! Ranks are threads of one process; a receiver reads straight from the sender's buffer, or, for a
//! put, the sender writes straight into the receiver's.
//!
//! Between each ordered pair of ranks lies a `Line`, and as long as all goes well that is all the
//! synchronisation there is. Waiting spins a little, then yields. If ranks outnumber cores it then
//! parks, to be woken; if not, nobody needs the core, and posting is cheaper if nobody needs waking.
//! When a rank gives up, it tells the others, and nobody frees memory that somebody may still touch.

mod line;
mod mail;
mod ranks;
mod seat;

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use algorithms::control::DataType;
use algorithms::program::{Kind, Op, Program};
use algorithms::schedule::Action;
use algorithms::topology::Rank;

use super::{Collective, Transport, TransportError};
use crate::kernel::Combine;
use crate::memory::Memory;
use line::{CARRIED_BYTES, Line, Message};
use seat::Seat;

pub use mail::Mail;
pub use ranks::{is_pinned, run_ranks};

/// What lines and seats are made of; a model checker puts its own in this place.
mod sync {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

    /// As the model checker's, which watches who holds the pointers.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// Its name in configurations and CSV files.
pub const NAME: &str = "threads";

/// A parked rank looks around this often, to notice that others have given up.
const PARK: Duration = Duration::from_millis(20);
/// A rank that nobody wakes looks around this often, once it has waited for longer than `PATIENT`.
const NAP: Duration = Duration::from_micros(100);
const PATIENT: Duration = Duration::from_millis(10);
/// A waiting rank yields for so long before it sleeps: to wake a core that has nothing to do takes long,
/// above all in a virtual machine.
const YIELDING: Duration = Duration::from_micros(500);
/// What messages bring along where each rank has a core.
const FEW_BYTES: usize = 472;
/// So many sources are combined in one pass.
const MOST_MERGED: usize = 8;

/// Everything between the ranks of one world.
pub struct Links {
    ranks: usize,
    lines: Vec<Line>,
    seats: Vec<Seat>,
    places: Vec<Place>,
    /// More ranks than cores: waiting ranks sleep and are woken.
    crowded: bool,
    /// Messages of at most so many bytes bring them along: where ranks have to take turns, larger ones
    /// than where a receiver reads the sender's buffer as fast.
    most_carried: usize,
    patience: Duration,
    aborted: AtomicBool,
    abortion: Mutex<Option<TransportError>>,
}

/// What is known of a rank's thread.
#[derive(Default)]
struct Place {
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
            places: (0..ranks).map(|_| Place::default()).collect(),
            crowded: ranks > cores,
            most_carried: if ranks > cores { CARRIED_BYTES } else { FEW_BYTES },
            patience,
            aborted: AtomicBool::new(false),
            abortion: Mutex::new(None),
        })
    }

    /// This thread becomes `rank`. Once per rank.
    pub fn join(self: &Arc<Links>, rank: Rank) -> Endpoint {
        let fresh = self.places[rank].thread.set(std::thread::current()).is_ok();
        assert!(fresh, "rank {rank} has joined before");
        // Pairs with the fence in `leave`: who gives up sees this rank, or this rank the abortion.
        fence(Ordering::SeqCst);
        Endpoint {
            links: self.clone(),
            rank,
            posted: vec![0; self.ranks],
            taken: vec![0; self.ranks],
            acknowledged: vec![0; self.ranks],
            last: vec![[0; 2]; self.ranks],
            collective: 1,
            views: vec![(0, std::ptr::null()); self.ranks],
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
        self.places.iter().filter_map(|place| place.thread.get()).for_each(Thread::unpark);
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
    /// Messages that each rank is known to have taken from this one.
    acknowledged: Vec<u64>,
    /// The last message to each rank in each slot that was not posted aside.
    last: Vec<[u64; 2]>,
    /// The how-manieth collective is running.
    collective: u64,
    /// The view of each rank's buffer that it has sent last, and in which collective.
    views: Vec<(u64, *const ())>,
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
    /// Sends the address and length of bytes that stay where they are until [`Self::is_taken`].
    fn post(&mut self, to: Rank, address: *mut (), length: u64) {
        self.posted[to] += 1;
        let (line, count) = (self.links.line(self.rank, to), self.posted[to]);
        line.post_aside(count, address, length, self.taken[to]);
        self.wake(to);
    }

    /// Tells `from` that its oldest message may go.
    fn take(&mut self, from: Rank) {
        self.taken[from] += 1;
        self.links.line(from, self.rank).take(self.taken[from]);
        self.wake(from);
    }

    fn wake(&self, peer: Rank) {
        if self.links.crowded {
            let thread = || self.links.places[peer].thread.get().expect("who parks has joined");
            self.links.seats[peer].wake(|| thread().unpark());
        }
    }

    /// Waits for a condition that some rank, `peer` if it is known, will make true.
    #[inline]
    fn wait(
        &self,
        peer: impl Fn() -> Rank,
        condition: impl Fn(&Links) -> bool,
    ) -> Result<(), TransportError> {
        // A waiting rank that spins keeps the core from the one it waits for, if they share it.
        let spins = if self.links.crowded { 20 } else { 4000 };
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
        let start = Instant::now();
        let mut waited = Duration::ZERO;
        loop {
            let sleeps = waited >= YIELDING && self.links.crowded;
            let holds = match sleeps {
                true => self.links.seats[self.rank].is_up(|| condition(&self.links)),
                false => condition(&self.links),
            };
            if holds {
                return Ok(());
            }
            if self.links.aborted.load(Ordering::SeqCst) {
                return Err(self.links.abortion());
            }
            if waited > self.links.patience {
                return Err(TransportError::Silent { rank: self.rank, peer: peer(), waited });
            }
            match sleeps {
                true => std::thread::park_timeout(PARK),
                false if waited < PATIENT => std::thread::yield_now(),
                false => std::thread::sleep(NAP),
            }
            waited = start.elapsed();
        }
    }

    /// The next message from a rank.
    fn next(&self, from: Rank) -> (&Line, u64) {
        (self.links.line(from, self.rank), self.taken[from] + 1)
    }

    /// Waits for the next message of a rank.
    #[inline]
    fn arrived(&mut self, from: Rank) -> Result<(), TransportError> {
        self.still_here()?;
        let next = self.taken[from] + 1;
        let line = self.links.line(from, self.rank);
        self.wait(|| from, |_| line.is_posted(next))?;
        self.acknowledged[from] = self.acknowledged[from].max(line.acknowledged(next));
        Ok(())
    }

    /// Once somebody has given up, senders leave without waiting for who begins to read now.
    fn still_here(&self) -> Result<(), TransportError> {
        match self.links.aborted.load(Ordering::SeqCst) {
            true => Err(self.links.abortion()),
            false => Ok(()),
        }
    }

    fn is_taken(&self, to: Rank, count: u64) -> bool {
        self.acknowledged[to] >= count || self.links.line(self.rank, to).is_taken(count)
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
        self.links.places[self.rank].left.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let wait_for = |peer: Rank, is_over: &dyn Fn() -> bool| {
            let place = &self.links.places[peer];
            // Who has not joined by now will find the abortion before it touches anything.
            let gone = || place.thread.get().is_none() || place.left.load(Ordering::Acquire);
            while !is_over() && !gone() {
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        for &(to, count) in &self.sends[self.settled..] {
            wait_for(to, &|| self.is_taken(to, count));
        }
        for &(from, count) in due {
            wait_for(from, &|| self.links.line(from, self.rank).is_posted(count));
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
            if self.is_put(op, Endpoint::size_bytes(collective, op)) {
                due.push((from, count[from]));
            }
        }
        due
    }

    /// Combines what the views of other ranks' buffers hold into this rank's, in their order.
    fn combine(collective: &Collective, op: &Op, views: &[*const ()]) {
        let buffer = collective.buffer;
        for (block, offset, elements) in buffer.pieces(collective.bounds.elements(&op.entry)) {
            let into = buffer.address(block, offset);
            // SAFETY: a sender posts the view of its buffer, which has this one's shape and stays
            // until the message is taken. The schedule lets nobody write the range meanwhile, see
            // `crate::execute`.
            unsafe {
                let from = |view| buffer.address_in(view, block, offset).cast_const();
                if op.entry.action == Action::Copy {
                    into.copy_from_nonoverlapping(
                        from(views[0]),
                        elements * buffer.dtype().size_bytes(),
                    );
                    continue;
                }
                let mut sources = [std::ptr::null(); MOST_MERGED];
                sources.iter_mut().zip(views).for_each(|(source, &view)| *source = from(view));
                (collective.kernel)(into, &sources[..views.len()], elements);
            }
        }
    }

    /// Combines bytes that lie one after the other into this rank's buffer; with several vectors of
    /// bytes, in their order.
    fn combine_bytes(collective: &Collective, op: &Op, vectors: &[*const u8]) {
        let (buffer, size) = (collective.buffer, collective.buffer.dtype().size_bytes());
        let mut done = 0;
        for (block, offset, elements) in buffer.pieces(collective.bounds.elements(&op.entry)) {
            let into = buffer.address(block, offset);
            // SAFETY: the vectors are as long as the range, which is this rank's to write.
            unsafe {
                if op.entry.action == Action::Copy {
                    into.copy_from_nonoverlapping(vectors[0].add(done), elements * size);
                } else {
                    let mut sources = [std::ptr::null(); MOST_MERGED];
                    let here = sources.iter_mut().zip(vectors);
                    here.for_each(|(source, vector)| *source = vector.add(done));
                    (collective.kernel)(into, &sources[..vectors.len()], elements);
                }
            }
            done += elements * size;
        }
    }

    /// Copies chunks of another rank's buffer, of which this is the view, to `into`, back to back.
    fn copy_out(collective: &Collective, op: &Op, view: *const (), mut into: *mut u8) {
        let buffer = collective.buffer;
        for (block, offset, elements) in buffer.pieces(collective.bounds.elements(&op.entry)) {
            let size = elements * buffer.dtype().size_bytes();
            // SAFETY: as in `combine`; there is room for the whole range.
            unsafe {
                into.copy_from_nonoverlapping(buffer.address_in(view, block, offset), size);
                into = into.add(size);
            }
        }
    }

    /// Copies this rank's chunks into the buffer of another, of which this is the view.
    fn put(collective: &Collective, op: &Op, view: *const ()) {
        let buffer = collective.buffer;
        for (block, offset, elements) in buffer.pieces(collective.bounds.elements(&op.entry)) {
            let size = elements * buffer.dtype().size_bytes();
            // SAFETY: the view is of the buffer that the receiver has announced with an earlier
            // message of this collective, which this rank has taken; the receiver cannot end the
            // collective before this message. Nobody else reads or writes the range, see
            // `Program::compile_world`.
            unsafe {
                let into = buffer.address_in(view, block, offset);
                into.copy_from_nonoverlapping(buffer.address(block, offset), size);
            }
        }
    }

    /// Sends chunks: as bytes if they are few, by putting them where they belong if that is possible, or
    /// by the view of this rank's buffer. Returns the message that must be taken before the chunks may
    /// be overwritten.
    fn send(&mut self, collective: &Collective, op: &Op) -> u64 {
        let (buffer, to) = (collective.buffer, op.entry.peer());
        let size = Endpoint::size_bytes(collective, op);
        let links = &*self.links;
        let (line, count) = (links.line(self.rank, to), self.posted[to] + 1);
        let (view, shape) = (buffer.view(), buffer.shape());
        self.posted[to] = count;
        let mut until = count;
        let is_put = self.is_put(op, size);
        let last = &mut self.last[to][(count % 2) as usize];
        if is_put {
            let (collective_of, view) = self.views[to];
            assert_eq!(collective_of, self.collective, "a put into a rank that has sent nothing");
            Endpoint::put(collective, op, view);
            line.post_nothing(count, self.taken[to]);
            until = 0;
        } else if !line.has_room(*last, &mut self.acknowledged[to]) {
            line.post_aside(count, view, shape, self.taken[to]);
        } else {
            *last = count;
            let message = match size <= links.most_carried {
                true => {
                    // SAFETY: there is room; the program lets nobody write the chunks while this
                    // send begins.
                    unsafe { line.fill(count, |into| Endpoint::copy_own(collective, op, into)) };
                    until = 0;
                    Message::Bytes(size)
                }
                false => Message::Address(view, shape),
            };
            // SAFETY: there is room.
            unsafe { line.post(count, message, self.taken[to]) };
        }
        self.wake(to);
        until
    }

    /// Copies a few bytes of this rank's chunks to `into`, back to back.
    fn copy_own(collective: &Collective, op: &Op, mut into: *mut u8) {
        let (buffer, size) = (collective.buffer, collective.buffer.dtype().size_bytes());
        for (block, offset, elements) in buffer.pieces(collective.bounds.elements(&op.entry)) {
            // SAFETY: there is room for all chunks.
            unsafe {
                copy_few(buffer.address(block, offset), into, elements * size);
                into = into.add(elements * size);
            }
        }
    }

    /// The view of a rank's buffer, as a message gives it.
    fn view(
        &mut self,
        collective: &Collective,
        from: Rank,
        (view, shape): (*mut (), u64),
    ) -> *const () {
        assert_eq!(shape, collective.buffer.shape(), "ranks with different buffers");
        self.views[from] = (self.collective, view);
        view
    }

    /// Makes room for the receive of that index in a batch that is staged.
    fn room_aside(&mut self, index: usize, size_bytes: usize) {
        if self.aside.len() <= index {
            self.aside.resize_with(index + 1, || Memory::new(0));
        }
        if self.aside[index].size_bytes() < size_bytes {
            self.aside[index] = Memory::new(size_bytes);
        }
    }

    /// Whether a transfer of that many bytes is put: both ends must agree. What a message can bring along
    /// is not; what is longer, the receiver has sent by address before.
    fn is_put(&self, op: &Op, size_bytes: usize) -> bool {
        op.put && size_bytes > self.links.most_carried
    }

    fn is_empty(collective: &Collective, op: &Op) -> bool {
        collective.bounds.elements(&op.entry).is_empty()
    }

    fn size_bytes(collective: &Collective, op: &Op) -> usize {
        collective.bounds.elements(&op.entry).len() * collective.buffer.dtype().size_bytes()
    }
}

/// Copies a few bytes, at less expense than calling the function that copies any number.
///
/// # Safety
/// As `copy_to_nonoverlapping`.
#[inline]
unsafe fn copy_few(mut from: *const u8, mut into: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        for _ in 0..bytes / 8 {
            into.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
            (from, into) = (from.add(8), into.add(8));
        }
        for at in 0..bytes % 8 {
            *into.add(at) = *from.add(at);
        }
    }
}

impl Transport for Endpoint {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.links.ranks
    }

    fn prepare(&mut self, program: &Program, most_bytes: usize) {
        self.sends.reserve(program.sends);
        let mut done = 0;
        while done < program.receives.len() {
            let batch = program.batch(done);
            done += batch.len();
            for (index, op) in batch.iter().filter(|op| op.staged).enumerate() {
                // A chunk ends with a whole element, and no element is longer than 8 bytes.
                let chunk_bytes = most_bytes / program.chunks + 8;
                self.room_aside(index, op.entry.chunks().len() * chunk_bytes);
            }
        }
    }

    fn begin(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        for op in batch.iter().filter(|op| op.kind == Kind::Send) {
            let to = op.entry.peer();
            // An empty send counts as its predecessor to that rank, which is taken no later.
            let until = match Endpoint::is_empty(collective, op) {
                true => self.posted[to],
                false => self.send(collective, op),
            };
            self.sends.push((to, until));
        }
        Ok(())
    }

    fn receive(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        let mut rest = batch;
        while let Some((op, others)) = rest.split_first() {
            rest = others;
            if Endpoint::is_empty(collective, op) {
                self.received += 1;
                continue;
            }
            let from = op.entry.peer();
            self.arrived(from)?;
            let (line, next) = self.next(from);
            let size = Endpoint::size_bytes(collective, op);
            if self.is_put(op, size) {
                self.take(from);
                self.received += 1;
                continue;
            }
            match line.message(next) {
                Message::Bytes(bytes) => {
                    assert_eq!(bytes, size, "ranks with different buffers");
                    line.read(next, |bytes| Endpoint::combine_bytes(collective, op, &[bytes]));
                }
                Message::Address(address, shape) => {
                    let first = self.view(collective, from, (address, shape));
                    // Whatever else has arrived by now is combined in the same pass.
                    let (mut views, mut here) = ([first; MOST_MERGED], 1);
                    for other in others.iter().take(MOST_MERGED - 1).map(|op| op.entry.peer()) {
                        let (line, next) = self.next(other);
                        if !line.is_posted(next) {
                            break;
                        }
                        let Message::Address(address, shape) = line.message(next) else { break };
                        views[here] = self.view(collective, other, (address, shape));
                        here += 1;
                    }
                    Endpoint::combine(collective, op, &views[..here]);
                    others[..here - 1].iter().for_each(|op| self.take(op.entry.peer()));
                    rest = &others[here - 1..];
                    self.received += here - 1;
                }
            }
            self.take(from);
            self.received += 1;
        }
        Ok(())
    }

    fn stage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError> {
        for (index, op) in batch.iter().enumerate() {
            let size = Endpoint::size_bytes(collective, op);
            self.room_aside(index, size);
            if size > 0 {
                let from = op.entry.peer();
                let into = self.aside[index].elements_mut::<u8>().as_mut_ptr();
                self.arrived(from)?;
                let (line, next) = self.next(from);
                match line.message(next) {
                    Message::Bytes(bytes) => {
                        assert_eq!(bytes, size, "ranks with different buffers");
                        // SAFETY: the memory put aside is large enough.
                        line.read(next, |bytes| unsafe { copy_few(bytes, into, size) });
                    }
                    Message::Address(address, shape) => {
                        let view = self.view(collective, from, (address, shape));
                        Endpoint::copy_out(collective, op, view, into);
                    }
                }
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
            let mut vectors = [std::ptr::null(); MOST_MERGED];
            for (vector, aside) in vectors.iter_mut().zip(&self.aside[done..done + count]) {
                *vector = aside.elements::<u8>().as_ptr();
            }
            Endpoint::combine_bytes(collective, first, &vectors[..count]);
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

/// The element type in which bit vectors travel.
pub const BITS: (DataType, Combine) = (DataType::I64, Combine::And);
