//! Causes for which processes do not find each other.

use std::io;

use cluster::job_channel::interface::InterfaceError;
use cluster::job_channel::{AttemptError, ConnectError, ParseError};
use thiserror::Error;

/// Why rank 0 cannot listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Rank 0's name stands for no address.
    #[error(transparent)]
    Resolve(io::Error),
    /// No interface of the node can be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The system refuses.
    #[error(transparent)]
    Bind(io::Error),
}

/// Why rank 0 cannot be reached, or does not answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnreachableError {
    /// The last attempt failed.
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    /// There is no connection for another reason.
    #[error(transparent)]
    Connect(ConnectError),
    /// The facts cannot be sent.
    #[error(transparent)]
    Send(io::Error),
    /// The answer is no message.
    #[error(transparent)]
    Message(#[from] ParseError),
    /// The answer holds no facts.
    #[error(transparent)]
    Facts(#[from] postcard::Error),
    /// The answer is another message.
    #[error("it sent an unexpected message")]
    UnexpectedMessage,
    /// Rank 0 ended.
    #[error("it closed the connection")]
    Closed,
    /// Rank 0 waits for others.
    #[error("it listens, and other processes have not joined")]
    OthersMissing,
}

/// Why rank 0 cannot learn what a process has.
#[derive(Debug, Error)]
pub(super) enum FactsError {
    /// The message holds no facts.
    #[error("its facts are malformed: {0}")]
    Malformed(#[from] postcard::Error),
    /// It is another message.
    #[error("it sent another message instead of its facts")]
    OtherMessage,
    /// The process ended.
    #[error("it closed the connection")]
    Closed,
    /// It is no message.
    #[error(transparent)]
    Message(#[from] ParseError),
}
