//! What can be known of CUDA without a GPU: the kernels' logic, compiled for the processor; their PTX; the
//! driver's side, on a library that poses as NVIDIA's; and what users without it are told.

mod kernels;
pub mod processor;
mod ptx;
