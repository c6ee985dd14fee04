use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::job_channel::message::MAX_DATA_BYTES;

const LIMITS: Limits = Limits { timeout: Duration::from_secs(30), standstill: None };

/// Both ends of a connection over loopback.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Rank 0's detector, and the ends of the others' connections.
fn rank_0(ranks: usize) -> (FailureDetector, Vec<TcpStream>) {
    let (near, far): (Vec<_>, Vec<_>) = (1..ranks).map(|_| pair()).unzip();
    let connections =
        near.into_iter().enumerate().map(|(at, stream)| (at + 1, Connection::new(stream).unwrap()));
    (FailureDetector::start(0, connections.collect(), LIMITS, Mode::Polled).unwrap(), far)
}

fn other(rank: Rank, stream: TcpStream) -> FailureDetector {
    let connections = vec![(0, Connection::new(stream).unwrap())];
    FailureDetector::start(rank, connections, LIMITS, Mode::Polled).unwrap()
}

#[track_caller]
fn wait_for(detector: &FailureDetector) -> Diagnosis {
    let start = Instant::now();
    while start.elapsed() < LIMITS.timeout {
        if let Some(diagnosis) = detector.diagnosis() {
            return diagnosis;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("no diagnosis")
}

#[test]
fn a_process_that_ends_is_named_everywhere() {
    let (first, mut others) = rank_0(3);
    let (second, third) = (other(2, others.pop().unwrap()), other(1, others.pop().unwrap()));
    assert_eq!(first.diagnosis(), None);
    drop(third);
    assert_eq!(wait_for(&first), Diagnosis::Lost { rank: 1 });
    assert_eq!(wait_for(&second), Diagnosis::Lost { rank: 1 });
}

#[test]
fn processes_that_have_finished_may_end() {
    let (mut first, mut others) = rank_0(2);
    let mut second = other(1, others.pop().unwrap());
    second.send(vec![1, 2, 3]);
    second.finish();
    drop(second);
    first.finish();
    assert_eq!(first.receive(1), Some(vec![1, 2, 3]));
    assert_eq!(first.diagnosis(), None);
}

#[test]
fn messages_that_are_too_long_or_unknown_are_reported_with_their_sender() {
    let too_long = [&b"d"[..], &(MAX_DATA_BYTES as u32 + 1).to_le_bytes()].concat();
    let expected = "process 2 broke the protocol: a message of kind 'd' announces 67108865 bytes";
    for (bytes, words) in [
        (&too_long[..], expected),
        (b"GET / HTTP/1.1", "no message of this version begins with byte 0x47"),
        (b"a\0\0\0\0", "a message that does not belong here"),
    ] {
        let (first, mut others) = rank_0(3);
        others[1].write_all(bytes).unwrap();
        let diagnosis = wait_for(&first);
        assert!(diagnosis.rank() == 2 && diagnosis.to_string().contains(words), "{diagnosis}");
    }
}

#[test]
fn a_process_that_gives_up_learns_the_diagnosis() {
    let (first, mut others) = rank_0(3);
    let (second, third) = (other(2, others.pop().unwrap()), other(1, others.pop().unwrap()));
    let own = second.give_up("rank 2: out of memory", false);
    let expected = Diagnosis::GaveUp { rank: 2, reason: "rank 2: out of memory".into() };
    for diagnosis in [own.unwrap(), wait_for(&first), wait_for(&third)] {
        assert_eq!(diagnosis, expected);
    }
}

#[test]
fn a_lost_rank_0_is_noticed() {
    let (first, mut others) = rank_0(2);
    let second = other(1, others.pop().unwrap());
    drop(first);
    assert_eq!(wait_for(&second), Diagnosis::Lost { rank: 0 });
}
