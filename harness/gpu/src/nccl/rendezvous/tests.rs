use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::nccl::NcclError;
use crate::nccl::comm::FailureCheck;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A free port.
fn address() -> Address {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() }
}

fn started(address: &Address, rank: usize, ranks: usize) -> Started {
    let (address, job) = (Some(address.clone()), format!("{} {address}", std::process::id()));
    Started { rank, ranks, address, job, nodes: vec!["n1".into(), "n2".into()] }
}

fn facts(host: &str) -> Facts {
    Facts { host: host.into(), command: vec!["kolo".into(), "bench".into()], ..Facts::default() }
}

/// Runs processes as threads on the given hosts; returns their results.
fn together<R: Send>(
    hosts: &[&str],
    timeout: Duration,
    part: impl Fn(Result<Control, RendezvousError>) -> R + Sync,
) -> Vec<R> {
    let address = address();
    thread::scope(|scope| {
        let each = hosts.iter().enumerate().map(|(rank, host)| {
            let (started, part) = (started(&address, rank, hosts.len()), &part);
            scope.spawn(move || part(meet(&started, facts(host), timeout)))
        });
        let threads: Vec<_> = each.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn neighbours_get_neighbouring_ranks_and_exchange_data() {
    let ended = together(&["n1", "n2", "n1", "n2"], TIMEOUT, |control| {
        let mut control = control.unwrap();
        let own = vec![control.rank as u8; control.rank];
        let gathered = control.gather(own).unwrap();
        let received = control.broadcast(vec![7, 8]).unwrap();
        control.barrier().unwrap();
        let hosts: Vec<_> = control.facts.iter().map(|facts| facts.host.clone()).collect();
        let rank = control.rank;
        control.finish();
        (rank, gathered, received, hosts)
    });
    let ranks: Vec<_> = ended.iter().map(|ended| ended.0).collect();
    assert_eq!(ranks, [0, 2, 1, 3], "node by node");
    for (rank, gathered, received, hosts) in ended {
        let expected = ["n1", "n1", "n2", "n2"].map(String::from).to_vec();
        assert_eq!((received, hosts), (vec![7, 8], expected));
        let all: Vec<Vec<u8>> = (0..4).map(|rank| vec![rank as u8; rank]).collect();
        assert_eq!(gathered, if rank == 0 { all } else { Vec::new() });
    }
}

/// As where all refuse after they have shared what they found, and one is faster.
#[test]
fn the_last_data_of_a_process_that_has_ended_are_received() {
    let ended = together(&["n1", "n2"], TIMEOUT, |control| {
        let mut control = control.unwrap();
        if control.rank == 0 {
            return control.broadcast(vec![7, 8]);
        }
        let start = Instant::now();
        while control.check().is_ok() {
            assert!(start.elapsed() < TIMEOUT, "rank 0 is not missed");
            thread::sleep(Duration::from_millis(1));
        }
        control.broadcast(Vec::new())
    });
    for received in ended {
        assert_eq!(received.unwrap(), [7, 8]);
    }
}

#[test]
fn a_missing_process_is_named_with_its_node_and_the_secret_removed() {
    let address = address();
    let some =
        |rank| meet(&started(&address, rank, 4), facts("n1.cluster"), Duration::from_secs(2));
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| some(0));
        let second = scope.spawn(|| some(2));
        (first.join().unwrap(), second.join().unwrap())
    });
    let Err(error) = first else { panic!("nobody was missing") };
    let error = error.to_string();
    assert!(error.contains("2 of 4 processes joined, and ranks 1 and 3 did not"), "{error}");
    assert!(error.ends_with("no process joined from these nodes: n2"), "{error}");
    assert!(second.is_err());
    assert!(!secret_file::path(&started(&address, 0, 4).job, true).exists());
}

