//! How much tests cover.

#![allow(dead_code, reason = "several crates include this file, and not all use all of it")]

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Whether `KOLO_ALL_WORLDS=1` is set, as `make test-all` does: then tests cover their whole range, otherwise a part
/// of it that reaches all code.
pub fn all_worlds() -> bool {
    std::env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1")
}

/// Prints what is not tested on this machine and why, and adds the line to the file that `KOLO_NOT_TESTED` names:
/// `make test` prints that file at its end.
pub fn not_tested(what: &str, why: impl Display) {
    let line = format!("{what}: {why}\n");
    eprint!("not tested here: {line}");
    if let Some(path) = std::env::var_os("KOLO_NOT_TESTED") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}
