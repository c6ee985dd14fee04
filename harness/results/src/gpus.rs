//! GPUs and network cards of a machine, as stored in provenance: plain data, queried elsewhere.

use serde::{Deserialize, Serialize};

/// The reason that is none to worry about.
pub const IDLE: &str = "idle";

/// A machine's GPUs. Unknown values are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Queries that failed, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// Version of NVIDIA's driver.
    pub driver: Option<String>,
    /// All GPUs of the machine, in NVML's order, which is that of the bus.
    pub gpus: Vec<Gpu>,
    /// The connection of each two of them, in nvidia-smi's terms: NV# (number of NVLinks), PIX, PXB, PHB, NODE,
    /// SYS; X for itself.
    pub topology: Vec<Vec<String>>,
    /// Network cards.
    pub nics: Vec<Nic>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its PCI bus id.
    pub bus_id: String,
    /// The highest clock of its multiprocessors, in MHz.
    pub sm_mhz_most: Option<u32>,
    /// The highest clock of its memory, in MHz.
    pub memory_mhz_most: Option<u32>,
    /// The limit of its power that is enforced.
    pub power_limit_w: Option<f64>,
    /// The driver stays loaded while it is unused.
    pub persistence: Option<bool>,
    /// Its memory corrects errors.
    pub ecc: Option<bool>,
    /// It is divided into instances.
    pub mig: Option<bool>,
    /// The compute mode.
    pub compute_mode: Option<String>,
    /// PCIe, at most.
    pub pcie_generation_most: Option<u32>,
    /// Lanes of PCIe, at most.
    pub pcie_width_most: Option<u32>,
    /// Links that are up.
    pub nvlinks: Vec<NvLink>,
    /// Processors near it, as ranges.
    pub cpus: Option<String>,
    /// From the host bridge on; empty where the kernel does not show it.
    pub pci_path: String,
    /// The NUMA node that it is at.
    pub numa_node: Option<usize>,
    /// How it was before the run.
    pub before: State,
    /// How it was right after the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<State>,
}

/// How a GPU is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Clock of its multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of its memory, in MHz.
    pub memory_mhz: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power that it draws.
    pub power_w: Option<f64>,
    /// Why clocks are lower than they could be.
    pub throttle: Option<Vec<String>>,
    /// For how long the limit of its power has held clocks down, since the driver was loaded.
    pub held_by_power_ns: Option<u64>,
    /// The same for heat.
    pub held_by_heat_ns: Option<u64>,
    /// The current PCIe link; lower while idle.
    pub pcie_generation: Option<u32>,
    /// Lanes of PCIe, as it is now.
    pub pcie_width: Option<u32>,
}

/// A link that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvLink {
    /// Its number.
    pub link: u32,
    /// In NVML's numbering.
    pub version: Option<u32>,
    /// The peer: `GPU`, `switch`, `processor` or `unknown`.
    pub peer: String,
    /// That one's PCI bus id.
    pub peer_bus_id: String,
}

/// A network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its name: mlx5_0, eth0.
    pub name: String,
    /// The class: `infiniband` (RoCE, too) or `net`.
    pub class: String,
    /// From the host bridge on: pci0000:00/0000:00:01.0/0000:01:00.0.
    pub pci_path: String,
    /// Its NUMA node, if the kernel reports it.
    pub numa_node: Option<usize>,
    /// Its connection to each GPU, in nvidia-smi's terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<String>,
}

impl Inventory {
    /// Conditions that make times unreliable: GPUs that were slower than they can be.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (at, gpu) in self.gpus.iter().enumerate() {
            let Some(after) = &gpu.after else { continue };
            let reasons: Vec<&str> = after
                .throttle
                .iter()
                .flatten()
                .map(String::as_str)
                .filter(|&reason| reason != IDLE)
                .collect();
            let of = after.sm_mhz.zip(gpu.sm_mhz_most);
            let clocks = of.map_or(String::new(), |(now, most)| format!(" ({now} of {most} MHz)"));
            if !reasons.is_empty() {
                warnings.push(format!(
                    "{} was throttled after the run{clocks}: {}",
                    gpu.label(at),
                    reasons.join(", ")
                ));
            }
            let before = &gpu.before;
            for (name, earlier, later) in [
                ("its power limit", before.held_by_power_ns, after.held_by_power_ns),
                ("heat", before.held_by_heat_ns, after.held_by_heat_ns),
            ] {
                let held_ns = earlier.zip(later).map_or(0, |(a, b)| b.saturating_sub(a));
                if held_ns > 0 {
                    warnings.push(format!(
                        "{} was throttled by {name} for {:.1} ms during the run",
                        gpu.label(at),
                        held_ns as f64 / 1e6
                    ));
                }
            }
        }
        warnings
    }

    /// The matrix of connections of GPUs and network cards, in nvidia-smi's form.
    pub fn matrix(&self) -> Vec<String> {
        if self.gpus.is_empty() {
            return Vec::new();
        }
        let name = |at: usize| format!("GPU{at}");
        let widest = self.nics.iter().map(|nic| nic.name.len()).max().unwrap_or(0).max(5);
        let line = |first: &str, cells: Vec<String>, last: &str| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>widest$}")).collect();
            format!("{first:<20} {}  {last}", cells.join(" ")).trim_end().to_string()
        };
        let heads = (0..self.gpus.len()).map(name);
        let heads = heads.chain(self.nics.iter().map(|nic| nic.name.clone())).collect();
        let mut lines = vec![line("topology", heads, "NUMA node, processors near it")];
        for (at, (gpu, row)) in self.gpus.iter().zip(&self.topology).enumerate() {
            let nics = self.nics.iter().filter_map(|nic| nic.levels.get(at).cloned());
            let numa = gpu.numa_node.map_or("-".into(), |node| node.to_string());
            let near = format!("{numa}, {}", gpu.cpus.as_deref().unwrap_or("-"));
            lines.push(line(&name(at), row.iter().cloned().chain(nics).collect(), &near));
        }
        lines
    }
}

