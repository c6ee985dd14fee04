//! A communicator of one rank, with timeouts.
//!
//! It is created in nonblocking mode, so that every call returns and NCCL reports the result later. While a rank
//! waits, it polls NCCL for errors, and a [`FailureCheck`] for failed processes. At the timeout or after an error
//! the communicator is aborted, which ends its kernels on this rank's GPU; the error names the rank and the
//! operation. In this mode NCCL creates a thread for each group, which costs the host some microseconds;
//! `NCCL_COMM_BLOCKING=1`, which training sets, avoids that. A call that does not return all the same, as blocking ones do
//! where a rank is gone, ends the process, see [`Watchdog`].

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use algorithms::control::DataType;
use algorithms::topology::Rank;

use super::NcclError;
use super::library::{
    Config, CudaStream, Handle, IN_PROGRESS, Nccl, SUCCESS, UniqueId, op_code, type_code,
};
use super::watchdog::Watchdog;
use crate::cuda::streams::{Event, Streams};
use crate::cuda::work::Address;
use transports::kernel::ElementOp;

/// How often a waiting rank polls for errors.
const LOOK: Duration = Duration::from_millis(1);

/// An abort that takes longer is left to itself: the process is about to end.
const ABORT: Duration = Duration::from_secs(10);

/// Detects failures that NCCL does not report: those of other processes.
pub trait FailureCheck {
    /// Must be called regularly while a rank waits.
    ///
    /// # Errors
    /// Which process has failed, and how.
    fn check(&mut self) -> Result<(), NcclError>;
}

/// For MPI, whose failure detector ends the process.
impl FailureCheck for () {
    fn check(&mut self) -> Result<(), NcclError> {
        Ok(())
    }
}

/// One rank's end of a communicator.
pub struct Communicator {
    nccl: Rc<Nccl>,
    handle: Handle,
    /// This rank.
    pub rank: Rank,
    /// Number of ranks.
    pub ranks: usize,
    /// This rank in the communicator of all, by which errors name it.
    of_all: Rank,
    timeout: Duration,
    watchdog: Rc<Watchdog>,
    is_over: Cell<bool>,
}

/// A part of this rank's memory, and the rank that sends or receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The other rank.
    pub peer: Rank,
    /// Its address.
    pub address: Address,
    /// How long it is.
    pub elements: usize,
}

/// The elements and the stream of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct On {
    /// The stream.
    pub stream: CudaStream,
    /// Element type.
    pub dtype: DataType,
}

impl Communicator {
    /// Joins; returns when all ranks have.
    ///
    /// # Errors
    /// NCCL's error, or a rank that does not join within `timeout`.
    pub fn init(
        nccl: &Rc<Nccl>,
        id: UniqueId,
        (rank, ranks): (Rank, usize),
        timeout: Duration,
        failures: &mut dyn FailureCheck,
    ) -> Result<Communicator, NcclError> {
        let join = |place: *mut Handle| {
            let (ranks, rank) = (ranks as c_int, rank as c_int);
            // SAFETY: the place stays until NCCL has written to it; the configuration is copied now.
            unsafe { (nccl.functions.init)(place, ranks, id, rank, &mut Config::nonblocking()) }
        };
        let watchdog = Rc::new(Watchdog::new(rank, timeout + ABORT));
        let blank = Communicator::blank(nccl, (rank, ranks), rank, (timeout, watchdog));
        blank.made("ncclCommInitRank", None, join, failures)
    }

    /// A communicator of the ranks with the same color, ordered by key. All ranks must call it.
    ///
    /// # Errors
    /// As [`Self::init`].
    pub fn split(
        &self,
        color: usize,
        (rank, ranks): (Rank, usize),
        failures: &mut dyn FailureCheck,
    ) -> Result<Communicator, NcclError> {
        let split = |place: *mut Handle| {
            let (color, key) = (color as c_int, rank as c_int);
            let mut config = Config::nonblocking();
            // SAFETY: as in `init`; the handle is that of a communicator that lives.
            unsafe { (self.nccl.functions.split)(self.handle, color, key, place, &mut config) }
        };
        let limits = (self.timeout, self.watchdog.clone());
        let blank = Communicator::blank(&self.nccl, (rank, ranks), self.of_all, limits);
        blank.made("ncclCommSplit", Some(self), split, failures)
    }

