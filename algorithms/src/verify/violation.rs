//! Why a schedule or a program is no allreduce.

use std::fmt;
use std::ops::Range;

use crate::algorithm::{Unsupported, Volume};
use crate::schedule::{Action, Move};
use crate::topology::Rank;

/// Why a schedule or program is refused. The text names step, rank and chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named and Display says what they mean")]
pub enum Violation {
    /// There is no schedule for this topology.
    Unsupported(Unsupported),
    /// A move names itself, or a rank or chunk that does not exist.
    InvalidMove { step: usize, rank: Rank, entry: Move, ranks: usize, chunks: usize },
    /// A send without a matching receive.
    NotExpected { step: usize, from: Rank, to: Rank, sent: Move },
    /// A receive without a matching send.
    NotSent { step: usize, from: Rank, to: Rank, expected: Move },
    /// The two ends of a transfer disagree.
    Disagree { step: usize, from: Rank, to: Rank, sent: Move, expected: Move },
    /// Two transfers of a step write one chunk, and not both are reductions.
    WrittenTwice { step: usize, rank: Rank, chunk: usize },
    /// A reduction adds the part of a rank a second time.
    ReducedTwice { step: usize, from: Rank, rank: Rank, chunk: usize, part: Rank },
    /// The part of a rank is missing at the end.
    MissingPart { steps: usize, rank: Rank, chunk: usize, part: Rank },
    /// The result is right, but the volume is not the promised one.
    Volume { rank: Rank, promised: Volume, found: Volume },
    /// A program overwrites a chunk that another rank may still be reading.
    Overwritten { step: usize, rank: Rank, by: Rank, chunk: usize },
    /// A program puts a chunk into a rank that has not sent it since it was last written.
    NotHandedOver { step: usize, rank: Rank, by: Rank, chunk: usize },
    /// The result is right, but the number of steps is not the promised one.
    Steps { promised: usize, found: usize },
    /// The compiled programs wait for one another.
    Blocked { step: usize, rank: Rank, peer: Rank, chunks: Range<usize>, sending: bool },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Unsupported(why) => why.fmt(f),
            Violation::InvalidMove { step, rank, entry, ranks, chunks } => write!(
                f,
                "step {step}: rank {rank} names rank {} and {} in a world of {ranks} ranks and \
                 {chunks} chunks",
                entry.peer,
                Chunks(entry.chunks()),
            ),
            Violation::NotExpected { step, from, to, sent } => write!(
                f,
                "step {step}: rank {from} sends {} to rank {to}, which does not expect it",
                Chunks(sent.chunks())
            ),
            Violation::NotSent { step, from, to, expected } => write!(
                f,
                "step {step}: rank {to} expects {} from rank {from}, which does not send it",
                Chunks(expected.chunks())
            ),
            Violation::Disagree { step, from, to, sent, expected } => write!(
                f,
                "step {step}: rank {from} sends {} to rank {to} to {}, which expects {} to {}",
                Chunks(sent.chunks()),
                verb(sent.action),
                Chunks(expected.chunks()),
                verb(expected.action),
            ),
            Violation::WrittenTwice { step, rank, chunk } => write!(
                f,
                "step {step}: rank {rank} has chunk {chunk} written twice, in no defined order"
            ),
            Violation::ReducedTwice { step, from, rank, chunk, part } => write!(
                f,
                "step {step}: rank {rank} adds rank {part}'s part of chunk {chunk} twice, \
                 the second time from rank {from}"
            ),
            Violation::MissingPart { steps, rank, chunk, part } => write!(
                f,
                "after the last of {steps} steps: rank {rank} lacks rank {part}'s part of chunk \
                 {chunk}"
            ),
            Violation::Volume { rank, promised, found } => write!(
                f,
                "rank {rank} sends {} chunks and receives {}, but the algorithm promises {} and {}",
                found.sent, found.received, promised.sent, promised.received
            ),
            Violation::Overwritten { step, rank, by, chunk } => write!(
                f,
                "step {step}: rank {by} overwrites chunk {chunk} of rank {rank}, which somebody may \
                 still be reading"
            ),
            Violation::NotHandedOver { step, rank, by, chunk } => write!(
                f,
                "step {step}: rank {by} puts chunk {chunk} into rank {rank}, which has not sent it \
                 the chunk since it was last written"
            ),
            Violation::Steps { promised, found } => {
                write!(f, "it takes {found} steps, but the algorithm promises {promised}")
            }
            Violation::Blocked { step, rank, peer, chunks, sending } => {
                let chunks = Chunks(chunks.clone());
                write!(f, "step {step}: rank {rank} waits for ever for ")?;
                if *sending {
                    write!(f, "rank {peer} to take {chunks}")
                } else {
                    write!(f, "{chunks} from rank {peer}")
                }
            }
        }
    }
}

impl std::error::Error for Violation {}

struct Chunks(Range<usize>);

impl fmt::Display for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "chunk {}", self.0.start),
            _ => write!(f, "chunks {}..{}", self.0.start, self.0.end),
        }
    }
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Reduce => "be added",
        Action::Copy => "be copied",
    }
}
