//! The current activity of this process, which its heartbeats report.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use algorithms::topology::Rank;

/// The rank within the running case that this process waits for, plus one.
static WAITS_FOR: AtomicU32 = AtomicU32::new(0);
/// Waits that have ended.
static PROGRESS: AtomicU64 = AtomicU64::new(0);
/// The processes of the running case, by rank.
static MEMBERS: Mutex<Vec<Rank>> = Mutex::new(Vec::new());

/// A guard: this process waits for another until it is dropped.
pub struct Waits;

impl Waits {
    /// While a rank of the running case is waited for.
    pub fn for_rank(peer: Rank) -> Waits {
        WAITS_FOR.store(peer as u32 + 1, Ordering::Relaxed);
        Waits
    }
}

/// A guard: a library call waits internally, for an unknown rank, until it is dropped. Its end is progress.
pub struct Works;

impl Drop for Works {
    fn drop(&mut self) {
        PROGRESS.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITS_FOR.store(0, Ordering::Relaxed);
        PROGRESS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets the processes that carry out the running case, by rank; none if this process has no part in one.
pub fn set_members(members: &[Rank]) {
    let mut kept = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    kept.clear();
    kept.extend_from_slice(members);
}

/// The activity of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// It takes part in a case.
    pub is_busy: bool,
    /// The process that it waits for, in the job's numbering.
    pub waits_for: Option<Rank>,
    /// Changes while the process makes progress.
    pub progress: u64,
}

impl Activity {
    /// This process, now.
    pub fn now() -> Activity {
        let members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = WAITS_FOR.load(Ordering::Relaxed).checked_sub(1);
        Activity {
            is_busy: !members.is_empty(),
            waits_for: peer.and_then(|peer| members.get(peer as usize).copied()),
            progress: PROGRESS.load(Ordering::Relaxed),
        }
    }

    /// The body of a heartbeat.
    pub fn to_bytes(self) -> [u8; Activity::BYTES] {
        let mut bytes = [0; Activity::BYTES];
        bytes[0] = u8::from(self.is_busy);
        let waits_for = self.waits_for.map_or(0, |rank| rank as u32 + 1);
        bytes[1..5].copy_from_slice(&waits_for.to_le_bytes());
        bytes[5..].copy_from_slice(&self.progress.to_le_bytes());
        bytes
    }

    /// Length of [`Self::to_bytes`].
    pub const BYTES: usize = 13;

    /// Reads [`Self::to_bytes`].
    pub fn from_bytes(bytes: [u8; Activity::BYTES]) -> Activity {
        let waits_for = u32::from_le_bytes(bytes[1..5].try_into().expect("4 bytes"));
        Activity {
            is_busy: bytes[0] != 0,
            waits_for: waits_for.checked_sub(1).map(|rank| rank as Rank),
            progress: u64::from_le_bytes(bytes[5..].try_into().expect("8 bytes")),
        }
    }
}
