//! `kolo man`.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Exit, usage};

/// Print the manual page, or write one for each command into a folder
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo man > kolo.1
  kolo man --out man1")]
pub struct Arguments {
    /// The folder for kolo.1, kolo-sweep.1 and so on
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let command = super::command();
    let Some(folder) = &arguments.out else {
        clap_mangen::Man::new(command).render(&mut io::stdout())?;
        return Ok(Exit::Right);
    };
    std::fs::create_dir_all(folder)
        .map_err(|error| usage(format!("{} cannot be created: {error}", folder.display())))?;
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("{}: manual pages cannot be written", folder.display()))?;
    Ok(Exit::Right)
}
