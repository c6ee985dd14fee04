use std::net::Shutdown;
use std::sync::mpsc;

use super::*;
use crate::job_channel::message::MAX_DATA_BYTES;
use crate::job_channel::secret::Secret;

const TIMEOUT: Duration = Duration::from_secs(30);
const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn credentials() -> Credentials {
    Credentials { job: "a job".into(), secret: Secret::generate().unwrap() }
}

fn listener(credentials: &Credentials, ranks: usize) -> (Listener, Offer) {
    let listener = Listener::bind(&[LOOPBACK], 0, credentials.clone(), ranks).unwrap();
    let offer = Offer { secret: credentials.secret.clone(), addresses: listener.addresses() };
    (listener, offer)
}

/// Reads to the end; panics if it receives any byte.
#[track_caller]
fn assert_closed_without_a_byte(mut stream: TcpStream) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut received = Vec::new();
    let ended = stream.read_to_end(&mut received);
    // A socket that is closed with unread bytes resets the connection.
    let is_end = ended.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
    assert!(is_end && received.is_empty(), "received {received:?}");
}

#[test]
fn strangers_are_closed_without_a_byte_while_all_processes_join() {
    let credentials = credentials();
    let (mut listener, offer) = listener(&credentials, 4);
    let address = offer.addresses[0];
    let stranger = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let other = Credentials { secret: Secret::generate().unwrap(), ..credentials.clone() };
    let wrong = Client::new(&other, 1, 4).unwrap().hello();
    let mut too_long = vec![b'd'];
    too_long.extend((MAX_DATA_BYTES as u32 + 1).to_le_bytes());
    too_long.resize(1 << 20, 0);
    let strangers = [
        stranger(b""),
        stranger(b"GET / HTTP/1.1\r\n\r\n"),
        stranger(&[0xff; HELLO_BYTES]),
        stranger(&wrong),
        stranger(&wrong[..HELLO_BYTES - 1]),
    ];
    let half_closed = stranger(b"kolo");
    half_closed.shutdown(Shutdown::Write).unwrap();
    let (joined, rejected) = thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let listening = scope.spawn(move || {
            let joined = listener.gather(TIMEOUT).unwrap();
            // Unauthenticated connections are closed at their time limit even if they send nothing.
            while is_done.try_recv().is_err() {
                assert!(listener.poll().is_empty(), "a stranger has joined");
                thread::sleep(POLL_INTERVAL);
            }
            (joined, listener.rejected())
        });
        let flood = scope.spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            // The write fails once the other side is closed.
            let _ = stream.write_all(&too_long);
            stream
        });
        let join = |rank| connect("a job", (rank, 4), || Ok(offer.clone()), TIMEOUT).map(|_| ());
        let joining = [1, 2, 3].map(|rank| scope.spawn(move || join(rank)));
        for thread in joining {
            thread.join().unwrap().unwrap();
        }
        strangers.into_iter().for_each(assert_closed_without_a_byte);
        assert_closed_without_a_byte(half_closed);
        assert_closed_without_a_byte(flood.join().unwrap());
        done.send(()).unwrap();
        listening.join().unwrap()
    });
    let mut ranks: Vec<_> = joined.iter().map(|(rank, _)| *rank).collect();
    ranks.sort_unstable();
    assert_eq!((ranks, rejected), (vec![1, 2, 3], 7));
}

/// A handshake through a third party that records both sides.
#[test]
fn a_replayed_handshake_is_closed_without_a_byte() {
    let credentials = credentials();
    let (mut listener, offer) = listener(&credentials, 3);
    let client = Client::new(&credentials, 1, 3).unwrap();
    let mut first = TcpStream::connect(offer.addresses[0]).unwrap();
    first.set_nonblocking(false).unwrap();
    first.write_all(&client.hello()).unwrap();
    let joined = thread::scope(|scope| {
        let listening = scope.spawn(|| listener.gather(TIMEOUT).unwrap());
        let mut challenge = [0; CHALLENGE_BYTES];
        first.read_exact(&mut challenge).unwrap();
        let proof = client.prove(&challenge).unwrap();
        first.write_all(&proof).unwrap();
        let mut replay = TcpStream::connect(offer.addresses[0]).unwrap();
        replay.write_all(&[&client.hello()[..], &proof].concat()).unwrap();
        assert_closed_without_a_byte(replay);
        connect("a job", (2, 3), || Ok(offer.clone()), TIMEOUT).unwrap();
        listening.join().unwrap()
    });
    assert_eq!(joined.len(), 2);
}

