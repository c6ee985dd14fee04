//! Files that a run reads: on disk, or embedded in the program.
//!
//! A path below `configs` refers to a file below the working folder or, if that does not exist, to the embedded
//! file of this path. All files that are read are listed in the provenance.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::names::nearest;
use crate::toml_file::advice::listed;

/// The folder of configurations, in the repository and embedded.
pub const CONFIGS: &str = "configs";

/// Embedded files, and how to advise the user.
struct Embedded {
    files: BTreeMap<String, &'static str>,
    say: fn(&str),
}

static EMBEDDED: OnceLock<Embedded> = OnceLock::new();

/// Files that this process has read, in order.
static READ: Mutex<Vec<Input>> = Mutex::new(Vec::new());

/// Sets the embedded files, by their paths in the repository. The binary calls this once when it starts; only the
/// first call has an effect. `say` prints a line for the user.
pub fn embed(files: BTreeMap<String, &'static str>, say: fn(&str)) {
    let _ = EMBEDDED.set(Embedded { files, say });
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Path on disk as it was given or found, or path of the embedded file.
    pub path: PathBuf,
    /// Its origin.
    pub origin: Origin,
    /// Fingerprint of its bytes: FNV-1a, 64 bits, hexadecimal.
    pub fnv1a: String,
}

/// The origin of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// On disk.
    Disk,
    /// In the binary.
    Embedded,
}

/// The files that this process has read so far, each once.
pub fn used() -> Vec<Input> {
    READ.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Reads the file at `path` from disk, or else the embedded file of this path.
///
/// # Errors
/// The system's error for the file on disk, if there is no embedded one.
pub fn read(path: &Path) -> io::Result<(Cow<'static, str>, Origin)> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            if record(path, Origin::Disk, fnv1a(text.as_bytes()))
                && let Some((name, embedded)) = namesake(path)
                && embedded != text
            {
                say_that_they_differ(path, &name);
            }
            Ok((text.into(), Origin::Disk))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = embedded(path).ok_or(error)?;
            record(path, Origin::Embedded, fnv1a(text.as_bytes()));
            Ok((text.into(), Origin::Embedded))
        }
        Err(error) => Err(error),
    }
}

/// Lists a file on disk that is read elsewhere, such as a timeline that is too large to hold as text.
///
/// # Errors
/// When it cannot be read.
pub fn note(path: &Path) -> io::Result<()> {
    record(path, Origin::Disk, fingerprint_of(path)?);
    Ok(())
}

/// The fingerprint of a file on disk, as in [`Input::fnv1a`].
///
/// # Errors
/// When it cannot be read.
pub fn fingerprint(path: &Path) -> io::Result<String> {
    fingerprint_of(path).map(hexadecimal)
}

fn fingerprint_of(path: &Path) -> io::Result<u64> {
    let mut file = BufReader::new(File::open(path)?);
    let mut hash = FNV_START;
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(hash);
        }
        hash = fnv1a_from(hash, bytes);
        let length = bytes.len();
        file.consume(length);
    }
}

/// Whether a file exists at `path`, on disk or embedded.
pub fn exists(path: &Path) -> bool {
    path.is_file() || embedded(path).is_some()
}

/// The location of a file, for readers: its path, and whether it is embedded.
pub fn described(path: &Path) -> String {
    if path.is_file() || embedded(path).is_none() {
        path.display().to_string()
    } else {
        format!("{}, embedded", path.display())
    }
}

/// The file `name` beside the configuration at `config`, or otherwise below [`CONFIGS`], on disk or embedded; if
/// it does not exist, the first of these.
pub fn beside(name: &str, config: &Path) -> PathBuf {
    let beside = config.parent().unwrap_or(Path::new("")).join(name);
    let usual = Path::new(CONFIGS).join(name);
    if !exists(&beside) && exists(&usual) { usual } else { beside }
}

/// Finds the TOML file that a user requests: a path; or a name, for NAME.toml in the working folder or in
/// `folder`, on disk or embedded. `what` describes it in the error.
///
/// # Errors
/// When there is no file of that name: which names there are, and the nearest.
pub fn choose(asked: &Path, folder: &str, what: &'static str) -> Result<PathBuf, MissingFile> {
    let is_path =
        asked.extension().is_some_and(|end| end == "toml") || asked.components().count() != 1;
    if is_path || asked.exists() {
        return Ok(asked.into());
    }
    let name = asked.to_string_lossy();
    let here = PathBuf::from(format!("{name}.toml"));
    let usual = Path::new(folder).join(&here);
    if here.is_file() {
        if let Some(embedded) = embedded(&usual)
            && std::fs::read_to_string(&here).is_ok_and(|text| text != embedded)
        {
            say_that_they_differ(&here, &usual.to_string_lossy());
        }
        return Ok(here);
    }
    if exists(&usual) {
        return Ok(usual);
    }
    let files = names(Path::new(folder), "toml");
    let names =
        files.iter().filter_map(|file| Some(file.strip_suffix(".toml")?.to_string())).collect();
    Err(MissingFile { what, name: name.into(), names, origin: "" })
}

