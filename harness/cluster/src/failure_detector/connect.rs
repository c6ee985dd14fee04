//! Connects the processes of an MPI job: rank 0 broadcasts its address and the job's secret over MPI.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use algorithms::topology::Rank;
use thiserror::Error;

use super::detector::{FailureDetector, Mode};
use super::suspicion::Limits;
use crate::job_channel::interface::own_addresses;
use crate::job_channel::offer::MAX_OFFER_BYTES;
use crate::job_channel::{Connection, Credentials, Listener, Offer, Secret, connect};
use crate::nodes::INTERFACE;

/// Processes that are being started may be so late.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Longer ids are cut.
const MAX_JOB_ID_BYTES: usize = 128;

/// Why one call failed.
type Cause = Box<dyn Error + Send + Sync>;

/// A job of several processes, as one of them sees it.
pub struct Job<'j> {
    /// This process.
    pub rank: Rank,
    /// Number of processes.
    pub ranks: usize,
    /// All of them run on one node, so that rank 0 listens on the loopback interface only.
    pub is_one_node: bool,
    /// Broadcasts rank 0's bytes to all processes. Called once, by all.
    pub broadcast: &'j mut dyn FnMut(&mut [u8]) -> Result<(), Cause>,
}

/// Why processes could not be connected.
#[derive(Debug, Error)]
#[error(
    "rank {rank}: {call}{} failed: {source}",
    peer.map_or(String::new(), |peer| format!(" with rank {peer}"))
)]
pub struct DetectorError {
    /// The calling rank.
    pub rank: Rank,
    /// The peer, if there is only one.
    pub peer: Option<Rank>,
    /// What was tried.
    pub call: &'static str,
    /// Why it failed.
    pub source: Cause,
}

impl FailureDetector {
    /// Connects all processes with rank 0, and starts their detectors; all must call it. From then on a failure
    /// ends the process.
    ///
    /// # Errors
    /// When rank 0 cannot be reached.
    pub fn connect(job: &mut Job<'_>, limits: Limits) -> Result<FailureDetector, DetectorError> {
        let connections = match job.rank {
            _ if job.ranks == 1 => Vec::new(),
            0 => accept_all(job)?,
            _ => vec![(0, reach_rank_0(job)?)],
        };
        FailureDetector::start(job.rank, connections, limits, Mode::EndProcess)
            .map_err(|error| failed(job.rank, "starting the failure detector", error))
    }
}

fn failed(rank: Rank, call: &'static str, source: impl Into<Cause>) -> DetectorError {
    DetectorError { rank, peer: None, call, source: source.into() }
}

/// The launcher's name for the job; that of rank 0 is used.
fn job_id() -> String {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let id = format!("{}.{}", variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"));
    id.chars().filter(char::is_ascii_graphic).take(MAX_JOB_ID_BYTES).collect()
}

/// Rank 0: broadcasts its address, and waits until all have joined.
fn accept_all(job: &mut Job<'_>) -> Result<Vec<(Rank, Connection)>, DetectorError> {
    let listening = listen(job.is_one_node, job.ranks);
    // The others wait for the broadcast even if rank 0 cannot listen.
    let text = listening.as_ref().map_or(String::new(), |(_, text)| text.clone());
    broadcast(job, &text)?;
    let (mut listener, _) = listening?;
    listener.gather(CONNECT_TIMEOUT).map_err(|missing| {
        let missing: Vec<_> = missing.iter().map(Rank::to_string).collect();
        let why = format!(
            "process(es) {} cannot reach this one at {:?}; name an interface that all nodes share with {INTERFACE}",
            missing.join(", "),
            listener.addresses()
        );
        failed(0, "waiting for the other processes", why)
    })
}

/// A listener, and the data for the other processes: the job's id on a line, and an offer.
fn listen(is_one_node: bool, ranks: usize) -> Result<(Listener, String), DetectorError> {
    let cannot = |why: Cause| failed(0, "listening for the other processes", why);
    let addresses =
        if is_one_node { Ok(vec![IpAddr::from(Ipv4Addr::LOCALHOST)]) } else { own_addresses() };
    let secret = Secret::generate().map_err(|error| cannot(error.into()))?;
    let credentials = Credentials { job: job_id(), secret: secret.clone() };
    let addresses = addresses.map_err(|error| cannot(error.into()))?;
    let listener = Listener::bind(&addresses, 0, credentials, ranks);
    let listener = listener.map_err(|error| cannot(error.into()))?;
    let offer = Offer { secret, addresses: listener.addresses() };
    Ok((listener, format!("{}\n{}", job_id(), offer.to_text())))
}

/// Another process: finds rank 0.
fn reach_rank_0(job: &mut Job<'_>) -> Result<Connection, DetectorError> {
    let text = broadcast(job, "")?;
    let told = text.split_once('\n').and_then(|(id, offer)| Some((id, Offer::from_text(offer)?)));
    let Some((id, offer)) = told else {
        return Err(failed(
            job.rank,
            "connecting",
            "rank 0 cannot listen; see rank 0's error message",
        ));
    };
    let joined = connect(id, (job.rank, job.ranks), || Ok(offer.clone()), CONNECT_TIMEOUT);
    joined.map_err(|error| DetectorError {
        rank: job.rank,
        peer: Some(0),
        call: "connecting",
        source: error.into(),
    })
}

/// Rank 0's text, padded with zeros on its way; returns it.
fn broadcast(job: &mut Job<'_>, own: &str) -> Result<String, DetectorError> {
    let mut bytes = [0; 2 * MAX_OFFER_BYTES];
    bytes[..own.len()].copy_from_slice(own.as_bytes());
    (job.broadcast)(&mut bytes)
        .map_err(|why| failed(job.rank, "broadcasting the address of rank 0", why))?;
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}
