//! What messages pass of what a node's ranks share, worked out once for each local rank.

use super::machine::{Level, Machine, Passes};

/// What a local rank's messages pass: on the way to other sockets, to the network, and from it.
pub(super) struct Ways {
    pub socket: usize,
    pub bus: Way,
    pub out: Way,
    pub into: Way,
}

/// Some of a node's capacities, and the least of them.
pub(super) struct Way {
    pub passes: Passes,
    pub least: f64,
}

impl Ways {
    /// Those of a local rank.
    pub fn new(machine: &Machine, capacities: &[f64], local: usize) -> Ways {
        let way = |passes: Passes| {
            let least = passes.numbers().map(|number| capacities[number]);
            Way { passes, least: least.fold(f64::INFINITY, f64::min) }
        };
        let [bus, _] = machine.passes(local, local, Level::Bus);
        let [out, into] = machine.passes(local, local, Level::Network);
        let socket = local / machine.socket_size;
        Ways { socket, bus: way(bus), out: way(out), into: way(into) }
    }

    /// What a message passes on its way out of its sender's node, or into its receiver's.
    pub fn way(&self, level: Level, direction: usize) -> Option<&Way> {
        match (level, direction) {
            (Level::Network, 0) => Some(&self.out),
            (Level::Network, _) => Some(&self.into),
            (Level::Bus, 0) => Some(&self.bus),
            _ => None,
        }
    }
}
