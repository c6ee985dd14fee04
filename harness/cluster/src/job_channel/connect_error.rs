//! Why a process could not join.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use super::message::ParseError;
use super::secret::SecretError;

/// Why a process could not join.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing answered as rank 0 should.
    #[error("tried for {:.1} s: {cause}", waited.as_secs_f64())]
    Unreachable {
        /// How long.
        waited: Duration,
        /// Why the last attempt failed.
        #[source]
        cause: AttemptError,
    },
    /// Rank 0 knows the process, and does not take it.
    #[error("rank 0 refuses this process: {reason}")]
    Refused {
        /// What rank 0 says.
        reason: String,
    },
}

/// Why one attempt to reach rank 0 failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// Rank 0 has not told yet where it listens.
    #[error(transparent)]
    Offer(Box<dyn Error + Send + Sync>),
    /// Rank 0 told no address.
    #[error("rank 0 has no address")]
    NoAddress,
    /// It failed at the last address.
    #[error("{address}: {cause}")]
    At {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        cause: Box<AttemptError>,
    },
    /// The other side closed the connection.
    #[error(
        "the connection was closed without an answer; the listener is not rank 0 of this job, or has another \
         secret"
    )]
    Closed,
    /// The other side was silent.
    #[error("no answer in time")]
    TimedOut,
    /// The system refuses.
    #[error(transparent)]
    Io(io::Error),
    /// There are no random numbers.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The other side cannot prove that it is rank 0.
    #[error("the listener does not know the secret")]
    UnknownSecret,
    /// Rank 0 sent something else than an answer.
    #[error("an unexpected message from rank 0")]
    UnexpectedMessage,
    /// The answer is malformed.
    #[error(transparent)]
    Message(#[from] ParseError),
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> AttemptError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => AttemptError::Closed,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AttemptError::TimedOut,
            _ => AttemptError::Io(error),
        }
    }
}
