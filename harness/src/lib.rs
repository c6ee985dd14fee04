//! kolo's harness: whatever touches the world.
//!
//! | to find | look in |
//! |---|---|
//! | bytes, and what is done to them | [`memory`], [`element`], [`kernel`], [`cast`], [`pattern`] |
//! | moving them between ranks | [`transport`], driven by [`mod@execute`], one of the [`programs`]; timed as [`allreduce`], by one [`data_plane`] or another |
//! | Horovod's background loop | [`engine`], at the [`pace`] of its cycles, fed by [`replay`]; its control plane driven by [`negotiate`] |
//! | what Horovod's optimizer does above it | [`framework`], done by each rank's [`optimizer`] on its [`gradients`], in [`groups`] |
//! | what it is fed with | [`workload`] |
//! | what counts of file, Horovod's variables and options | [`config`], [`mod@environment`], [`precedence`] |
//! | measuring many cases | [`plan`], [`mod@sweep`]; an allreduce alone: [`mod@bench`], and what bounds it: [`mod@bound`]; what `auto` goes by: [`calibrate`] |
//! | the machine at hand, for simulations | [`machine_calibration`], [`mod@validate`] |
//! | control planes alone | [`control_sweep`] |
//! | from times to results | [`tabulate`], [`statistics`], [`row`], [`record`], [`provenance`], [`summary`] |
//! | where the time of a job went | [`timeline`] |
//! | GPUs: collectives as work on their streams | [`cuda`] |
//! | GPUs: a process for each, over NCCL | [`nccl`] |
//! | running on a cluster | [`slurm`] |
//! | what the user types | [`cli`] |

pub mod allreduce;
pub mod bench;
pub mod bound;
pub mod calibrate;
pub mod cast;
pub mod cli;
pub mod config;
pub mod control_sweep;
pub mod crew;
pub mod cuda;
pub mod data_plane;
pub mod element;
pub mod engine;
pub mod environment;
pub mod execute;
pub mod framework;
pub mod gradients;
pub mod groups;
pub mod journal;
pub mod kernel;
pub mod launch;
pub mod machine_calibration;
pub mod memory;
pub mod nccl;
pub mod nearest;
pub mod negotiate;
pub mod nodes;
pub mod optimizer;
pub mod pace;
pub mod pattern;
pub mod plan;
pub mod precedence;
pub mod programs;
pub mod provenance;
pub mod record;
pub mod replay;
pub mod row;
pub mod shipped;
pub mod simulate;
pub mod slurm;
pub mod statistics;
pub mod summary;
pub mod sweep;
#[cfg(target_os = "linux")]
pub mod switch;
pub mod tabulate;
pub mod timeline;
pub mod transport;
pub mod tune;
pub mod usage;
pub mod validate;
pub mod workload;
