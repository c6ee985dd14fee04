//! `kolo completions`.

use std::io;

use anyhow::Result;
use clap_complete::{Shell, generate};

use super::Exit;

/// Print completions for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo completions bash > ~/.local/share/bash-completion/completions/kolo
  kolo completions zsh > ~/.zfunc/_kolo")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let mut command = super::command();
    let name = command.get_name().to_string();
    generate(arguments.shell, &mut command, name, &mut io::stdout());
    Ok(Exit::Right)
}
