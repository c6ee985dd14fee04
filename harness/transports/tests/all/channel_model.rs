//! Channels and parkers under a model checker: every order of the ranks' accesses up to a number of preemptions,
//! and every value that the memory model permits for a load.
//!
//! The two files are compiled here again with loom's atomics, and `End` follows the rules by which `Endpoint` uses
//! them. Loom weakens sequentially consistent accesses, but its fences are exact; channels and parkers use fences
//! only. Loom does not try loads that see later stores. `LOOM_MAX_PREEMPTIONS=5` searches further than these tests
//! do and takes ten times as long.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread::{self, Thread, yield_now};

use channel::{Channel, Message};
use parker::Parker;

use crate::coverage::all_worlds;

#[path = "../../src/threads/channel.rs"]
mod channel;
#[path = "../../src/threads/parker.rs"]
mod parker;

mod sync {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
}

/// The most preemptions of ranks that need not wait: with `KOLO_ALL_WORLDS=1`, and without. Most bugs need two.
const PREEMPTIONS: (usize, usize) = (3, 2);

/// A value that no message carries.
const GONE: u64 = u64::MAX;

/// A buffer of one element. Loom fails a test in which two ranks access it without ordering.
#[derive(Default)]
struct Word(UnsafeCell<u64>);

// SAFETY: loom checks every access.
unsafe impl Sync for Word {}

impl Word {
    fn get(&self) -> u64 {
        // SAFETY: loom has found no concurrent write.
        self.0.with(|word| unsafe { *word })
    }

    fn set(&self, value: u64) {
        // SAFETY: loom has found no concurrent access.
        self.0.with_mut(|word| unsafe { *word = value });
    }
}

/// The state between two ranks, and two words of each for two collectives.
#[derive(Default)]
struct World {
    channels: [Channel; 2],
    parkers: [Parker; 2],
    words: [[Word; 2]; 2],
}

impl World {
    fn end(&self, rank: usize) -> End<'_> {
        let (out, into) = (&self.channels[rank], &self.channels[1 - rank]);
        End { out, into, posted: 0, last: [0; 2], taken: 0, acknowledged: 0 }
    }
}

/// One rank's end of both channels.
struct End<'w> {
    out: &'w Channel,
    into: &'w Channel,
    posted: u64,
    last: [u64; 2],
    taken: u64,
    acknowledged: u64,
}

impl End<'_> {
    /// Sends a word, inline if `small` and there is room. Returns the count of the message that must be taken
    /// before the word may be overwritten.
    fn send(&mut self, word: &Word, small: bool) -> u64 {
        let next = self.posted + 1;
        let last = &mut self.last[next as usize % 2];
        let has_room = self.out.has_room(*last, &mut self.acknowledged);
        if has_room {
            *last = next;
        }
        let address = std::ptr::from_ref(word).cast_mut().cast();
        self.posted = next;
        match (has_room, small) {
            (false, _) => self.out.post_aside(next, address, 0, self.taken),
            // SAFETY: there is room for one word.
            (true, true) => unsafe {
                self.out.fill(next, |into| into.cast::<u64>().write(word.get()));
                self.out.post(next, Message::Bytes(8), self.taken);
                return 0;
            },
            // SAFETY: there is room.
            (true, false) => unsafe {
                self.out.post(next, Message::Address(address, 0), self.taken);
            },
        }
        next
    }

    /// Announces that a word has been put.
    fn post_put(&mut self) {
        self.posted += 1;
        self.out.post_nothing(self.posted, self.taken);
    }

    fn settle(&self, count: u64) {
        wait(|| self.acknowledged >= count || self.out.is_taken(count));
    }

    fn arrived(&mut self) {
        let next = self.taken + 1;
        wait(|| self.into.is_posted(next));
        self.acknowledged = self.acknowledged.max(self.into.acknowledged(next));
    }

    fn take(&mut self) {
        self.taken += 1;
        self.into.take(self.taken);
    }

    fn receive(&mut self) -> u64 {
        self.arrived();
        let next = self.taken + 1;
        let value = match self.into.message(next) {
            // SAFETY: a message of 8 bytes.
            Message::Bytes(_) => self.into.read(next, |bytes| unsafe { *bytes.cast::<u64>() }),
            Message::Address(address, _) => theirs(address).get(),
        };
        self.take();
        value
    }
}

/// The word that a message of the other rank points to.
fn theirs<'w>(address: *mut ()) -> &'w Word {
    // SAFETY: the words outlive both ends.
    unsafe { address.cast::<Word>().as_ref() }.expect("a message has an address")
}

fn wait(condition: impl Fn() -> bool) {
    while !condition() {
        yield_now();
    }
}

