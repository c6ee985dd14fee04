//! Processes of a job find each other without MPI: rank 0 listens, the others connect over the job's channel.
//!
//! They exchange their [`Facts`]. Rank 0 renumbers the ranks so that neighbours are on the same node, and sends
//! everyone the result. The connections stay open as long as the job, see [`Control`]: ranks use them to gather
//! and broadcast small data, and the failure detector to detect failed processes.

mod control;
mod error;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use cluster::job_channel::secret_file::{self, SecretFileError};
use cluster::job_channel::{
    ConnectError, Connection, Credentials, Joined, Listener, Message, Offer, Secret, SecretError,
    SecretFile, connect, interface,
};
use cluster::nodes::INTERFACE;
pub use control::Control;
use error::FactsError;
pub use error::{ListenError, UnreachableError};

use super::facts::Facts;
use super::ranks_in_words;
use super::started::{Address, RENDEZVOUS, Started};

/// Between two looks at the sockets.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The other processes wait this much longer than rank 0, whose error names the missing ones.
const MARGIN: Duration = Duration::from_secs(2);

/// Why processes did not find each other.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A variable has a value that makes no sense.
    #[error("{why}")]
    InvalidVariable {
        /// The variable, and its expected value.
        why: String,
    },
    /// The address of rank 0 is unknown.
    #[error(
        "{by} reports several processes, but the address of rank 0 is unknown: start them with srun, \
         or set {RENDEZVOUS}=HOST:PORT, the node of rank 0 and a free port there, for all of them"
    )]
    UnknownAddress {
        /// The variable that reports several processes.
        by: String,
    },
    /// The job's secret is missing.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Rank 0 cannot hand over the secret.
    #[error(transparent)]
    SecretFile(Arc<SecretFileError>),
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at {address}: {cause}; name another port with {RENDEZVOUS}=HOST:PORT for all \
         processes, or an interface with {INTERFACE}"
    )]
    CannotListen {
        /// The address.
        address: String,
        /// Why not.
        #[source]
        cause: Arc<ListenError>,
    },
    /// Some processes did not join.
    #[error(
        "rank 0 has waited {:.1} s at {address}: {joined} of {ranks} processes joined, and {missing} did not{}{}",
        waited.as_secs_f64(),
        unless_empty("; no process joined from these nodes: ", .nodes),
        if *.rejected > 0 { format!("; {rejected} other connections were rejected") } else { String::new() }
    )]
    Missing {
        /// The address.
        address: String,
        /// How long.
        waited: Duration,
        /// How many joined.
        joined: usize,
        /// Number of processes.
        ranks: usize,
        /// The missing processes, as text.
        missing: String,
        /// Nodes from which no process joined.
        nodes: String,
        /// Connections with a wrong secret or unexpected data.
        rejected: usize,
    },
    /// Rank 0 cannot be reached.
    #[error(
        "rank {rank} has tried for {:.1} s to reach rank 0 at {address}: {cause}; see what the other processes \
         say, or name rank 0's node with {RENDEZVOUS}=HOST:PORT",
        waited.as_secs_f64()
    )]
    Unreachable {
        /// The connecting rank.
        rank: Rank,
        /// The address.
        address: String,
        /// How long.
        waited: Duration,
        /// What happened last.
        #[source]
        cause: Arc<UnreachableError>,
    },
    /// Rank 0 does not take this process.
    #[error("rank 0 at {address} refuses rank {rank}: {why}")]
    Refused {
        /// The refused rank.
        rank: Rank,
        /// The address that refused it.
        address: String,
        /// Why.
        why: String,
    },
}

impl From<SecretFileError> for RendezvousError {
    fn from(error: SecretFileError) -> RendezvousError {
        RendezvousError::SecretFile(Arc::new(error))
    }
}

fn unless_empty(words: &str, list: &str) -> String {
    if list.is_empty() { String::new() } else { format!("{words}{list}") }
}

/// Rank 0's answer once all processes have joined.
#[derive(Serialize, Deserialize)]
struct Roster {
    /// This process's rank from now on.
    rank: Rank,
    /// Facts of all processes, in the order of their ranks.
    facts: Vec<Facts>,
}

/// A process that has joined and sent its facts; no connection for rank 0 itself.
type Member = (Facts, Option<Connection>);

