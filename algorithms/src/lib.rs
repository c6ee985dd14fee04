//! Allreduce algorithms as schedules, and Horovod's control planes as state machines.
//!
//! Everything here is pure: no clock, thread, file, socket or `unsafe`, and no dependency.
//!
//! | to find | look in |
//! |---|---|
//! | ranks on nodes | [`topology`] |
//! | what a schedule is | [`schedule`], made of others by [`combine`], written down by [`listed`] |
//! | the algorithms by name | [`registry`]; one file each, such as [`ring`] |
//! | proof that a schedule is an allreduce | [`verify`] |
//! | what it costs, counted, and which one to choose | [`cost`], [`auto`] |
//! | servers on nodes beside those of the ranks, in virtual time alone | [`server_nodes`] |
//! | one rank's flat list of operations, as an executor runs it | [`program`], rehearsed without data by [`rehearsal`] |
//! | how long it takes on a machine, in virtual time | [`simulate`] |
//! | who agrees on what to reduce next | [`control`] |
//! | which tensors travel together | [`fusion`] |
//!
//! ```
//! use algorithms::{registry, schedule::Drawing, topology::Topology, verify};
//!
//! let world = Topology::flat(3);
//! let ring = registry::find("ring").unwrap();
//! let schedule = ring.schedule(&world).unwrap();
//! verify::algorithm(&*ring, &world).unwrap();
//! assert_eq!(Drawing(&*schedule).to_string().lines().next(), Some("step 0:  0+>1 c2  1+>2 c0  2+>0 c1"));
//! ```
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod auto;
pub mod bine;
pub mod combine;
pub mod control;
pub mod cost;
pub mod direct;
pub mod double_tree;
pub mod fusion;
pub mod grouped;
pub mod grouping;
pub mod halving_doubling;
pub mod halving_doubling_halves;
pub mod hierarchical;
pub mod leader;
pub mod listed;
pub mod parameter_server;
pub mod pat;
pub mod program;
pub mod recursive_doubling;
pub mod registry;
pub mod rehearsal;
pub mod ring;
pub mod schedule;
pub mod server_nodes;
pub mod simulate;
pub mod swing;
pub mod topology;
pub mod torus;
pub mod tree;
pub mod verify;
