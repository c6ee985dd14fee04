//! One detector per process: a thread that sends heartbeats to rank 0, or, at rank 0, receives and judges them.
//!
//! The main thread exchanges data over the same connections. Where waits poll ([`Mode::Polled`]) it polls the
//! diagnosis itself; where they may be inside a library ([`Mode::EndProcess`]) the thread ends the process.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::activity::Activity;
use super::diagnosis::Diagnosis;
use super::suspicion::{Limits, Report, Suspicions};
use crate::job_channel::{Connection, Message};

/// Between two heartbeats of a process.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Between two looks of rank 0 at its connections.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a process that gives up waits for rank 0's diagnosis.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a sender waits for the other side to take its data; the rest is sent later.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The status with which a process ends that cannot continue.
pub const BROKEN: i32 = 4;

/// The reaction to a diagnosis, and the definition of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The process ends, whatever its main thread does. Progress is reported by [`Activity::now`].
    EndProcess,
    /// The main thread polls, and finds the diagnosis. Each poll is progress.
    Polled,
}

/// Called at rank 0 with the reason before the job ends.
type OnLoss = Box<dyn Fn(&str) + Send>;

/// This process's side.
pub struct FailureDetector {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    rank: Rank,
    mode: Mode,
    is_finished: AtomicBool,
    /// Polls of the main thread.
    polls: AtomicU64,
    on_loss: Mutex<Option<OnLoss>>,
    state: Mutex<State>,
}

/// The state shared by the detector's thread and the main thread.
struct State {
    peers: Vec<Peer>,
    /// Rank 0's.
    suspicions: Option<Suspicions>,
    /// Why this process gave up.
    failure: Option<String>,
    diagnosis: Option<Diagnosis>,
}

/// The process at the other end of a connection: rank 0, or at rank 0 any other.
struct Peer {
    rank: Rank,
    connection: Connection,
    data: VecDeque<Vec<u8>>,
    is_lost: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FailureDetector {
    /// Over these connections: at rank 0 with all other processes, elsewhere with rank 0.
    ///
    /// # Errors
    /// When the system has no more handles.
    pub fn start(
        rank: Rank,
        connections: Vec<(Rank, Connection)>,
        limits: Limits,
        mode: Mode,
    ) -> io::Result<FailureDetector> {
        let ranks = connections.len() + 1;
        let suspicions = (rank == 0).then(|| Suspicions::new(ranks, limits, Instant::now()));
        let sockets = connections.iter().map(|(_, connection)| connection.socket());
        let sockets: Vec<_> = sockets.take(1).collect::<io::Result<_>>()?;
        let peer =
            |(rank, connection)| Peer { rank, connection, data: VecDeque::new(), is_lost: false };
        let peers = connections.into_iter().map(peer).collect();
        let shared = Arc::new(Shared {
            rank,
            mode,
            is_finished: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            on_loss: Mutex::default(),
            state: Mutex::new(State { peers, suspicions, failure: None, diagnosis: None }),
        });
        let own = shared.clone();
        let run = move |socket| if rank == 0 { own.judge() } else { own.send_heartbeats(&socket) };
        let thread = std::thread::Builder::new().name("failure-detector".into());
        let spawn = |socket| thread.spawn(move || run(socket));
        let thread = sockets.into_iter().next().map(spawn).transpose()?;
        Ok(FailureDetector { shared, thread })
    }

    /// Sets the callback of rank 0 with the reason when the job ends.
    pub fn on_loss(&self, report: impl Fn(&str) + Send + 'static) {
        *lock(&self.shared.on_loss) = Some(Box::new(report));
    }

    /// A callback for a process that gives up, with the reason: rank 0 is notified, and ends the job before this
    /// returns, unless it does not answer.
    pub fn last_words(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |reason| {
            if shared.give_up(reason, false).is_some() {
                // The detector's thread ends the process.
                std::thread::sleep(DIAGNOSIS_TIMEOUT);
            }
            eprintln!("kolo: {reason}");
        }
    }

    /// Notifies rank 0 that this process cannot continue, and waits for the diagnosis; none if rank 0 does not
    /// answer. `is_timeout`: a wait has exceeded its timeout, and this process does not know which other is at
    /// fault.
    pub fn give_up(&self, reason: &str, is_timeout: bool) -> Option<Diagnosis> {
        self.shared.give_up(reason, is_timeout)
    }

    /// Why the job cannot continue, if known. A waiting process must call it regularly.
    pub fn diagnosis(&self) -> Option<Diagnosis> {
        self.shared.poll().diagnosis.clone()
    }

    /// The next data from a process at the other end of a connection, if any have arrived.
    pub fn receive(&self, from: Rank) -> Option<Vec<u8>> {
        let mut state = self.shared.poll();
        state.peers.iter_mut().find(|peer| peer.rank == from)?.data.pop_front()
    }

    /// Sends data to all processes at the other ends; a lost one is found by the next diagnosis.
    ///
    /// # Panics
    /// If the data are longer than a message may be.
    pub fn send(&self, data: Vec<u8>) {
        lock(&self.shared.state).queue(&Message::Data(data));
        self.shared.flush();
    }

    /// Processes may end from now on. All must call it, rank 0 first or at the same time; rank 0 waits for the
    /// others.
    pub fn finish(&mut self) {
        self.shared.is_finished.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to do.
            let _ = thread.join();
        }
    }
}

