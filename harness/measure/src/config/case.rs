//! One setting of a sweep.

use std::fmt;
use std::time::Duration;

use algorithms::control;
use algorithms::topology::Topology;

use super::Config;
use crate::back_ends;
use crate::environment::cycle_time;
use results::units::{MIB, mib};
use training::back_end::BackEndRef;
use transports::data_plane;
use workloads::framework::{Compression, Framework};
use workloads::groups::Groups;

/// One combination of settings, which becomes one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Transport.
    pub transport: BackEndRef,
    /// Ranks on nodes.
    pub topology: Topology,
    /// Control plane.
    pub control_plane: String,
    /// Data plane, in its one spelling.
    pub algorithm: String,
    /// Fusion threshold as configured.
    pub fusion_threshold_bytes: usize,
    /// Cycle time.
    pub cycle_time: Duration,
    /// Options above the core.
    pub varied: Varied,
}

/// Options of the framework that a sweep varies; none where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Varied {
    /// Type to which gradients are cast.
    pub compression: Option<Compression>,
    /// Into how many groups they are put; 0: none.
    pub num_groups: Option<usize>,
}

impl Varied {
    /// The options that all cases have, with these in place.
    pub fn apply(self, framework: &Framework) -> Framework {
        let groups = |count| (count > 0).then_some(Groups::Even(count));
        Framework {
            compression: self.compression.unwrap_or(framework.compression),
            groups: self.num_groups.map_or(framework.groups.clone(), groups),
            ..framework.clone()
        }
    }
}

impl fmt::Display for Case {
    /// The case's name in all files: `threads/2x2/bitvector/ring/64MiB/5ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}/{}/{}MiB/{}ms",
            self.transport,
            self.topology,
            self.control_plane,
            self.algorithm,
            mib(self.fusion_threshold_bytes),
            self.cycle_time_ms(),
        )?;
        if let Some(compression) = self.varied.compression {
            write!(f, "/{}", compression.name())?;
        }
        match self.varied.num_groups {
            Some(count) => write!(f, "/{count}groups"),
            None => Ok(()),
        }
    }
}

impl Case {
    /// Cycle time in ms.
    pub fn cycle_time_ms(&self) -> f64 {
        self.cycle_time.as_nanos() as f64 / 1e6
    }
}

impl Config {
    /// Every case, in the order of the configuration.
    pub fn cases(&self) -> Vec<Case> {
        let axes = &self.sweep;
        let mut cases = Vec::new();
        let varied = axes.varied();
        for transport in &axes.transport {
            for topology in &axes.topology {
                for control_plane in &axes.control_plane {
                    for algorithm in &axes.algorithm {
                        for &threshold in &axes.fusion_threshold_mib {
                            for &ms in &axes.cycle_time_ms {
                                cases.extend(varied.iter().map(|&varied| {
                                    Case {
                                        transport: back_ends::find(transport)
                                            .expect("the configuration was checked"),
                                        topology: topology
                                            .parse()
                                            .expect("the configuration was checked"),
                                        control_plane: control::spelling(control_plane)
                                            .expect("the configuration was checked"),
                                        algorithm: data_plane::spelling(algorithm)
                                            .expect("the configuration was checked"),
                                        fusion_threshold_bytes: (threshold * MIB).round() as usize,
                                        cycle_time: cycle_time(ms),
                                        varied,
                                    }
                                }));
                            }
                        }
                    }
                }
            }
        }
        cases
    }
}