    fn blank(
        nccl: &Rc<Nccl>,
        (rank, ranks): (Rank, usize),
        of_all: Rank,
        (timeout, watchdog): (Duration, Rc<Watchdog>),
    ) -> Communicator {
        let (nccl, handle, is_over) = (nccl.clone(), ptr::null_mut(), Cell::new(false));
        Communicator { nccl, handle, rank, ranks, of_all, timeout, watchdog, is_over }
    }

    /// Creates it, and waits until it is ready; first until the parent, if any, has finished, since NCCL sets the
    /// handle only then.
    fn made(
        mut self,
        call: &'static str,
        parent: Option<&Communicator>,
        make: impl FnOnce(*mut Handle) -> c_int,
        failures: &mut dyn FailureCheck,
    ) -> Result<Communicator, NcclError> {
        // Left to NCCL if anything goes wrong: it may still write there.
        let place = Box::into_raw(Box::new(ptr::null_mut::<c_void>()));
        let code = self.watchdog.during(call, || make(place));
        if let Some(parent) = parent {
            parent.settle(call, code, failures)?;
        }
        let begun = Instant::now();
        let mut state = code;
        while state == SUCCESS || state == IN_PROGRESS {
            // SAFETY: it was allocated above, and NCCL's threads write whole words.
            self.handle = unsafe { place.read_volatile() };
            state = if self.handle.is_null() { IN_PROGRESS } else { self.state() };
            if state == SUCCESS {
                // SAFETY: NCCL is through with it.
                drop(unsafe { Box::from_raw(place) });
                return Ok(self);
            }
            self.check_wait(call, begun, failures)?;
            thread::sleep(LOOK);
        }
        Err(self.failed(call, None, state))
    }

    /// NCCL's state after the last calls; kernels that fail later show here, too.
    fn state(&self) -> c_int {
        let mut state = SUCCESS;
        // SAFETY: the handle is that of a communicator that lives; it writes one number.
        let code = unsafe { (self.nccl.functions.async_error)(self.handle, &mut state) };
        if code == SUCCESS { state } else { code }
    }

    /// Checks whether NCCL reports an error of work in flight.
    ///
    /// # Errors
    /// NCCL's error. The communicator is then aborted.
    pub fn check(&self) -> Result<(), NcclError> {
        if self.is_over.get() {
            let (rank, call, why) =
                (Some(self.of_all), "this communicator".into(), "was aborted".into());
            return Err(NcclError::Failed { rank, peer: None, call, why });
        }
        match self.state() {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(self.failed("a collective", None, code)),
        }
    }

    /// Waits until NCCL has enqueued all requested work.
    fn settle(
        &self,
        call: &str,
        code: c_int,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let begun = Instant::now();
        let (mut state, mut looked) = (code, begun);
        loop {
            match state {
                SUCCESS => return Ok(()),
                IN_PROGRESS => (),
                code => return Err(self.failed(call, None, code)),
            }
            if looked.elapsed() > LOOK {
                self.check_wait(call, begun, failures)?;
                looked = Instant::now();
            }
            thread::yield_now();
            state = self.state();
        }
    }

    /// The host waits until an event has happened.
    ///
    /// # Errors
    /// An error of the driver or NCCL, a failed process, or the timeout. The communicator is then aborted.
    pub fn wait(
        &self,
        streams: &mut impl Streams,
        event: Event,
        what: &str,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let begun = Instant::now();
        let mut looked = begun;
        loop {
            match streams.happened(event) {
                Ok(true) => return self.check(),
                Ok(false) => (),
                Err(error) => {
                    self.abort();
                    return Err(error.into());
                }
            }
            if looked.elapsed() > LOOK {
                self.check()?;
                self.check_wait(what, begun, failures)?;
                looked = Instant::now();
            }
            std::hint::spin_loop();
        }
    }