#[test]
fn a_flood_of_silent_connections_delays_nobody() {
    let credentials = credentials();
    let (mut listener, offer) = listener(&credentials, 2);
    let connect_stranger = |_| TcpStream::connect(offer.addresses[0]).unwrap();
    let strangers: Vec<_> = (0..MAX_HANDSHAKES / 4).map(connect_stranger).collect();
    thread::scope(|scope| {
        let joining =
            scope.spawn(|| connect("a job", (1, 2), || Ok(offer.clone()), TIMEOUT).map(|_| ()));
        assert_eq!(listener.gather(TIMEOUT).unwrap().len(), 1);
        joining.join().unwrap().unwrap();
    });
    assert!(listener.handshakes.len() <= MAX_HANDSHAKES);
    drop(strangers);
}

#[test]
fn the_oldest_of_too_many_handshakes_is_closed() {
    let (mut listener, offer) = listener(&credentials(), 2);
    let mut strangers = VecDeque::new();
    for _ in 0..=MAX_HANDSHAKES {
        strangers.push_back(TcpStream::connect(offer.addresses[0]).unwrap());
        listener.poll();
        if listener.rejected() > 0 {
            break;
        }
    }
    assert!(listener.rejected() > 0 && listener.handshakes.len() <= MAX_HANDSHAKES);
    assert_closed_without_a_byte(strangers.pop_front().unwrap());
}

#[test]
fn a_wrong_secret_or_job_is_not_accepted() {
    let own = credentials();
    let (mut listener, offer) = listener(&own, 2);
    let mut other = offer.clone();
    other.secret = Secret::generate().unwrap();
    let try_join = |job: &str, offer: &Offer| {
        connect(job, (1, 2), || Ok(offer.clone()), Duration::ZERO).map(|_| ()).unwrap_err()
    };
    let (wrong_secret, wrong_job) = thread::scope(|scope| {
        let trying = scope.spawn(|| (try_join("a job", &other), try_join("another job", &offer)));
        while !trying.is_finished() {
            assert!(listener.poll().is_empty());
            thread::sleep(POLL_INTERVAL);
        }
        trying.join().unwrap()
    });
    for error in [wrong_secret, wrong_job] {
        let words = "the connection was closed without an answer";
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!((listener.missing(), listener.rejected()), (vec![1], 2));
    assert_eq!(listener.gather(Duration::ZERO).map(|_| ()).unwrap_err(), [1]);
}

#[test]
fn a_refused_process_with_the_secret_receives_the_reason() {
    let (mut listener, offer) = listener(&credentials(), 3);
    let join = |rank, ranks| connect("a job", (rank, ranks), || Ok(offer.clone()), TIMEOUT);
    thread::scope(|scope| {
        let trying = scope.spawn(|| {
            let _first = join(1, 3).unwrap();
            [(1, 3), (1, 4), (7, 3)].map(|(rank, ranks)| join(rank, ranks).map(|_| ()).unwrap_err())
        });
        let mut joined = Vec::new();
        while !trying.is_finished() {
            joined.extend(listener.poll());
            thread::sleep(POLL_INTERVAL);
        }
        let errors = trying.join().unwrap().map(|error| error.to_string());
        assert_eq!(
            errors,
            [
                "rank 0 refuses this process: another process has joined as rank 1 already",
                "rank 0 refuses this process: it is rank 1 of 4, but rank 0 expects 3 ranks",
                "rank 0 refuses this process: it is rank 7 of 3, but rank 0 expects 3 ranks",
            ]
        );
        assert_eq!((joined.len(), listener.missing()), (1, vec![2]));
    });
}

/// A client does not prove anything to a listener that does not know the secret.
#[test]
fn a_false_rank_0_learns_nothing() {
    let credentials = credentials();
    let false_rank_0 = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let addresses = vec![false_rank_0.local_addr().unwrap()];
    let offer = Offer { secret: credentials.secret.clone(), addresses };
    thread::scope(|scope| {
        let joining =
            scope.spawn(|| connect("a job", (1, 2), || Ok(offer.clone()), Duration::ZERO));
        let (mut stream, _) = false_rank_0.accept().unwrap();
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&[7; CHALLENGE_BYTES]).unwrap();
        assert_closed_without_a_byte(stream);
        let Err(error) = joining.join().unwrap() else { panic!("it was accepted") };
        assert!(error.to_string().ends_with("the listener does not know the secret"), "{error}");
    });
}

#[test]
fn it_listens_on_the_given_addresses_alone() {
    let (listener, offer) = listener(&credentials(), 2);
    let addresses = listener.addresses();
    assert!(addresses.len() == 1 && addresses.iter().all(|address| address.ip() == LOOPBACK));
    // Another address of the loopback network, which a wildcard would include.
    let elsewhere = SocketAddr::new("127.0.0.2".parse().unwrap(), offer.addresses[0].port());
    assert!(TcpStream::connect_timeout(&elsewhere, CONNECT_TIMEOUT).is_err());
}
