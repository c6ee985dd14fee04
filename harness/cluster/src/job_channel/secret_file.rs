//! A file through which rank 0 hands its offer to the other processes of a job without MPI.
//!
//! Only its owner can read it, and processes accept it only from their own user: in a temporary directory,
//! others may create a file of the same name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::offer::{MAX_OFFER_BYTES, Offer};

/// Environment variable that names the directory of secret files; all nodes of the job must see it.
pub const SECRET_DIR: &str = "KOLO_SECRET_DIR";

/// Why an offer cannot be handed over by a file.
#[derive(Debug, Error)]
#[error(
    "{}: cannot {call} the file with the job's secret: {source}; name a directory that all nodes of the job share \
     with {SECRET_DIR}",
    path.display()
)]
pub struct SecretFileError {
    /// The file.
    pub path: PathBuf,
    /// The call that failed.
    pub call: &'static str,
    /// Why it failed.
    pub source: io::Error,
}

/// The path of a job's file: below [`SECRET_DIR`] if that is set, else in the temporary directory of one node, or in
/// the working directory of several.
pub fn path(job: &str, is_one_node: bool) -> PathBuf {
    let named = std::env::var_os(SECRET_DIR).filter(|name| !name.is_empty()).map(PathBuf::from);
    let directory = named
        .unwrap_or_else(|| if is_one_node { std::env::temp_dir() } else { PathBuf::from(".") });
    directory.join(format!(".kolo-{}-{:016x}", user(), digest(job)))
}

fn user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// FNV-1a: the name identifies the job, and need not be secret.
fn digest(job: &str) -> u64 {
    job.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Rank 0's file; removed when it is dropped.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
}

impl SecretFile {
    /// Writes an offer, readable for this user only. Readers see the whole offer or no file; one that an earlier run
    /// left behind is replaced.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create(path: &Path, offer: &Offer) -> Result<SecretFile, SecretFileError> {
        let failed = |source| SecretFileError { path: path.into(), call: "create", source };
        let fresh = path.with_extension(std::process::id().to_string());
        let write = || {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&fresh)?;
            file.write_all(offer.to_text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, path)
        };
        // Left behind by a process of the same number, if it is there.
        let _ = fs::remove_file(&fresh);
        write().map_err(|error| {
            let _ = fs::remove_file(&fresh);
            failed(error)
        })?;
        Ok(SecretFile { path: path.into() })
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        // A file that remains holds a secret that no process accepts any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads rank 0's offer.
///
/// # Errors
/// When the file does not exist yet, or is not a regular file of this user without access for others.
pub fn read(path: &Path) -> Result<Offer, SecretFileError> {
    let failed = |source| SecretFileError { path: path.into(), call: "read", source };
    let mut options = OpenOptions::new();
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = options.read(true).custom_flags(flags).open(path).map_err(failed)?;
    read_own(file).map_err(failed)
}

fn read_own(file: File) -> io::Result<Offer> {
    let metadata = file.metadata()?;
    let refused = |why: &str| io::Error::new(ErrorKind::PermissionDenied, why.to_string());
    if !metadata.is_file() {
        return Err(refused("it is not a regular file"));
    }
    if metadata.uid() != user() {
        return Err(refused("it belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(refused("other users may access it"));
    }
    let mut text = String::new();
    file.take(MAX_OFFER_BYTES as u64 + 1).read_to_string(&mut text)?;
    Offer::from_text(&text)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it holds no secret"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::job_channel::secret::Secret;

    fn offer() -> Offer {
        let addresses = vec!["127.0.0.1:5000".parse().unwrap()];
        Offer { secret: Secret::generate().unwrap(), addresses }
    }

    #[test]
    fn only_the_owner_reads_it_and_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        fs::write(&path, "left behind").unwrap();
        let offer = offer();
        let file = SecretFile::create(&path, &offer).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap().to_text(), offer.to_text());
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = read(&path).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("KOLO_SECRET_DIR"), "{error}");
    }

    #[test]
    fn files_that_others_may_have_made_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("job"), folder.path().join("link"));
        let file = SecretFile::create(&path, &offer()).unwrap();
        symlink(&path, &link).unwrap();
        assert!(read(&link).is_err(), "a symbolic link");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("other users may access it"));
        drop(file);
        fs::create_dir(&path).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn jobs_have_files_of_their_own() {
        assert_eq!(path("a", true), path("a", true));
        assert_ne!(path("a", true), path("b", true));
    }
}
