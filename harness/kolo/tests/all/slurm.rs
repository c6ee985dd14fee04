//! Sweeps on a cluster, with a Slurm made of shell scripts.

mod drive;
pub mod fakes;
mod scripts;
mod sites;
mod submit;
