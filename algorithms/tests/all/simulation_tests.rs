//! Control planes in small worlds, each made from a seed: 20,000 of them, or as many as `KOLO_SEEDS` says.

use std::time::Instant;

use algorithms::control::mutation::Mutations;
use algorithms::control::simulation_test::run_world;

#[test]
fn control_planes_are_correct_in_every_world() {
    let seeds = std::env::var("KOLO_SEEDS").map_or(20_000, |seeds| seeds.parse().unwrap());
    let start = Instant::now();
    let (mut events, mut messages) = (0, 0);
    for seed in 0..seeds {
        match run_world(seed, |_| Mutations::default()) {
            Ok(summary) => {
                events += summary.events;
                messages += summary.messages;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{seeds} worlds, {events} events, {messages} messages in {:?}", start.elapsed());
}
