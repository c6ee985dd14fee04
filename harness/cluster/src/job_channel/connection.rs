//! One authenticated connection between rank 0 and another process: whole messages, without blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::message::{Message, ParseError, parse};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 16 << 10;

/// A connection.
pub struct Connection {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// Data that the other side has not taken yet.
    outgoing: Vec<u8>,
    is_closed: bool,
}

impl Connection {
    /// Over a stream on which the handshake is complete.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, incoming: Vec::new(), outgoing: Vec::new(), is_closed: false })
    }

    /// The other side has closed the connection; messages from before may be left to receive.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Messages are queued that the other side has not taken.
    pub fn is_congested(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Another handle on the socket, to wait for it.
    ///
    /// # Errors
    /// The system's error.
    pub fn socket(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// The next complete message, if there is one. No further data are read.
    ///
    /// # Errors
    /// When the other side sends something else; the connection is then closed.
    pub fn receive(&mut self) -> Result<Option<Message>, ParseError> {
        loop {
            match parse(&self.incoming) {
                Ok(Some((message, length))) => {
                    self.incoming.drain(..length);
                    return Ok(Some(message));
                }
                Ok(None) if self.is_closed => return Ok(None),
                Ok(None) => {}
                Err(error) => {
                    self.close();
                    return Err(error);
                }
            }
            let mut bytes = [0; CHUNK_BYTES];
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_closed = true,
                Ok(length) => self.incoming.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_closed = true,
            }
        }
    }

    fn close(&mut self) {
        self.incoming = Vec::new();
        self.is_closed = true;
        // It may be closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Queues a message, and sends as much as the other side takes now.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn queue(&mut self, message: &Message) -> io::Result<()> {
        self.outgoing.extend(message.to_bytes());
        self.flush()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the connection is closed, or the other side does not take the message within that time.
    pub fn send(&mut self, message: &Message, within: Duration) -> io::Result<()> {
        self.queue(message)?;
        let start = Instant::now();
        while self.is_congested() {
            if start.elapsed() > within {
                return Err(ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(1));
            self.flush()?;
        }
        Ok(())
    }

    /// Sends queued data, as much as the other side takes now.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.is_congested() {
            match self.stream.write(&self.outgoing) {
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.outgoing.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
