//! What simulations predict against what was measured.

pub mod local;
pub mod staging;
