//! `kolo init`.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Exit, usage};
use results::config_kind::ConfigKind;
use results::inputs::{CONFIGS, meant};

/// Write a commented copy of an embedded configuration, to change and run
///
/// NAME is a configuration, such as quick; a machine, such as machines/summit; or a site, such as sites/generic.
/// An existing file is never overwritten.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo init                                     # writes quick.toml
  kolo init control-planes --out mine.toml")]
pub struct Arguments {
    /// The embedded configuration
    #[arg(default_value = "quick")]
    name: String,
    /// The file to write [default: NAME.toml in the working folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// List the names, with the first line of each file
    #[arg(long, conflicts_with_all = ["name", "out"])]
    list: bool,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let configurations = configurations();
    if arguments.list {
        let width = configurations.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, text) in configurations {
            println!("{name:<width$}  {}", first_comment(text));
        }
        return Ok(Exit::Right);
    }
    let name = arguments.name.strip_suffix(".toml").unwrap_or(&arguments.name);
    let found = configurations.iter().find(|(known, _)| known == name);
    let &(_, text) = found.ok_or_else(|| unknown(name, &configurations))?;
    let file = format!("{}.toml", name.rsplit('/').next().unwrap_or(name));
    let path = arguments.out.clone().unwrap_or_else(|| file.into());
    write_new(&path, text)?;
    println!("{} is written; {}", path.display(), usage_of(name, text));
    Ok(Exit::Right)
}

/// What to do with the copy of an embedded file.
fn usage_of(name: &str, text: &str) -> &'static str {
    let table: toml::Table = text.parse().expect("embedded files are TOML");
    match ConfigKind::of(&table) {
        // Neither a configuration nor a machine: a site.
        Err(_) => "change it, then compare it with Slurm: kolo site check FILE",
        Ok(ConfigKind::Machine) => {
            "change it, then name it with --machine, or in a simulated sweep"
        }
        Ok(ConfigKind::PublishedPoints) => "change it, then run it: kolo validate --points FILE",
        Ok(ConfigKind::Regret) => "change it, then run it: kolo tune FILE",
        Ok(ConfigKind::Training) if name.starts_with("horovod") => {
            "change it, then run it: kolo against horovod FILE"
        }
        Ok(ConfigKind::Training) if name.starts_with("tuners-") => {
            "change it, then run it: kolo against autotune FILE"
        }
        Ok(ConfigKind::Training) if name.starts_with("promises/") => {
            "change it, then run it: kolo against autotune FILE --steps 440"
        }
        Ok(ConfigKind::Training | ConfigKind::ControlPlanes | ConfigKind::Simulated) => {
            "change it, then run it: kolo sweep FILE"
        }
    }
}

/// All TOML files that are embedded, without `configs/` and ending: those of folders last.
fn configurations() -> Vec<(String, &'static str)> {
    let inside = format!("{CONFIGS}/");
    let files = shipped::configs().into_iter().filter_map(|(path, text)| {
        Some((path.strip_prefix(&inside)?.strip_suffix(".toml")?.to_string(), text))
    });
    let mut files: Vec<_> = files.collect();
    files.sort_by_key(|(name, _)| (name.contains('/'), name.clone()));
    files
}

fn first_comment(text: &str) -> &str {
    let comment = text.lines().find_map(|line| line.strip_prefix('#'));
    comment.unwrap_or("").trim()
}

fn unknown(name: &str, configurations: &[(String, &str)]) -> anyhow::Error {
    let names: Vec<String> = configurations.iter().map(|(name, _)| name.clone()).collect();
    usage(format!(
        "{name}: no such embedded configuration{} There are {}. To name the copy, add --out {name}.toml",
        meant(name, &names).unwrap_or(".".into()),
        names.join(", ")
    ))
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    let refuse = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => usage(format!(
            "{} exists, and nothing was written; name another file with --out FILE",
            path.display()
        )),
        _ => usage(format!("{} cannot be written: {error}", path.display())),
    };
    let mut file = File::create_new(path).map_err(refuse)?;
    file.write_all(text.as_bytes()).map_err(refuse)
}
