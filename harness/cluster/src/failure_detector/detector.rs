//! One detector per process: a thread that tells rank 0 over TCP what the process is doing.
//!
//! Rank 0 listens. A connection that ends, a process that sends no heartbeat for too long, or one that
//! gives up a wait ends the job: rank 0 reports the reason by its callback, tells the others, and all
//! exit with [`BROKEN`]. Only processes that know the job's token are listened to.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::activity::Activity;
use super::suspicion::{Watch, Word};
use crate::nodes::INTERFACE;

/// A process tells this often what it does.
const BEAT: Duration = Duration::from_millis(100);
/// Rank 0 looks this often whether something has come.
const LOOK: Duration = Duration::from_millis(20);
/// Processes that are being started may be so late.
const CONNECTING: Duration = Duration::from_secs(20);
/// Who has given up waits so long for rank 0 to end the job.
const FAREWELL: Duration = Duration::from_secs(5);
/// Room for what rank 0 tells all: where it listens.
const ADDRESS_BYTES: usize = 512;
const TOKEN_BYTES: usize = 16;

/// First byte of a message to rank 0: what the process does, that it gives up and why, that it leaves.
const BEATS: u8 = b'b';
const GIVES_UP: u8 = b'g';
const LEAVES: u8 = b'l';
/// Rank 0's answer: the token is right. Its other word: the job is over.
const WELCOME: u8 = b'w';
const OVER: u8 = b'x';

/// Where rank 0 listens.
#[derive(Serialize, Deserialize)]
struct Address {
    port: u16,
    addresses: Vec<IpAddr>,
    token: [u8; TOKEN_BYTES],
}

/// The status with which a process ends that cannot go on.
pub const BROKEN: i32 = 4;

/// A job of several processes, as one of them sees it.
pub struct Job<'j> {
    /// This process.
    pub rank: Rank,
    /// How many there are.
    pub ranks: usize,
    /// All of them run on one node, so that rank 0 listens on the loopback interface alone.
    pub is_one_node: bool,
    /// Broadcasts rank 0's bytes to all processes. Called once, by all.
    pub broadcast: &'j mut dyn FnMut(&mut [u8]) -> Result<(), String>,
}

/// Silence that counts as a failure.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A process that sends no heartbeat for so long has failed.
    pub timeout: Duration,
    /// The job has failed if no process makes progress for so long.
    pub standstill: Duration,
}

/// Why processes could not be connected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "rank {rank}: {call}{} failed: {why}",
    peer.map_or(String::new(), |peer| format!(" with rank {peer}"))
)]
pub struct DetectorError {
    /// Who tried.
    pub rank: Rank,
    /// With whom, if it is one rank.
    pub peer: Option<Rank>,
    /// What was tried.
    pub call: String,
    /// What the system says.
    pub why: String,
}

/// What rank 0 does with the reason before the job ends.
type OnLoss = Box<dyn Fn(&str) + Send>;

/// This process's side.
pub struct FailureDetector {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// The job is about to end well.
    is_dismissed: AtomicBool,
    /// Why this process gives up.
    complaint: Mutex<Option<String>>,
    on_loss: Mutex<Option<OnLoss>>,
}

impl Shared {
    fn complaint(&self) -> Option<String> {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_dismissed(&self) -> bool {
        self.is_dismissed.load(Ordering::Relaxed)
    }
}

impl FailureDetector {
    /// Connects all processes with rank 0; called by each of them.
    ///
    /// # Errors
    /// When rank 0 cannot be reached.
    pub fn start(job: &mut Job<'_>, limits: Limits) -> Result<FailureDetector, DetectorError> {
        let shared = Arc::<Shared>::default();
        if job.ranks == 1 {
            return Ok(FailureDetector { shared, thread: None });
        }
        let own = shared.clone();
        let thread = if job.rank == 0 {
            let streams = gather(job)?;
            spawn(move || Monitor { shared: own, streams }.watch(limits))
        } else {
            let stream = connect(job)?;
            spawn(move || beat(&own, stream))
        };
        Ok(FailureDetector { shared, thread: Some(thread) })
    }

    /// What rank 0 does with the reason when the job ends from now on, in place of nothing.
    pub fn on_loss(&self, report: impl Fn(&str) + Send + 'static) {
        *self.shared.on_loss.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Box::new(report));
    }

    /// What a process calls, with the reason, when it gives up a wait: rank 0 hears of it, and ends the job
    /// before this returns, unless it is gone itself.
    pub fn last_words(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |reason| {
            let mut complaint = shared.complaint.lock().unwrap_or_else(PoisonError::into_inner);
            complaint.get_or_insert(reason.to_string());
            drop(complaint);
            std::thread::sleep(FAREWELL);
        }
    }

