//! One connection between rank 0 and another process: whole messages, and nobody waits to read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Facts;

/// Begins every message; its last byte is the version of what follows.
const MAGIC: [u8; 4] = *b"kol\x02";

/// Magic, and the length of what follows.
const HEAD_BYTES: usize = 8;

/// Longer messages are taken for nonsense.
const MOST_BYTES: usize = 64 << 20;

/// What processes tell each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A process introduces itself to rank 0.
    Hello {
        /// What processes of one job have in common.
        key: String,
        /// As its launcher counts.
        rank: usize,
        /// How many its launcher has started.
        ranks: usize,
        /// What others have to know of it.
        facts: Facts,
    },
    /// It cannot take part; why.
    Refused(String),
    /// All are there.
    Met {
        /// This process's rank from now on.
        rank: usize,
        /// Of all, in the order of their ranks.
        facts: Vec<Facts>,
    },
    /// Whatever they have agreed on.
    Bytes(Vec<u8>),
    /// A process is gone.
    Gone(usize),
    /// A rank has given up.
    GaveUp {
        /// Which.
        by: usize,
        /// Why.
        why: String,
        /// It knows nobody to blame.
        is_silent: bool,
    },
    /// Are you there?
    Call,
    /// Yes.
    Here,
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    /// The other end is gone.
    pub is_closed: bool,
}

impl Connection {
    /// Over a connection that is there.
    ///
    /// # Errors
    /// When the system refuses an option of the socket.
    pub fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, read: Vec::new(), is_closed: false })
    }

    /// Reads what has come, and returns the next whole message, if there is one.
    ///
    /// # Errors
    /// When it is none of ours.
    pub fn receive(&mut self) -> Result<Option<Message>, String> {
        let mut bytes = [0; 4096];
        while !self.is_closed {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_closed = true,
                Ok(length) => self.read.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(_) => self.is_closed = true,
            }
        }
        let begins = self.read.len().min(MAGIC.len());
        if self.read[..begins] != MAGIC[..begins] {
            return Err("what came is no message of kolo's, or of another version of it".into());
        }
        let Some(length) = self.read.get(MAGIC.len()..HEAD_BYTES) else { return Ok(None) };
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        if length > MOST_BYTES {
            return Err(format!("a message of {length} bytes is too long to be one of kolo's"));
        }
        let Some(body) = self.read.get(HEAD_BYTES..HEAD_BYTES + length) else { return Ok(None) };
        let message =
            postcard::from_bytes(body).map_err(|why| format!("a message is broken: {why}"));
        self.read.drain(..HEAD_BYTES + length);
        message.map(Some)
    }

    /// Sends a message, within a time.
    ///
    /// # Errors
    /// When the other end is gone, or does not read.
    pub fn send(&mut self, message: &Message, within: Duration) -> io::Result<()> {
        let body = postcard::to_stdvec(message).expect("plain data");
        let length = (body.len() as u32).to_le_bytes();
        let bytes = [&MAGIC[..], &length, &body].concat();
        let (begun, mut left) = (Instant::now(), &bytes[..]);
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Err(error) if begun.elapsed() > within => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    }
}
