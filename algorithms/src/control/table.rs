//! The coordinator's message table: which reporters have requested which tensor.
//!
//! Most requests have the bytes that this rank would send itself. They are counted after one comparison with
//! the tensor registered after the last one, or a look-up. A request with other bytes is decoded, and
//! compared field by field with the first request of the name.

use std::sync::Arc;
use std::time::Duration;

use super::hash::FastMap;
use super::message::{Malformed, decode_request, request_name};
use super::mutation::{Mutation, Mutations};
use super::tensor::{Operation, Tensor, TensorId};
use super::tensors::Tensors;
use crate::topology::Rank;

/// The number of other ranks' requests that the table keeps before it drops those that are not pending.
const MAX_FOREIGN: usize = 1 << 16;

/// Counts requests from several reporters: ranks, or children in a tree.
pub(super) struct Table {
    reporters: usize,
    /// This rank's own requests go by their tensors' numbers; others' are numbered from there on. Likewise
    /// rows: first those of this rank's names.
    tensors: Arc<Tensors>,
    foreign: Vec<Foreign>,
    by_body: FastMap<Box<[u8]>, u32>,
    by_name: FastMap<Box<str>, u32>,
    rows: Vec<Row>,
    /// A bit for each reporter that has requested it, row by row.
    reported: Vec<u64>,
    /// The request that is expected next.
    guess: usize,
    /// Rows with some reporters, but not all.
    open: usize,
    mutations: Mutations,
}

/// A request that is not this rank's.
struct Foreign {
    body: Box<[u8]>,
    row: u32,
    tensor: Tensor,
}

/// The state of a name.
#[derive(Clone, Default)]
struct Row {
    /// The first request, and its rank; the others must agree with it.
    first: Option<(u32, u32)>,
    count: u32,
    /// This rank's own tensor of that name, once it is requested.
    own: Option<u32>,
    since: Duration,
    /// The mismatch of the earliest check that fails for any rank.
    error: Option<Box<(usize, String)>>,
}

/// A tensor that all reporters have requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complete {
    /// This rank's own.
    pub(super) tensor: TensorId,
    /// The rank of the first request.
    pub(super) rank: Rank,
    /// The mismatch, if any.
    pub(super) error: Option<String>,
}

/// A tensor that some reporters have requested, but not all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) name: String,
    pub(super) missing: Vec<usize>,
    pub(super) waited: Duration,
}

/// Why a request is not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    Malformed(Malformed),
    /// The reporter has requested this tensor before.
    Twice(String),
}

/// A request to be counted.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// The number of the reporter; this rank is 0.
    pub(super) reporter: usize,
    /// The rank that requests it.
    pub(super) rank: Rank,
    pub(super) body: &'a [u8],
    /// A mismatch that is already known.
    pub(super) error: Option<&'a str>,
    /// This rank's tensor, if it is its own request.
    pub(super) own: Option<TensorId>,
    pub(super) now: Duration,
}

impl Table {
    pub(super) fn new(tensors: Arc<Tensors>, reporters: usize, mutations: Mutations) -> Table {
        let names = if reporters > 0 { tensors.names() } else { 0 };
        Table {
            reporters,
            foreign: Vec::new(),
            by_body: FastMap::default(),
            by_name: FastMap::default(),
            rows: vec![Row::default(); names],
            reported: vec![0; names * reporters.div_ceil(64)],
            tensors,
            guess: 0,
            open: 0,
            mutations,
        }
    }

    #[inline]
    fn body(&self, request: usize) -> Option<&[u8]> {
        match request.checked_sub(self.tensors.len()) {
            None => Some(self.tensors.request(request)),
            Some(other) => self.foreign.get(other).map(|foreign| &*foreign.body),
        }
    }

    #[inline]
    fn row(&self, request: usize) -> usize {
        match request.checked_sub(self.tensors.len()) {
            None => self.tensors.name_of(request),
            Some(other) => self.foreign[other].row as usize,
        }
    }

    fn tensor(&self, request: usize) -> &Tensor {
        match request.checked_sub(self.tensors.len()) {
            None => self.tensors.get(request),
            Some(other) => &self.foreign[other].tensor,
        }
    }

    /// Counts a request; returns the tensor once all reporters have requested it.
    #[inline]
    pub(super) fn count(&mut self, request: Request) -> Result<Option<Complete>, Rejection> {
        let id = match self.body(self.guess) {
            Some(body) if body == request.body => self.guess,
            _ => self.look_up(request.body).map_err(Rejection::Malformed)?,
        };
        self.guess = id + 1;
        let at = self.row(id);
        let word = at * self.reporters.div_ceil(64) + request.reporter / 64;
        let (word, bit) = (&mut self.reported[word], 1 << (request.reporter % 64));
        if *word & bit != 0 {
            return Err(Rejection::Twice(self.tensor(id).name.clone()));
        }
        *word |= bit;
        let row = &mut self.rows[at];
        row.count += 1;
        if let Some(own) = request.own {
            row.own = Some(own as u32);
        }
        match row.first {
            None => {
                row.first = Some((request.rank as u32, id as u32));
                row.since = request.now;
                self.open += 1;
            }
            Some((rank, first)) if first != id as u32 => {
                let first = (rank as Rank, self.tensor(first as usize));
                let found = disagreement(first, (request.rank, self.tensor(id)));
                self.rows[at].disagree(found);
            }
            Some(_) => {}
        }
        if let Some(error) = request.error {
            self.rows[at].disagree(Some((0, error.to_string())));
        }
        let early =
            usize::from(self.mutations.has(Mutation::ReadyOneRankEarly) && self.reporters > 1);
        if (self.rows[at].count as usize) < self.reporters - early {
            return Ok(None);
        }
        Ok(self.complete(at))
    }

