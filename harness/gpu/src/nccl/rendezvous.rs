//! Processes of a job find each other without MPI: rank 0 listens, the others connect.
//!
//! Each says who it is and what it has; rank 0 numbers all anew so that neighbours are on the same node, and
//! tells everybody of everybody. The connections stay as long as the job, see [`Control`]: over them ranks
//! gather and broadcast what is small, and one that closes is a process that is gone.

mod connection;
mod control;

use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use connection::{Connection, Message};
pub use control::Control;

use super::facts::Facts;
use super::ranks_in_words;
use super::started::{Address, RENDEZVOUS, Started};

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(20);

/// One try to connect takes no longer.
const CONNECT: Duration = Duration::from_secs(2);

/// So many connections that have not yet said who they are, at once.
const MOST_PENDING: usize = 1024;

/// Why processes did not find each other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A variable makes no sense.
    #[error("{why}")]
    Unclear {
        /// Which, and what was expected.
        why: String,
    },
    /// Nothing says where.
    #[error(
        "{by} says that there are several processes, and nothing says where rank 0 is: start them with srun, \
         or set {RENDEZVOUS}=HOST:PORT, the node of rank 0 and a free port there, for all of them"
    )]
    Nowhere {
        /// What says that there are several.
        by: String,
    },
    /// Rank 0 cannot be found there.
    #[error(
        "rank 0 cannot listen at {address}: {why}; name another port with {RENDEZVOUS}=HOST:PORT for all \
         processes"
    )]
    Taken {
        /// Where.
        address: String,
        /// What the system says.
        why: String,
    },
    /// Some did not come.
    #[error(
        "rank 0 has waited {:.1} s at {address}: {came} of {ranks} processes came, and {missing} did not{}{}",
        waited.as_secs_f64(),
        unless_empty("; of these nodes none was heard of: ", .nodes),
        if *.refused > 0 { format!("; {refused} connections of others were refused") } else { String::new() }
    )]
    Missing {
        /// Where.
        address: String,
        /// How long.
        waited: Duration,
        /// How many were there.
        came: usize,
        /// Of how many.
        ranks: usize,
        /// Who was not, in words.
        missing: String,
        /// Nodes of the job of which nobody was.
        nodes: String,
        /// Connections of strangers.
        refused: usize,
    },
    /// Rank 0 is not there.
    #[error(
        "rank {rank} has tried for {:.1} s to reach rank 0 at {address}: {why}; see what the other processes \
         say, or name rank 0's node with {RENDEZVOUS}=HOST:PORT",
        waited.as_secs_f64()
    )]
    Unreachable {
        /// Who tried.
        rank: usize,
        /// Where.
        address: String,
        /// How long.
        waited: Duration,
        /// What happened last.
        why: String,
    },
    /// Rank 0 does not take this process.
    #[error("rank 0 at {address} refuses rank {rank}: {why}")]
    Refused {
        /// Who was refused.
        rank: usize,
        /// By whom.
        address: String,
        /// Why.
        why: String,
    },
}

fn unless_empty(words: &str, list: &str) -> String {
    if list.is_empty() { String::new() } else { format!("{words}{list}") }
}

/// Waits until all processes are there.
///
/// # Errors
/// Who is missing after `timeout`, or why this one cannot take part.
pub fn meet(
    started: &Started,
    facts: Facts,
    timeout: Duration,
) -> Result<Control, RendezvousError> {
    match &started.address {
        None => Ok(Control::new(0, vec![facts], Vec::new(), timeout)),
        Some(address) if started.rank == 0 => receive_all(started, address, facts, timeout),
        Some(address) => join(started, address, facts, timeout),
    }
}

