//! The binary as a user runs it, and what the pages say of it.

mod alone;
mod cli;
mod confirm;
mod cuda;
mod house;
mod nccl;
mod slurm;
