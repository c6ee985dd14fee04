//! kolo's harness: whatever touches the world.
//!
//! | to find | look in |
//! |---|---|
//! | bytes, and what is done to them | [`memory`], [`element`], [`pattern`] |
//! | moving them between ranks | [`transport`], driven by [`mod@execute`]; timed as [`allreduce`] |
//! | Horovod's background loop | [`engine`], its control plane driven by [`negotiate`] |
//! | what it is fed with | [`workload`] |

pub mod allreduce;
pub mod bench;
pub mod cli;
pub mod config;
pub mod element;
pub mod engine;
pub mod execute;
pub mod memory;
pub mod negotiate;
pub mod pattern;
pub mod provenance;
pub mod record;
pub mod statistics;
pub mod summary;
pub mod sweep;
pub mod transport;
pub mod workload;