/// Rank 0's part.
fn receive_all(
    started: &Started,
    address: &Address,
    facts: Facts,
    timeout: Duration,
) -> Result<Control, RendezvousError> {
    let taken = |why: std::io::Error| RendezvousError::Taken {
        address: address.to_string(),
        why: why.to_string(),
    };
    // A node's own name is often that of its loopback interface, which others cannot reach.
    let host = match address.host.as_str() {
        "localhost" => "127.0.0.1",
        host if host.starts_with("127.") || host == "::1" => host,
        host if host.contains(':') => "::",
        _ => "0.0.0.0",
    };
    let listener = TcpListener::bind((host, address.port)).map_err(taken)?;
    listener.set_nonblocking(true).map_err(taken)?;
    let mut came: Vec<Option<(Facts, Option<Connection>)>> =
        (0..started.ranks).map(|_| None).collect();
    came[0] = Some((facts, None));
    let (begun, mut pending, mut refused) = (Instant::now(), Vec::new(), 0);
    while came.iter().any(Option::is_none) {
        while let Ok((stream, _)) = listener.accept() {
            pending.extend(Connection::new(stream).ok());
        }
        for mut connection in std::mem::take(&mut pending) {
            match connection.receive() {
                Ok(None) if !connection.is_closed && pending.len() < MOST_PENDING => {
                    pending.push(connection)
                }
                Ok(Some(Message::Hello { key, rank, ranks, facts })) => {
                    match objection(started, &came, &key, (rank, ranks), &facts) {
                        None => came[rank] = Some((facts, Some(connection))),
                        Some(why) => {
                            let _ = connection.send(&Message::Refused(why), CONNECT);
                            refused += 1;
                        }
                    }
                }
                _ => refused += 1,
            }
        }
        if begun.elapsed() > timeout {
            return Err(missing(started, address, &came, begun.elapsed(), refused));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(everybody(came.into_iter().flatten().collect(), timeout))
}

/// Why a process cannot be one of those that rank 0 waits for.
fn objection(
    started: &Started,
    came: &[Option<(Facts, Option<Connection>)>],
    key: &str,
    (rank, ranks): (usize, usize),
    facts: &Facts,
) -> Option<String> {
    let own = &came[0].as_ref().expect("rank 0 is there").0;
    let known = came.get(rank).and_then(Option::as_ref);
    if key != started.key {
        Some(format!("it belongs to another job (\"{key}\", and here it is \"{}\")", started.key))
    } else if ranks != started.ranks || rank >= ranks {
        Some(format!("it is rank {rank} of {ranks}, and here there are {}", started.ranks))
    } else if let Some((known, _)) = known {
        let Facts { host, pid, .. } = known;
        Some(format!("process {pid} on {host} is rank {rank} already"))
    } else if asked(facts) != asked(own) {
        Some(format!("it was asked for \"{}\", and rank 0 for \"{}\"", asked(facts), asked(own)))
    } else {
        None
    }
}

/// What a process was asked for, wherever its program is.
fn asked(facts: &Facts) -> String {
    facts.command.get(1..).unwrap_or_default().join(" ")
}

fn missing(
    started: &Started,
    address: &Address,
    came: &[Option<(Facts, Option<Connection>)>],
    waited: Duration,
    refused: usize,
) -> RendezvousError {
    let is_there = |rank: &usize| came[*rank].is_some();
    let absent: Vec<_> = (0..came.len()).filter(|rank| !is_there(rank)).collect();
    let heard_of = |node: &&String| {
        let short = |name: &str| name.split('.').next().unwrap_or(name).to_string();
        came.iter().flatten().any(|(facts, _)| short(&facts.host) == short(node))
    };
    let nodes = started.nodes.iter().filter(|node| !heard_of(node)).cloned();
    RendezvousError::Missing {
        address: address.to_string(),
        waited,
        came: came.len() - absent.len(),
        ranks: came.len(),
        missing: ranks_in_words(&absent),
        nodes: nodes.collect::<Vec<_>>().join(", "),
        refused,
    }
}

/// Numbers all anew, node by node in the order of their first processes, and tells them.
fn everybody(came: Vec<(Facts, Option<Connection>)>, timeout: Duration) -> Control {
    let first_on = |host: &String| came.iter().position(|(facts, _)| facts.host == *host);
    let mut order: Vec<usize> = (0..came.len()).collect();
    order.sort_by_key(|&at| (first_on(&came[at].0.host), at));
    let mut came: Vec<_> = came.into_iter().map(Some).collect();
    let ordered = order.into_iter().map(|at| came[at].take().expect("each once"));
    let (facts, connections): (Vec<_>, Vec<_>) = ordered.unzip();
    let connections = connections
        .into_iter()
        .enumerate()
        .filter_map(|(rank, connection)| Some((rank, connection?)));
    let mut connections: Vec<_> = connections.collect();
    for (rank, connection) in &mut connections {
        // Who is gone by now is noticed when it is looked for.
        let _ = connection.send(&Message::Met { rank: *rank, facts: facts.clone() }, timeout);
    }
    Control::new(0, facts, connections, timeout)
}

/// The part of all others.
fn join(
    started: &Started,
    address: &Address,
    facts: Facts,
    timeout: Duration,
) -> Result<Control, RendezvousError> {
    let (begun, rank) = (Instant::now(), started.rank);
    let hello = Message::Hello {
        key: started.key.clone(),
        rank,
        ranks: started.ranks,
        facts: facts.clone(),
    };
    loop {
        let why = match introduce(address, &hello, begun, timeout) {
            Ok((connection, Message::Met { rank, facts })) => {
                return Ok(Control::new(rank, facts, vec![(0, connection)], timeout));
            }
            Ok((_, Message::Refused(why))) => {
                return Err(RendezvousError::Refused { rank, address: address.to_string(), why });
            }
            Ok(_) => "what answers there is not rank 0".into(),
            Err(why) => why,
        };
        if begun.elapsed() > timeout {
            let (address, waited) = (address.to_string(), begun.elapsed());
            return Err(RendezvousError::Unreachable { rank, address, waited, why });
        }
        thread::sleep(AGAIN);
    }
}

/// Connects, and waits for an answer.
fn introduce(
    address: &Address,
    hello: &Message,
    begun: Instant,
    timeout: Duration,
) -> Result<(Connection, Message), String> {
    let said = |error: std::io::Error| error.to_string();
    let places = (address.host.as_str(), address.port).to_socket_addrs().map_err(said)?;
    let mut tried = Err("the name has no address".to_string());
    for place in places {
        tried = TcpStream::connect_timeout(&place, CONNECT).map_err(said);
        if tried.is_ok() {
            break;
        }
    }
    let mut connection = Connection::new(tried?).map_err(said)?;
    connection.send(hello, CONNECT).map_err(said)?;
    loop {
        match connection.receive()? {
            Some(answer) => return Ok((connection, answer)),
            None if connection.is_closed => return Err("it closes the connection".into()),
            // Rank 0 gives up first, and says who is missing.
            None if begun.elapsed() > timeout + CONNECT => {
                return Err("it listens, and other processes have not come".into());
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests;