    /// From now on processes may go. To be called by all, rank 0 first.
    pub fn dismiss(&mut self) {
        self.shared.is_dismissed.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = std::thread::Builder::new().name("failure-detector".into());
    thread.spawn(run).expect("a process can start a thread")
}

/// Rank 0: tells where it listens, and waits until all are there.
fn gather(job: &mut Job<'_>) -> Result<Vec<(Rank, TcpStream)>, DetectorError> {
    let Job { ranks, is_one_node, .. } = *job;
    let (local, any) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv4Addr::UNSPECIFIED));
    let failed =
        |call: &str, why: String| DetectorError { rank: 0, peer: None, call: call.into(), why };
    let bound = TcpListener::bind((if is_one_node { local } else { any }, 0));
    let listener =
        bound.map_err(|error| failed("listening for the other processes", error.to_string()));
    let (listener, address) = match listener {
        Ok(listener) => {
            let port = listener.local_addr().map_or(0, |address| address.port());
            let addresses = if is_one_node { vec![local] } else { own_addresses() };
            (Ok(listener), Address { port, addresses, token: token() })
        }
        Err(error) => (Err(error), Address { port: 0, addresses: Vec::new(), token: token() }),
    };
    tell(job, Some(&address))?;
    let listener = listener?;
    listener.set_nonblocking(true).map_err(|error| failed("listening", error.to_string()))?;
    let (mut streams, start) = (Vec::new(), Instant::now());
    while streams.len() + 1 < ranks {
        match listener.accept() {
            Ok((stream, _)) => streams.extend(admit(stream, &address.token, ranks)),
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                return Err(failed("accepting the other processes", error.to_string()));
            }
            Err(_) if start.elapsed() > CONNECTING => {
                let missing: Vec<_> = (1..ranks)
                    .filter(|rank| !streams.iter().any(|(other, _)| other == rank))
                    .map(|rank| rank.to_string())
                    .collect();
                return Err(failed(
                    "waiting for the other processes",
                    format!(
                        "process(es) {} cannot reach this one on port {} of {:?}; name an interface \
                         that all nodes share with KOLO_INTERFACE",
                        missing.join(", "),
                        address.port,
                        address.addresses
                    ),
                ));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    Ok(streams)
}

/// A connection counts if it begins with the job's token and a rank.
fn admit(mut stream: TcpStream, token: &[u8], ranks: usize) -> Option<(Rank, TcpStream)> {
    let mut greeting = [0; TOKEN_BYTES + 4];
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.read_exact(&mut greeting).ok()?;
    let rank = u32::from_le_bytes(greeting[TOKEN_BYTES..].try_into().ok()?) as Rank;
    if &greeting[..TOKEN_BYTES] != token || rank >= ranks {
        return None;
    }
    stream.write_all(&[WELCOME]).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some((rank, stream))
}

/// Another process: finds rank 0.
fn connect(job: &mut Job<'_>) -> Result<TcpStream, DetectorError> {
    let Address { port, addresses, token } = tell(job, None)?;
    let mut greeting = token.to_vec();
    greeting.extend((job.rank as u32).to_le_bytes());
    let try_one = |address: &IpAddr| {
        let mut stream =
            TcpStream::connect_timeout(&SocketAddr::new(*address, port), Duration::from_secs(2))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(&greeting)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok::<_, io::Error>(stream)
    };
    let start = Instant::now();
    loop {
        if let Some(stream) = addresses.iter().find_map(|address| try_one(address).ok()) {
            return Ok(stream);
        }
        if start.elapsed() > CONNECTING || addresses.is_empty() {
            return Err(DetectorError {
                rank: job.rank,
                peer: Some(0),
                call: "connecting".into(),
                why: format!("nobody answers on port {port} of {addresses:?}"),
            });
        }
    }
}

/// Tells all processes where rank 0 listens; returns it.
fn tell(job: &mut Job<'_>, address: Option<&Address>) -> Result<Address, DetectorError> {
    let mut bytes = [0; ADDRESS_BYTES];
    if let Some(address) = address {
        let reported = postcard::to_stdvec(address).expect("plain data");
        bytes[..reported.len()].copy_from_slice(&reported);
    }
    let failed = |why| DetectorError {
        rank: job.rank,
        peer: None,
        call: "telling where rank 0 listens".into(),
        why,
    };
    (job.broadcast)(&mut bytes).map_err(failed)?;
    Ok(postcard::from_bytes(&bytes).expect("all processes run the same program"))
}

/// Addresses of this node, but for those that only it knows; of the interface that `KOLO_INTERFACE`
/// names, if it names one.
fn own_addresses() -> Vec<IpAddr> {
    let only = std::env::var(INTERFACE).ok();
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses =
        interfaces.filter(|one| only.as_ref().is_none_or(|only| *only == one.interface_name));
    let addresses = addresses.filter_map(|one| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    });
    addresses.filter(|address| !address.is_loopback()).take(16).collect()
}

