//! Tests of CUDA without a GPU: the kernels' logic, compiled for the processor; their PTX; the driver's side, on a
//! stub library; and the errors of users without it.

mod kernels;
pub mod processor;
mod ptx;
