//! Measuring.

pub mod back_ends;
pub mod bound;
pub mod calibrate;
pub mod config;
pub mod control_sweep;
pub mod environment;
pub mod executor;
pub mod machine_calibration;
pub mod plan;
pub mod precedence;
pub mod summary;
pub mod sweep;
pub mod tabulate;
pub mod validate;
