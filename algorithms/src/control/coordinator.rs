//! The collective coordinator: every cycle, every rank tells rank 0 what became ready; rank 0
//! counts, and answers with what is ready everywhere.
//!
//! Horovod's original plane (v0.13.3 to v0.16.1), and to this day its slow path: a gather of request
//! lists and a broadcast of responses in every cycle, idle ones too. The work of rank 0 grows with
//! ranks x tensors.

use std::collections::HashMap;
use std::sync::Arc;

use super::message::{NamedResponse, Requests, Responses, encode_requests, encode_responses};
use super::{
    ControlError, ControlPlane, Effect, Event, Response, Settings, Tensor, TensorId, Tensors,
};
use crate::fusion::{Candidate, fuse};
use crate::topology::Rank;

/// Its name in configurations and CSV files.
pub const NAME: &str = "coordinator";

/// Asks rank 0 in every cycle.
pub struct Coordinator {
    queue: Queue,
    negotiation: Negotiation,
}

impl Coordinator {
    /// The plane of one rank.
    pub fn new(tensors: Arc<Tensors>, settings: &Settings) -> Coordinator {
        Coordinator {
            queue: Queue::new(tensors.clone()),
            negotiation: Negotiation::new(tensors, settings),
        }
    }
}

impl ControlPlane for Coordinator {
    fn name(&self) -> &'static str {
        NAME
    }

    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError> {
        let answer = match event {
            Event::Ready(id) => return self.queue.push(id),
            Event::Cycle => self.negotiation.request(&self.queue.drain(), Vec::new(), out)?,
            Event::Arrived { from, message } => self.negotiation.arrived(from, message, out)?,
            Event::AllAnded(_) => return Err(self.negotiation.unexpected("AllAnded")),
        };
        let Some(responses) = answer else {
            return Ok(());
        };
        self.queue.carry_out(responses, out);
        Ok(())
    }
}

/// Tensors that are ready here and not yet reduced, first come first.
pub(super) struct Queue {
    tensors: Arc<Tensors>,
    waiting: Vec<TensorId>,
    /// Ready, and not yet executed.
    pending: Vec<bool>,
}

impl Queue {
    pub(super) fn new(tensors: Arc<Tensors>) -> Queue {
        let pending = vec![false; tensors.len()];
        Queue { tensors, waiting: Vec::new(), pending }
    }

    pub(super) fn push(&mut self, id: TensorId) -> Result<(), ControlError> {
        if std::mem::replace(&mut self.pending[id], true) {
            return Err(ControlError::ReadyTwice { name: self.tensors.get(id).name.clone() });
        }
        self.waiting.push(id);
        Ok(())
    }

    /// Takes everything out, as each cycle does.
    pub(super) fn drain(&mut self) -> Vec<TensorId> {
        std::mem::take(&mut self.waiting)
    }

    /// Puts back, at the end, what this cycle could not settle.
    pub(super) fn put_back(&mut self, id: TensorId) {
        self.waiting.push(id);
    }

    /// Ends the cycle with these responses, after which their tensors may become ready anew.
    pub(super) fn carry_out(&mut self, responses: Vec<Response>, out: &mut Vec<Effect>) {
        for response in responses {
            response.tensors.iter().for_each(|&id| self.pending[id] = false);
            out.push(Effect::Execute(response));
        }
        out.push(Effect::EndCycle);
    }
}

/// The exchange between all ranks and rank 0, which two planes share.
pub(super) struct Negotiation {
    tensors: Arc<Tensors>,
    rank: Rank,
    fusion_threshold_bytes: usize,
    /// Between this rank's requests and rank 0's answer.
    pub(super) running: bool,
    /// Rank 0 only: the lists that have arrived for this cycle.
    lists: Vec<Option<Requests>>,
    /// Rank 0 only: tensors that need no counting and come first.
    first: Vec<Candidate>,
    /// Rank 0 only: who has asked for what, over cycles.
    table: Table,
}

