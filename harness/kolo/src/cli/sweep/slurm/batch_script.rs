//! The batch script: that of the working folder, or a copy of the embedded one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use cluster::slurm::SCRIPT;
use cluster::slurm::site::Site;
use results::inputs;

/// The folder for copies of the embedded script. They are kept, because Slurm may restart a job.
const COPIES: &str = "results/slurm-scripts";

/// A batch script on disk, or to be written.
pub struct BatchScript {
    path: PathBuf,
    /// The folder that replaces the repository, if there is none.
    copy: Option<PathBuf>,
}

impl BatchScript {
    /// The script of the working folder, or else a copy in a folder of this name.
    pub fn find(name: &str) -> BatchScript {
        if Path::new(SCRIPT).exists() {
            return BatchScript { path: SCRIPT.into(), copy: None };
        }
        let folder = Path::new(COPIES).join(name);
        BatchScript { path: folder.join(SCRIPT), copy: Some(folder) }
    }

    /// Its path, relative to the working folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a copy, if needed: the script, the files that it reads, the site's file, and a link to this program.
    ///
    /// # Errors
    /// The file that cannot be written, and the reason.
    pub fn write(&self, site: &Site) -> Result<()> {
        let Some(folder) = &self.copy else { return Ok(()) };
        let write = |name: &Path, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            let refuse = || format!("{} cannot be written", path.display());
            fs::create_dir_all(path.parent().unwrap_or(folder)).with_context(refuse)?;
            fs::write(&path, text).with_context(refuse)?;
            Ok(path)
        };
        for (name, text) in shipped::SCRIPTS {
            let path = write(Path::new(name), text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        // A site that is embedded; the script finds others by itself.
        let embedded = site.origin.path.as_deref().filter(|path| !path.exists());
        if let Some((path, text)) = embedded.and_then(|path| Some((path, inputs::embedded(path)?)))
        {
            write(path, text)?;
        }
        let link = folder.join("kolo");
        symlink(std::env::current_exe()?, &link)
            .with_context(|| format!("{} cannot be written", link.display()))
    }
}
