//! Moving and combining bytes, on threads.

mod allocations;
mod channel_model;
mod pattern;
mod soak;
mod transports;
