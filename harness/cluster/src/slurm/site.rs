//! Site files: the description of a cluster. `configs/sites/generic.toml` explains every key.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::nodes::{INTERFACE, LINK_GBIT_S};
use results::inputs::{self, exists};
use results::toml_file::{ConfigError, ConfigProblem, Invalid, TomlFile, at_least_1};

/// The default site; it has no special requirements.
pub const GENERIC: &str = "generic";

/// Names the site, unless `--site` does.
pub const VARIABLE: &str = "KOLO_SITE";

/// The folder of the site files that have names.
pub const FOLDER: &str = "configs/sites";

/// A name that is no site's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no such site{} are: {}. Name one of them, or the path of a site file",
    inputs::meant(name, names).map_or("; there".into(), |meant| meant + " There"),
    names.join(", ")
)]
struct MissingSite {
    name: String,
    /// Those that there are.
    names: Vec<String>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "configs/sites/generic.toml explains every key")]
pub struct Site {
    pub about: String,
    pub launcher: Launcher,
    pub mpi: Library,
    pub mpi_plugin: Plugin,
    pub partition: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    pub purge_modules: bool,
    pub modules: Vec<String>,
    pub cpus_per_node: Option<usize>,
    pub gpus_per_node: usize,
    pub nics_per_node: Option<usize>,
    pub ranks_per_node: usize,
    pub cpus_per_rank: usize,
    pub overcommit: bool,
    pub cpu_bind: CpuBind,
    pub interface: Option<String>,
    pub link_gbit_s: Option<f64>,
    pub sbatch: Vec<String>,
    pub job_per_node_count: bool,
    pub environment: BTreeMap<String, String>,
    /// Its name, and the file that it was read from.
    #[serde(skip)]
    pub origin: Origin,
}

/// The origin of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Name: the file's, without its ending.
    pub name: String,
    /// As requested: a name or a path.
    pub asked: String,
    /// The file; none for the built-in `generic`.
    pub path: Option<PathBuf>,
}

/// The launcher of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// Slurm itself.
    #[default]
    Srun,
    /// The MPI library's own.
    Mpirun,
}

/// An MPI library, or one of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// Open MPI.
    #[default]
    Openmpi,
    /// MPICH and its derivatives: Cray MPICH, Intel MPI, MVAPICH.
    Mpich,
}

/// The plug-in through which ranks find each other: `srun --mpi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "names of Slurm's plug-ins")]
pub enum Plugin {
    #[default]
    Pmix,
    Pmi2,
    CrayShasta,
}

impl Plugin {
    /// As `srun --mpi` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Plugin::Pmix => "pmix",
            Plugin::Pmi2 => "pmi2",
            Plugin::CrayShasta => "cray_shasta",
        }
    }
}

/// The binding of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuBind {
    /// Cores of its own.
    #[default]
    Cores,
    /// No binding.
    None,
}

impl CpuBind {
    /// As launchers take it.
    pub fn name(self) -> &'static str {
        match self {
            CpuBind::Cores => "cores",
            CpuBind::None => "none",
        }
    }
}

impl Default for Site {
    fn default() -> Site {
        Site {
            about: String::new(),
            launcher: Launcher::default(),
            mpi: Library::default(),
            mpi_plugin: Plugin::default(),
            partition: None,
            account: None,
            qos: None,
            purge_modules: false,
            modules: Vec::new(),
            cpus_per_node: None,
            gpus_per_node: 0,
            nics_per_node: None,
            ranks_per_node: 1,
            cpus_per_rank: 1,
            overcommit: false,
            cpu_bind: CpuBind::default(),
            interface: None,
            link_gbit_s: None,
            sbatch: Vec::new(),
            job_per_node_count: false,
            environment: BTreeMap::new(),
            origin: Origin { name: GENERIC.into(), asked: GENERIC.into(), path: None },
        }
    }
}

impl Site {
    /// The effective site: the one named here, in KOLO_SITE, or `generic`.
    ///
    /// # Errors
    /// When there is no such site, or its file is not valid.
    pub fn choose(named: Option<&str>) -> Result<Site, ConfigError> {
        let variable = env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        Site::named(named.or(variable.as_deref()).unwrap_or(GENERIC))
    }

    /// A site by the name of a file in `configs/sites`, on disk or embedded, or by a path.
    ///
    /// # Errors
    /// When there is no such site, or its file is not valid.
    pub fn named(name: &str) -> Result<Site, ConfigError> {
        let is_path = name.contains('/') || name.ends_with(".toml");
        let path =
            PathBuf::from(if is_path { name.into() } else { format!("{FOLDER}/{name}.toml") });
        if is_path || exists(&path) {
            let mut site = Site::read(&path)?;
            site.origin.asked = name.into();
            return Ok(site);
        }
        if name == GENERIC {
            return Ok(Site::default());
        }
        let missing = MissingSite { name: name.into(), names: Site::names() };
        Err(ConfigError { path, problem: ConfigProblem::unusable(missing) })
    }

