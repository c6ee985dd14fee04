//! Timelines, and workloads that are read from them.

mod timeline;
mod workload;
