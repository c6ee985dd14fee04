//! The progress of a sweep, from the contents of its folder.

use std::fs;
use std::path::Path;

use serde_json::Value;

use results::provenance::PROVENANCE;

/// The contents of a folder of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Lines of rows and samples.
    pub lines: usize,
    /// Runs of the program that have worked on it.
    pub launches: usize,
    /// The last of them ended by itself.
    pub ended: bool,
}

impl Progress {
    /// A run of the program that was not there `before` has ended by itself.
    pub fn noted_end_since(&self, before: Progress) -> bool {
        self.launches > before.launches && self.ended
    }

    /// Reads a folder; one that does not exist is empty.
    pub fn of(folder: &Path) -> Progress {
        let lines = |name: &str| {
            let bytes = fs::read(folder.join(name)).unwrap_or_default();
            bytes.iter().filter(|&&byte| byte == b'\n').count()
        };
        let text = fs::read_to_string(folder.join(PROVENANCE)).unwrap_or_default();
        let provenance: Value = serde_json::from_str(&text).unwrap_or_default();
        let launches = provenance["launches"].as_array();
        let last = launches.and_then(|launches| launches.last());
        Progress {
            lines: lines("rows.csv") + lines("samples.csv"),
            launches: launches.map_or(0, Vec::len),
            ended: last.is_some_and(|launch| launch["ended"].is_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_tells_how_far_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(Progress::of(&folder.path().join("none")), Progress::default());
        write("rows.csv", "heading\n1\n2\ncut");
        write("samples.csv", "heading\n");
        write(PROVENANCE, "{\"launches\": [{\"ended\": \"now\"}, {\"ended\": null}]}");
        let expected = Progress { lines: 4, launches: 2, ended: false };
        assert_eq!(Progress::of(folder.path()), expected);
        write(PROVENANCE, "{\"launches\": [{\"ended\": \"now\"}]}");
        let expected = Progress { lines: 4, launches: 1, ended: true };
        assert_eq!(Progress::of(folder.path()), expected);
        write(PROVENANCE, "{\"laun");
        assert_eq!(Progress::of(folder.path()).launches, 0);
    }
}
