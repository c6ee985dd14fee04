//! Advice on a configuration that cannot be read.

use std::path::Path;

use crate::inputs::{CONFIGS, meant, names};

/// Files of a folder that are named in one sentence.
const MOST_NAMED: usize = 16;

/// The nearest configuration to one that cannot be read, and the list of configurations: in its folder, or in the
/// folder that it is, or otherwise below `configs`; empty if there are none.
pub fn on_toml(path: &Path) -> String {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let here = if path.is_dir() { path } else { parent.unwrap_or(Path::new(".")) };
    let mut there =
        [here, Path::new(CONFIGS)].into_iter().map(|folder| (folder, names(folder, "toml")));
    let Some((folder, names)) = there.find(|(_, names)| !names.is_empty() && !path.is_file())
    else {
        return String::new();
    };
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let there = format!("{} there are {}", folder.display(), listed(&names));
    match meant(&file, &names) {
        Some(meant) => format!("{meant} In {there}"),
        None => format!("; in {there}"),
    }
}

/// Names in a sentence, truncated if there are many.
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
    fn existing_files_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing.toml");
        for name in ["b.toml", "a.toml", "a.csv"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let expected = format!("; in {} there are a.toml, b.toml", folder.path().display());
        assert_eq!([on_toml(&path), on_toml(folder.path())], [&*expected, &*expected]);
        let near = format!(
            "; did you mean a.toml? In {} there are a.toml, b.toml",
            folder.path().display()
        );
        assert_eq!(on_toml(&folder.path().join("aa.toml")), near);
        let many: Vec<String> = (0..20).map(|index| index.to_string()).collect();
        assert!(listed(&many).ends_with("14, 15 and 4 more"));
    }
}
