//! Connects the processes of a job with rank 0, and keeps strangers out.
//!
//! One loop drives all handshakes without blocking. A connection without the secret is closed without an answer,
//! whatever it sends, and delays no other: a handshake has a time limit, and when too many are open the oldest is
//! closed.

use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;

use super::connect_error::{AttemptError, ConnectError};
use super::connection::Connection;
use super::handshake::{
    CHALLENGE_BYTES, Challenged, Client, Credentials, HELLO_BYTES, PROOF_BYTES, Server,
};
use super::message::Message;
use super::offer::Offer;

/// A handshake takes no longer at rank 0.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most open handshakes.
pub const MAX_HANDSHAKES: usize = 256;
/// A process waits so long for each of rank 0's answers before it tries again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Establishing a connection takes no longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Between two looks at the sockets.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Rank 0's side while processes join.
pub struct Listener {
    sockets: Vec<TcpListener>,
    server: Server,
    ranks: usize,
    handshakes: VecDeque<Handshake>,
    joined: BTreeSet<Rank>,
    rejected: usize,
}

/// A process that has joined.
pub struct Joined {
    /// Its rank.
    pub rank: Rank,
    /// The connection with it.
    pub connection: Connection,
}

/// A connection that has not proven anything yet.
struct Handshake {
    stream: TcpStream,
    start: Instant,
    received: Vec<u8>,
    challenged: Option<Challenged>,
}

/// The state of a handshake.
enum Progress {
    Open,
    Rejected,
    Proven(Rank, usize),
}