/// There is no file of a name that the user gave.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no such {what}{} There are {}; name one of them, or a file{origin}",
    meant(name, names).unwrap_or(".".into()),
    listed(names)
)]
pub struct MissingFile {
    /// What the file would be, as in `configuration`.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// The names that there are.
    pub names: Vec<String>,
    /// What writes such files, as in `, such as kolo writes`; may be empty.
    pub origin: &'static str,
}

/// `; did you mean NAME?`, if one of the names is near.
pub fn meant(found: &str, names: &[String]) -> Option<String> {
    let near = nearest(found, names.iter().map(String::as_str), found.chars().count() / 3);
    near.map(|near| format!("; did you mean {near}?"))
}

/// Names of a folder's files with this ending, on disk and embedded, sorted.
pub fn names(folder: &Path, ending: &str) -> Vec<String> {
    let of_kind = |path: &Path| path.extension().is_some_and(|found| found == ending);
    let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let on_disk =
        folder.read_dir().into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut names: Vec<String> =
        on_disk.filter(|path| of_kind(path)).filter_map(|path| name(&path)).collect();
    let folder = normal(folder);
    let embedded =
        EMBEDDED.get().into_iter().flat_map(|embedded| embedded.files.keys().map(Path::new));
    let inside = embedded.filter(|path| path.parent() == Some(&folder) && of_kind(path));
    names.extend(inside.filter_map(name));
    names.sort();
    names.dedup();
    names
}

/// The text of the embedded file of this path.
pub fn embedded(path: &Path) -> Option<&'static str> {
    EMBEDDED.get()?.files.get(&*normal(path).to_string_lossy()).copied()
}

/// The embedded file of the same name as a file on disk: of the same path, or of the same name in a folder of the
/// same name.
fn namesake(path: &Path) -> Option<(String, &'static str)> {
    let path = normal(path);
    let last: Vec<_> = path.iter().rev().take(2).collect();
    let [name, folder] = last[..] else { return None };
    let last = Path::new(folder).join(name);
    let candidates = [last.clone(), Path::new(CONFIGS).join(last)];
    candidates.iter().find_map(|path| Some((path.display().to_string(), embedded(path)?)))
}

fn say_that_they_differ(path: &Path, name: &str) {
    if let Some(Embedded { say, .. }) = EMBEDDED.get() {
        say(&format!("{} is used, which differs from the embedded {name}", path.display()));
    }
}

/// The path without `.` components.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// Adds a file to the list; false if it is there.
fn record(path: &Path, origin: Origin, hash: u64) -> bool {
    let input = Input { path: path.into(), origin, fnv1a: hexadecimal(hash) };
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = !read.contains(&input);
    if is_new {
        read.push(input);
    }
    is_new
}

fn hexadecimal(hash: u64) -> String {
    format!("{hash:016x}")
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// A fingerprint of bytes, as Fowler, Noll and Vo compute it.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_from(FNV_START, bytes)
}

fn fnv1a_from(hash: u64, bytes: &[u8]) -> u64 {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(hash, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: &str = "runs = 1\n";

    fn embed_some() {
        let files = ["configs/quick.toml", "configs/machines/one.toml"];
        embed(files.map(|name| (name.to_string(), QUICK)).into(), |_| {});
    }

    #[test]
    fn the_disk_comes_before_what_is_embedded() {
        embed_some();
        let (text, origin) = read(Path::new("./configs/quick.toml")).unwrap();
        assert_eq!((&*text, origin), (QUICK, Origin::Embedded));
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("mine.toml");
        assert_eq!(beside("machines/one.toml", &config), Path::new("configs/machines/one.toml"));
        assert_eq!(beside("machines/two.toml", &config), folder.path().join("machines/two.toml"));
        std::fs::create_dir(folder.path().join("machines")).unwrap();
        let own = folder.path().join("machines/one.toml");
        std::fs::write(&own, "runs = 2\n").unwrap();
        assert_eq!(beside("machines/one.toml", &config), own);
        assert_eq!(namesake(&own), Some(("configs/machines/one.toml".into(), QUICK)));
        assert_eq!(namesake(&config), None);
        let (text, origin) = read(&own).unwrap();
        assert_eq!((&*text, origin), ("runs = 2\n", Origin::Disk));
        let fnv1a = format!("{:016x}", fnv1a(b"runs = 2\n"));
        assert_eq!(fingerprint(&own).unwrap(), fnv1a);
        assert!(used().contains(&Input { path: own.clone(), origin: Origin::Disk, fnv1a }));
        note(&own).unwrap();
        assert_eq!(used().iter().filter(|input| input.path == own).count(), 1);
    }

    #[test]
    fn a_name_is_found_or_the_nearest_is_told() {
        embed_some();
        let choose = |name: &str| choose(Path::new(name), CONFIGS, "configuration");
        assert_eq!(choose("quick"), Ok("configs/quick.toml".into()));
        assert_eq!(choose("a/b"), Ok("a/b".into()));
        assert_eq!(
            choose("qiuck").unwrap_err().to_string(),
            "no such configuration; did you mean quick? There are quick; name one of them, or a file"
        );
        assert_eq!(
            choose("nothing").unwrap_err().to_string(),
            "no such configuration. There are quick; name one of them, or a file"
        );
    }
}
