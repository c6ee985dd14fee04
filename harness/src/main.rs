//! kolo: a research and benchmark harness for collective algorithms and control planes.

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::cli::main()
}