    /// Checks for a failed process and for the timeout.
    fn check_wait(
        &self,
        what: &str,
        begun: Instant,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let ended = match failures.check() {
            Ok(()) if begun.elapsed() <= self.timeout => return Ok(()),
            Ok(()) => NcclError::Silent {
                rank: self.of_all,
                ranks: self.ranks,
                call: what.into(),
                waited: begun.elapsed(),
            },
            Err(error) => error,
        };
        self.abort();
        Err(ended)
    }

    fn failed(&self, call: &str, peer: Option<Rank>, code: c_int) -> NcclError {
        let why = self.nccl.why(code);
        self.abort();
        NcclError::Failed { rank: Some(self.of_all), peer, call: call.into(), why }
    }

    /// Sends and receives that begin together, in their order for each peer. Returns once they are on the
    /// stream.
    ///
    /// # Errors
    /// NCCL's error, or a failed process. The communicator is then aborted.
    pub fn exchange(
        &self,
        on: On,
        sends: &[Part],
        receives: &[Part],
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let functions = &self.nccl.functions;
        let (dtype, handle, stream) = (type_code(on.dtype), self.handle, on.stream);
        self.check()?;
        // SAFETY: the handle is that of a communicator that lives; addresses are those of this rank's memory,
        // and stay so until the stream is through.
        let (begun, refused, ended) =
            self.watchdog.during("a group of sends and receives", || unsafe {
                let begun = (functions.group_start)();
                let send = |part: &Part| {
                    let (from, peer) = (part.address as *const c_void, part.peer as c_int);
                    (
                        "ncclSend",
                        part.peer,
                        (functions.send)(from, part.elements, dtype, peer, handle, stream),
                    )
                };
                let receive = |part: &Part| {
                    let (into, peer) = (part.address as *mut c_void, part.peer as c_int);
                    (
                        "ncclRecv",
                        part.peer,
                        (functions.receive)(into, part.elements, dtype, peer, handle, stream),
                    )
                };
                let is_refused =
                    |(_, _, code): &(_, _, c_int)| ![SUCCESS, IN_PROGRESS].contains(code);
                let mut calls = sends.iter().map(send).chain(receives.iter().map(receive));
                (begun, calls.find(is_refused), (functions.group_end)())
            });
        if begun != SUCCESS {
            return Err(self.failed("ncclGroupStart", None, begun));
        }
        if let Some((call, peer, code)) = refused {
            return Err(self.failed(call, Some(peer), code));
        }
        self.settle("ncclGroupEnd", ended, failures)
    }

