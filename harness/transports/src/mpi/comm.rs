//! MPI's functions as this project calls them: every return code becomes a `Result`, which says who
//! called what, and about whom.

use std::cell::OnceCell;
use std::ffi::{CStr, c_char, c_int, c_void};

use algorithms::control::DataType;
use algorithms::topology::Rank;
use mpi::ffi;
use smallvec::SmallVec;

use super::reduction::{self, Reductions};
use crate::kernel::ElementOp;
use crate::transport::TransportError;

/// MPI counts with 32 bits: what is longer goes in parts of so many elements, which messages have one of in
/// each byte.
const MOST: usize = 1 << 30;

/// All messages of a communicator are of one sort, and in order between two ranks.
const TAG: c_int = 0;

/// A communicator; freed by MPI's end.
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
    // SAFETY: a C string, whose last character is 0 by now.
    let why = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().trim().to_string();
    Err(TransportError::Failed { rank, peer, call: call.into(), why })
}

impl Comm {
    /// All processes of the job. MPI has been initialized.
    ///
    /// # Errors
    /// When MPI refuses.
    pub fn world() -> Result<Comm, TransportError> {
        // SAFETY: a constant of the library.
        Comm::of(unsafe { ffi::RSMPI_COMM_WORLD })
    }

    fn of(raw: ffi::MPI_Comm) -> Result<Comm, TransportError> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: a communicator that this process is part of; plain out parameters.
        unsafe {
            check("MPI_Comm_rank", 0, None, ffi::MPI_Comm_rank(raw, &raw mut rank))?;
            check("MPI_Comm_size", 0, None, ffi::MPI_Comm_size(raw, &raw mut ranks))?;
            let code = ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN);
            check("MPI_Comm_set_errhandler", rank as Rank, None, code)?;
        }
        let (rank, ranks, reductions) = (rank as Rank, ranks as usize, OnceCell::new());
        Ok(Comm { raw, rank, ranks, most: MOST, reductions })
    }

    /// The same, with parts of so many elements: of at least 1, on all ranks alike.
    pub fn cut(self, most: usize) -> Comm {
        Comm { most: most.clamp(1, MOST), ..self }
    }

    /// What has more elements goes in several parts.
    pub fn most(&self) -> usize {
        self.most
    }

    /// This process.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    fn check(&self, call: &str, peer: Option<Rank>, code: c_int) -> Result<(), TransportError> {
        check(call, self.rank, peer, code)
    }

    /// These ranks, in this order, as a communicator of their own: called by each of them, and by nobody
    /// else.
    ///
    /// # Errors
    /// When MPI refuses.
    pub fn within(&self, members: &[Rank]) -> Result<Comm, TransportError> {
        let members: Vec<c_int> = members.iter().map(|&rank| rank as c_int).collect();
        // SAFETY: `MPI_Group` is a number or a pointer, for which zero will do until it is written.
        let (mut all, mut some): (ffi::MPI_Group, ffi::MPI_Group) = unsafe { std::mem::zeroed() };
        // SAFETY: a constant of the library.
        let mut raw = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: plain out parameters, and a list as long as it is said to be.
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
    /// When MPI refuses.
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

    /// What each rank says: as many bytes of each.
    ///
    /// # Errors
    /// When MPI refuses.
    pub fn all_gather<const BYTES: usize>(
        &self,
        own: [u8; BYTES],
    ) -> Result<Vec<[u8; BYTES]>, TransportError> {
        let mut all = vec![[0; BYTES]; self.ranks];
        let count = BYTES as c_int;
        // SAFETY: `count` bytes from each rank, for which there is room.
        let code = unsafe {
            let bytes = ffi::RSMPI_UINT8_T;
            let (from, into) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            ffi::MPI_Allgather(from, count, bytes, into, count, bytes, self.raw)
        };
        self.check("MPI_Allgather", None, code)?;
        Ok(all)
    }

    /// Sends rank 0's bytes to all.
    ///
    /// # Errors
    /// When MPI refuses.
    ///
    /// # Safety
    /// The bytes stay, and nobody touches them, until the request is over.
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

    /// Over when all ranks have called it.
    ///
    /// # Errors
    /// When MPI refuses.
    pub fn barrier(&self) -> Result<Requests, TransportError> {
        let mut requests = Requests::none(self.rank, None);
        // SAFETY: a plain out parameter, which MPI does not keep.
        let code = unsafe { ffi::MPI_Ibarrier(self.raw, requests.one_more()) };
        self.check("MPI_Ibarrier", None, code)?;
        Ok(requests)
    }

    /// Begins to send bytes.
    ///
    /// # Errors
    /// When MPI refuses.
    ///
    /// # Safety
    /// The bytes stay, and nobody writes them, until the request is over.
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

    /// Begins to receive bytes.
    ///
    /// # Errors
    /// When MPI refuses.
    ///
    /// # Safety
    /// There is room for the bytes, and nobody touches it, until the request is over.
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

    /// From whom a message has arrived that nobody has asked for, and how long it is; from this rank, or
    /// from any.
    ///
    /// # Errors
    /// When MPI refuses.
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

    /// The library's own allreduce, in place and blocking.
    ///
    /// # Errors
    /// When MPI refuses.
    ///
    /// # Safety
    /// There are as many elements of the type, aligned, and nobody else touches them.
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

    /// Where each part begins, and how many elements it has; nothing is one part.
    fn parts(&self, elements: usize) -> impl Iterator<Item = (usize, c_int)> + use<> {
        let most = self.most;
        (0..elements.max(1)).step_by(most).map(move |at| (at, most.min(elements - at) as c_int))
    }
}

/// Something that MPI has begun, in one or several parts.
#[must_use]
pub struct Requests {
    rank: Rank,
    /// With whom, if it is one rank.
    peer: Option<Rank>,
    raw: SmallVec<[ffi::MPI_Request; 1]>,
}

impl Requests {
    /// Nothing, which is over.
    pub fn none(rank: Rank, peer: Option<Rank>) -> Requests {
        Requests { rank, peer, raw: SmallVec::new() }
    }

    /// With whom.
    pub fn peer(&self) -> Option<Rank> {
        self.peer
    }

    fn one_more(&mut self) -> *mut ffi::MPI_Request {
        // SAFETY: a constant of the library.
        self.raw.push(unsafe { ffi::RSMPI_REQUEST_NULL });
        std::ptr::from_mut(self.raw.last_mut().expect("there is one"))
    }

    /// Whether it is over.
    ///
    /// # Errors
    /// When MPI refuses.
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
