//! `kolo info`.

use algorithms::registry::ALL;
use algorithms::{control, registry};
use anyhow::Result;

use super::Exit;
use crate::provenance::{Launch, memory_bytes};
use crate::transport;

/// Show what this build and this machine offer, and why something is not available.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: &Arguments) -> Result<Exit> {
    let launch = Launch::now();
    let machine = &launch.machine;
    println!("{} ({}), commit {}", launch.version, launch.build, launch.commit);
    println!(
        "host {}: {}, {} cores, {} of memory; kernel {}, clock source {}, frequency governor {}",
        machine.host,
        machine.cpu,
        machine.cores,
        memory_bytes("MemTotal").map_or("unknown".into(), |b| format!("{} GB", b / 1_000_000_000)),
        machine.kernel,
        machine.clock_source,
        machine.frequency_governor.as_deref().unwrap_or("not told by the kernel"),
    );
    println!(
        "\nalgorithms (INNER is {} unless named, as in hierarchical:tree)",
        registry::DEFAULT_INNER
    );
    for entry in ALL {
        let limit = registry::find(entry.name)?.limit();
        let limit = limit.map_or(String::new(), |limit| format!("; up to {} ranks", limit.ranks));
        println!("  {:<24} {}{limit}", entry.name, entry.about);
    }
    println!("\ncontrol planes");
    for name in control::NAMES {
        println!("  {name}");
    }
    println!("\ntransports");
    for name in transport::NAMES {
        println!("  {name:<20} available: ranks are threads of one process");
    }
    println!("\nMPI, CUDA and NCCL are not part of this version.");
    Ok(Exit::Right)
}
