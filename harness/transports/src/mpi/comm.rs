//! MPI's functions as this project calls them. Every return code becomes a `Result` that names the rank, the call
//! and the peer.

use std::cell::OnceCell;
use std::ffi::{CStr, c_char, c_int, c_void};

use algorithms::control::DataType;
use algorithms::topology::Rank;
use mpi::ffi;
use smallvec::SmallVec;

use super::reduction::{self, Reductions};
use crate::kernel::ElementOp;
use crate::transport::TransportError;

/// MPI counts are 32 bits: longer data are sent in parts of this many elements, which for messages are bytes.
const MOST: usize = 1 << 30;

/// The only tag: all messages of a communicator are of one kind, and ordered between two ranks.
const TAG: c_int = 0;

/// A communicator. `MPI_Finalize` frees it.
pub struct Comm {
    raw: ffi::MPI_Comm,
    rank: Rank,
    ranks: usize,
    most: usize,
    reductions: OnceCell<Reductions>,
}

/// Turns a return code into a result.
fn check(call: &str, rank: Rank, peer: Option<Rank>, code: c_int) -> Result<(), TransportError> {
    if code == 0 {
        return Ok(());
    }
    let mut text: [c_char; 1024] = [0; 1024];
    let mut length = 0;
    // SAFETY: MPI writes at most MPI_MAX_ERROR_STRING characters, in any library at most 1024.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut length) };
    text[text.len() - 1] = 0;
    // SAFETY: a C string; its last character is 0 at this point.
    let why = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().trim().to_string();
    Err(TransportError::Failed { rank, peer, call: call.into(), why })
}

