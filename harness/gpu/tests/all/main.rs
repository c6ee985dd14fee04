//! GPUs without a GPU, and the background loop on threads and on emulated devices.

mod cuda;
mod engine;