    /// Completes a row, which may begin again. `None` for a tensor that this rank has not requested.
    fn complete(&mut self, at: usize) -> Option<Complete> {
        self.rows[at].own?;
        let words = self.reporters.div_ceil(64);
        self.reported[at * words..(at + 1) * words].fill(0);
        self.open -= 1;
        let row = std::mem::take(&mut self.rows[at]);
        let error = row.error.filter(|_| !self.mutations.has(Mutation::MismatchIgnored));
        Some(Complete {
            tensor: row.own? as TensorId,
            rank: row.first?.0 as Rank,
            error: error.map(|error| error.1),
        })
    }

    /// The request with these bytes, which is read if it is new.
    #[cold]
    fn look_up(&mut self, body: &[u8]) -> Result<usize, Malformed> {
        let known = self.tensors.find(request_name(body)?);
        let versions = known.map_or(&[][..], |name| self.tensors.versions(name));
        if let Some(&own) = versions.iter().find(|&&id| self.tensors.request(id) == body) {
            return Ok(own);
        }
        let first = self.tensors.len();
        if let Some(&request) = self.by_body.get(body) {
            return Ok(first + request as usize);
        }
        let tensor = decode_request(body)?;
        if self.foreign.len() >= MAX_FOREIGN && self.open == 0 {
            *self = Table::new(self.tensors.clone(), self.reporters, self.mutations);
        }
        let row = known.unwrap_or_else(|| match self.by_name.get(tensor.name.as_str()) {
            Some(&row) => row as usize,
            None => {
                let row = self.rows.len();
                self.by_name.insert(tensor.name.as_str().into(), row as u32);
                self.rows.push(Row::default());
                self.reported.resize(self.rows.len() * self.reporters.div_ceil(64), 0);
                row
            }
        });
        let request = self.foreign.len();
        self.by_body.insert(body.into(), request as u32);
        self.foreign.push(Foreign { body: body.into(), row: row as u32, tensor });
        Ok(first + request)
    }

    /// Rows that have waited for some reporter for longer than `due`.
    pub(super) fn open(&self, now: Duration, longer_than: Duration) -> Vec<Pending> {
        let words = self.reporters.div_ceil(64);
        let open = |(at, row): (usize, &Row)| {
            let (_, first) = row.first?;
            let waited = now.saturating_sub(row.since);
            let reported = &self.reported[at * words..];
            let has = |reporter: &usize| reported[reporter / 64] >> (reporter % 64) & 1 == 1;
            let missing = (0..self.reporters).filter(|reporter| !has(reporter)).collect();
            let name = self.tensor(first as usize).name.clone();
            (waited > longer_than).then_some(Pending { name, missing, waited })
        };
        self.rows.iter().enumerate().filter_map(open).collect()
    }
}

impl Row {
    /// Horovod makes each check over all ranks before the next one, so the lowest number counts.
    fn disagree(&mut self, found: Option<(usize, String)>) {
        if let Some(found) = found
            && self.error.as_ref().is_none_or(|error| found.0 < error.0)
        {
            self.error = Some(found.into());
        }
    }
}

/// A property that is compared, and how it is shown.
type Check = (&'static str, fn(&Tensor) -> String);

/// The properties on which ranks must agree, in the order of Horovod's checks.
const CHECKS: [Check; 6] = [
    ("data types", |tensor| tensor.dtype.name().into()),
    ("operations", |tensor| tensor.operation.name().into()),
    ("shapes", shape_to_agree_on),
    ("prescale or postscale factors", |t| format!("{} and {}", t.prescale, t.postscale)),
    ("reduction operations", |tensor| tensor.op.name().into()),
    ("devices", |tensor| tensor.device.name().into()),
];

/// Ranks may gather tensors of different lengths: the first dimension may differ.
fn shape_to_agree_on(tensor: &Tensor) -> String {
    match (tensor.operation, &tensor.shape[..]) {
        (Operation::AllGather, [_, rest @ ..]) => format!("[any, {rest:?}]"),
        (_, shape) => format!("{shape:?}"),
    }
}

/// The first mismatch between the tensors of two ranks, and the number of its check.
#[cold]
fn disagreement(first: (Rank, &Tensor), other: (Rank, &Tensor)) -> Option<(usize, String)> {
    let ((rank, tensor), (other_rank, other)) = (first, other);
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