    /// Names of the site files in `configs/sites`, on disk and embedded.
    pub fn names() -> Vec<String> {
        let files = inputs::names(Path::new(FOLDER), "toml");
        let mut names: Vec<String> = files
            .iter()
            .filter_map(|file| Some(file.strip_suffix(".toml")?.to_string()))
            .chain([GENERIC.to_string()])
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Reads and checks a site file.
    ///
    /// # Errors
    /// When it cannot be read or is not valid.
    pub fn read(path: &Path) -> Result<Site, ConfigError> {
        let mut site: Site = TomlFile::read(path)?.parse()?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let asked = path.display().to_string();
        site.origin = Origin { name, asked, path: Some(path.into()) };
        site.check().map_err(ConfigError::at(path))?;
        Ok(site)
    }

    fn check(&self) -> Result<(), Invalid> {
        for (key, value) in [
            ("ranks_per_node", Some(self.ranks_per_node)),
            ("cpus_per_rank", Some(self.cpus_per_rank)),
            ("cpus_per_node", self.cpus_per_node),
            ("nics_per_node", self.nics_per_node),
        ] {
            at_least_1(key, value.unwrap_or(1))?;
        }
        for (key, value) in [
            ("partition", &self.partition),
            ("account", &self.account),
            ("qos", &self.qos),
            ("interface", &self.interface),
        ] {
            if value.as_ref().is_some_and(|value| value.trim().is_empty()) {
                return Err(Invalid::value(key, "empty", "a name").with_advice("or leave it out"));
            }
        }
        if let Some(rate) = self.link_gbit_s.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(Invalid::value("link_gbit_s", rate, "a number above 0"));
        }
        if let Some(module) = self.modules.iter().find(|name| !is_module(name)) {
            let expected = "a name as `module load` takes it, such as \"openmpi/4.1.4\"";
            return Err(Invalid::value("an element of modules", quoted(module), expected));
        }
        if let Some(option) = self.sbatch.iter().find(|option| !option.starts_with("--")) {
            let expected = "a long option, such as \"--constraint=gpu\"";
            return Err(Invalid::value("an element of sbatch", quoted(option), expected));
        }
        match self.environment.keys().find(|name| !is_variable(name)) {
            Some(name) => {
                let expected = "a name of letters, digits and underscores";
                Err(Invalid::value("a variable of environment", quoted(name), expected))
            }
            None => Ok(()),
        }
    }

    /// The same with a GPU for each rank of a node, unless the file has the number of GPUs.
    #[must_use]
    pub fn with_gpus(self, ranks_per_node: usize) -> Site {
        let gpus_per_node = match self.gpus_per_node {
            0 => ranks_per_node,
            count => count,
        };
        Site { gpus_per_node, ..self }
    }

    /// Variables for the job: the file's, and those that follow from its interface.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        if let Some(interface) = &self.interface {
            let of_library = match self.mpi {
                Library::Openmpi => "OMPI_MCA_btl_tcp_if_include",
                Library::Mpich => "FI_TCP_IFACE",
            };
            for name in [of_library, "NCCL_SOCKET_IFNAME", INTERFACE] {
                variables.insert(name.into(), interface.clone());
            }
        }
        let expected = self.link_gbit_s.map(|gbit_s| (LINK_GBIT_S.into(), gbit_s.to_string()));
        variables.extend(expected);
        variables.extend(self.environment.clone());
        variables
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn is_module(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._/+-".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(allowed)
}

fn is_variable(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(allowed) && !name.is_empty() && !name.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Site, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.toml");
        std::fs::write(&path, text).unwrap();
        let strip = format!("{}/", folder.path().display());
        Site::read(&path).map_err(|error| error.to_string().replace(&strip, ""))
    }

    #[test]
    fn mistakes_are_named_with_file_line_and_choices() {
        for (text, expected) in [
            (
                "launcher = \"srun\"\npartitoin = \"gpu\"",
                "test.toml: line 2: unknown field `partitoin`, expected one of `about`, `launcher`",
            ),
            (
                "\nmpi_plugin = \"pmi3\"",
                "test.toml: line 2: unknown variant `pmi3`, expected one of `pmix`, `pmi2`, \
                 `cray_shasta`",
            ),
            (
                "gpus_per_node = \"four\"",
                "test.toml: line 1: invalid type: string \"four\", expected a whole number from 0",
            ),
            (
                "modules = \"gcc\"",
                "test.toml: line 1: invalid type: string \"gcc\", expected a list",
            ),
            ("launcher = \"aprun\"", "test.toml: line 1: unknown variant `aprun`, expected `srun`"),
            ("cpus_per_node = 0", "test.toml: cpus_per_node is 0, expected at least 1"),
            ("account = \"\"", "test.toml: account is empty, expected a name; or leave it out"),
            ("link_gbit_s = -1", "test.toml: link_gbit_s is -1, expected a number above 0"),
            ("link_gbit_s = nan", "test.toml: link_gbit_s is NaN, expected a number above 0"),
            ("modules = [\"a; rm\"]", "test.toml: an element of modules is \"a; rm\", expected"),
            (
                "sbatch = [\"-C gpu\"]",
                "test.toml: an element of sbatch is \"-C gpu\", expected a long option",
            ),
            (
                "[environment]\n\"A B\" = \"1\"",
                "test.toml: a variable of environment is \"A B\", expected a name",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        }
    }

    #[test]
    fn the_interface_is_set_for_the_libraries_unless_the_file_sets_it() {
        let site =
            read("interface = \"ib0\"\n[environment]\nNCCL_SOCKET_IFNAME = \"eth0\"").unwrap();
        let variables: Vec<_> = site.variables().into_iter().collect();
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            variables,
            [
                pair("KOLO_INTERFACE", "ib0"),
                pair("NCCL_SOCKET_IFNAME", "eth0"),
                pair("OMPI_MCA_btl_tcp_if_include", "ib0"),
            ]
        );
    }

    #[test]
    fn a_site_that_does_not_exist_is_refused_with_those_that_do() {
        let error = Site::named("nowhere").unwrap_err().to_string();
        assert!(error.starts_with("configs/sites/nowhere.toml: no such site; there are: "));
        assert!(error.contains("generic"), "{error}");
    }
}
