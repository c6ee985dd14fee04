//! `kolo validate`.

use std::path::PathBuf;

use anyhow::Result;

use super::{Exit, usage};
use crate::record::csv_bytes;
use crate::simulate::published::{self, Points};

/// What the simulator predicts beside what was measured: points that others have published.
#[derive(clap::Args)]
pub struct Arguments {
    /// Published points in TOML
    #[arg(long, value_name = "FILE", default_value = "configs/published.toml")]
    points: PathBuf,
    /// Write published.csv into this folder, too
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let points = Points::read(&arguments.points)?;
    let compared = points.compare(&arguments.points).map_err(usage)?;
    print!("{}", published::text(&compared));
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("published.csv");
        crate::record::write_whole(&path, &csv_bytes(&compared, true))?;
        println!("{}", path.display());
    }
    Ok(Exit::Right)
}