impl Comm {
    /// All processes of the job. MPI must be initialized.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn world() -> Result<Comm, TransportError> {
        // SAFETY: a constant of the library.
        Comm::of(unsafe { ffi::RSMPI_COMM_WORLD })
    }

    fn of(raw: ffi::MPI_Comm) -> Result<Comm, TransportError> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: a communicator of this process; plain out parameters.
        unsafe {
            check("MPI_Comm_rank", 0, None, ffi::MPI_Comm_rank(raw, &raw mut rank))?;
            check("MPI_Comm_size", 0, None, ffi::MPI_Comm_size(raw, &raw mut ranks))?;
            let code = ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN);
            check("MPI_Comm_set_errhandler", rank as Rank, None, code)?;
        }
        let (rank, ranks, reductions) = (rank as Rank, ranks as usize, OnceCell::new());
        Ok(Comm { raw, rank, ranks, most: MOST, reductions })
    }

    /// The same communicator with parts of `most` elements: at least 1, and equal on all ranks.
    pub fn cut(self, most: usize) -> Comm {
        Comm { most: most.clamp(1, MOST), ..self }
    }

    /// Elements per part.
    pub fn most(&self) -> usize {
        self.most
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of processes.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    fn check(&self, call: &str, peer: Option<Rank>, code: c_int) -> Result<(), TransportError> {
        check(call, self.rank, peer, code)
    }

    /// A communicator of these ranks, in this order. Exactly these ranks call it.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn within(&self, members: &[Rank]) -> Result<Comm, TransportError> {
        let members: Vec<c_int> = members.iter().map(|&rank| rank as c_int).collect();
        // SAFETY: `MPI_Group` is a number or a pointer; zero is valid until it is written.
        let (mut all, mut some): (ffi::MPI_Group, ffi::MPI_Group) = unsafe { std::mem::zeroed() };
        // SAFETY: a constant of the library.
        let mut raw = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: plain out parameters, and a list of the given length.
        unsafe {
            let code = ffi::MPI_Comm_group(self.raw, &raw mut all);
            self.check("MPI_Comm_group", None, code)?;
            let count = members.len() as c_int;
            let code = ffi::MPI_Group_incl(all, count, members.as_ptr(), &raw mut some);
            self.check("MPI_Group_incl", None, code)?;
            let code = ffi::MPI_Comm_create_group(self.raw, some, TAG, &raw mut raw);
            self.check("MPI_Comm_create_group", None, code)?;
            ffi::MPI_Group_free(&raw mut some);
            ffi::MPI_Group_free(&raw mut all);
        }
        Comm::of(raw)
    }

    /// The processes that share memory with this one.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn of_node(&self) -> Result<Comm, TransportError> {
        // SAFETY: constants of the library, and a plain out parameter.
        unsafe {
            let (mut raw, key) = (ffi::RSMPI_COMM_NULL, self.rank as c_int);
            let (shared, info) = (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL);
            let code = ffi::MPI_Comm_split_type(self.raw, shared, key, info, &raw mut raw);
            self.check("MPI_Comm_split_type", None, code)?;
            Comm::of(raw)
        }
    }

    /// Gathers the bytes of all ranks; each contributes the same number.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn all_gather<const BYTES: usize>(
        &self,
        own: [u8; BYTES],
    ) -> Result<Vec<[u8; BYTES]>, TransportError> {
        let mut all = vec![[0; BYTES]; self.ranks];
        let count = BYTES as c_int;
        // SAFETY: `count` bytes from each rank, and enough room for them.
        let code = unsafe {
            let bytes = ffi::RSMPI_UINT8_T;
            let (from, into) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            ffi::MPI_Allgather(from, count, bytes, into, count, bytes, self.raw)
        };
        self.check("MPI_Allgather", None, code)?;
        Ok(all)
    }

    /// Broadcasts rank 0's bytes.
    ///
    /// # Errors
    /// When an MPI call fails.
    ///
    /// # Safety
    /// The bytes stay allocated and untouched until the request completes.
    pub unsafe fn broadcast(
        &self,
        bytes: *mut u8,
        count: usize,
    ) -> Result<Requests, TransportError> {
        let mut requests = Requests::none(self.rank, Some(0));
        // SAFETY: the caller's promise.
        let code = unsafe {
            let (dtype, request) = (ffi::RSMPI_UINT8_T, requests.one_more());
            ffi::MPI_Ibcast(bytes.cast(), count as c_int, dtype, 0, self.raw, request)
        };
        self.check("MPI_Ibcast", None, code)?;
        Ok(requests)
    }

    /// Nonblocking barrier: completes when all ranks have called it.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn barrier(&self) -> Result<Requests, TransportError> {
        let mut requests = Requests::none(self.rank, None);
        // SAFETY: a plain out parameter, which MPI does not keep.
        let code = unsafe { ffi::MPI_Ibarrier(self.raw, requests.one_more()) };
        self.check("MPI_Ibarrier", None, code)?;
        Ok(requests)
    }

    /// Starts a send.
    ///
    /// # Errors
    /// When an MPI call fails.
    ///
    /// # Safety
    /// The bytes stay allocated and unmodified until the request completes.
    pub unsafe fn send(
        &self,
        bytes: *const u8,
        count: usize,
        to: Rank,
    ) -> Result<Requests, TransportError> {
        let mut requests = Requests::none(self.rank, Some(to));
        for (at, count) in self.parts(count) {
            let part = bytes.wrapping_add(at).cast::<c_void>();
            // SAFETY: the caller's promise.
            let code = unsafe {
                let (dtype, request) = (ffi::RSMPI_UINT8_T, requests.one_more());
                ffi::MPI_Isend(part, count, dtype, to as c_int, TAG, self.raw, request)
            };
            self.check("MPI_Isend", Some(to), code)?;
        }
        Ok(requests)
    }

    /// Starts a receive.
    ///
    /// # Errors
    /// When an MPI call fails.
    ///
    /// # Safety
    /// The memory is large enough, and stays allocated and untouched until the request completes.
    pub unsafe fn receive(
        &self,
        into: *mut u8,
        count: usize,
        from: Rank,
    ) -> Result<Requests, TransportError> {
        let mut requests = Requests::none(self.rank, Some(from));
        for (at, count) in self.parts(count) {
            let part = into.wrapping_add(at).cast::<c_void>();
            // SAFETY: the caller's promise.
            let code = unsafe {
                let (dtype, request) = (ffi::RSMPI_UINT8_T, requests.one_more());
                ffi::MPI_Irecv(part, count, dtype, from as c_int, TAG, self.raw, request)
            };
            self.check("MPI_Irecv", Some(from), code)?;
        }
        Ok(requests)
    }

    /// The sender and length of a message that has arrived without a matching receive; from rank `from`, or from
    /// any.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn arrived(&self, from: Option<Rank>) -> Result<Option<(Rank, usize)>, TransportError> {
        // SAFETY: plain data, which MPI writes.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        let (mut is_there, mut count) = (0, 0);
        // SAFETY: plain out parameters.
        unsafe {
            let source = from.map_or(ffi::RSMPI_ANY_SOURCE, |from| from as c_int);
            let code = ffi::MPI_Iprobe(source, TAG, self.raw, &raw mut is_there, &raw mut status);
            self.check("MPI_Iprobe", from, code)?;
            if is_there == 0 {
                return Ok(None);
            }
            let code = ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut count);
            self.check("MPI_Get_count", None, code)?;
        }
        Ok(Some((status.MPI_SOURCE as Rank, count as usize)))
    }

    /// The library's blocking allreduce, in place.
    ///
    /// # Errors
    /// When an MPI call fails.
    ///
    /// # Safety
    /// There are `elements` elements of the type, aligned, and no other thread accesses them.
    pub unsafe fn all_reduce(
        &self,
        at: *mut u8,
        elements: usize,
        (dtype, combine): (DataType, ElementOp),
    ) -> Result<(), TransportError> {
        if self.reductions.get().is_none() {
            let made = Reductions::new();
            let made = made.map_err(|code| self.check("MPI_Op_create", None, code).unwrap_err())?;
            let _ = self.reductions.set(made);
        }
        let op = self.reductions.get().expect("they are made").op(dtype, combine);
        for (first, count) in self.parts(elements) {
            let part = at.wrapping_add(first * dtype.size_bytes()).cast();
            // SAFETY: the caller's promise.
            let code = unsafe {
                let dtype = reduction::datatype(dtype);
                ffi::MPI_Allreduce(super::in_place(), part, count, dtype, op, self.raw)
            };
            self.check("MPI_Allreduce", None, code)?;
        }
        Ok(())
    }

    /// The offset and length of each part; an empty message is one part.
    fn parts(&self, elements: usize) -> impl Iterator<Item = (usize, c_int)> + use<> {
        let most = self.most;
        (0..elements.max(1)).step_by(most).map(move |at| (at, most.min(elements - at) as c_int))
    }
}

