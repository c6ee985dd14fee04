//! Makes Cargo build this crate again when a file is added to `configs` or removed from it.

fn main() {
    println!("cargo:rerun-if-changed=../../configs");
}
