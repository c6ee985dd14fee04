//! The exchange between all ranks and rank 0: requests go up, the answer comes down. In a star every rank
//! talks to rank 0 itself; in a tree of some radix a rank passes on what is ready in all of its subtree.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::flaw::{Flaw, Flaws};
use super::message::{Items, Malformed, Writer, name_horovod, requests_horovod, responses_horovod};
use super::queue::Queue;
use super::table::{Asked, Complete, Open, Refused, Table};
use super::{
    ControlError, Effect, Report, Response, Settings, StallCheck, Stalled, TensorId, Tensors,
};
use crate::fusion::{Candidate, Fusion};
use crate::topology::Rank;

/// Horovod sends the length of a message in a collective of its own.
const LENGTH_BYTES: usize = 4;

/// What a cycle that asked rank 0 comes to.
pub(super) struct Answer {
    pub(super) responses: Vec<Response>,
    pub(super) shut_down: bool,
}

/// One rank's end of it.
pub(super) struct Negotiation {
    tensors: Arc<Tensors>,
    rank: Rank,
    ranks: usize,
    /// How many children a rank has in the tree; none in a star.
    radix: Option<usize>,
    /// Those that report to this rank.
    children: Range<Rank>,
    fusion: Fusion,
    /// Between this rank's requests and the answer.
    pub(super) running: bool,
    /// In this cycle the parent has been told.
    has_passed_on: bool,
    now: Duration,
    shut_down: bool,
    /// Lists that have arrived and cannot be counted yet.
    early: Vec<Option<Box<[u8]>>>,
    /// Children whose lists have been counted.
    counted: usize,
    /// Who has asked for what, over cycles; empty at a leaf.
    table: Table,
    /// What is ready in all of the subtree, and not yet passed on.
    complete: Vec<Complete>,
    /// Rank 0 only: tensors that need no counting.
    cached: Vec<Candidate>,
    stall_check: Option<StallCheck>,
    last_check: Duration,
    flaws: Flaws,
    pub(super) report: Report,
}

