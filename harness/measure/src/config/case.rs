//! One setting of a sweep.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use algorithms::control;
use algorithms::topology::Topology;

use super::{Axes, Config, LIBRARY, Scaling};
use crate::back_ends;
use crate::environment::cycle_time;
use results::row::STRONG;
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
    /// What stays the same on more ranks.
    pub scaling: Scaling,
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
    /// The case's name in all files: `threads/2x2/bitvector/ring/64MiB/5ms`; with strong scaling it ends with
    /// `/strong`.
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
        if let Some(count) = self.varied.num_groups {
            write!(f, "/{count}groups")?;
        }
        match self.scaling {
            Scaling::Weak => Ok(()),
            Scaling::Strong => write!(f, "/{STRONG}"),
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
    /// Every case once, in the order of the configuration: those of `[sweep]`, then those of each `[[also]]`.
    pub fn cases(&self) -> Vec<Case> {
        let mut names = HashSet::new();
        let parts = self.parts().into_iter();
        let all = parts.flat_map(|axes| self.combinations(&axes));
        all.filter(|case| names.insert(case.to_string())).collect()
    }

    /// The axes of `[sweep]` and of each `[[also]]`.
    pub(super) fn parts(&self) -> Vec<Axes> {
        let also = self.also.iter().map(|also| also.beside(&self.sweep));
        [self.sweep.clone()].into_iter().chain(also).collect()
    }

    /// Every combination. A library's own allreduce is left out on transports that have none.
    pub(super) fn combinations(&self, axes: &Axes) -> Vec<Case> {
        let mut cases = Vec::new();
        let (varied, topologies) = (axes.varied(), axes.topologies());
        for name in &axes.transport {
            let transport = back_ends::find(name).expect("the configuration was checked");
            let planes = axes.algorithm.iter().filter_map(|name| data_plane_on(transport, name));
            let planes: Vec<String> = planes.collect();
            for topology in &topologies {
                for control_plane in &axes.control_plane {
                    for algorithm in &planes {
                        for &threshold in &axes.fusion_threshold_mib {
                            for &ms in &axes.cycle_time_ms {
                                cases.extend(varied.iter().map(|&varied| {
                                    Case {
                                        transport,
                                        topology: topology.clone(),
                                        control_plane: control::spelling(control_plane)
                                            .expect("the configuration was checked"),
                                        algorithm: algorithm.clone(),
                                        fusion_threshold_bytes: (threshold * MIB).round() as usize,
                                        cycle_time: cycle_time(ms),
                                        varied,
                                        scaling: self.step.scaling,
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

/// The one spelling of a data plane; none for a library's own where the transport has no library.
fn data_plane_on(transport: BackEndRef, name: &str) -> Option<String> {
    match name {
        LIBRARY => transport.library_allreduce().map(str::to_string),
        _ => Some(data_plane::spelling(name).expect("the configuration was checked")),
    }
}
