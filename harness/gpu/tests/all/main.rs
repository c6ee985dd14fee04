//! GPUs without a GPU, and the background loop on threads and on emulated devices.

#[path = "../../../training/tests/all/coverage.rs"]
mod coverage;
mod cuda;
mod engine;
