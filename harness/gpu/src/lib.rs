//! GPUs.

pub mod cuda;
pub mod nccl;
pub mod trainer;
