//! The integration tests of the crate, in one binary, so that they are linked once.
//!
//! By default they cover small worlds and some awkward larger ones. With `KOLO_ALL_WORLDS=1` they cover
//! every world up to the largest.

mod control_planes;
mod engines;
mod every_algorithm;
mod mutants;
mod simulation_tests;

use std::env;

/// `all` with `KOLO_ALL_WORLDS=1`, `some` without.
fn worlds<T>(all: impl IntoIterator<Item = T>, some: impl IntoIterator<Item = T>) -> Vec<T> {
    if env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1") {
        all.into_iter().collect()
    } else {
        some.into_iter().collect()
    }
}
