//! What to do about a configuration that cannot be read, in words of those who write them.

use std::path::Path;

/// Files of a folder that are named in one sentence.
const MOST_NAMED: usize = 16;

/// Which configurations there are in the folder of one that cannot be read, or in the folder that it is;
/// empty if there are none.
pub fn on_toml(path: &Path) -> String {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = if path.is_dir() { path } else { parent.unwrap_or(Path::new(".")) };
    let names = names(folder, "toml");
    if names.is_empty() || path.is_file() {
        String::new()
    } else {
        format!("; in {} there are {}", folder.display(), listed(&names))
    }
}

/// Names of a folder's files with this ending, sorted.
pub fn names(folder: &Path, ending: &str) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten();
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let of_kind = files.filter(|path| path.extension().is_some_and(|found| found == ending));
    let mut names: Vec<String> =
        of_kind.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// Names in a sentence, some of them if they are many.
pub fn listed(names: &[String]) -> String {
    match names.len().checked_sub(MOST_NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MOST_NAMED].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_instead_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        assert_eq!(on_toml(&path), "");
        for name in ["b.toml", "a.toml", "a.csv"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let expected = format!("; in {} there are a.toml, b.toml", folder.path().display());
        assert_eq!([on_toml(&path), on_toml(folder.path())], [&*expected, &*expected]);
        let many: Vec<String> = (0..20).map(|index| index.to_string()).collect();
        assert!(listed(&many).ends_with("14, 15 and 4 more"));
    }
}
