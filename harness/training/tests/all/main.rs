//! Timelines, and workloads that are read from them.

mod coverage;
mod timeline;
mod workload;
