use std::io::Write;
use std::net::TcpListener;

use super::*;
use crate::nccl::comm::Watch;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A port that nobody has, for a moment.
fn address() -> Address {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() }
}

fn started(address: &Address, rank: usize, ranks: usize) -> Started {
    let (address, key) = (Some(address.clone()), "a job".to_string());
    Started { rank, ranks, address, key, nodes: vec!["n1".into(), "n2".into()] }
}

fn facts(host: &str) -> Facts {
    Facts { host: host.into(), command: vec!["kolo".into(), "bench".into()], ..Facts::default() }
}

/// Processes that are threads here, on the hosts that are given, and what each of them comes to.
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
fn neighbours_get_neighbouring_ranks_and_talk() {
    let ended = together(&["n1", "n2", "n1", "n2"], TIMEOUT, |control| {
        let mut control = control.unwrap();
        let own = vec![control.rank as u8; control.rank];
        let gathered = control.gather(own).unwrap();
        let reported = control.broadcast(vec![7, 8]).unwrap();
        control.barrier().unwrap();
        let hosts: Vec<_> = control.facts.iter().map(|facts| facts.host.clone()).collect();
        (control.rank, gathered, reported, hosts)
    });
    let ranks: Vec<_> = ended.iter().map(|ended| ended.0).collect();
    assert_eq!(ranks, [0, 2, 1, 3], "node by node");
    for (rank, gathered, reported, hosts) in ended {
        assert_eq!(
            (reported, hosts),
            (vec![7, 8], ["n1", "n1", "n2", "n2"].map(String::from).to_vec())
        );
        let all: Vec<Vec<u8>> = (0..4).map(|rank| vec![rank as u8; rank]).collect();
        assert_eq!(gathered, if rank == 0 { all } else { Vec::new() });
    }
}

#[test]
fn who_does_not_come_is_named_with_the_node() {
    let address = address();
    let some =
        |rank| meet(&started(&address, rank, 4), facts("n1.cluster"), Duration::from_secs(2));
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| some(0));
        let second = scope.spawn(|| some(2));
        (first.join().unwrap(), second.join().unwrap())
    });
    let Err(said) = first else { panic!("nobody was missing") };
    let said = said.to_string();
    assert!(said.contains("2 of 4 processes came, and ranks 1 and 3 did not"), "{said}");
    assert!(said.ends_with("of these nodes none was heard of: n2"), "{said}");
    assert!(second.is_err());
}

#[test]
fn strangers_are_refused_and_counted() {
    let address = address();
    let mut own = started(&address, 0, 3);
    own.nodes.clear();
    let ended = thread::scope(|scope| {
        let first = scope.spawn(|| meet(&own, facts("n1"), Duration::from_secs(4)));
        let connect = || loop {
            if let Ok(stream) = TcpStream::connect((address.host.as_str(), address.port)) {
                return stream;
            }
            thread::sleep(Duration::from_millis(5));
        };
        connect().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        connect().write_all(b"kol\x02\xff\xff\xff\xff").unwrap();
        connect().write_all(b"kol\x02\x02\x00\x00\x00\xff\xff").unwrap();
        drop(connect());
        let refused = |change: &dyn Fn(&mut Started, &mut Facts)| {
            let (mut started, mut facts) = (started(&address, 1, 3), facts("n1"));
            change(&mut started, &mut facts);
            let Err(why) = meet(&started, facts, TIMEOUT) else { panic!("taken") };
            why.to_string()
        };
        let said = refused(&|started, _| started.key = "another".into());
        assert!(said.contains("refuses rank 1: it belongs to another job (\"another\""), "{said}");
        let said = refused(&|started, _| started.ranks = 4);
        assert!(said.ends_with("it is rank 1 of 4, and here there are 3"), "{said}");
        let said = refused(&|_, facts| facts.command.push("-e".into()));
        assert!(said.contains("it was asked for \"bench -e\", and rank 0 for \"bench\""), "{said}");
        let said = refused(&|_, facts| facts.command.clear());
        assert!(said.contains("it was asked for \"\""), "{said}");
        first.join().unwrap()
    });
    let Err(said) = ended else { panic!("strangers were taken") };
    assert!(said.to_string().contains("ranks 1 and 2 did not; 8 connections of others"), "{said}");
}

#[test]
fn who_is_gone_is_noticed_by_all() {
    let said = together(&["n1"; 3], TIMEOUT, |control| {
        let mut control = control.unwrap();
        control.barrier().unwrap();
        if control.rank == 1 {
            return String::new();
        }
        loop {
            if let Err(error) = control.look() {
                return control.give_up(error).to_string();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    for rank in [0, 2] {
        let expected = format!("rank {rank}: rank 1 on n1 is gone, its connection is closed");
        assert!(said[rank].starts_with(&expected), "{}", said[rank]);
    }
}

#[test]
fn who_gives_up_is_named_with_the_reason() {
    let said = together(&["n1", "n1", "n2"], TIMEOUT, |control| {
        let mut control = control.unwrap();
        if control.rank == 2 {
            let (call, why) = ("ncclSend".into(), "it does not like it".into());
            let failed = crate::nccl::NcclError::Failed { rank: Some(2), peer: Some(0), call, why };
            return control.give_up(failed).to_string();
        }
        match control.barrier() {
            Err(error) => control.give_up(error).to_string(),
            Ok(()) => "nothing noticed".into(),
        }
    });
    let why = "rank 2: ncclSend with rank 0 failed: it does not like it";
    let reported = |rank| format!("rank {rank}: rank 2 on n2 gave up: {why}");
    assert_eq!(said, [reported(0), reported(1), why.into()]);
}

/// Whoever waits in vain asks everybody; rank 1 is there and does nothing.
#[test]
fn who_does_not_answer_is_named() {
    let said = together(&["n1", "n2", "n3"], Duration::from_secs(2), |control| {
        let mut control = control.unwrap();
        if control.rank == 1 {
            thread::sleep(Duration::from_secs(8));
            return String::new();
        }
        let ended = control.barrier().and_then(|()| control.barrier());
        control.give_up(ended.unwrap_err()).to_string()
    });
    assert!(said[0].starts_with("rank 1 (the first one on n2) did not answer"), "{}", said[0]);
    assert!(said[2].contains("rank 1 (the first one on n2) did not answer"), "{}", said[2]);
}
