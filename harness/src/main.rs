//! kolo: a research and benchmark harness for collective algorithms and control planes.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A reader that has seen enough, such as head, ends the program and is no error.
    sigpipe::reset();
    harness::cli::main()
}
