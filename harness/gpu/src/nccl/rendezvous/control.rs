//! What stays of a meeting: connections over which ranks agree on what is small, and notice who is gone.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;

use super::Facts;
use super::connection::{Connection, Message};
use crate::nccl::comm::Watch;
use crate::nccl::{NcclError, ranks_in_words};

/// To tell others, at most.
const TELL: Duration = Duration::from_secs(1);

/// A process that lives says so within this time.
const ANSWER: Duration = Duration::from_secs(3);

/// Connections between rank 0 and all others; of another rank, the one with rank 0.
pub struct Control {
    /// This rank.
    pub rank: Rank,
    /// Of all processes, in the order of their ranks.
    pub facts: Vec<Facts>,
    ends: Vec<End>,
    timeout: Duration,
    /// What was noticed, or told: it cannot be mended.
    broken: Option<Broken>,
}

/// One connection.
struct End {
    peer: Rank,
    connection: Connection,
    inbox: VecDeque<Vec<u8>>,
    /// It has answered a call.
    is_here: bool,
}

#[derive(Clone, Debug)]
enum Broken {
    Gone(Rank),
    GaveUp { by: Rank, why: String, is_silent: bool },
}

impl Control {
    pub(super) fn new(
        rank: Rank,
        facts: Vec<Facts>,
        connections: Vec<(Rank, Connection)>,
        timeout: Duration,
    ) -> Control {
        let end =
            |(peer, connection)| End { peer, connection, inbox: VecDeque::new(), is_here: false };
        Control {
            rank,
            facts,
            ends: connections.into_iter().map(end).collect(),
            timeout,
            broken: None,
        }
    }

    /// World size.
    pub fn ranks(&self) -> usize {
        self.facts.len()
    }

    /// Everybody's bytes, at rank 0; nothing elsewhere.
    ///
    /// # Errors
    /// Who does not answer, is gone, or has given up.
    pub fn gather(&mut self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, NcclError> {
        if self.rank > 0 {
            self.send(&Message::Bytes(own));
            return Ok(Vec::new());
        }
        let mut all = vec![own];
        for at in 0..self.ends.len() {
            all.push(self.next(at)?);
        }
        Ok(all)
    }

    /// Rank 0's bytes, everywhere.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub fn broadcast(&mut self, own: Vec<u8>) -> Result<Vec<u8>, NcclError> {
        match self.rank {
            0 => {
                self.send(&Message::Bytes(own.clone()));
                Ok(own)
            }
            _ => self.next(0),
        }
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub fn barrier(&mut self) -> Result<(), NcclError> {
        self.gather(Vec::new())?;
        self.broadcast(Vec::new())?;
        Ok(())
    }

    /// Tells everybody who does not know why this rank gives up, and returns what is best known: if nobody is
    /// known to be to blame, rank 0 calls all, and names those who do not answer.
    pub fn give_up(&mut self, error: NcclError) -> NcclError {
        let is_silent = matches!(error, NcclError::Silent { .. })
            || matches!(self.broken, Some(Broken::GaveUp { is_silent: true, .. }));
        if self.rank > 0 {
            let (by, why) = (self.rank, error.to_string());
            self.send(&Message::GaveUp { by, why, is_silent });
            return if is_silent { self.verdict(error) } else { error };
        }
        let error = if is_silent { self.call(error) } else { error };
        if !matches!(self.broken, Some(Broken::Gone(_))) {
            let (by, why) = match &error {
                NcclError::GaveUp { by, why, .. } => (*by, why.clone()),
                other => (0, other.to_string()),
            };
            self.send(&Message::GaveUp { by, why, is_silent: false });
        }
        error
    }

    /// Waits a little for what rank 0 finds out.
    fn verdict(&mut self, error: NcclError) -> NcclError {
        let begun = Instant::now();
        while self.broken.is_none() && begun.elapsed() < 2 * ANSWER {
            self.pump();
            thread::sleep(Duration::from_millis(1));
        }
        self.found().err().unwrap_or(error)
    }

    /// Who does not answer, if anybody.
    fn call(&mut self, error: NcclError) -> NcclError {
        self.send(&Message::Call);
        let begun = Instant::now();
        while self.ends.iter().any(|end| !end.is_here) && begun.elapsed() < ANSWER {
            self.pump();
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(Broken::Gone(_)) = self.broken {
            return self.found().err().unwrap_or(error);
        }
        let absent: Vec<_> =
            self.ends.iter().filter(|end| !end.is_here).map(|end| end.peer).collect();
        match absent.first() {
            None => error,
            Some(&first) => NcclError::Unresponsive {
                ranks: ranks_in_words(&absent),
                host: self.facts[first].host.clone(),
            },
        }
    }

    /// Sends to all at the other ends; who is gone is noticed when it is looked for.
    fn send(&mut self, message: &Message) {
        for end in &mut self.ends {
            let _ = end.connection.send(message, TELL);
        }
    }

    /// The next bytes of one end.
    fn next(&mut self, at: usize) -> Result<Vec<u8>, NcclError> {
        let begun = Instant::now();
        loop {
            self.pump();
            if let Some(bytes) = self.ends[at].inbox.pop_front() {
                return Ok(bytes);
            }
            self.found()?;
            if begun.elapsed() > self.timeout {
                let call = format!("rank {} to answer", self.ends[at].peer);
                let (rank, ranks, waited) = (self.rank, self.ranks(), begun.elapsed());
                return Err(NcclError::Silent { rank, ranks, call, waited });
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Takes in what has come.
    fn pump(&mut self) {
        let mut broken = None;
        for end in &mut self.ends {
            loop {
                match end.connection.receive() {
                    Ok(Some(Message::Bytes(bytes))) => end.inbox.push_back(bytes),
                    Ok(Some(Message::Gone(rank))) => broken = Some(Broken::Gone(rank)),
                    Ok(Some(Message::GaveUp { by, why, is_silent })) => {
                        end.is_here = true;
                        broken = broken.or(Some(Broken::GaveUp { by, why, is_silent }));
                    }
                    Ok(Some(Message::Call)) => {
                        let _ = end.connection.send(&Message::Here, TELL);
                    }
                    Ok(Some(Message::Here)) => end.is_here = true,
                    Ok(None) if !end.connection.is_closed => break,
                    // Closed, or beyond understanding.
                    _ => {
                        broken = broken.or(Some(Broken::Gone(end.peer)));
                        break;
                    }
                }
            }
        }
        if self.broken.is_none()
            && let Some(found) = broken
        {
            if let (0, Broken::Gone(rank)) = (self.rank, &found) {
                self.send(&Message::Gone(*rank));
            }
            self.broken = Some(found);
        }
    }

    /// What was noticed so far.
    fn found(&self) -> Result<(), NcclError> {
        let (rank, host) = (self.rank, |peer: Rank| self.facts[peer].host.clone());
        match self.broken.clone() {
            None => Ok(()),
            Some(Broken::Gone(peer)) => Err(NcclError::Lost { rank, peer, host: host(peer) }),
            Some(Broken::GaveUp { by, why, .. }) => {
                Err(NcclError::GaveUp { rank, by, host: host(by), why })
            }
        }
    }
}

impl Watch for Control {
    fn look(&mut self) -> Result<(), NcclError> {
        self.pump();
        self.found()
    }
}
