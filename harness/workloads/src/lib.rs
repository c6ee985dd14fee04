//! What is reduced: gradients, when they become ready, and what Horovod's optimizer does to them.

pub mod framework;
pub mod groups;
pub mod replay;
pub mod trace;
pub mod workload;
