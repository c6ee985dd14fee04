//! Where the table of an algorithm goes: to the terminal, or with `--out-prefix` into a file; and its JSON.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::arguments::Arguments;
use crate::cli::usage;

/// The outputs of one algorithm.
pub struct Sheet {
    pub to: Box<dyn Write>,
    /// For nccl-tests' JSON.
    pub json: Option<File>,
}

impl Sheet {
    /// Creates the files that the options ask for; an existing file is never overwritten.
    pub fn create(arguments: &Arguments, name: &str) -> Result<Sheet> {
        let to: Box<dyn Write> = match &arguments.out_prefix {
            // The rows are printed at the end.
            None if arguments.is_one_table() => Box::new(io::sink()),
            None => Box::new(io::stdout()),
            Some(prefix) => {
                let path = table_path(prefix, name);
                let file = new(&path).map_err(|error| {
                    let path = path.display();
                    usage(format!("{path}: {error}; results are never overwritten: choose another --out-prefix"))
                })?;
                println!("table {}", path.display());
                Box::new(file)
            }
        };
        let json = arguments.json.as_deref().map(new_json).transpose()?;
        Ok(Sheet { to, json })
    }
}

fn new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// `PREFIX-ALGORITHM.txt`; names such as `hierarchical:tree` without colons.
fn table_path(prefix: &Path, name: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(format!("-{}.txt", name.replace([':', '/'], "-")));
    path.into()
}

/// The file, or the first of FILE.0, FILE.1, ... that is not there, as nccl-tests does.
fn new_json(path: &Path) -> Result<File> {
    let mut next = path.to_path_buf();
    for count in 0.. {
        match new(&next) {
            Ok(file) => {
                println!("# Writing JSON output to {}", next.display());
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let mut name = path.as_os_str().to_owned();
                name.push(format!(".{count}"));
                next = name.into();
            }
            Err(error) => return Err(usage(format!("-J {}: {error}", next.display()))),
        }
    }
    unreachable!("there are fewer files than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_has_a_file_and_json_that_exists_is_kept() {
        let name = |name| table_path(Path::new("out/t"), name).display().to_string();
        assert_eq!(name("hierarchical:tree"), "out/t-hierarchical-tree.txt");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for (text, expected) in [("1", "a.json"), ("2", "a.json.0"), ("3", "a.json.1")] {
            new_json(&path).unwrap().write_all(text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(folder.path().join(expected)).unwrap(), text);
        }
        let why = new_json(&folder.path().join("none/a.json")).unwrap_err().to_string();
        assert!(why.contains("-J ") && why.contains("No such file"), "{why}");
    }
}
