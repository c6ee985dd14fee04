//! The shared capacities of a node that messages pass, for each local rank.

use super::machine::{Level, Machine, Passes};

/// The shared capacities that a local rank's messages pass: to other sockets, to the network, and from it.
pub(super) struct Paths {
    pub socket: usize,
    pub bus: Path,
    pub out: Path,
    pub into: Path,
}

/// The capacities on one path, and the least of them.
pub(super) struct Path {
    pub passes: Passes,
    pub least: f64,
}

impl Paths {
    /// The paths of a local rank.
    pub fn new(machine: &Machine, capacities: &[f64], local: usize) -> Paths {
        let path = |passes: Passes| {
            let least = passes.numbers().map(|number| capacities[number]);
            Path { passes, least: least.fold(f64::INFINITY, f64::min) }
        };
        let [bus, _] = machine.passes(local, local, Level::Bus);
        let [out, into] = machine.passes(local, local, Level::Network);
        let socket = local / machine.socket_size;
        Paths { socket, bus: path(bus), out: path(out), into: path(into) }
    }

    /// The path out of the sender's node (0), or into the receiver's (1).
    pub fn path(&self, level: Level, direction: usize) -> Option<&Path> {
        match (level, direction) {
            (Level::Network, 0) => Some(&self.out),
            (Level::Network, _) => Some(&self.into),
            (Level::Bus, 0) => Some(&self.bus),
            _ => None,
        }
    }
}
