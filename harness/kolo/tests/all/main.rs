//! The binary as a user runs it, and what the pages say of it.

mod alone;
mod cli;
mod confirm;
#[path = "../../../training/tests/all/coverage.rs"]
mod coverage;
mod cuda;
mod house;
mod nccl;
mod slurm;
