//! Control planes in thousands of small worlds, each made of a seed; and with planted mistakes, which must
//! be found. `KOLO_SEEDS` sets how many worlds.

use algorithms::control::flaw::Flaws;
use algorithms::control::rehearsal::rehearse;

#[test]
fn every_world_ends_as_it_must() {
    let seeds = std::env::var("KOLO_SEEDS").map_or(20_000, |seeds| seeds.parse().unwrap());
    let start = std::time::Instant::now();
    let (mut events, mut messages) = (0, 0);
    for seed in 0..seeds {
        match rehearse(seed, |_| Flaws::default()) {
            Ok(rehearsed) => {
                events += rehearsed.events;
                messages += rehearsed.messages;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{seeds} worlds, {events} events, {messages} messages in {:?}", start.elapsed());
}

#[cfg(feature = "flaws")]
#[test]
fn every_planted_mistake_is_found() {
    use algorithms::control::flaw::Flaw;
    for flaw in Flaw::ALL {
        // On one rank, or on all.
        let planted =
            |seed: u64, rank: usize| match seed.is_multiple_of(2) || rank as u64 == seed % 3 {
                true => Flaws::plant(flaw),
                false => Flaws::default(),
            };
        let fails = |seed: &u64| {
            assert_eq!(rehearse(*seed, |_| Flaws::default()).err(), None);
            let ended = std::panic::catch_unwind(|| rehearse(*seed, |rank| planted(*seed, rank)));
            ended.map_or(true, |ended| ended.is_err())
        };
        let found = (0..10_000).find(fails);
        println!("{flaw:?}: {found:?}");
        assert!(found.is_some(), "{flaw:?} is not found");
    }
}
