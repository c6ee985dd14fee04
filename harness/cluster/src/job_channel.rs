//! How the processes of one job reach rank 0 over TCP, and how each side knows the other.
//!
//! Rank 0 listens on the interfaces that it tells its peers ([`interface`], [`listener`]). Both sides prove that they know
//! the job's [`secret`] in a challenge and response ([`handshake`]); rank 0 sends nothing to a connection that has
//! proven nothing. Then they exchange messages of limited length ([`message`], [`connection`]). The channel
//! authenticates connections. It neither encrypts nor signs the messages that follow.

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
