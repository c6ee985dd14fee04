//! Sweeps on a cluster, and what surrounds them, with a Slurm made of shell scripts.

#![cfg(unix)]

mod drive;
mod fakes;
mod scripts;
mod sites;
mod submit;
