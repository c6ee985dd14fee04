//! Horovod's background loop, its control and data planes, and its logs.

pub mod back_end;
pub mod background;
pub mod engine;
pub mod fault;
mod framework_thread;
pub mod gradients;
mod handles;
mod host;
mod host_work;
pub mod job;
mod messages;
pub mod negotiate;
mod occupy;
pub mod optimizer;
pub mod outcome;
pub mod pace;
mod threaded_host;
pub mod timeline;
pub mod trainer;