impl Negotiation {
    pub(super) fn new(
        tensors: Arc<Tensors>,
        settings: &Settings,
        radix: Option<usize>,
    ) -> Negotiation {
        let &Settings { rank, ranks, flaws, .. } = settings;
        let children = match radix {
            None if rank == 0 => 1..ranks,
            None => 0..0,
            Some(radix) => (rank * radix + 1).min(ranks)..(rank * radix + radix + 1).min(ranks),
        };
        let groups = settings.groups.clone();
        // A leaf counts nothing.
        let reporters = if children.is_empty() && rank != 0 { 0 } else { 1 + children.len() };
        Negotiation {
            rank,
            ranks,
            radix,
            fusion: Fusion::new(settings.fusion_threshold_bytes, groups, flaws),
            running: false,
            has_passed_on: false,
            now: Duration::ZERO,
            shut_down: false,
            early: vec![None; children.len()],
            counted: 0,
            table: Table::new(tensors.clone(), reporters, flaws),
            tensors,
            children,
            complete: Vec::new(),
            cached: Vec::new(),
            stall_check: settings.stall_check,
            last_check: Duration::ZERO,
            flaws,
            report: Report::default(),
        }
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn unexpected(&self, event: &'static str) -> ControlError {
        ControlError::Unexpected { rank: self.rank, event }
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty() && self.rank != 0
    }

    /// Children whose lists are missing; after that, the parent.
    pub(super) fn waits_for(&self) -> Vec<Rank> {
        if !self.running {
            return Vec::new();
        }
        let is_missing = |child: &usize| *child >= self.counted && self.early[*child].is_none();
        let missing = (0..self.children.len()).filter(is_missing);
        let missing: Vec<_> = missing.map(|child| self.children.start + child).collect();
        if self.has_passed_on { self.parent().into_iter().collect() } else { missing }
    }

    fn parent(&self) -> Option<Rank> {
        let above = self.rank.checked_sub(1)?;
        Some(above / self.radix.unwrap_or(self.ranks))
    }

    /// Passes this rank's requests on, once all below it have passed on theirs. `cached` are tensors that
    /// all ranks have agreed on by other means. Returns the answer if nobody else is needed for it.
    pub(super) fn request(
        &mut self,
        ids: &[u32],
        cached: Vec<Candidate>,
        shut_down: bool,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, ControlError> {
        if self.running {
            return Err(self.unexpected("Cycle"));
        }
        (self.running, self.has_passed_on) = (true, false);
        self.report.slow_cycles += 1;
        (self.now, self.cached) = (now, cached);
        self.shut_down |= shut_down;
        if self.is_leaf() {
            self.pass_on(ids, out);
            return Ok(None);
        }
        let (tensors, rank) = (self.tensors.clone(), self.rank);
        for id in ids.iter().map(|&id| id as TensorId) {
            let body = tensors.request(id);
            self.count(
                rank,
                Asked { reporter: 0, rank, body, error: None, own: Some(id), now },
                0,
            )?;
        }
        self.go_on(out)
    }

    /// Takes the list of a child, or the answer of the parent.
    pub(super) fn arrived(
        &mut self,
        from: Rank,
        message: &[u8],
        queue: &Queue,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, ControlError> {
        self.report.messages_received += 1;
        self.report.bytes_wire_received += message.len();
        if self.children.contains(&from) {
            let child = from - self.children.start;
            if child < self.counted || self.early[child].is_some() {
                return Err(self.unexpected("a second list of requests"));
            }
            if self.running && child == self.counted {
                self.count_list(child, message)?;
            } else {
                self.early[child] = Some(message.into());
            }
            return if self.running { self.go_on(out) } else { Ok(None) };
        }
        if !self.running || self.parent() != Some(from) {
            return Err(self.unexpected("an answer"));
        }
        self.running = false;
        if self.radix.is_some() {
            self.hand_down(message, out);
        }
        self.read_answer(from, message, queue).map(Some)
    }

    /// Counts what has arrived from children, in their order; passes on or answers after the last.
    fn go_on(&mut self, out: &mut Vec<Effect>) -> Result<Option<Answer>, ControlError> {
        while let Some(list) = self.early.get_mut(self.counted).and_then(Option::take) {
            self.count_list(self.counted, &list)?;
        }
        let missing = self.children.len() - self.counted;
        if missing > usize::from(self.flaws.has(Flaw::SubtreeNotAwaited) && self.rank != 0) {
            return Ok(None);
        }
        self.counted = 0;
        if self.rank != 0 {
            self.pass_on(&[], out);
            return Ok(None);
        }
        self.running = false;
        Ok(Some(self.answer(out)))
    }

    fn count(&mut self, from: Rank, asked: Asked, at: usize) -> Result<(), ControlError> {
        let counted = self.table.count(asked).map_err(|refused| match refused {
            Refused::Twice(name) => ControlError::AskedTwice { from, name },
            Refused::Malformed(malformed) => {
                let malformed = Malformed { at: malformed.at + at, ..malformed };
                ControlError::Malformed { from, malformed }
            }
        })?;
        self.complete.extend(counted);
        Ok(())
    }

    /// Counts the requests of a child, or what is ready in its subtree.
    fn count_list(&mut self, child: usize, message: &[u8]) -> Result<(), ControlError> {
        let from = self.children.start + child;
        let refuse = |malformed| ControlError::Malformed { from, malformed };
        let (reporter, now) = (child + 1, self.now);
        self.counted += 1;
        if self.radix.is_none() {
            let mut items = Items::requests(message).map_err(refuse)?;
            self.shut_down |= items.shut_down;
            while let Some((at, body)) = items.next_request().map_err(refuse)? {
                let asked = Asked { reporter, rank: from, body, error: None, own: None, now };
                self.count(from, asked, at)?;
            }
            return Ok(());
        }
        let mut items = Items::ready(message).map_err(refuse)?;
        self.shut_down |= items.shut_down;
        while let Some(item) = items.next_subtree().map_err(refuse)? {
            let (rank, body, error) = (item.rank, item.body, item.error);
            self.count(from, Asked { reporter, rank, body, error, own: None, now }, 0)?;
        }
        Ok(())
    }

    /// Sends the parent this leaf's requests, or what is ready in this rank's subtree.
    fn pass_on(&mut self, ids: &[u32], out: &mut Vec<Effect>) {
        let tensors = &self.tensors;
        let own = ids.iter().map(|&id| id as TensorId);
        let own = own.map(|tensor| Complete { tensor, rank: self.rank, error: None });
        self.complete.extend(own);
        let shape = |done: &Complete| {
            let tensor = tensors.get(done.tensor);
            (tensor.name.len(), tensor.shape.len())
        };
        let bytes_horovod = LENGTH_BYTES + requests_horovod(self.complete.iter().map(shape));
        let count = self.complete.len();
        let mut list = match self.radix {
            None => Writer::requests(self.shut_down, count),
            Some(_) => Writer::ready(self.shut_down, count),
        };
        for done in &self.complete {
            let body = tensors.request(done.tensor);
            match self.radix {
                None => list.request(body),
                Some(_) => list.subtree(done.rank, done.error.as_deref(), body),
            }
        }
        self.complete.clear();
        self.has_passed_on = true;
        let (to, message) = (self.parent().expect("not rank 0"), list.finish());
        self.sent(1, message.len(), bytes_horovod);
        out.push(Effect::Send { to, message: message.into() });
    }

    /// Rank 0: what is ready everywhere, fused, for all ranks.
    fn answer(&mut self, out: &mut Vec<Effect>) -> Answer {
        let candidate = |done: Complete| Candidate { tensor: done.tensor, error: done.error };
        let new = self.complete.drain(..).map(candidate).collect();
        let cached = std::mem::take(&mut self.cached);
        let responses = self.fusion.messages(cached, new, &self.tensors);
        if self.ranks > 1 {
            let mut answer = Writer::responses(self.shut_down, responses.len());
            for response in &responses {
                let name = |&id: &TensorId| self.tensors.get(id).name.as_str();
                answer.response(
                    response.tensors.iter().map(name),
                    response.error.as_deref(),
                    response.stop,
                );
            }
            self.hand_down(&answer.finish(), out);
        }
        Answer { responses, shut_down: self.shut_down }
    }

    /// Sends the answer to all below.
    fn hand_down(&mut self, message: &[u8], out: &mut Vec<Effect>) {
        let mut bytes_horovod = LENGTH_BYTES;
        if let Ok(mut items) = Items::responses(message) {
            let names = std::iter::from_fn(|| items.next_response().ok().flatten());
            let names =
                names.map(|item| item.names.iter().map(|name| name_horovod(name.len())).sum());
            bytes_horovod += responses_horovod(self.ranks, names);
        }
        self.sent(self.children.len(), message.len(), bytes_horovod);
        let message: Arc<[u8]> = message.into();
        match self.radix {
            None => out.push(Effect::Broadcast(message)),
            Some(_) => {
                let send = |to| Effect::Send { to, message: message.clone() };
                out.extend(self.children.clone().map(send));
            }
        }
    }

    fn sent(&mut self, messages: usize, bytes: usize, bytes_horovod: usize) {
        self.report.messages_sent += messages;
        self.report.bytes_wire_sent += messages * bytes;
        self.report.bytes_horovod_sent += messages * bytes_horovod;
    }

    fn read_answer(
        &self,
        from: Rank,
        message: &[u8],
        queue: &Queue,
    ) -> Result<Answer, ControlError> {
        let refuse = |malformed| ControlError::Malformed { from, malformed };
        let mut items = Items::responses(message).map_err(refuse)?;
        let mut responses = Vec::new();
        while let Some(item) = items.next_response().map_err(refuse)? {
            let id = |&name: &&str| {
                let known = self.tensors.find(name);
                known.and_then(|number| queue.pending(number)).ok_or(ControlError::NotReady {
                    rank: self.rank,
                    name: name.into(),
                    is_registered: known.is_some(),
                })
            };
            responses.push(Response {
                tensors: item.names.iter().map(id).collect::<Result<_, _>>()?,
                error: item.error.map(Arc::from),
                stop: item.stop,
            });
        }
        Ok(Answer { responses, shut_down: items.shut_down })
    }

    /// Rank 0, at the beginning of a cycle: now and then it tells who is missing for what. Returns true if
    /// all must shut down for that.
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
                let Open { name, missing, waited } = open;
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
