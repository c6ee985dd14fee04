//! Mutation tests of the control planes: the simulation tests find every mutation.
//!
//! `cargo test -p algorithms --features mutations --test mutations`

use algorithms::control::mutation::{Mutation, Mutations};
use algorithms::control::simulation_test::run_world;

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        // On one rank, or on all.
        let mutated = |seed: u64, rank: usize| {
            if seed.is_multiple_of(2) || rank as u64 == seed % 3 {
                Mutations::only(mutation)
            } else {
                Mutations::default()
            }
        };
        let is_found = |seed: &u64| {
            assert_eq!(run_world(*seed, |_| Mutations::default()).err(), None);
            let ended = std::panic::catch_unwind(|| run_world(*seed, |rank| mutated(*seed, rank)));
            ended.map_or(true, |ended| ended.is_err())
        };
        let found = (0..10_000).find(is_found);
        println!("{mutation:?}: {found:?}");
        assert!(found.is_some(), "{mutation:?} is not found");
    }
}
