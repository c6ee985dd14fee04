//! Compares simulated predictions with measurements.

pub mod local;
pub mod staging;
