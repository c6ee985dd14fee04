//! GPUs and network cards of a machine, and how the GPUs were doing before a run and after it.

use std::path::Path;

use results::gpus::{Gpu, Inventory};

use super::CudaError;
use super::nics::{SYS, gpu_place, level, nics};
use super::nvml::Nvml;

/// The inventory of this machine before a run.
pub fn before() -> Inventory {
    let mut inventory = ask()
        .unwrap_or_else(|why| Inventory { unknown: vec![why.to_string()], ..Inventory::default() });
    place(&mut inventory, Path::new(SYS));
    inventory
}

fn ask() -> Result<Inventory, CudaError> {
    let nvml = Nvml::open()?;
    let mut inventory = Inventory { driver: nvml.driver(), ..Inventory::default() };
    for gpu in nvml.gpus()? {
        match gpu {
            Ok(gpu) => inventory.gpus.push(gpu),
            Err(why) => inventory.unknown.push(why.to_string()),
        }
    }
    inventory.topology = nvml.topology(&inventory.gpus)?;
    Ok(inventory)
}

/// Adds the location of GPUs and network cards from sysfs.
fn place(inventory: &mut Inventory, sys: &Path) {
    for gpu in &mut inventory.gpus {
        if let Some((pci_path, numa_node)) = gpu_place(sys, &gpu.bus_id) {
            (gpu.pci_path, gpu.numa_node) = (pci_path, numa_node);
        }
    }
    inventory.nics = nics(sys);
    for nic in &mut inventory.nics {
        let between = |gpu: &Gpu| {
            level((&gpu.pci_path, gpu.numa_node), (&nic.pci_path, nic.numa_node)).to_string()
        };
        nic.levels = inventory.gpus.iter().map(between).collect();
    }
}

/// Queries the GPUs again after a run.
pub fn after(inventory: &mut Inventory) {
    if inventory.gpus.is_empty() {
        return;
    }
    match Nvml::open().and_then(|nvml| nvml.states()) {
        Err(why) => inventory.unknown.push(format!("after the run: {why}")),
        Ok(states) => {
            for gpu in &mut inventory.gpus {
                let same = states.iter().find(|(uuid, _)| *uuid == gpu.uuid);
                gpu.after = same.map(|(_, state)| state.clone());
            }
        }
    }
}