/// Runs both ranks of a world, each on a thread, in every interleaving. Each has the other's thread handle.
fn model<A, B>(zero: A, one: B)
where
    A: Fn(&World, Thread) + Copy + Send + Sync + 'static,
    B: Fn(&World, Thread) + Copy + Send + Sync + 'static,
{
    check(move || {
        let world = Arc::new(World::default());
        let (theirs, me) = (world.clone(), thread::current());
        let other = thread::spawn(move || one(&theirs, me));
        zero(&world, other.thread().clone());
        other.join().unwrap();
    });
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(if all_worlds() {
        PREEMPTIONS.0
    } else {
        PREEMPTIONS.1
    });
    builder.check(model);
}

/// Sleeps until a condition holds.
fn doze(parker: &Parker, condition: impl Fn() -> bool) {
    while !parker.is_up(&condition) {
        thread::park();
    }
}

/// Sends words one after the other; each is overwritten as soon as the rules permit.
#[test]
fn a_receiver_gets_every_word_before_it_is_overwritten() {
    for small in [[false, true, true, true], [true, false, true, true], [true, true, false, true]] {
        let send = move |world: &World, _| {
            let (mut end, word) = (world.end(0), &world.words[0][0]);
            for (value, small) in (1..).zip(small) {
                word.set(value);
                let until = end.send(word, small);
                end.settle(until);
            }
            word.set(GONE);
        };
        let receive = move |world: &World, _| {
            let mut end = world.end(1);
            (1..).zip(small).for_each(|(value, _)| assert_eq!(end.receive(), value));
        };
        model(send, receive);
    }
}

/// Two collectives, each on its own words: both ranks send, stage what they receive, and overwrite what they have
/// sent.
#[test]
fn consecutive_exchanges_do_not_mix() {
    for small in [[false, false], [false, true], [true, false], [true, true]] {
        let rank = move |me: usize| {
            move |world: &World, _| {
                let mut end = world.end(me);
                for (collective, small) in small.into_iter().enumerate() {
                    let word = &world.words[me][collective];
                    let value = |rank| (10 * collective + rank) as u64;
                    word.set(value(me));
                    let until = end.send(word, small);
                    let aside = end.receive();
                    assert_eq!(aside, value(1 - me));
                    end.settle(until);
                    word.set(GONE);
                }
            }
        };
        model(rank(0), rank(1));
    }
}

/// Two collectives, each on its own word: rank 0 announces it, and rank 1 writes into it.
#[test]
fn a_put_lands_in_the_word_that_was_announced() {
    let receive = move |world: &World, _| {
        let mut end = world.end(0);
        for (value, word) in (1..).zip(&world.words[0]) {
            word.set(value);
            let until = end.send(word, false);
            end.arrived();
            assert_eq!(word.get(), 10 * value);
            end.take();
            end.settle(until);
            word.set(GONE);
        }
    };
    let put = |world: &World, _| {
        let mut end = world.end(1);
        for value in 1..=2 {
            end.arrived();
            let Message::Address(address, _) = end.into.message(end.taken + 1) else { panic!() };
            assert_eq!(theirs(address).get(), value);
            end.take();
            theirs(address).set(10 * value);
            end.post_put();
        }
    };
    model(receive, put);
}

/// Both ranks sleep until the other wakes them. A lost wake-up would be a deadlock.
#[test]
fn no_wake_up_is_lost() {
    let send = move |world: &World, receiver: Thread| {
        let [channel, _] = &world.channels;
        for count in 1..=2 {
            channel.post_aside(count, std::ptr::null_mut(), 0, 0);
            world.parkers[1].wake(|| receiver.unpark());
            doze(&world.parkers[0], || channel.is_taken(count));
        }
    };
    let receive = move |world: &World, sender: Thread| {
        let [channel, _] = &world.channels;
        for count in 1..=2 {
            doze(&world.parkers[1], || channel.is_posted(count));
            channel.take(count);
            world.parkers[0].wake(|| sender.unpark());
        }
    };
    model(send, receive);
}

/// Two ranks may wake a third at the same time.
#[test]
fn a_rank_that_waits_for_two_ranks_is_woken_by_either() {
    check(|| {
        let world = Arc::new(World::default());
        let me = thread::current();
        let others = [0, 1].map(|other| {
            let (world, me) = (world.clone(), me.clone());
            thread::spawn(move || {
                world.channels[other].post_aside(1, std::ptr::null_mut(), 0, 0);
                world.parkers[0].wake(|| me.unpark());
            })
        });
        for channel in &world.channels {
            doze(&world.parkers[0], || channel.is_posted(1));
        }
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