#[test]
fn strangers_are_closed_without_a_byte_and_counted() {
    let address = address();
    let mut own = started(&address, 0, 3);
    own.nodes.clear();
    let ended = thread::scope(|scope| {
        let first = scope.spawn(|| meet(&own, facts("n1"), Duration::from_secs(6)));
        let connect = || loop {
            if let Ok(stream) = TcpStream::connect((address.host.as_str(), address.port)) {
                return stream;
            }
            thread::sleep(Duration::from_millis(5));
        };
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 1000], b""] {
            let (mut stream, mut received) = (connect(), Vec::new());
            stream.write_all(bytes).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            // A socket that is closed with unread bytes resets the connection.
            let _ = stream.read_to_end(&mut received);
            assert!(received.is_empty(), "{received:?}");
        }
        let refused = |change: &dyn Fn(&mut Started, &mut Facts)| {
            let (mut started, mut facts) = (started(&address, 1, 3), facts("n1"));
            change(&mut started, &mut facts);
            let Err(error) = meet(&started, facts, TIMEOUT) else { panic!("it was accepted") };
            error.to_string()
        };
        let error = refused(&|started, _| started.ranks = 4);
        assert!(error.ends_with("it is rank 1 of 4, but rank 0 expects 3 ranks"), "{error}");
        let error = refused(&|_, facts| facts.command.push("-e".into()));
        assert!(
            error.contains("it was started with \"bench -e\", and rank 0 with \"bench\""),
            "{error}"
        );
        let error = refused(&|_, facts| facts.command.clear());
        assert!(error.contains("it was started with \"\""), "{error}");
        first.join().unwrap()
    });
    let Err(error) = ended else { panic!("strangers were accepted") };
    let words = "ranks 1 and 2 did not; 6 other connections were rejected";
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_lost_process_is_noticed_by_all() {
    let errors = together(&["n1"; 3], TIMEOUT, |control| {
        let mut control = control.unwrap();
        control.barrier().unwrap();
        if control.rank == 1 {
            return String::new();
        }
        loop {
            if let Err(error) = control.check() {
                return control.give_up(error).to_string();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    for rank in [0, 2] {
        let expected = format!("rank {rank}: rank 1 on n1 is gone, its connection is closed");
        assert!(errors[rank].starts_with(&expected), "{}", errors[rank]);
    }
}

#[test]
fn a_process_that_gives_up_is_named_with_the_reason() {
    let errors = together(&["n1", "n1", "n2"], TIMEOUT, |control| {
        let mut control = control.unwrap();
        if control.rank == 2 {
            let (call, why) = ("ncclSend".into(), "invalid argument".into());
            let failed = NcclError::Failed { rank: Some(2), peer: Some(0), call, why };
            return control.give_up(failed).to_string();
        }
        match control.barrier() {
            Err(error) => control.give_up(error).to_string(),
            Ok(()) => "nothing noticed".into(),
        }
    });
    let why = "rank 2: ncclSend with rank 0 failed: invalid argument";
    let expected = |rank| format!("rank {rank}: rank 2 on n2 gave up: {why}");
    assert_eq!(errors, [expected(0), expected(1), why.into()]);
}

/// Rank 1 is alive, and does not take part.
#[test]
fn a_process_without_progress_is_named() {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let (done, is_done) = (std::sync::Mutex::new(Some(done)), std::sync::Mutex::new(is_done));
    let errors = together(&["n1", "n2", "n3"], Duration::from_secs(4), |control| {
        let mut control = control.unwrap();
        if control.rank == 1 {
            // Until the others have given up.
            let _ = is_done.lock().unwrap().recv_timeout(TIMEOUT);
            return String::new();
        }
        let ended = control.barrier().and_then(|()| control.barrier());
        let error = control.give_up(ended.unwrap_err()).to_string();
        if control.rank == 0 {
            drop(done.lock().unwrap().take());
        }
        error
    });
    let expected = "rank 1 on n2 does not respond: process 1 makes no progress: rank 0 has waited ";
    for error in [&errors[0], &errors[2]] {
        assert!(
            error.starts_with("rank 1 on n2 does not respond: process 1 makes no progress"),
            "{error}"
        );
    }
    assert!(errors[0].starts_with(expected), "{}", errors[0]);
}
