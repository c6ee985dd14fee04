//! The TCP connections of a job's processes to rank 0, with mutual authentication.
//!
//! Rank 0 listens on the interfaces that it sends to its peers ([`interface`], [`listener`]). Both sides prove
//! that they know the job's [`secret`] in a challenge and response ([`handshake`]); rank 0 sends nothing on a
//! connection without proof. Then they exchange messages of limited length ([`message`], [`connection`]). The
//! channel authenticates connections. It neither encrypts nor signs the messages that follow.

mod connect_error;
pub mod connection;
pub mod handshake;
pub mod interface;
pub mod listener;
pub mod message;
pub mod offer;
pub mod secret;
pub mod secret_file;

pub use connect_error::{AttemptError, ConnectError};
pub use connection::Connection;
pub use handshake::Credentials;
pub use listener::{Joined, Listener, connect};
pub use message::{Message, ParseError};
pub use offer::Offer;
pub use secret::{Secret, SecretError};
pub use secret_file::SecretFile;