    /// NCCL's own allreduce, in place.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn all_reduce(
        &self,
        on: On,
        (data, elements): (Address, usize),
        combine: ElementOp,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let (dtype, op, at) = (type_code(on.dtype), op_code(combine), data as *mut c_void);
        self.check()?;
        // SAFETY: as in `exchange`.
        let code = self.watchdog.during("ncclAllReduce", || unsafe {
            (self.nccl.functions.all_reduce)(at, at, elements, dtype, op, self.handle, on.stream)
        });
        self.settle("ncclAllReduce", code, failures)
    }

    /// Reduce-scatter in place: leaves this rank with its part of `each` elements, combined.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn reduce_scatter(
        &self,
        on: On,
        (data, each): (Address, usize),
        combine: ElementOp,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let (dtype, op, from) = (type_code(on.dtype), op_code(combine), data as *const c_void);
        let into = self.own(on, data, each) as *mut c_void;
        self.check()?;
        // SAFETY: as in `exchange`.
        let code = self.watchdog.during("ncclReduceScatter", || unsafe {
            (self.nccl.functions.reduce_scatter)(
                from,
                into,
                each,
                dtype,
                op,
                self.handle,
                on.stream,
            )
        });
        self.settle("ncclReduceScatter", code, failures)
    }

    /// All-gather in place: gives every rank all parts of `each` elements.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn all_gather(
        &self,
        on: On,
        (data, each): (Address, usize),
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let (dtype, into) = (type_code(on.dtype), data as *mut c_void);
        let from = self.own(on, data, each) as *const c_void;
        self.check()?;
        // SAFETY: as in `exchange`.
        let code = self.watchdog.during("ncclAllGather", || unsafe {
            (self.nccl.functions.all_gather)(from, into, each, dtype, self.handle, on.stream)
        });
        self.settle("ncclAllGather", code, failures)
    }

    /// Combines elements in the memory of one rank.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn reduce(
        &self,
        on: On,
        (data, elements): (Address, usize),
        combine: ElementOp,
        root: Rank,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let (dtype, op, at) = (type_code(on.dtype), op_code(combine), data as *mut c_void);
        let (reduce, root) = (self.nccl.functions.reduce, root as c_int);
        self.check()?;
        // SAFETY: as in `exchange`.
        let code = self.watchdog.during("ncclReduce", || unsafe {
            reduce(at, at, elements, dtype, op, root, self.handle, on.stream)
        });
        self.settle("ncclReduce", code, failures)
    }

    /// Broadcast: gives every rank the data of one of them.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn broadcast(
        &self,
        on: On,
        (data, elements): (Address, usize),
        root: Rank,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let (dtype, at) = (type_code(on.dtype), data as *mut c_void);
        let (broadcast, root) = (self.nccl.functions.broadcast, root as c_int);
        self.check()?;
        // SAFETY: as in `exchange`.
        let code = self.watchdog.during("ncclBroadcast", || unsafe {
            broadcast(at, at, elements, dtype, root, self.handle, on.stream)
        });
        self.settle("ncclBroadcast", code, failures)
    }

    /// The address of this rank's part of `each` elements.
    fn own(&self, on: On, data: Address, each: usize) -> Address {
        data + (self.rank * each * on.dtype.size_bytes()) as Address
    }

    /// Aborts work in flight on this rank. A second call has no effect. After an abort of this process that did not
    /// end in time, others are not waited for.
    pub fn abort(&self) {
        if self.handle.is_null() || self.is_over.replace(true) {
            return;
        }
        let (abort, handle) = (self.nccl.functions.abort, self.handle.expose_provenance());
        let (tell, reported) = mpsc::channel();
        // In a thread, because the call may never return.
        thread::spawn(move || {
            // SAFETY: the handle is not used any more.
            unsafe { abort(ptr::with_exposed_provenance_mut(handle)) };
            let _ = tell.send(());
        });
        static IS_STUCK: AtomicBool = AtomicBool::new(false);
        if !IS_STUCK.load(Ordering::Relaxed) && reported.recv_timeout(ABORT).is_err() {
            IS_STUCK.store(true, Ordering::Relaxed);
        }
    }

    /// Ends it in order: all ranks call this, once everything on their streams is done.
    ///
    /// # Errors
    /// NCCL's error, or that other ranks do not finish.
    pub fn finish(self, failures: &mut dyn FailureCheck) -> Result<(), NcclError> {
        if self.is_over.get() {
            return Ok(());
        }
        // SAFETY: the handle is that of a communicator that lives.
        let finalize = || unsafe { (self.nccl.functions.finalize)(self.handle) };
        let code = self.watchdog.during("ncclCommFinalize", finalize);
        self.settle("ncclCommFinalize", code, failures)?;
        self.is_over.set(true);
        // SAFETY: as above, and the handle is not used any more.
        let destroy = || unsafe { (self.nccl.functions.destroy)(self.handle) };
        match self.watchdog.during("ncclCommDestroy", destroy) {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => {
                let (call, why) = ("ncclCommDestroy".into(), self.nccl.why(code));
                Err(NcclError::Failed { rank: Some(self.of_all), peer: None, call, why })
            }
        }
    }
}

impl Drop for Communicator {
    /// A communicator that was not finished is aborted.
    fn drop(&mut self) {
        self.abort();
    }
}
