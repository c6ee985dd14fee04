//! Measuring.

pub mod back_ends;
pub mod bandwidth;
pub mod block;
pub mod bound;
pub mod calibrate;
pub mod case_result;
pub mod config;
pub mod control_sweep;
pub mod drift;
pub mod environment;
pub mod executor;
pub mod fastest;
pub mod few_blocks;
pub mod laboratory;
pub mod machine_calibration;
pub mod plan;
pub mod precedence;
pub mod round_effect;
pub mod spread;
pub mod steadiness;
pub mod summary;
pub mod sweep;
pub mod validate;
pub mod warmup;