impl Listener {
    /// Listens on these addresses, each by a socket of its own; on any free port if `port` is 0. Those that cannot be
    /// used are left out, if one can.
    ///
    /// # Errors
    /// The system's error for the last address, if none can be used.
    pub fn bind(
        addresses: &[IpAddr],
        port: u16,
        credentials: Credentials,
        ranks: usize,
    ) -> io::Result<Listener> {
        let mut sockets = Vec::new();
        let mut refusal = io::Error::new(ErrorKind::AddrNotAvailable, "there is no address");
        for &address in addresses {
            let bound = TcpListener::bind(SocketAddr::new(address, port));
            match bound.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)) {
                Ok(socket) => sockets.push(socket),
                Err(error) => refusal = error,
            }
        }
        if sockets.is_empty() {
            return Err(refusal);
        }
        let (server, handshakes, joined) =
            (Server::new(credentials), VecDeque::new(), BTreeSet::from([0]));
        Ok(Listener { sockets, server, ranks, handshakes, joined, rejected: 0 })
    }

    /// The addresses on which it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }

    /// Connections that were closed or refused.
    pub fn rejected(&self) -> usize {
        self.rejected
    }

    /// Ranks other than 0 that have not joined.
    pub fn missing(&self) -> Vec<Rank> {
        (0..self.ranks).filter(|rank| !self.joined.contains(rank)).collect()
    }

    /// Refuses a process that had joined, so that another may take its place.
    pub fn refuse(&mut self, mut joined: Joined, reason: &str) {
        self.joined.remove(&joined.rank);
        self.rejected += 1;
        // A process that does not take the answer gets none.
        let _ = joined.connection.send(&Message::Refused(reason.into()), HANDSHAKE_TIMEOUT);
    }

    /// Continues all handshakes without blocking; returns processes that have joined since.
    pub fn poll(&mut self) -> Vec<Joined> {
        for socket in &self.sockets {
            for _ in 0..MAX_HANDSHAKES {
                let Ok((stream, _)) = socket.accept() else { break };
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if self.handshakes.len() == MAX_HANDSHAKES {
                    self.handshakes.pop_front();
                    self.rejected += 1;
                }
                let (start, received, challenged) = (Instant::now(), Vec::new(), None);
                self.handshakes.push_back(Handshake { stream, start, received, challenged });
            }
        }
        let mut joined = Vec::new();
        for mut handshake in std::mem::take(&mut self.handshakes) {
            match handshake.advance(&mut self.server) {
                Progress::Open if handshake.start.elapsed() < HANDSHAKE_TIMEOUT => {
                    self.handshakes.push_back(handshake);
                }
                Progress::Proven(rank, ranks) => joined.extend(self.admit(handshake, rank, ranks)),
                Progress::Open | Progress::Rejected => self.rejected += 1,
            }
        }
        joined
    }

    /// A process that knows the secret takes part, or is sent the reason why it cannot.
    fn admit(&mut self, handshake: Handshake, rank: Rank, ranks: usize) -> Option<Joined> {
        let mut joined = Joined { rank, connection: Connection::new(handshake.stream).ok()? };
        if ranks != self.ranks || rank >= ranks {
            let reason =
                format!("it is rank {rank} of {ranks}, but rank 0 expects {} ranks", self.ranks);
            let _ = joined.connection.queue(&Message::Refused(reason));
        } else if self.joined.contains(&rank) {
            let reason = format!("another process has joined as rank {rank} already");
            let _ = joined.connection.queue(&Message::Refused(reason));
        } else {
            joined.connection.queue(&Message::Accepted).ok()?;
            self.joined.insert(rank);
            return Some(joined);
        }
        self.rejected += 1;
        None
    }

    /// Waits until all processes have joined.
    ///
    /// # Errors
    /// The ranks that have not within the timeout.
    pub fn gather(&mut self, timeout: Duration) -> Result<Vec<(Rank, Connection)>, Vec<Rank>> {
        let (mut all, start) = (Vec::new(), Instant::now());
        loop {
            all.extend(
                self.poll().into_iter().map(|Joined { rank, connection }| (rank, connection)),
            );
            if self.missing().is_empty() {
                return Ok(all);
            }
            if start.elapsed() > timeout {
                return Err(self.missing());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Handshake {
    fn advance(&mut self, server: &mut Server) -> Progress {
        if self.challenged.is_none() {
            match self.read::<HELLO_BYTES>() {
                Ok(Some(hello)) => match server.challenge(&hello) {
                    // The buffer of a fresh socket has room for it.
                    Some((challenged, challenge)) if self.stream.write_all(&challenge).is_ok() => {
                        self.challenged = Some(challenged);
                    }
                    _ => return Progress::Rejected,
                },
                Ok(None) => return Progress::Open,
                Err(_) => return Progress::Rejected,
            }
        }
        match (self.read::<PROOF_BYTES>(), &self.challenged) {
            (Ok(Some(proof)), Some(challenged)) => match server.verify(challenged, &proof) {
                Some((rank, ranks)) => Progress::Proven(rank, ranks),
                None => Progress::Rejected,
            },
            (Ok(None), _) => Progress::Open,
            _ => Progress::Rejected,
        }
    }

    /// The next `N` bytes, once they are there; never reads more.
    fn read<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        while self.received.len() < N {
            let left = N - self.received.len();
            match self.stream.read(&mut bytes[..left]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let whole = std::mem::take(&mut self.received);
        Ok(Some(whole.try_into().expect("N bytes were read")))
    }
}

/// Connects a process with rank 0. `offer` is asked before every attempt, because rank 0 may not have made one yet.
///
/// # Errors
/// When rank 0 does not accept the process within the timeout.
pub fn connect(
    job: &str,
    (rank, ranks): (Rank, usize),
    mut offer: impl FnMut() -> Result<Offer, Box<dyn Error + Send + Sync>>,
    timeout: Duration,
) -> Result<Connection, ConnectError> {
    let start = Instant::now();
    loop {
        let offered = offer().map_err(|error| Failed::Retry(AttemptError::Offer(error)));
        let tried = offered.and_then(|Offer { secret, addresses }| {
            let credentials = Credentials { job: job.into(), secret };
            let mut last = Failed::Retry(AttemptError::NoAddress);
            for address in addresses {
                match join(address, &credentials, rank, ranks) {
                    Err(Failed::Retry(cause)) => {
                        let cause = Box::new(cause);
                        last = Failed::Retry(AttemptError::At { address, cause });
                    }
                    ended => return ended,
                }
            }
            Err(last)
        });
        match tried {
            Ok(connection) => return Ok(connection),
            Err(Failed::Refused(reason)) => return Err(ConnectError::Refused { reason }),
            Err(Failed::Retry(cause)) if start.elapsed() > timeout => {
                return Err(ConnectError::Unreachable { waited: start.elapsed(), cause });
            }
            Err(Failed::Retry(_)) => thread::sleep(RETRY_INTERVAL),
        }
    }
}

/// Why one attempt failed.
enum Failed {
    Retry(AttemptError),
    Refused(String),
}

impl<E: Into<AttemptError>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::Retry(error.into())
    }
}

/// One attempt at one address.
fn join(
    address: SocketAddr,
    credentials: &Credentials,
    rank: Rank,
    ranks: usize,
) -> Result<Connection, Failed> {
    let client = Client::new(credentials, rank, ranks)?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(&client.hello())?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge)?;
    let proof = client.prove(&challenge).ok_or(AttemptError::UnknownSecret)?;
    stream.write_all(&proof)?;
    let (mut connection, start) = (Connection::new(stream)?, Instant::now());
    loop {
        match connection.receive() {
            Ok(Some(Message::Accepted)) => return Ok(connection),
            Ok(Some(Message::Refused(reason))) => return Err(Failed::Refused(reason)),
            Ok(None) if connection.is_closed() => return Err(AttemptError::Closed.into()),
            Ok(None) if start.elapsed() > ANSWER_TIMEOUT => {
                return Err(AttemptError::TimedOut.into());
            }
            Ok(None) => thread::sleep(POLL_INTERVAL),
            Ok(Some(_)) => return Err(AttemptError::UnexpectedMessage.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