/// Closes the connections. Without [`FailureDetector::finish`] before, the other processes notice that this one is gone.
impl Drop for FailureDetector {
    fn drop(&mut self) {
        if self.shared.mode == Mode::Polled {
            let mut state = lock(&self.shared.state);
            state.peers.clear();
            // The thread ends when it finds this.
            state.diagnosis.get_or_insert(Diagnosis::Lost { rank: self.shared.rank });
        }
    }
}

impl Shared {
    fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    fn activity(&self) -> Activity {
        match self.mode {
            Mode::EndProcess => Activity::now(),
            Mode::Polled => {
                let progress = self.polls.load(Ordering::Relaxed);
                Activity { is_busy: true, waits_for: None, progress }
            }
        }
    }

    /// The main thread's look.
    fn poll(&self) -> MutexGuard<'_, State> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        state.look(self.activity(), self.is_finished());
        state
    }

    /// Waits until all peers have taken all queued messages, without blocking the detector's thread.
    fn flush(&self) {
        let start = Instant::now();
        while !lock(&self.state).flush() && start.elapsed() < SEND_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn give_up(&self, reason: &str, is_timeout: bool) -> Option<Diagnosis> {
        lock(&self.state).give_up(self.rank, reason, is_timeout);
        let start = Instant::now();
        while start.elapsed() < DIAGNOSIS_TIMEOUT {
            if let Some(diagnosis) = self.poll().diagnosis.clone() {
                return Some(diagnosis);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Another rank's thread.
    fn send_heartbeats(&self, socket: &impl AsFd) {
        let mut last: Option<Instant> = None;
        loop {
            let mut state = lock(&self.state);
            if self.is_finished() {
                state.queue(&Message::Leave);
                drop(state);
                return self.flush();
            }
            state.look(self.activity(), false);
            if let Some(diagnosis) = state.diagnosis.clone() {
                let reason = state.failure.clone();
                drop(state);
                return if self.mode == Mode::EndProcess {
                    end_silently_or_with(diagnosis, reason)
                };
            }
            if last.is_none_or(|last| last.elapsed() >= HEARTBEAT_INTERVAL) {
                // One at a time: rank 0 may be stopped.
                if state.flush() {
                    state.queue(&Message::Heartbeat(self.activity()));
                }
                last = Some(Instant::now());
            }
            drop(state);
            let mut sockets = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(HEARTBEAT_INTERVAL).expect("a short time");
            // Interrupted: the next heartbeat comes early.
            let _ = poll(&mut sockets, timeout);
        }
    }

    /// Rank 0's thread.
    fn judge(&self) {
        loop {
            let mut state = lock(&self.state);
            state.look(self.activity(), self.is_finished());
            let is_over = self.is_finished() && state.have_all_left();
            if let Some(diagnosis) = state.diagnosis.clone() {
                drop(state);
                return if self.mode == Mode::EndProcess {
                    self.end_job(&diagnosis)
                };
            }
            drop(state);
            if is_over {
                return;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn end_job(&self, diagnosis: &Diagnosis) -> ! {
        if let Some(report) = lock(&self.on_loss).as_ref() {
            report(&diagnosis.to_string());
        }
        eprintln!("kolo: {diagnosis}; the job ends; earlier results are saved");
        // Launchers kill all others when one ends: let them end by themselves.
        std::thread::sleep(HEARTBEAT_INTERVAL);
        end()
    }
}

/// Another process of a failed job. Rank 0 has printed the reason, unless it is gone itself.
fn end_silently_or_with(diagnosis: Diagnosis, reason: Option<String>) -> ! {
    if diagnosis == (Diagnosis::Lost { rank: 0 }) {
        eprintln!("kolo: {}", reason.unwrap_or_else(|| diagnosis.to_string()));
    }
    end()
}

/// Ends this process now, whatever its main thread does.
fn end() -> ! {
    // SAFETY: it does not return, and runs nothing of this process.
    unsafe { nix::libc::_exit(BROKEN) }
}

impl State {
    /// Processes received messages. Rank 0 also evaluates them, and notifies all others of its diagnosis.
    fn look(&mut self, activity: Activity, is_finished: bool) {
        let now = Instant::now();
        self.flush();
        if let Some(suspicions) = &mut self.suspicions {
            suspicions.begin_look(now);
            suspicions.record(0, Report::Heartbeat(activity), now);
        }
        for at in 0..self.peers.len() {
            while let Some(received) = self.peers[at].receive() {
                self.take(at, received, now);
            }
        }
        let Some(suspicions) = &self.suspicions else { return };
        if self.diagnosis.is_none()
            && !is_finished
            && let Some(diagnosis) = suspicions.diagnose(now)
        {
            self.queue(&Message::Diagnosis(diagnosis.clone()));
            self.diagnosis = Some(diagnosis);
        }
    }

    fn take(&mut self, at: usize, received: Received, now: Instant) {
        let rank = self.peers[at].rank;
        let report = match received {
            Received::Message(Message::Data(data)) => return self.peers[at].data.push_back(data),
            Received::Message(Message::Diagnosis(diagnosis)) if rank == 0 => {
                self.diagnosis.get_or_insert(diagnosis);
                return;
            }
            Received::Message(Message::Heartbeat(activity)) => Report::Heartbeat(activity),
            Received::Message(Message::GaveUp { reason, is_timeout }) => {
                Report::GaveUp { reason, is_timeout }
            }
            Received::Message(Message::Leave) => Report::Left,
            Received::Message(_) => Report::Protocol("a message that does not belong here".into()),
            Received::Error(error) => Report::Protocol(error),
            Received::Closed => Report::Disconnected,
        };
        match (&mut self.suspicions, report) {
            (Some(suspicions), report) => suspicions.record(rank, report, now),
            (None, Report::Protocol(error)) => {
                self.diagnosis.get_or_insert(Diagnosis::Protocol { rank, error });
            }
            (None, Report::Disconnected) => {
                self.diagnosis.get_or_insert(Diagnosis::Lost { rank });
            }
            // A message that only rank 0 should receive.
            (None, _) => {}
        }
    }

    fn give_up(&mut self, rank: Rank, reason: &str, is_timeout: bool) {
        if self.failure.is_some() {
            return;
        }
        let reason = reason.to_string();
        self.failure = Some(reason.clone());
        match &mut self.suspicions {
            Some(suspicions) => {
                suspicions.record(rank, Report::GaveUp { reason, is_timeout }, Instant::now());
            }
            None => self.queue(&Message::GaveUp { reason, is_timeout }),
        }
    }

    /// Sends to all peers as much as they take now.
    fn queue(&mut self, message: &Message) {
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            // A lost peer is noticed when it is received from.
            let _ = peer.connection.queue(message);
        }
    }

    /// Sends queued data; true once peers have taken everything.
    fn flush(&mut self) -> bool {
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            // As above.
            let _ = peer.connection.flush();
        }
        self.peers.iter().all(|peer| peer.is_lost || !peer.connection.is_congested())
    }

    fn have_all_left(&self) -> bool {
        self.suspicions.as_ref().is_none_or(|suspicions| suspicions.have_all_left(Instant::now()))
    }
}

enum Received {
    Message(Message),
    Error(String),
    Closed,
}

impl Peer {
    fn receive(&mut self) -> Option<Received> {
        if self.is_lost {
            return None;
        }
        match self.connection.receive() {
            Ok(Some(message)) => Some(Received::Message(message)),
            Ok(None) if self.connection.is_closed() => {
                self.is_lost = true;
                Some(Received::Closed)
            }
            Ok(None) => None,
            Err(error) => {
                self.is_lost = true;
                Some(Received::Error(error.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