/// Waits until all processes have joined.
///
/// # Errors
/// The processes missing after `timeout`, or why this process cannot join.
pub fn meet(
    started: &Started,
    facts: Facts,
    timeout: Duration,
) -> Result<Control, RendezvousError> {
    match &started.address {
        None => Ok(Control::new(0, vec![facts], Vec::new(), timeout)),
        Some(address) if started.rank == 0 => accept_all(started, address, facts, timeout),
        Some(address) => join(started, address, facts, timeout),
    }
}

/// Rank 0's part.
fn accept_all(
    started: &Started,
    address: &Address,
    facts: Facts,
    timeout: Duration,
) -> Result<Control, RendezvousError> {
    // The file is removed when all have joined, or some have not in time.
    let (mut listener, _file) = listen(started, address)?;
    let mut members: Vec<Option<Member>> = (0..started.ranks).map(|_| None).collect();
    members[0] = Some((facts, None));
    let (start, mut silent) = (Instant::now(), Vec::new());
    while members.iter().any(Option::is_none) {
        silent.extend(listener.poll());
        for mut joined in std::mem::take(&mut silent) {
            match facts_of(&mut joined) {
                Ok(None) => silent.push(joined),
                Ok(Some(facts)) => match objection(&members, &facts) {
                    None => members[joined.rank] = Some((facts, Some(joined.connection))),
                    Some(reason) => listener.refuse(joined, &reason),
                },
                Err(error) => listener.refuse(joined, &error.to_string()),
            }
        }
        if start.elapsed() > timeout {
            return Err(missing(started, address, &members, start.elapsed(), listener.rejected()));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(number(members.into_iter().flatten().collect(), timeout))
}

/// Listens, and hands the job's secret over by a file, unless the environment holds it.
fn listen(
    started: &Started,
    address: &Address,
) -> Result<(Listener, Option<SecretFile>), RendezvousError> {
    let cannot = |cause| {
        let (address, cause) = (address.to_string(), Arc::new(cause));
        RendezvousError::CannotListen { address, cause }
    };
    let given = Secret::from_environment()?;
    let secret = given.clone().map_or_else(Secret::generate, Ok)?;
    let credentials = Credentials { job: started.job.clone(), secret: secret.clone() };
    let addresses = listening_addresses(address).map_err(cannot)?;
    let listener = Listener::bind(&addresses, address.port, credentials, started.ranks);
    let listener = listener.map_err(|error| cannot(ListenError::Bind(error)))?;
    let file = match given {
        Some(_) => None,
        None => {
            let path = secret_file::path(&started.job, address.is_loopback());
            let addresses = listener.addresses();
            Some(SecretFile::create(&path, &Offer { secret, addresses })?)
        }
    };
    Ok((listener, file))
}

/// On one node loopback; else the interface that `KOLO_INTERFACE` names, or what rank 0's name stands for.
fn listening_addresses(address: &Address) -> Result<Vec<IpAddr>, ListenError> {
    let named = resolve(address).map(|all| all.iter().map(SocketAddr::ip).collect::<Vec<_>>());
    if address.is_loopback() {
        return named.map_err(ListenError::Resolve);
    }
    let is_interface_named = std::env::var_os(INTERFACE).is_some_and(|name| !name.is_empty());
    // A node's own name is often that of its loopback interface, which others cannot reach.
    let is_usable = |ip: &IpAddr| !ip.is_loopback() && interface::is_own(*ip);
    let named: Vec<_> = named.unwrap_or_default().into_iter().filter(is_usable).collect();
    if is_interface_named || named.is_empty() { Ok(interface::own_addresses()?) } else { Ok(named) }
}

fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    Ok((address.host.as_str(), address.port).to_socket_addrs()?.collect())
}

/// What a process that has joined tells of itself, once it has arrived.
fn facts_of(joined: &mut Joined) -> Result<Option<Facts>, FactsError> {
    match joined.connection.receive()? {
        Some(Message::Data(bytes)) => Ok(Some(postcard::from_bytes(&bytes)?)),
        Some(_) => Err(FactsError::OtherMessage),
        None if joined.connection.is_closed() => Err(FactsError::Closed),
        None => Ok(None),
    }
}

/// The reason why a process does not belong to the job.
fn objection(members: &[Option<Member>], facts: &Facts) -> Option<String> {
    let (own, _) = members[0].as_ref().expect("rank 0 is there");
    let (asked, expected) = (arguments(facts), arguments(own));
    (asked != expected)
        .then(|| format!("it was started with \"{asked}\", and rank 0 with \"{expected}\""))
}

/// A process's arguments, wherever its program is.
fn arguments(facts: &Facts) -> String {
    facts.command.get(1..).unwrap_or_default().join(" ")
}

fn missing(
    started: &Started,
    address: &Address,
    members: &[Option<Member>],
    waited: Duration,
    rejected: usize,
) -> RendezvousError {
    let absent: Vec<_> = (0..members.len()).filter(|&rank| members[rank].is_none()).collect();
    let has_member = |node: &&String| {
        let short = |name: &str| name.split('.').next().unwrap_or(name).to_string();
        members.iter().flatten().any(|(facts, _)| short(&facts.host) == short(node))
    };
    let nodes = started.nodes.iter().filter(|node| !has_member(node)).cloned();
    RendezvousError::Missing {
        address: address.to_string(),
        waited,
        joined: members.len() - absent.len(),
        ranks: members.len(),
        missing: ranks_in_words(&absent),
        nodes: nodes.collect::<Vec<_>>().join(", "),
        rejected,
    }
}

/// Renumbers the processes, node by node in the order of their first processes, and sends them the result.
fn number(members: Vec<Member>, timeout: Duration) -> Control {
    let first_on = |host: &String| members.iter().position(|(facts, _)| facts.host == *host);
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&at| (first_on(&members[at].0.host), at));
    let mut members: Vec<_> = members.into_iter().map(Some).collect();
    let ordered = order.into_iter().map(|at| members[at].take().expect("each once"));
    let (facts, connections): (Vec<_>, Vec<_>) = ordered.unzip();
    let connections = connections
        .into_iter()
        .enumerate()
        .filter_map(|(rank, connection)| Some((rank, connection?)));
    let mut connections: Vec<_> = connections.collect();
    for (rank, connection) in &mut connections {
        let roster = Roster { rank: *rank, facts: facts.clone() };
        let message = Message::Data(postcard::to_stdvec(&roster).expect("plain data"));
        // The failure detector notices a process that is gone by now.
        let _ = connection.send(&message, timeout);
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
    let (start, rank) = (Instant::now(), started.rank);
    let secret = Secret::from_environment()?;
    let offer = || match &secret {
        Some(secret) => Ok(Offer { secret: secret.clone(), addresses: resolve(address)? }),
        None => {
            let path = secret_file::path(&started.job, address.is_loopback());
            Ok(secret_file::read(&path)?)
        }
    };
    let unreachable = |cause: UnreachableError| {
        let (address, waited, cause) = (address.to_string(), start.elapsed(), Arc::new(cause));
        RendezvousError::Unreachable { rank, address, waited, cause }
    };
    let refused = |why| RendezvousError::Refused { rank, address: address.to_string(), why };
    let connected = connect(&started.job, (rank, started.ranks), offer, timeout);
    let mut connection = connected.map_err(|error| match error {
        ConnectError::Refused { reason } => refused(reason),
        ConnectError::Unreachable { cause, .. } => unreachable(cause.into()),
        other => unreachable(UnreachableError::Connect(other)),
    })?;
    let own = Message::Data(postcard::to_stdvec(&facts).expect("plain data"));
    connection.send(&own, timeout).map_err(|error| unreachable(UnreachableError::Send(error)))?;
    loop {
        match connection.receive() {
            Ok(Some(Message::Data(bytes))) => {
                let roster = postcard::from_bytes(&bytes);
                let Roster { rank, facts } =
                    roster.map_err(|error: postcard::Error| unreachable(error.into()))?;
                return Ok(Control::new(rank, facts, vec![(0, connection)], timeout));
            }
            Ok(Some(Message::Refused(reason))) => return Err(refused(reason)),
            Ok(Some(_)) => return Err(unreachable(UnreachableError::UnexpectedMessage)),
            Ok(None) if connection.is_closed() => {
                return Err(unreachable(UnreachableError::Closed));
            }
            Ok(None) if start.elapsed() > timeout + MARGIN => {
                return Err(unreachable(UnreachableError::OthersMissing));
            }
            Ok(None) => thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(unreachable(error.into())),
        }
    }
}

#[cfg(test)]
mod tests;
