//! C++ compiled for this processor.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use gpu::cuda::work::{THREADS, Work};
use libloading::Library;

use crate::coverage::not_tested;

/// The folder of the kernels' source.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/src/cuda/kernels")
}

/// A library compiled from one file of C++; none, with a report, without a compiler.
pub fn compiled(source: &Path, library: &str) -> Option<PathBuf> {
    // One compilation at a time: two tests may need the same library.
    static COMPILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut done = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let compiler = env::var("CXX").unwrap_or("g++".into());
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(library);
    if done.contains(&library) {
        return Some(library);
    }
    let started = Command::new(&compiler)
        .args(["-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror"])
        .args(["-ffp-contract=off", "-I"])
        .arg(sources())
        .arg(source)
        .arg("-o")
        .arg(&library)
        .output();
    match started {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            done.push(library.clone());
            Some(library)
        }
        Err(why) => {
            not_tested(
                "CUDA kernels and stubs of NVIDIA's libraries",
                format!("{compiler}: {why}"),
            );
            None
        }
    }
}

/// The kernels.
pub fn kernels() -> Option<&'static Library> {
    static KERNELS: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        let file = compiled(&sources().join("kernels.cu"), "kernels.so")?;
        // SAFETY: it was just compiled, and runs no code by itself.
        Some(unsafe { Library::new(file) }.unwrap())
    };
    KERNELS.get_or_init(open).as_ref()
}

/// So few that every thread has several elements.
const MULTIPROCESSORS: usize = 1;

/// Executes a GPU's work, thread by thread; the last one first.
pub fn run(kernels: &Library, work: &Work) {
    let Some(launch) = work.launch(MULTIPROCESSORS).unwrap() else { return };
    // SAFETY: the functions are declared so; addresses are those of live vectors of the tests.
    unsafe {
        let place = kernels.get::<extern "C" fn(u32, u32, u32, u32)>(b"place").unwrap();
        let kernel = kernels.get::<extern "C" fn(*const u64)>(launch.entry.as_bytes()).unwrap();
        for block in (0..launch.blocks).rev() {
            for thread in (0..THREADS).rev() {
                place(block, launch.blocks, thread, THREADS);
                kernel(launch.arguments.as_ptr());
            }
        }
    }
}