/// A nonblocking MPI operation, in one or several parts.
#[must_use]
pub struct Requests {
    rank: Rank,
    /// The peer, if there is only one.
    peer: Option<Rank>,
    raw: SmallVec<[ffi::MPI_Request; 1]>,
}

impl Requests {
    /// A completed operation without parts.
    pub fn none(rank: Rank, peer: Option<Rank>) -> Requests {
        Requests { rank, peer, raw: SmallVec::new() }
    }

    /// The peer, if there is only one.
    pub fn peer(&self) -> Option<Rank> {
        self.peer
    }

    fn one_more(&mut self) -> *mut ffi::MPI_Request {
        // SAFETY: a constant of the library.
        self.raw.push(unsafe { ffi::RSMPI_REQUEST_NULL });
        std::ptr::from_mut(self.raw.last_mut().expect("there is one"))
    }

    /// Whether the operation has completed.
    ///
    /// # Errors
    /// When an MPI call fails.
    #[inline]
    pub fn is_over(&mut self) -> Result<bool, TransportError> {
        while let Some(request) = self.raw.last_mut() {
            let mut over = 0;
            // SAFETY: a request that MPI has made, and plain out parameters.
            let code = unsafe { ffi::MPI_Test(request, &raw mut over, ffi::RSMPI_STATUS_IGNORE) };
            check("MPI_Test", self.rank, self.peer, code)?;
            if over == 0 {
                return Ok(false);
            }
            self.raw.pop();
        }
        Ok(true)
    }
}
