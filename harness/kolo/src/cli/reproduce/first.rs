//! The run that is to be repeated.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use results::command::{OF_A_LAUNCH, OF_RESULTS, without};
use results::provenance::{Launch, PROVENANCE, Provenance};

use super::answers;
use crate::cli::usage;

/// What a run was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `kolo sweep`: rows in a folder.
    Sweep,
    /// `kolo bench --out`: rows in a file.
    Bench,
    /// `kolo tune`: an answer in a folder.
    Tune,
}

/// A run, and how it was started.
pub struct First {
    /// Its folder or file.
    pub path: PathBuf,
    /// What it was asked for.
    pub kind: Kind,
    /// Its first launch.
    pub launch: Launch,
    /// Everything about its folder; a file has the launch alone.
    pub provenance: Option<Provenance>,
    /// The words of its command after the program's name, without those for results.
    pub words: Vec<String>,
}

/// Options that `kolo bench` calls like those of others, and that choose the layout of its tables.
const OF_A_BENCH: &str = "--format";

impl First {
    /// Reads how a folder of results, or a file of rows, was made.
    ///
    /// # Errors
    /// When that is not known, or no command made it that can be repeated.
    pub fn read(path: &Path) -> Result<First> {
        let (launch, provenance) = if path.is_file() {
            (launch_beside(path)?, None)
        } else {
            let provenance = Provenance::read(&path.join(PROVENANCE)).map_err(usage)?;
            let launch = provenance.launches.first().cloned().ok_or_else(|| {
                usage(format!("{}: no launch is recorded", path.join(PROVENANCE).display()))
            })?;
            (launch, Some(provenance))
        };
        let (kind, words) = repeated(&launch, path.is_file()).map_err(|found| {
            usage(format!(
                "{}: it was written by `kolo {found}`; expected a folder of `kolo sweep` or `kolo tune`, or a file of `kolo \
                 bench --out`",
                path.display()
            ))
        })?;
        if kind == Kind::Tune && !path.join(answers::FILE).is_file() {
            return Err(usage(format!(
                "{}: no {}, so there is no answer to compare; expected one of `kolo tune` for a workload",
                path.display(),
                answers::FILE
            )));
        }
        Ok(First { path: path.into(), kind, launch, provenance, words })
    }

    /// The file that the results at `out` cannot do without.
    pub fn result(&self, out: &Path) -> PathBuf {
        match self.kind {
            Kind::Sweep => out.join(super::ROWS),
            Kind::Tune => out.join(answers::FILE),
            Kind::Bench => out.into(),
        }
    }

    /// The name of its folder or file, without what is above it; a file's without its end.
    pub fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = if self.kind == Kind::Bench { path.file_stem() } else { path.file_name() };
        name.unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The launch that wrote a file of rows.
fn launch_beside(rows: &Path) -> Result<Launch> {
    let path = rows.with_extension(PROVENANCE);
    let refuse = |why: String| {
        usage(format!(
            "{}: {why}; expected what `kolo bench --out` writes beside its rows, or the folder of another run",
            path.display()
        ))
    };
    let text = fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))
}

/// What a launch was asked for, and the words after the program's name, without those for its results. The command, if it is
/// none that can be repeated.
fn repeated(launch: &Launch, is_file: bool) -> Result<(Kind, Vec<String>), String> {
    let command = launch.command.get(1).map(String::as_str);
    let kind = match (command, is_file) {
        (Some("sweep"), false) => Kind::Sweep,
        (Some("tune"), false) => Kind::Tune,
        (Some("bench"), true) => Kind::Bench,
        (other, _) => return Err(other.unwrap_or("...").into()),
    };
    let words = launch.command.iter().skip(1).cloned();
    let options: Vec<&str> = OF_RESULTS
        .into_iter()
        .filter(|option| kind != Kind::Bench || *option != OF_A_BENCH)
        .collect();
    Ok((kind, without(words, &options, &OF_A_LAUNCH).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: &str) -> Launch {
        let command = command.split(' ').map(str::to_string).collect();
        Launch { command, ..Launch::default() }
    }

    #[test]
    fn the_command_loses_its_folder_and_what_resumes_it() {
        for (command, is_file, expected) in [
            (
                "kolo sweep quick --out a/b --blocks 3 --go-on --until 17 --retry-failed",
                false,
                "sweep quick --blocks 3",
            ),
            ("kolo sweep --out=a quick --resume --timeline", false, "sweep quick --timeline"),
            (
                "kolo bench -b 8 --out a.csv -J b.json --out-prefix=t --format osu",
                true,
                "bench -b 8 --format osu",
            ),
            (
                "kolo tune --workload w --json --out a --format markdown --budget 1m",
                false,
                "tune --workload w --budget 1m",
            ),
        ] {
            let (_, words) = repeated(&launch(command), is_file).unwrap();
            assert_eq!(words.join(" "), expected);
        }
    }

    #[test]
    fn other_commands_are_not_repeated() {
        for (command, is_file, found) in [
            ("kolo against horovod", false, "against"),
            ("kolo validate", false, "validate"),
            ("kolo sweep quick", true, "sweep"),
            ("kolo bench", false, "bench"),
            ("kolo", false, "..."),
        ] {
            assert_eq!(repeated(&launch(command), is_file), Err(found.into()), "{command}");
        }
    }
}
