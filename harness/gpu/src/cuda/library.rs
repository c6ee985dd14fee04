//! Searches NVIDIA's libraries where the dynamic linker does, and reports the folders.
//!
//! `cudarc` panics if the driver is missing or lacks a function; nothing of it is called before [`DRIVER`] has
//! been opened with every function that is used.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::mem::ManuallyDrop;

use libloading::Library;

/// A library that may be there.
pub struct Wanted {
    /// A description.
    pub about: &'static str,
    /// A variable that names its file, if it is looked for there first.
    pub variable: Option<&'static str>,
    /// Names under which it is looked for.
    pub names: &'static [&'static str],
    /// Functions that it must have.
    pub functions: &'static [&'static str],
    /// How to come by it.
    pub advice: &'static str,
}

/// Comes with the kernel's module.
pub const DRIVER: Wanted = Wanted {
    about: "the CUDA driver",
    // `cudarc` looks for it by name, too.
    variable: None,
    names: &["libcuda.so", "libcuda.so.1"],
    functions: super::driver::FUNCTIONS,
    advice: "install NVIDIA's driver, or run the container with its GPUs",
};

/// Compiles kernels at run time. Only reported: this project's kernels are precompiled.
pub const NVRTC: Wanted = Wanted {
    about: "NVRTC",
    variable: Some("KOLO_NVRTC_LIB"),
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    functions: &["nvrtcVersion"],
    advice: "it is part of the CUDA toolkit; not needed",
};

/// NVIDIA's collectives.
pub const NCCL: Wanted = Wanted {
    about: "NCCL",
    variable: Some("KOLO_NCCL_LIB"),
    names: &["libnccl.so.2", "libnccl.so"],
    functions: crate::nccl::library::FUNCTIONS,
    advice: "install libnccl2, or put the lib folder of the wheel nvidia-nccl-cu13 or -cu12 into LD_LIBRARY_PATH",
};

/// A library that was opened.
pub struct Found {
    /// The library. It stays loaded until the process ends, because threads of its own may still run.
    pub library: ManuallyDrop<Library>,
    /// Its file, if the system reports it.
    pub file: String,
}

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The library was not found.
    #[error("{about} was not found: looked for {names} in {folders}; {advice}")]
    Nowhere {
        /// The library.
        about: String,
        /// Under which names.
        names: String,
        /// The folders searched.
        folders: String,
        /// How to come by it.
        advice: String,
    },
    /// The file cannot be loaded.
    #[error("{about} cannot be loaded: {why}; {advice}")]
    Refused {
        /// The library.
        about: String,
        /// The dynamic linker's message.
        why: String,
        /// How to come by another.
        advice: String,
    },
    /// It lacks something that we need.
    #[error(
        "{about} {file} has no function {function}: it is too old, or a different library; {advice}"
    )]
    Incomplete {
        /// The library.
        about: String,
        /// The file found.
        file: String,
        /// What it lacks.
        function: String,
        /// How to come by another.
        advice: String,
    },
}

impl Wanted {
    /// Opens it.
    ///
    /// # Errors
    /// Searched names and folders, or the reason why a file was refused.
    pub fn open(&self) -> Result<Found, Missing> {
        let named = self.variable.and_then(env::var_os).filter(|name| !name.is_empty());
        let names: Vec<OsString> = match &named {
            Some(name) => vec![name.clone()],
            None => self.names.iter().map(OsString::from).collect(),
        };
        let mut refused = None;
        for name in &names {
            // SAFETY: NVIDIA's libraries may be loaded at any time by any thread.
            match unsafe { Library::new(name) } {
                Ok(library) => return self.checked(library),
                Err(error) => refused = refused.or_else(|| refusal(&error)),
            }
        }
        let (about, advice) = (self.about.to_string(), self.advice.to_string());
        Err(match refused {
            Some(why) => Missing::Refused { about, why, advice },
            None => Missing::Nowhere {
                about,
                names: match (named, self.variable) {
                    (Some(name), Some(variable)) => format!("{variable}={}", name.display()),
                    _ => self.names.join(" and "),
                },
                folders: folders(),
                advice,
            },
        })
    }

    fn checked(&self, library: Library) -> Result<Found, Missing> {
        let file = self.file();
        for function in self.functions {
            // SAFETY: the symbol is not called.
            if unsafe { library.get::<*const ()>(function.as_bytes()) }.is_err() {
                return Err(Missing::Incomplete {
                    about: self.about.into(),
                    file,
                    function: (*function).into(),
                    advice: self.advice.into(),
                });
            }
        }
        Ok(Found { library: ManuallyDrop::new(library), file })
    }

    /// The file that is mapped under one of the names.
    fn file(&self) -> String {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let stem = self.names[0].split(".so").next().unwrap_or(self.names[0]);
        let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let is_it = |file: &&str| {
            file.rsplit('/').next().is_some_and(|name| name.starts_with(&format!("{stem}.so")))
        };
        let named = self.variable.and_then(|variable| env::var(variable).ok());
        named.or(files.into_iter().find(is_it).map(String::from)).unwrap_or(self.names[0].into())
    }
}

/// The dynamic linker's message, unless the file does not exist.
fn refusal(error: &libloading::Error) -> Option<String> {
    let said = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
    let is_nowhere = said.contains("No such file") || said.contains("cannot find");
    (!is_nowhere).then_some(said)
}

/// The folders that the dynamic linker searches.
fn folders() -> String {
    let named = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let named: Vec<_> = named.split(':').filter(|folder| !folder.is_empty()).collect();
    let system = "the system's folders (/etc/ld.so.conf, /lib, /usr/lib)";
    if named.is_empty() {
        format!("{system}; LD_LIBRARY_PATH is not set")
    } else {
        format!("{} (LD_LIBRARY_PATH) and {system}", named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(names: &'static [&'static str], functions: &'static [&'static str]) -> Wanted {
        Wanted { about: "a thing", variable: None, names, functions, advice: "buy one" }
    }

    #[test]
    fn a_missing_library_is_named_with_the_searched_folders() {
        let Err(missing) = wanted(&["libkolo-nowhere.so.9"], &[]).open() else { panic!("found") };
        let said = missing.to_string();
        assert!(
            said.starts_with("a thing was not found: looked for libkolo-nowhere.so.9 in "),
            "{said}"
        );
        assert!(said.contains("/usr/lib") && said.ends_with("; buy one"), "{said}");
    }

    #[test]
    fn a_file_that_is_not_a_library_is_refused_with_the_linkers_message() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libkolo-broken.so");
        fs::write(&file, "no library").unwrap();
        let name: &'static str = file.to_str().unwrap().to_string().leak();
        let Err(missing) = wanted(vec![name].leak(), &[]).open() else { panic!("loaded") };
        assert!(
            matches!(&missing, Missing::Refused { why, .. } if why.contains(name)),
            "{missing}"
        );
    }

    /// The C library is there on every Linux, and is no driver.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_lacks_a_function_is_refused() {
        let there = wanted(&["libc.so.6"], &["malloc", "cuInit"]);
        let Err(missing) = there.open() else { panic!("a driver") };
        let said = missing.to_string();
        assert!(said.contains("libc.so.6 has no function cuInit: it is too old"), "{said}");
        let found = wanted(&["libc.so.6"], &["malloc"]).open().unwrap();
        assert!(found.file.starts_with('/') && found.file.contains("libc.so.6"), "{}", found.file);
    }
}
