//! kolo: a research and benchmark harness for collective algorithms and control planes.

// Doc comments of the command line are its help texts, in which brackets name tables of TOML.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod cli;

use std::process::ExitCode;

use results::provenance::Build;

fn main() -> ExitCode {
    // A reader that has seen enough, such as head, ends the program and is no error.
    sigpipe::reset();
    let build = Build {
        commit: env!("KOLO_COMMIT"),
        version: concat!("kolo ", env!("CARGO_PKG_VERSION")),
        rustc: env!("KOLO_RUSTC"),
        profile: env!("KOLO_PROFILE"),
    };
    build.set();
    cli::main()
}
