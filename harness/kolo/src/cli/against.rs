//! `kolo against`: the engine beside other programs.

mod horovod;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::Exit;

/// Run the same cases by kolo's engine and by another program, and compare their times
#[derive(Args)]
#[command(after_help = "\
Examples:
  kolo against horovod horovod
  kolo against horovod configs/horovod.toml --dry-run")]
pub struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    Horovod(horovod::Arguments),
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match &arguments.program {
        Program::Horovod(arguments) => horovod::run(arguments),
    }
}
