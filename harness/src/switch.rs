//! A switch in user space between virtual nodes, where the kernel cannot delay packets itself.
//!
//! Every node hangs on a TAP of this process, which is the network card of the node at one end and a
//! file at the other. A frame is read, kept until its link would have carried it, and written. The
//! switch ends when a TAP does, and so with its cluster.

mod frame;
mod links;
mod tap;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;

use frame::{CAPACITY_BYTES, destination};
pub use links::Shape;
use links::{AHEAD_NS, Links};
use tap::Tap;
pub use tap::TapError;

/// Frames that are read from one TAP before the others have their turn.
const TURN: usize = 16;

/// One TAP for each node, and the frames that are under way.
pub struct Switch {
    taps: Vec<Tap>,
    links: Links,
    /// For each receiver, in the order in which they arrive: when, in ns, and what.
    flights: Vec<VecDeque<(u64, Vec<u8>)>>,
    lost: Lost,
    start: Instant,
}

impl Switch {
    /// Creates the TAPs, named `fab1` for node n1 and so on, in the network namespace of this process.
    ///
    /// # Errors
    /// If the kernel has no TAPs, this process may not create them, or the names are taken.
    pub fn create(shape: Shape) -> Result<Switch, TapError> {
        let taps = (1..=shape.nodes).map(|node| Tap::create(&format!("fab{node}")));
        let taps = taps.collect::<Result<Vec<_>, _>>()?;
        let flights = taps.iter().map(|_| VecDeque::new()).collect();
        Ok(Switch { taps, links: Links::new(shape), flights, lost: Lost(0), start: Instant::now() })
    }

    /// Carries frames until a TAP is gone.
    ///
    /// # Errors
    /// If the system refuses to wait for frames.
    pub fn run(mut self) -> std::io::Result<()> {
        // Sleep may otherwise last 50 us longer than asked for.
        set_timerslack(1)?;
        let mut scratch = vec![0; CAPACITY_BYTES];
        loop {
            self.deliver();
            for from in self.readable()? {
                if let Err(error) = self.take(from, &mut scratch) {
                    eprintln!("kolo: the switch ends with the TAP of n{}: {error}", from + 1);
                    return Ok(());
                }
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Writes every frame that has arrived.
    fn deliver(&mut self) {
        let now_ns = self.now_ns();
        for (tap, flights) in self.taps.iter().zip(&mut self.flights) {
            while flights.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
                let (_, frame) = flights.pop_front().expect("a frame in front");
                // A node that is down takes nothing, as a real one.
                if tap.write(&frame).is_err() {
                    self.lost.count();
                }
            }
        }
    }

    /// Waits until a frame can be read or delivered. What a sender's link is far behind with stays in
    /// the sender's own queue, so that its TCP notices.
    fn readable(&self) -> std::io::Result<Vec<usize>> {
        let now_ns = self.now_ns();
        let free_ns = |&node: &usize| self.links.free_ns(node).saturating_sub(AHEAD_NS);
        let (open, shut): (Vec<_>, Vec<_>) =
            (0..self.taps.len()).partition(|node| free_ns(node) <= now_ns);
        let arrivals = self.flights.iter().filter_map(|flights| Some(flights.front()?.0));
        let wake_ns = arrivals.chain(shut.iter().map(free_ns)).min();
        let timeout = wake_ns.map(|at_ns| {
            let wait_ns = at_ns.saturating_sub(now_ns);
            TimeSpec::new((wait_ns / 1_000_000_000) as _, (wait_ns % 1_000_000_000) as _)
        });
        let descriptor = |&node: &usize| PollFd::new(self.taps[node].as_fd(), PollFlags::POLLIN);
        let mut descriptors: Vec<PollFd> = open.iter().map(descriptor).collect();
        match ppoll(&mut descriptors, timeout, None) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = open.into_iter().zip(descriptors);
        Ok(ready.filter(|(_, polled)| polled.any() == Some(true)).map(|(node, _)| node).collect())
    }

    /// Takes frames from a node; an error says that its TAP is gone.
    fn take(&mut self, from: usize, scratch: &mut [u8]) -> std::io::Result<()> {
        for _ in 0..TURN {
            let bytes = match self.taps[from].read(scratch) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let frame = &scratch[..bytes];
            let now_ns = self.now_ns();
            let Some(to) = destination(frame, self.taps.len()).filter(|&to| to != from) else {
                continue;
            };
            match self.links.arrival_ns(now_ns, from, to, frame::length_bytes(frame)) {
                Some(at_ns) => self.flights[to].push_back((at_ns, frame.to_vec())),
                None => self.lost.count(),
            }
            if self.links.free_ns(from) > now_ns + AHEAD_NS {
                break;
            }
        }
        Ok(())
    }
}

/// Frames that did not arrive; told when there are twice as many as last time.
struct Lost(u64);

impl Lost {
    fn count(&mut self) {
        self.0 += 1;
        if self.0.is_power_of_two() {
            eprintln!("kolo: frames lost by the switch so far: {}", self.0);
        }
    }
}
