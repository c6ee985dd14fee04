//! The binary on a library that poses as NVIDIA's driver.

mod driver;
mod nvml;
mod training;
