//! The build of kolo that the tests run.

use std::env;
use std::path::Path;

/// A build without any feature. Where it is set, tests of what such a build does run it in place of their own.
const DEFAULT_BUILD: &str = "KOLO_DEFAULT_BUILD";

/// The program to run.
pub fn program() -> String {
    let Ok(given) = env::var(DEFAULT_BUILD) else { return env!("CARGO_BIN_EXE_kolo").to_string() };
    assert!(Path::new(&given).is_absolute(), "{DEFAULT_BUILD}={given}: expected an absolute path");
    given
}

/// Whether that program runs ranks over MPI.
pub fn has_mpi() -> bool {
    cfg!(feature = "mpi") && env::var_os(DEFAULT_BUILD).is_none()
}
