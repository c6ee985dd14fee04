//! Who has asked for which tensor: the coordinator's message table.
//!
//! A request that was seen before is known by its bytes: it is not read again but counted, after one
//! comparison with the request that came after the last one the time before, or a look-up. A request
//! with other bytes is read, and compared field by field with the one that came first.

use std::time::Duration;

use super::flaw::{Flaw, Flaws};
use super::hash::FastMap;
use super::message::{Malformed, decode_request};
use super::{Operation, Tensor, TensorId};
use crate::topology::Rank;

/// Requests that are remembered before the table forgets those that nobody waits for.
const MOST_REMEMBERED: usize = 1 << 16;

/// Counts requests from several reporters: ranks, or children in a tree.
pub(super) struct Table {
    reporters: usize,
    requests: Vec<Request>,
    /// The requests' bytes, back to back.
    bodies: Vec<u8>,
    by_body: FastMap<Box<[u8]>, u32>,
    rows: Vec<Row>,
    by_name: FastMap<Box<str>, u32>,
    /// The request that is expected next.
    guess: usize,
    /// Rows with some reporters, but not all.
    open: usize,
    flaws: Flaws,
}

/// One that was seen.
struct Request {
    /// Where its bytes are.
    start: u32,
    end: u32,
    row: u32,
    tensor: Tensor,
}

/// What is known of a name.
struct Row {
    name: Box<str>,
    /// The request that came first, and from whom; the others must agree with it.
    first: Option<(Rank, u32)>,
    count: u32,
    /// A bit for each reporter that has asked.
    reported: Vec<u64>,
    /// This rank's own tensor of that name, once it has asked.
    own: Option<TensorId>,
    /// The disagreement of the earliest check that fails for anybody.
    error: Option<(usize, String)>,
    since: Duration,
}

/// A tensor that all reporters have asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complete {
    /// This rank's own.
    pub(super) tensor: TensorId,
    /// Whose request came first.
    pub(super) rank: Rank,
    /// What is wrong.
    pub(super) error: Option<String>,
}

/// A tensor that some reporters have asked for, but not all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) name: String,
    pub(super) missing: Vec<usize>,
    pub(super) waited: Duration,
}

/// Why a request is not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Malformed(Malformed),
    /// The reporter has asked for this tensor before.
    Twice(String),
}

/// One request that is to be counted.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Who reports it, from 0; this rank is 0.
    pub(super) reporter: usize,
    /// Whose request it is.
    pub(super) rank: Rank,
    pub(super) body: &'a [u8],
    /// What is known to be wrong with it.
    pub(super) error: Option<&'a str>,
    /// This rank's tensor, if it is its own request.
    pub(super) own: Option<TensorId>,
    pub(super) now: Duration,
}

impl Table {
    pub(super) fn new(reporters: usize, flaws: Flaws) -> Table {
        Table {
            reporters,
            requests: Vec::new(),
            bodies: Vec::new(),
            by_body: FastMap::default(),
            rows: Vec::new(),
            by_name: FastMap::default(),
            guess: 0,
            open: 0,
            flaws,
        }
    }

    /// Counts a request; returns the tensor once all reporters have asked for it.
    #[inline]
    pub(super) fn count(&mut self, asked: Asked) -> Result<Option<Complete>, Refused> {
        let request = match self.requests.get(self.guess) {
            Some(guess) if self.bodies[guess.start as usize..guess.end as usize] == *asked.body => {
                self.guess
            }
            _ => self.look_up(asked.body).map_err(Refused::Malformed)?,
        };
        self.guess = request + 1;
        let row = &mut self.rows[self.requests[request].row as usize];
        let (word, bit) = (asked.reporter / 64, 1 << (asked.reporter % 64));
        if row.reported[word] & bit != 0 {
            return Err(Refused::Twice(row.name.to_string()));
        }
        row.reported[word] |= bit;
        row.count += 1;
        if asked.own.is_some() {
            row.own = asked.own;
        }
        match row.first {
            None => {
                row.first = Some((asked.rank, request as u32));
                row.since = asked.now;
                self.open += 1;
            }
            Some((rank, first)) if first != request as u32 => {
                let tensor = |request: u32| &self.requests[request as usize].tensor;
                let (first, other) = ((rank, tensor(first)), (asked.rank, tensor(request as u32)));
                row.disagree(disagreement(first, other));
            }
            Some(_) => {}
        }
        if let Some(error) = asked.error {
            row.disagree(Some((0, error.to_string())));
        }
        let early = usize::from(self.flaws.has(Flaw::ReadyOneRankEarly) && self.reporters > 1);
        if (row.count as usize) < self.reporters - early {
            return Ok(None);
        }
        let Some(tensor) = row.own else { return Ok(None) };
        self.open -= 1;
        Ok(Some(row.complete(tensor, self.flaws)))
    }