impl Negotiation {
    pub(super) fn new(tensors: Arc<Tensors>, settings: &Settings) -> Negotiation {
        let lists = if settings.rank == 0 { settings.ranks } else { 0 };
        Negotiation {
            table: Table { ranks: settings.ranks, rows: HashMap::new() },
            tensors,
            rank: settings.rank,
            fusion_threshold_bytes: settings.fusion_threshold_bytes,
            running: false,
            lists: vec![None; lists],
            first: Vec::new(),
        }
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn unexpected(&self, event: &'static str) -> ControlError {
        ControlError::Unexpected { rank: self.rank, event }
    }

    /// Sends this rank's requests. At rank 0, `first` are tensors that all ranks have agreed on
    /// by other means; returns the answer if nothing is missing (a world of one, or all arrived).
    pub(super) fn request(
        &mut self,
        ids: &[TensorId],
        first: Vec<Candidate>,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Vec<Response>>, ControlError> {
        if self.running {
            return Err(self.unexpected("Cycle"));
        }
        self.running = true;
        let requests = ids.iter().map(|&id| self.tensors.get(id));
        if self.rank != 0 {
            out.push(Effect::Send { to: 0, message: encode_requests(requests) });
            return Ok(None);
        }
        self.lists[0] = Some(Requests(requests.cloned().collect()));
        self.first = first;
        self.answer(out)
    }

    /// Takes a list of requests (rank 0) or the answer (the others).
    pub(super) fn arrived(
        &mut self,
        from: Rank,
        message: &[u8],
        out: &mut Vec<Effect>,
    ) -> Result<Option<Vec<Response>>, ControlError> {
        let malformed = |malformed| ControlError::Malformed { from, malformed };
        if self.rank == 0 {
            let list = Requests::decode(message).map_err(malformed)?;
            if self.lists[from].replace(list).is_some() {
                return Err(self.unexpected("a second list of requests"));
            }
            return self.answer(out);
        }
        if !self.running {
            return Err(self.unexpected("an answer"));
        }
        self.running = false;
        let responses = Responses::decode(message).map_err(malformed)?;
        let by_id = |response| by_id(&self.tensors, self.rank, response);
        responses.0.into_iter().map(by_id).collect::<Result<_, _>>().map(Some)
    }

    /// Rank 0: once every rank's list is there, counts them in rank order and broadcasts.
    fn answer(&mut self, out: &mut Vec<Effect>) -> Result<Option<Vec<Response>>, ControlError> {
        if !self.running || self.lists.iter().any(Option::is_none) {
            return Ok(None);
        }
        self.running = false;
        let mut ready = std::mem::take(&mut self.first);
        for (rank, list) in self.lists.iter_mut().enumerate() {
            for request in list.take().expect("every list is there").0 {
                if let Some((name, error)) = self.table.count(rank, request) {
                    ready.push(Candidate { tensor: id(&self.tensors, self.rank, name)?, error });
                }
            }
        }
        let responses = fuse(ready, &self.tensors, self.fusion_threshold_bytes);
        let named = responses.iter().map(|response| {
            let names = response.tensors.iter().map(|&id| self.tensors.get(id).name.as_str());
            (names, response.error.as_deref())
        });
        if self.lists.len() > 1 {
            out.push(Effect::Broadcast(encode_responses(named).into()));
        }
        Ok(Some(responses))
    }
}

fn by_id(tensors: &Tensors, rank: Rank, response: NamedResponse) -> Result<Response, ControlError> {
    let ids = response.names.into_iter().map(|name| id(tensors, rank, name));
    Ok(Response { tensors: ids.collect::<Result<_, _>>()?, error: response.error })
}

fn id(tensors: &Tensors, rank: Rank, name: String) -> Result<TensorId, ControlError> {
    tensors.find(&name).ok_or(ControlError::UnknownTensor { rank, name })
}

/// Who has asked for which tensor.
struct Table {
    ranks: usize,
    rows: HashMap<String, Row>,
}

struct Row {
    /// The request that came first, and from whom; the others must agree with it.
    first: (Rank, Tensor),
    count: usize,
    /// The disagreement of the earliest check that fails for any rank.
    error: Option<(usize, String)>,
}

impl Table {
    /// Counts a request; once all ranks have asked, the tensor's name and what is wrong with it.
    fn count(&mut self, rank: Rank, request: Tensor) -> Option<(String, Option<String>)> {
        let Some(row) = self.rows.get_mut(&request.name) else {
            let name = request.name.clone();
            let row = Row { first: (rank, request), count: 1, error: None };
            return match self.ranks {
                1 => Some((name, None)),
                _ => {
                    self.rows.insert(name, row);
                    None
                }
            };
        };
        row.count += 1;
        let request = (rank, request);
        if let Some(found) = disagreement(&row.first, &request)
            && row.error.as_ref().is_none_or(|(check, _)| found.0 < *check)
        {
            row.error = Some(found);
        }
        if row.count < self.ranks {
            return None;
        }
        let (name, row) = self.rows.remove_entry(&request.1.name)?;
        Some((name, row.error.map(|(_, text)| text)))
    }
}

/// What is compared, and how it is shown.
type Check = (&'static str, fn(&Tensor) -> String);

/// What ranks must agree on, in the order of Horovod's checks.
const CHECKS: [Check; 4] = [
    ("data types", |tensor| tensor.dtype.name().into()),
    ("shapes", |tensor| format!("{:?}", tensor.shape)),
    ("prescale or postscale factors", |t| format!("{} and {}", t.prescale, t.postscale)),
    ("reduction operations", |tensor| tensor.op.name().into()),
];

/// The first difference between two ranks' ideas of a tensor, and the number of its check. Horovod
/// makes each check over all ranks before the next one, so over ranks the lowest number counts.
fn disagreement(first: &(Rank, Tensor), other: &(Rank, Tensor)) -> Option<(usize, String)> {
    let ((rank, tensor), (other_rank, other)) = (first, other);
    if tensor == other {
        return None;
    }
    let check = CHECKS.iter().position(|(_, show)| show(tensor) != show(other))?;
    let (what, show) = CHECKS[check];
    let text = format!(
        "Mismatched {what} for tensor \"{}\": rank {rank} has {}, but rank {other_rank} has {}.",
        tensor.name,
        show(tensor),
        show(other)
    );
    Some((check, text))
}
