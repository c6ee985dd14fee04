use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Number of mutated messages by default.
const ITERATIONS: u64 = 20_000;

fn examples() -> Vec<Message> {
    let activity = Activity { is_busy: true, waits_for: Some(3), progress: 1 << 40 };
    let diagnoses = [
        Diagnosis::Lost { rank: 3 },
        Diagnosis::Protocol { rank: 1, error: "too long".into() },
        Diagnosis::Silent { rank: 2, silence: Duration::from_millis(5100) },
        Diagnosis::Suspended { pause: Duration::from_secs(4) },
        Diagnosis::Stuck { rank: 2, reason: "rank 0 has waited".into() },
        Diagnosis::GaveUp { rank: 1, reason: "an error".into() },
        Diagnosis::Standstill { rank: 0, duration: Duration::from_secs(10) },
    ];
    let mut messages = vec![
        Message::Accepted,
        Message::Leave,
        Message::Refused("rank 1 has joined already".into()),
        Message::Heartbeat(Activity::default()),
        Message::Heartbeat(activity),
        Message::GaveUp { reason: String::new(), is_timeout: false },
        Message::GaveUp { reason: "größer als erlaubt".into(), is_timeout: true },
        Message::Data(Vec::new()),
        Message::Data((0..=255).collect()),
    ];
    messages.extend(diagnoses.map(Message::Diagnosis));
    messages
}

#[test]
fn every_message_is_read_back_and_no_part_of_it_is_one() {
    for message in examples() {
        let mut bytes = message.to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{message:?} cut at {end}");
        }
        let length = bytes.len();
        bytes.extend(b"what follows");
        assert_eq!(parse(&bytes), Ok(Some((message, length))));
    }
}

#[test]
fn a_length_is_refused_before_its_body_arrives() {
    let mut bytes = vec![DATA];
    bytes.extend((MAX_DATA_BYTES as u32 + 1).to_le_bytes());
    let error = parse(&bytes).unwrap_err();
    let (length, max) = (MAX_DATA_BYTES + 1, MAX_DATA_BYTES);
    assert_eq!(error, ParseError::TooLong { kind: DATA, length, max });
    assert_eq!(
        error.to_string(),
        "a message of kind 'd' announces 67108865 bytes, but may have at most 67108864"
    );
    assert_eq!(
        parse(&[LEAVE, 1, 0, 0, 0]),
        Err(ParseError::TooLong { kind: LEAVE, length: 1, max: 0 })
    );
    bytes[1..].copy_from_slice(&(MAX_DATA_BYTES as u32).to_le_bytes());
    assert_eq!(parse(&bytes), Ok(None));
}

#[test]
fn other_bytes_are_refused() {
    assert_eq!(parse(b"GET / HTTP/1.1"), Err(ParseError::UnknownKind { kind: b'G' }));
    let malformed = |kind, body: &[u8]| {
        let bytes = [&[kind], &(body.len() as u32).to_le_bytes()[..], body].concat();
        assert_eq!(parse(&bytes), Err(ParseError::Malformed { kind, length: body.len() }));
    };
    malformed(HEARTBEAT, &[1, 2, 3]);
    malformed(GAVE_UP, &[]);
    malformed(GAVE_UP, &[2, b'x']);
    malformed(REFUSED, &[0xff, 0xfe]);
    malformed(DIAGNOSIS, &[99]);
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let reason = "é".repeat(MAX_TEXT_BYTES);
    let diagnosis = Diagnosis::Stuck { rank: usize::MAX, reason: reason.clone() };
    for message in [
        Message::Refused(reason.clone()),
        Message::GaveUp { reason, is_timeout: true },
        Message::Diagnosis(diagnosis),
    ] {
        let bytes = message.to_bytes();
        let (_, length) = parse(&bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
    }
}

/// Changes a few bytes, cuts, repeats or appends some.
fn mutate(bytes: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(0..4) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..5) {
            0 if at < bytes.len() => bytes[at] = rng.random(),
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, *[0, 1, 0x7f, 0x80, 0xff].choose(rng).expect("not empty")),
            _ => bytes.extend_from_within(..at),
        }
    }
}

/// `KOLO_FUZZ_SECONDS` makes it longer.
#[test]
fn mutated_messages_are_parsed_without_panics() {
    let seconds = std::env::var("KOLO_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let goes_on = |seed: u64| end.map_or(seed < ITERATIONS, |end| Instant::now() < end);
    let examples = examples();
    let (mut messages, mut errors) = (0, 0);
    for seed in (0u64..).take_while(|&seed| goes_on(seed)) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = examples.choose(&mut rng).expect("not empty").to_bytes();
        mutate(&mut bytes, &mut rng);
        match parse(&bytes) {
            Ok(None) => {}
            Ok(Some((message, length))) => {
                messages += 1;
                assert!((HEADER_BYTES..=bytes.len()).contains(&length), "seed {seed}");
                let again = message.to_bytes();
                assert_eq!(parse(&again), Ok(Some((message, again.len()))), "seed {seed}");
            }
            Err(error) => {
                errors += 1;
                // Bytes that cannot become a message do not become one when more arrive.
                bytes.push(0);
                assert_eq!(parse(&bytes), Err(error), "seed {seed}");
            }
        }
    }
    assert!(messages > 0 && errors > 0, "{messages} messages, {errors} errors");
}

/// The initial corpus of `cargo fuzz`.
#[test]
fn the_corpus_holds_messages_and_broken_ones() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/message");
    let parsed = |name: &str| parse(&std::fs::read(format!("{folder}/{name}")).unwrap());
    for (name, message) in [
        ("accepted", Message::Accepted),
        ("leave", Message::Leave),
        (
            "heartbeat",
            Message::Heartbeat(Activity { is_busy: true, waits_for: Some(3), progress: 7 }),
        ),
        ("gave-up", Message::GaveUp { reason: "late".into(), is_timeout: true }),
        ("data", Message::Data(b"abc".to_vec())),
        ("diagnosis-lost", Message::Diagnosis(Diagnosis::Lost { rank: 3 })),
    ] {
        assert_eq!(parsed(name).unwrap().unwrap().0, message, "{name}");
    }
    assert!(parsed("too-long").is_err() && parsed("no-utf8").is_err());
    assert_eq!(parsed("cut"), Ok(None));
}
