//! Files of the repository that are embedded in the program: configurations, machines, published points, sites,
//! workloads, and the batch script. Only the binary depends on this crate, so that a changed configuration does not
//! rebuild the others.

use std::collections::BTreeMap;

use include_dir::{Dir, DirEntry, include_dir};

static CONFIGS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../configs");

/// Endings of the files that a program reads.
const ENDINGS: [&str; 2] = ["toml", "csv"];

/// The batch script and what it reads, by their paths in the repository.
pub const SCRIPTS: [(&str, &str); 2] = [
    ("slurm/sweep.sh", include_str!("../../../slurm/sweep.sh")),
    ("slurm/site.sh", include_str!("../../../slurm/site.sh")),
];

/// Texts of all embedded files below `configs`, by their paths in the repository.
pub fn configs() -> BTreeMap<String, &'static str> {
    let mut files = BTreeMap::new();
    add(&CONFIGS, &mut files);
    files
}

fn add(folder: &'static Dir<'static>, files: &mut BTreeMap<String, &'static str>) {
    for entry in folder.entries() {
        match entry {
            DirEntry::Dir(folder) => add(folder, files),
            DirEntry::File(file) => {
                let path = file.path();
                if path.extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known)) {
                    let text = file.contents_utf8().expect("configurations are text");
                    files.insert(format!("configs/{}", path.display()), text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_file_is_embedded() {
        let files = configs();
        for name in [
            "configs/quick.toml",
            "configs/published.toml",
            "configs/machines/summit.toml",
            "configs/sites/generic.toml",
            "configs/workloads/resnet50.csv",
            "configs/workloads/resnet50.ready.csv",
        ] {
            let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(files[name], std::fs::read_to_string(path).unwrap(), "{name}");
        }
        assert!(files.keys().all(|name| !name.ends_with(".md")));
    }
}
