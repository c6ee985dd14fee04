//! Horovod's background loop, its control and data planes, and its logs.

pub mod back_end;
pub mod background;
pub mod engine;
pub mod fault;
mod framework_thread;
pub mod gradients;
mod host;
pub mod job;
pub mod negotiate;
pub mod optimizer;
pub mod outcome;
pub mod pace;
pub mod timeline;
pub mod trainer;