fn token() -> [u8; TOKEN_BYTES] {
    let mut token = [0; TOKEN_BYTES];
    let source = std::fs::File::open("/dev/urandom");
    source
        .and_then(|mut source| source.read_exact(&mut token))
        .expect("the system has random numbers");
    token
}

/// Ends this process now, whatever its main thread does.
fn end() -> ! {
    // SAFETY: it does not return.
    unsafe { nix::libc::_exit(BROKEN) }
}

/// A process that is not rank 0: tells what it does, until it is dismissed or the job is over.
fn beat(shared: &Shared, mut stream: TcpStream) {
    let ended = (|| {
        stream.set_read_timeout(Some(BEAT))?;
        loop {
            if shared.is_dismissed() {
                return stream.write_all(&[LEAVES]);
            }
            if let Some(complaint) = shared.complaint() {
                let mut reported = vec![GIVES_UP];
                reported.extend((complaint.len() as u32).to_le_bytes());
                reported.extend(complaint.as_bytes());
                stream.write_all(&reported)?;
                stream.set_read_timeout(Some(FAREWELL))?;
            } else {
                let mut reported = vec![BEATS];
                reported.extend(Activity::now().to_bytes());
                stream.write_all(&reported)?;
            }
            let mut word = [0];
            match stream.read(&mut word) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) if word[0] == OVER => end(),
                Err(error) if is_nothing(&error) && shared.complaint().is_none() => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    })();
    if let Err(error) = ended
        && !shared.is_dismissed()
    {
        let why = shared.complaint().unwrap_or(format!("process 0 is gone ({error})"));
        eprintln!("kolo: {why}");
        end()
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Rank 0's thread.
struct Monitor {
    shared: Arc<Shared>,
    streams: Vec<(Rank, TcpStream)>,
}

impl Monitor {
    fn watch(mut self, Limits { timeout, standstill }: Limits) {
        let mut watch = Watch::new(self.streams.len() + 1, timeout, standstill, Instant::now());
        let mut unread: Vec<Vec<u8>> = self.streams.iter().map(|_| Vec::new()).collect();
        loop {
            let now = Instant::now();
            watch.look(now);
            watch.hear(0, Word::Beats(Activity::now()), now);
            if let Some(complaint) = self.shared.complaint() {
                watch.hear(0, Word::GivesUp(complaint), now);
            }
            for ((rank, stream), unread) in self.streams.iter_mut().zip(&mut unread) {
                let is_open = read_all(stream, unread);
                while let Some(word) = next_word(unread) {
                    watch.hear(*rank, word, now);
                }
                if !is_open {
                    watch.hear(*rank, Word::Ends, now);
                }
            }
            if self.shared.is_dismissed() {
                if watch.all_have_left() {
                    return;
                }
            } else if let Some(reason) = watch.verdict(now) {
                self.end_the_job(&reason);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn end_the_job(&mut self, reason: &str) -> ! {
        let on_loss = self.shared.on_loss.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = on_loss.as_ref() {
            report(reason);
        }
        drop(on_loss);
        eprintln!("kolo: {reason}; the job ends here, and what was measured before is safe");
        for (_, stream) in &mut self.streams {
            // Who is gone needs no telling.
            let _ = stream.write_all(&[OVER]);
        }
        // Launchers kill all others when one ends: let them end by themselves.
        std::thread::sleep(BEAT);
        end()
    }
}

/// Reads what has come; false once the other side is gone.
fn read_all(stream: &mut TcpStream, into: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => into.extend(&bytes[..count]),
            Err(error) => return is_nothing(&error),
        }
    }
}

/// Takes the first whole message out of what was read.
fn next_word(unread: &mut Vec<u8>) -> Option<Word> {
    let (length, word) = match *unread.first()? {
        BEATS => {
            let activity = unread.get(1..=Activity::BYTES)?.try_into().expect("as many bytes");
            (1 + Activity::BYTES, Word::Beats(Activity::from_bytes(activity)))
        }
        GIVES_UP => {
            let length = u32::from_le_bytes(unread.get(1..5)?.try_into().expect("4 bytes"));
            let end = 5 + length as usize;
            let text = String::from_utf8_lossy(unread.get(5..end)?).into_owned();
            (end, Word::GivesUp(text))
        }
        _ => (1, Word::Leaves),
    };
    unread.drain(..length);
    Some(word)
}
