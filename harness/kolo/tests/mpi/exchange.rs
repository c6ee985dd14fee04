//! Messages of control planes, and the moment at which all ranks begin something.

use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{Rng, RngCore};
use transports::mpi::Barrier;
use transports::transport::{MessageChannel, NonblockingBarrier};

use crate::process::{Process, doing};

/// Messages from each rank to each.
const MESSAGES: usize = 40;
const PART_BYTES: usize = 500;

/// The `index`-th message between two ranks: their numbers, and bytes that belong to it alone.
fn message(process: &Process, from: usize, to: usize, index: usize) -> Vec<u8> {
    let pair = (from * process.ranks + to) * MESSAGES + index;
    let mut random = process.random(1000 + pair as u64);
    let some = random.random_range(0..3000);
    let lengths = [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 70_000, some];
    let mut bytes = vec![0; lengths[random.random_range(0..lengths.len())]];
    random.fill_bytes(&mut bytes);
    bytes
}

/// From all to all, in random order, received while others are sent: none is lost, changed, or overtaken
/// by one of the same pair.
pub fn messages(process: &mut Process) {
    for part_bytes in [0, PART_BYTES] {
        let comm = process.comm(part_bytes);
        let mut channel = process.control_channel(&comm);
        let others: Vec<usize> = (0..process.ranks).filter(|&rank| rank != process.rank).collect();
        let mut order: Vec<usize> = others.iter().flat_map(|&to| [to; MESSAGES]).collect();
        let mut random = process.random(process.rank as u64);
        order.shuffle(&mut random);
        let (mut sent, mut received) = (vec![0; process.ranks], vec![0; process.ranks]);
        let mut left = others.len() * MESSAGES;
        let mut arrived = Vec::new();
        let mut to_send = order.into_iter();
        while left > 0 {
            for to in to_send.by_ref().take(random.random_range(0..9)) {
                doing(format!(
                    "messages in parts of {part_bytes} bytes, number {} to {to}",
                    sent[to]
                ));
                let bytes = message(process, process.rank, to, sent[to]);
                channel.send(to, Arc::from(bytes)).unwrap();
                sent[to] += 1;
            }
            // While nobody has received more than it has sent, some message is on its way to somebody.
            let unanswered = sent.iter().sum::<usize>() - received.iter().sum::<usize>();
            for _ in
                0..unanswered.min(if to_send.len() == 0 { left } else { random.random_range(0..3) })
            {
                doing(format!("messages in parts of {part_bytes} bytes, {left} to come"));
                let from = channel.receive(others[0], &mut arrived).unwrap();
                let expected = message(process, from, process.rank, received[from]);
                assert!(arrived == expected, "message {} from rank {from}", received[from]);
                received[from] += 1;
                left -= 1;
            }
        }
        channel.flush().unwrap();
    }
}

/// It does not begin before the last rank has arrived, begins for all, and once.
pub fn barrier(process: &mut Process) {
    let comm = process.comm(0);
    let mut channel = process.control_channel(&comm);
    for last in 0..process.ranks {
        doing(format!("the barrier at which rank {last} arrives last"));
        let mut barrier = Barrier::new(comm.clone());
        if process.rank == last {
            for _ in 1..process.ranks {
                channel.receive(last, &mut Vec::new()).unwrap();
            }
            assert_eq!(barrier.begun(), None);
            barrier.arrive();
        } else {
            barrier.arrive();
            assert!((0..200).all(|_| barrier.begun().is_none()), "begun without rank {last}");
            channel.send(last, Arc::from([7])).unwrap();
        }
        let begun = loop {
            if let Some(begun) = barrier.begun() {
                break begun;
            }
            std::thread::sleep(Duration::from_micros(50));
        };
        assert_eq!(barrier.begun(), Some(begun));
        channel.flush().unwrap();
    }
}
