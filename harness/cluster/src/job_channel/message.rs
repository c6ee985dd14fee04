//! Messages between rank 0 and the other processes, and their one parser.
//!
//! A message is its kind (one byte), the length of its body (four bytes, little-endian), and the body. Every kind has
//! a maximum length, which is checked before the body has arrived.

use thiserror::Error;

use crate::failure_detector::activity::Activity;
use crate::failure_detector::diagnosis::Diagnosis;

/// Kind and length.
pub const HEADER_BYTES: usize = 5;
/// Longest text of a reason; longer ones are cut when they are sent.
pub const MAX_TEXT_BYTES: usize = 16 << 10;
/// Longest body of [`Message::Data`].
pub const MAX_DATA_BYTES: usize = 64 << 20;

/// Messages between processes.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From rank 0: the process belongs to the job.
    Accepted,
    /// From rank 0, to a process with the secret that cannot take part: the reason.
    Refused(String),
    /// To rank 0: the process is alive, with its activity.
    Heartbeat(Activity),
    /// To rank 0: the process cannot continue.
    GaveUp {
        /// Why.
        reason: String,
        /// A wait has exceeded its timeout, and the process does not know which other process is at fault.
        is_timeout: bool,
    },
    /// To rank 0: the process has finished its work.
    Leave,
    /// From rank 0: the job has failed.
    Diagnosis(Diagnosis),
    /// Whatever the layer above exchanges.
    Data(Vec<u8>),
}

const ACCEPTED: u8 = b'a';
const REFUSED: u8 = b'r';
const HEARTBEAT: u8 = b'h';
const GAVE_UP: u8 = b'g';
const LEAVE: u8 = b'l';
const DIAGNOSIS: u8 = b'x';
const DATA: u8 = b'd';

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// No message begins so.
    #[error("no message of this version begins with byte {kind:#04x}")]
    UnknownKind {
        /// The first byte.
        kind: u8,
    },
    /// The header announces too much.
    #[error("a message of kind '{}' announces {length} bytes, but may have at most {max}", char::from(*kind))]
    TooLong {
        /// The first byte.
        kind: u8,
        /// Length of the body, in bytes.
        length: usize,
        /// The longest allowed one.
        max: usize,
    },
    /// The body does not match its kind.
    #[error("a message of kind '{}' has a malformed body of {length} bytes", char::from(*kind))]
    Malformed {
        /// The first byte.
        kind: u8,
        /// Length of the body, in bytes.
        length: usize,
    },
}

/// Longest body of a kind, in bytes; none for a kind that does not exist.
fn max_length(kind: u8) -> Option<usize> {
    match kind {
        ACCEPTED | LEAVE => Some(0),
        HEARTBEAT => Some(Activity::BYTES),
        REFUSED => Some(MAX_TEXT_BYTES),
        GAVE_UP => Some(1 + MAX_TEXT_BYTES),
        // A text, and a few numbers.
        DIAGNOSIS => Some(64 + MAX_TEXT_BYTES),
        DATA => Some(MAX_DATA_BYTES),
        _ => None,
    }
}

/// The first message in the received bytes, and its length; none if it is incomplete.
///
/// # Errors
/// When no further bytes can complete it: the connection is unusable.
pub fn parse(bytes: &[u8]) -> Result<Option<(Message, usize)>, ParseError> {
    let Some(&kind) = bytes.first() else { return Ok(None) };
    let max = max_length(kind).ok_or(ParseError::UnknownKind { kind })?;
    let Some(length) = bytes.get(1..HEADER_BYTES) else { return Ok(None) };
    let length = u32::from_le_bytes(length.try_into().expect("4 bytes")) as usize;
    if length > max {
        return Err(ParseError::TooLong { kind, length, max });
    }
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
    let message = parse_body(kind, body).ok_or(ParseError::Malformed { kind, length })?;
    Ok(Some((message, HEADER_BYTES + length)))
}

fn parse_body(kind: u8, body: &[u8]) -> Option<Message> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    match kind {
        ACCEPTED => Some(Message::Accepted),
        LEAVE => Some(Message::Leave),
        REFUSED => text(body).map(Message::Refused),
        HEARTBEAT => Some(Message::Heartbeat(Activity::from_bytes(body.try_into().ok()?))),
        GAVE_UP => {
            let (&flag, reason) = body.split_first()?;
            (flag <= 1).then_some(Message::GaveUp { reason: text(reason)?, is_timeout: flag == 1 })
        }
        DIAGNOSIS => postcard::from_bytes(body).ok().map(Message::Diagnosis),
        DATA => Some(Message::Data(body.to_vec())),
        _ => None,
    }
}

impl Message {
    /// As it travels.
    ///
    /// # Panics
    /// If data are longer than [`MAX_DATA_BYTES`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Message::Accepted => (ACCEPTED, Vec::new()),
            Message::Leave => (LEAVE, Vec::new()),
            Message::Refused(reason) => (REFUSED, cut(reason).into()),
            Message::Heartbeat(activity) => (HEARTBEAT, activity.to_bytes().into()),
            Message::GaveUp { reason, is_timeout } => {
                (GAVE_UP, [&[u8::from(*is_timeout)], cut(reason).as_bytes()].concat())
            }
            Message::Diagnosis(diagnosis) => {
                let diagnosis = diagnosis.clone().map_reason(|reason| cut(&reason).into());
                (DIAGNOSIS, postcard::to_stdvec(&diagnosis).expect("plain data"))
            }
            Message::Data(bytes) => (DATA, bytes.clone()),
        };
        assert!(Some(body.len()) <= max_length(kind), "a message of {} bytes", body.len());
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.push(kind);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes
    }
}

/// The beginning of a text, as much as is allowed.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
