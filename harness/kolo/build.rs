//! Notes which commit and which compiler made this binary.

use std::path::Path;
use std::process::Command;

fn main() {
    // Whatever a commit or a change of a file touches; a source archive has no repository.
    for path in [
        "../../.git/HEAD",
        "../../.git/refs/heads",
        "..",
        "../../algorithms",
        "../../configs",
        "../../plots",
    ] {
        if Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = match output("git", &["rev-parse", "HEAD"]) {
        Some(commit) => match output("git", &["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) if !changes.is_empty() => format!("{commit}-dirty"),
            _ => commit,
        },
        None => "unknown".to_string(),
    };
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let rustc = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=KOLO_COMMIT={commit}");
    println!("cargo:rustc-env=KOLO_RUSTC={rustc}");
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=KOLO_PROFILE={profile}");
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