impl Gpu {
    /// Its number on the bus, name and UUID.
    fn label(&self, at: usize) -> String {
        format!("GPU {at} of the bus ({}, {})", self.name, self.uuid)
    }

    /// Other values, in a sentence.
    pub fn about(&self) -> String {
        let mut parts = vec![format!("{} at {}", self.uuid, self.bus_id)];
        let State {
            sm_mhz, memory_mhz, temperature_c, power_w, pcie_generation, pcie_width, ..
        } = &self.before;
        let of = |now: Option<u32>, most: Option<u32>| {
            let text = |value: Option<u32>| value.map_or("?".into(), |value| value.to_string());
            (now.is_some() || most.is_some()).then(|| format!("{} of {}", text(now), text(most)))
        };
        let add = |name: &str, value: Option<String>, unit: &str| {
            value.map(|value| format!("{name} {value}{unit}"))
        };
        parts.extend(add("SM clock", of(*sm_mhz, self.sm_mhz_most), " MHz"));
        parts.extend(add("memory clock", of(*memory_mhz, self.memory_mhz_most), " MHz"));
        parts.extend(temperature_c.map(|degrees| format!("{degrees} C")));
        let power = power_w.zip(self.power_limit_w);
        parts.extend(power.map(|(now, most)| format!("{now:.0} of {most:.0} W")));
        parts.extend(add("PCIe generation", of(*pcie_generation, self.pcie_generation_most), ""));
        parts.extend(add("lanes", of(*pcie_width, self.pcie_width_most), ""));
        for (name, switch) in
            [("persistence", self.persistence), ("ECC", self.ecc), ("MIG", self.mig)]
        {
            parts.extend(switch.map(|on| format!("{name} {}", if on { "on" } else { "off" })));
        }
        parts.extend(self.compute_mode.iter().map(|mode| format!("compute mode {mode}")));
        parts.push(match self.nvlinks.len() {
            0 => "no NVLink up".into(),
            links => format!("{links} NVLinks up"),
        });
        let reasons = self.before.throttle.iter().flatten().cloned().collect::<Vec<_>>();
        if !reasons.is_empty() {
            parts.push(format!("clocks held by: {}", reasons.join(", ")));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(throttle: &[&str], held_ns: u64) -> Gpu {
        let state = |throttle: &[&str], held_ns| State {
            sm_mhz: Some(900),
            throttle: Some(throttle.iter().map(|reason| reason.to_string()).collect()),
            held_by_power_ns: Some(held_ns),
            ..State::default()
        };
        Gpu {
            name: "Made-up".into(),
            uuid: "GPU-1".into(),
            sm_mhz_most: Some(1980),
            before: state(&[IDLE], 1_000_000),
            after: Some(state(throttle, 1_000_000 + held_ns)),
            ..Gpu::default()
        }
    }

    #[test]
    fn whoever_was_throttled_is_named_and_idle_is_no_reason() {
        let warnings = |throttle: &[&str], held_ns| {
            Inventory { gpus: vec![gpu(throttle, held_ns)], ..Inventory::default() }.warnings()
        };
        assert_eq!(warnings(&[], 0), Vec::<String>::new());
        assert_eq!(warnings(&[IDLE], 0), Vec::<String>::new());
        assert_eq!(
            warnings(&[IDLE, "power limit", "heat (hardware)"], 0),
            [
                "GPU 0 of the bus (Made-up, GPU-1) was throttled after the run (900 of 1980 MHz): power limit, \
              heat (hardware)"
            ]
        );
        assert_eq!(
            warnings(&[IDLE], 2_500_000),
            [
                "GPU 0 of the bus (Made-up, GPU-1) was throttled by its power limit for 2.5 ms during the run"
            ]
        );
    }

    #[test]
    fn what_nobody_told_is_no_warning_and_survives_a_file() {
        let mut inventory = Inventory { gpus: vec![Gpu::default()], ..Inventory::default() };
        assert_eq!(inventory.warnings(), Vec::<String>::new());
        inventory.gpus.push(gpu(&["power limit"], 7));
        let text = serde_json::to_string(&inventory).unwrap();
        assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), inventory);
    }

    #[test]
    fn the_matrix_is_drawn_with_network_cards() {
        let gpus = [("pci0000:16/0000:16:01.0/0000:17:00.0", 0), ("pci0000:80/0000:80:01.0", 1)];
        let inventory = Inventory {
            gpus: gpus
                .map(|(path, numa)| Gpu {
                    pci_path: path.into(),
                    numa_node: Some(numa),
                    cpus: Some("0-3".into()),
                    ..Gpu::default()
                })
                .to_vec(),
            topology: vec![vec!["X".into(), "NV4".into()], vec!["NV4".into(), "X".into()]],
            nics: vec![Nic {
                name: "mlx5_0".into(),
                levels: vec!["PIX".into(), "SYS".into()],
                ..Nic::default()
            }],
            ..Inventory::default()
        };
        assert_eq!(
            inventory.matrix(),
            [
                "topology               GPU0   GPU1 mlx5_0  NUMA node, processors near it",
                "GPU0                      X    NV4    PIX  0, 0-3",
                "GPU1                    NV4      X    SYS  1, 0-3",
            ]
        );
        assert_eq!(Inventory::default().matrix(), Vec::<String>::new());
    }
}
