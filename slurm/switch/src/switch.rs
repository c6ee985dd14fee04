//! A switch in user space between virtual nodes, where the kernel cannot delay packets itself.
//!
//! Every node hangs on a TAP of this process, which is the network card of the node at one end and a
//! file at the other. A frame is read, kept until its link would have carried it, and written. The
//! switch ends when a TAP does, and so with its cluster.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;

use crate::frame::{self, CAPACITY_BYTES, destination};
use crate::links::{AHEAD_NS, Links, Shape};
use crate::tap::{Tap, TapError};

/// Frames that are read from one TAP before the others have their turn.
const TURN: usize = 16;

/// One TAP for each node, and the frames that are under way.
pub struct Switch {
    taps: Vec<Tap>,
    links: Links,
    /// Those that have not come to their receiver's link, which takes them in the order of coming.
    travelling: BinaryHeap<Reverse<Travelling>>,
    /// Those on each receiver's link, in order: when they have arrived, in ns, and the frame.
    arriving: Vec<VecDeque<(u64, Vec<u8>)>>,
    sent: u64,
    lost: Lost,
    start: Instant,
}

/// Ordered by when it comes to its receiver's link, then by when it was sent.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Travelling {
    comes_ns: u64,
    number: u64,
    from: usize,
    to: usize,
    frame: Vec<u8>,
}

impl Switch {
    /// Creates the TAPs, named `fab1` for node n1 and so on, in the network namespace of this process.
    ///
    /// # Errors
    /// If the kernel has no TAPs, this process may not create them, or the names are taken.
    pub fn create(shape: Shape) -> Result<Switch, TapError> {
        let taps = (1..=shape.nodes).map(|node| Tap::create(&format!("fab{node}")));
        Ok(Switch {
            taps: taps.collect::<Result<_, _>>()?,
            links: Links::new(shape),
            travelling: BinaryHeap::new(),
            arriving: (0..shape.nodes).map(|_| VecDeque::new()).collect(),
            sent: 0,
            lost: Lost(0),
            start: Instant::now(),
        })
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

    /// Moves on every frame whose time has come, and writes those that have arrived.
    fn deliver(&mut self) {
        let now_ns = self.now_ns();
        while let Some(first) = self.travelling.peek_mut()
            && first.0.comes_ns <= now_ns
        {
            let Reverse(Travelling { comes_ns, from, to, frame, .. }) = PeekMut::pop(first);
            match self.links.receive_ns(comes_ns, from, to, frame::length_bytes(&frame)) {
                Some(at_ns) => self.arriving[to].push_back((at_ns, frame)),
                None => self.lost.count(),
            }
        }
        for (tap, arriving) in self.taps.iter().zip(&mut self.arriving) {
            let due = arriving.iter().take_while(|(at_ns, _)| *at_ns <= now_ns).count();
            for (_, frame) in arriving.drain(..due) {
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
        let arrivals = self.arriving.iter().filter_map(|arriving| Some(arriving.front()?.0));
        let comes = self.travelling.peek().map(|Reverse(first)| first.comes_ns);
        let wake_ns = arrivals.chain(comes).chain(shut.iter().map(free_ns)).min();
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
            let comes_ns = self.links.send_ns(now_ns, from, to, frame::length_bytes(frame));
            let (number, frame) = (self.sent, frame.to_vec());
            self.travelling.push(Reverse(Travelling { comes_ns, number, from, to, frame }));
            self.sent += 1;
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
