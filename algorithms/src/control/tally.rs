//! Counts requests, a rank's own and those of the ranks that report to it, until a tensor is complete. On
//! rank 0 it also fuses complete tensors and reports stalls.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::error::ControlError;
use super::message::{Items, Malformed};
use super::plane::Effect;
use super::response::Response;
use super::settings::Settings;
use super::stall::{StallCheck, Stalled};
use super::table::{Complete, Pending, Rejection, Request, Table};
use super::tensor::TensorId;
use super::tensors::Tensors;
use crate::fusion::{Candidate, Fusion};
use crate::topology::Rank;

/// The count of one rank, over cycles.
pub(super) struct Tally {
    pub(super) tensors: Arc<Tensors>,
    pub(super) rank: Rank,
    /// Those that report to this rank.
    pub(super) children: Range<Rank>,
    /// The requests of the reporters; empty on a leaf.
    table: Table,
    /// The tensors that all reporters have requested and that are not yet passed on.
    pub(super) complete: Vec<Complete>,
    /// A rank wants all ranks to shut down.
    pub(super) shut_down: bool,
    fusion: Fusion,
    stall_check: Option<StallCheck>,
    last_check: Duration,
    now: Duration,
}

impl Tally {
    /// A count of the requests of these children and of the rank itself.
    pub(super) fn new(tensors: Arc<Tensors>, settings: &Settings, children: Range<Rank>) -> Tally {
        let &Settings { rank, mutations, .. } = settings;
        // A leaf counts nothing.
        let reporters = if children.is_empty() && rank != 0 { 0 } else { 1 + children.len() };
        Tally {
            rank,
            fusion: Fusion::new(
                settings.fusion_threshold_bytes,
                settings.groups.clone(),
                mutations,
            ),
            table: Table::new(tensors.clone(), reporters, mutations),
            tensors,
            children,
            complete: Vec::new(),
            shut_down: false,
            stall_check: settings.stall_check,
            last_check: Duration::ZERO,
            now: Duration::ZERO,
        }
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.children.is_empty() && self.rank != 0
    }

    /// Begins a cycle with these requests of this rank. A leaf only passes them on.
    pub(super) fn begin(
        &mut self,
        ids: &[u32],
        shut_down: bool,
        now: Duration,
    ) -> Result<(), ControlError> {
        self.now = now;
        self.shut_down |= shut_down;
        let (tensors, rank) = (self.tensors.clone(), self.rank);
        let ids = ids.iter().map(|&id| id as TensorId);
        if self.is_leaf() {
            self.complete.extend(ids.map(|tensor| Complete { tensor, rank, error: None }));
            return Ok(());
        }
        for id in ids {
            let body = tensors.request(id);
            let request = Request { reporter: 0, rank, body, error: None, own: Some(id), now };
            self.count(rank, request, 0)?;
        }
        Ok(())
    }

    /// Counts the requests of a child; returns how many there were.
    pub(super) fn requests(&mut self, from: Rank, message: &[u8]) -> Result<usize, ControlError> {
        let refuse = |malformed| ControlError::Malformed { from, malformed };
        let mut items = Items::requests(message).map_err(refuse)?;
        let (reporter, now) = (self.reporter(from), self.now);
        self.shut_down |= items.shut_down;
        let mut count = 0;
        while let Some((at, body)) = items.next_request().map_err(refuse)? {
            let request = Request { reporter, rank: from, body, error: None, own: None, now };
            self.count(from, request, at)?;
            count += 1;
        }
        Ok(count)
    }

    /// Counts the tensors that are ready in all of a child's subtree.
    pub(super) fn subtree(&mut self, from: Rank, message: &[u8]) -> Result<(), ControlError> {
        let refuse = |malformed| ControlError::Malformed { from, malformed };
        let mut items = Items::ready(message).map_err(refuse)?;
        let (reporter, now) = (self.reporter(from), self.now);
        self.shut_down |= items.shut_down;
        while let Some(item) = items.next_subtree().map_err(refuse)? {
            let (rank, body, error) = (item.rank, item.body, item.error);
            self.count(from, Request { reporter, rank, body, error, own: None, now }, 0)?;
        }
        Ok(())
    }

    /// The number of a child among the reporters; this rank is 0.
    fn reporter(&self, child: Rank) -> usize {
        child - self.children.start + 1
    }

    fn count(&mut self, from: Rank, request: Request, at: usize) -> Result<(), ControlError> {
        let counted = self.table.count(request).map_err(|rejection| match rejection {
            Rejection::Twice(name) => ControlError::RequestedTwice { from, name },
            Rejection::Malformed(malformed) => {
                let malformed = Malformed { at: malformed.at + at, ..malformed };
                ControlError::Malformed { from, malformed }
            }
        })?;
        self.complete.extend(counted);
        Ok(())
    }

    /// Rank 0: the complete tensors, fused, after those that all ranks agreed on by their caches.
    pub(super) fn fused(&mut self, cached: Vec<Candidate>) -> Vec<Response> {
        let candidate = |done: Complete| Candidate { tensor: done.tensor, error: done.error };
        let new = self.complete.drain(..).map(candidate).collect();
        self.fusion.messages(cached, new, &self.tensors)
    }

    /// Rank 0, at the beginning of a cycle: warns of stalled tensors from time to time. Returns true if all
    /// ranks must shut down because of one.
    pub(super) fn look_for_stalls(&mut self, now: Duration, out: &mut Vec<Effect>) -> bool {
        let Some(check) = self.stall_check.filter(|_| self.rank == 0) else { return false };
        let due = check.shut_down_after.unwrap_or(check.warn_after).min(check.warn_after);
        if now.saturating_sub(self.last_check) <= due {
            return false;
        }
        self.last_check = now;
        let rank_of = |reporter: usize| match reporter {
            0 => self.rank,
            child => self.children.start + child - 1,
        };
        let stalled: Vec<_> = self
            .table
            .open(now, due)
            .into_iter()
            .map(|open| {
                let Pending { name, missing, waited } = open;
                let missing = missing.into_iter().map(rank_of).collect();
                let shuts_down = check.shut_down_after.is_some_and(|most| waited > most);
                Stalled { name, missing, waited, shuts_down }
            })
            .collect();
        let shuts_down = stalled.iter().any(|stalled| stalled.shuts_down);
        out.extend(stalled.into_iter().map(Effect::Warn));
        shuts_down
    }
}