    /// The request with these bytes, which is read if it is new.
    #[cold]
    fn look_up(&mut self, body: &[u8]) -> Result<usize, Malformed> {
        if let Some(&request) = self.by_body.get(body) {
            return Ok(request as usize);
        }
        let tensor = decode_request(body)?;
        if self.requests.len() >= MOST_REMEMBERED && self.open == 0 {
            *self = Table::new(self.reporters, self.flaws);
        }
        let row = match self.by_name.get(tensor.name.as_str()) {
            Some(&row) => row,
            None => {
                let row = self.rows.len() as u32;
                let name: Box<str> = tensor.name.as_str().into();
                self.by_name.insert(name.clone(), row);
                self.rows.push(Row::new(name, self.reporters));
                row
            }
        };
        let start = self.bodies.len() as u32;
        self.bodies.extend(body);
        let request = self.requests.len();
        self.by_body.insert(body.into(), request as u32);
        self.requests.push(Request { start, end: self.bodies.len() as u32, row, tensor });
        Ok(request)
    }

    /// Rows that wait for some reporter for longer than that.
    pub(super) fn open(&self, now: Duration, longer_than: Duration) -> Vec<Open> {
        let is_open =
            |row: &&Row| row.first.is_some() && now.saturating_sub(row.since) > longer_than;
        let open = |row: &Row| {
            let has = |reporter: &usize| row.reported[reporter / 64] >> (reporter % 64) & 1 == 1;
            let missing = (0..self.reporters).filter(|reporter| !has(reporter)).collect();
            Open { name: row.name.to_string(), missing, waited: now.saturating_sub(row.since) }
        };
        self.rows.iter().filter(is_open).map(open).collect()
    }
}

impl Row {
    fn new(name: Box<str>, reporters: usize) -> Row {
        Row {
            name,
            first: None,
            count: 0,
            reported: vec![0; reporters.div_ceil(64)],
            own: None,
            error: None,
            since: Duration::ZERO,
        }
    }

    /// Horovod makes each check over all ranks before the next one, so the lowest number counts.
    fn disagree(&mut self, found: Option<(usize, String)>) {
        if let Some(found) = found
            && self.error.as_ref().is_none_or(|(check, _)| found.0 < *check)
        {
            self.error = Some(found);
        }
    }

    /// The row is over, and may begin anew.
    fn complete(&mut self, tensor: TensorId, flaws: Flaws) -> Complete {
        let (rank, _) = self.first.take().expect("somebody has asked");
        (self.count, self.own) = (0, None);
        self.reported.fill(0);
        let error = self.error.take().map(|(_, text)| text);
        Complete { tensor, rank, error: error.filter(|_| !flaws.has(Flaw::MismatchIgnored)) }
    }
}

/// What is compared, and how it is shown.
type Check = (&'static str, fn(&Tensor) -> String);

/// What ranks must agree on, in the order of Horovod's checks.
const CHECKS: [Check; 6] = [
    ("data types", |tensor| tensor.dtype.name().into()),
    ("operations", |tensor| tensor.operation.name().into()),
    ("shapes", shape_to_agree_on),
    ("prescale or postscale factors", |t| format!("{} and {}", t.prescale, t.postscale)),
    ("reduction operations", |tensor| tensor.op.name().into()),
    ("devices", |tensor| tensor.device.name().into()),
];

/// Ranks may gather vectors of different lengths: the first dimension is each rank's own.
fn shape_to_agree_on(tensor: &Tensor) -> String {
    match (tensor.operation, &tensor.shape[..]) {
        (Operation::AllGather, [_, rest @ ..]) => format!("[any, {rest:?}]"),
        (_, shape) => format!("{shape:?}"),
    }
}

/// The first difference between two ranks' ideas of a tensor, and the number of its check.
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
