//! Tests of the binary as a user runs it, and of the pages.

mod alone;
mod build;
mod cli;
mod columns;
mod confirm;
#[path = "../../../training/tests/all/coverage.rs"]
mod coverage;
mod cuda;
mod house;
mod keys;
mod nccl;
mod slurm;
