//! Tests of moving and combining data, on threads.

mod allocations;
mod channel_model;
#[path = "../../../training/tests/all/coverage.rs"]
mod coverage;
mod pattern;
mod soak;
mod transports;
