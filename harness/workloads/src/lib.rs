//! Workloads: gradients, when they become ready, and the operations of Horovod's optimizer.

pub mod framework;
pub mod groups;
pub mod replay;
pub mod trace;
pub mod workload;
