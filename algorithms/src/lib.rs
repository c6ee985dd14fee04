//! Allreduce algorithms as schedules, and Horovod's control planes as state machines.
//!
//! The crate is pure: it uses no clock, thread, file, socket or `unsafe`, and depends on no other crate.
//! No module depends on itself by way of others.
//!
//! | module | contents |
//! |---|---|
//! | [`topology`] | ranks on nodes |
//! | [`schedule`] | the trait of schedules: which rank sends which chunk to whom, in which step |
//! | [`listed`] | a schedule as a list of moves, to inspect, to change, to test with |
//! | [`algorithm`], [`grouping`] | the trait of algorithms: functions from a topology to a schedule |
//! | [`combinators`] | schedules made of schedules: in sequence, within and across nodes, folded, pipelined |
//! | [`ring`], [`tree`], [`double_tree`], [`recursive_doubling`], [`halving_doubling`], [`halving_doubling_halves`], [`swing`], [`bine`], [`pat`], [`direct`], [`torus`], [`parameter_server`] | one algorithm (or two) each |
//! | [`hierarchical`], [`leader`], [`grouped`] | algorithms over another algorithm |
//! | [`program`] | one rank's schedule, compiled to a list of operations for an executor |
//! | [`segments`] | into how many segments a buffer is cut, and how far they are sent ahead |
//! | [`verify`] | proves that a schedule is an allreduce, and runs its programs without data |
//! | [`cost`] | the cost of a schedule in the alpha-beta-gamma model |
//! | [`auto`] | chooses an algorithm by size |
//! | [`registry`] | every algorithm by name |
//! | [`simulate`] | how long a schedule takes on a machine, in virtual time |
//! | [`server_nodes`] | parameter servers on nodes of their own, for the simulator only |
//! | [`control`] | control planes: which tensors are reduced next, and in which order |
//! | [`fusion`] | which ready tensors share a message |
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
#![warn(clippy::missing_errors_doc)]

pub mod algorithm;
pub mod auto;
pub mod bine;
pub mod combinators;
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
pub mod ring;
pub mod schedule;
pub mod segments;
pub mod server_nodes;
pub mod simulate;
pub mod swing;
pub mod topology;
pub mod torus;
pub mod tree;
pub mod verify;
