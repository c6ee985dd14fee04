//! The engine: every control plane with every algorithm, on real threads and on emulated devices.

mod devices;
mod exact;
mod faults;
mod framework;
mod setting;
