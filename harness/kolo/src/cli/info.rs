//! `kolo info`.

use algorithms::registry::ALL;
use algorithms::{control, registry};
use anyhow::Result;
use measure::back_ends;

use super::{Exit, usage};
use gpu::cuda::devices::{self, Found, Gpu};
use gpu::cuda::inventory;
use gpu::cuda::{self, library};
use gpu::nccl::library::{Nccl, in_words};
use measure::environment::variables::Usage;
use measure::environment::{Environment, EnvironmentRow};
use results::provenance::{Launch, memory_bytes};

/// Show what this build and this machine offer, and the values of Horovod's variables
///
/// Where something is not available, the reason is shown.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo info
  HOROVOD_CYCLE_TIME=5 kolo info")]
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
        machine.frequency_governor.as_deref().unwrap_or("not reported by the kernel"),
    );
    println!(
        "\nalgorithms (INNER is {} unless named, as in hierarchical:tree)",
        algorithms::algorithm::DEFAULT_INNER
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
    for back_end in back_ends::all() {
        let (word, what) = match back_end.availability() {
            Ok(what) => ("available", what),
            Err(why) => ("not available", why.source.to_string()),
        };
        println!("  {:<20} {word}: {what}", back_end.name());
    }
    println!("\nGPUs, for transport cuda, and with NCCL for transport nccl");
    gpus().iter().for_each(|line| println!("  {line}"));
    let environment = Environment::read(&launch.environment).map_err(usage)?;
    println!("\nvariables of Horovod 0.28 that `kolo sweep` reads; options take precedence");
    let heading = ["variable", "value", "unit", "meaning", "source"];
    print_columns(heading.map(str::to_string));
    environment.rows.into_iter().map(columns).for_each(print_columns);
    environment.notices.iter().for_each(|sentence| println!("{sentence}"));
    Ok(Exit::Right)
}

/// The CUDA libraries and GPUs found, or the names searched.
fn gpus() -> Vec<String> {
    let mut lines = Vec::new();
    match devices::find() {
        Ok(Found { library, version, devices }) => {
            let version = cuda::version(version);
            lines.push(format!("{:<20} {library}, for CUDA {version}", "driver"));
            for (at, gpu) in devices.iter().enumerate() {
                let Gpu { name, capability: (major, minor), memory_bytes, .. } = gpu;
                let Gpu { multiprocessors, uuid, .. } = gpu;
                let (label, gb) = (format!("GPU {at}"), memory_bytes / 1_000_000_000);
                lines.push(format!(
                    "{label:<20} {name}, {gb} GB, {multiprocessors} multiprocessors, compute capability \
                     {major}.{minor}, {uuid}"
                ));
                lines.extend(gpu.check(at).err().map(|why| format!("{label:<20} {why}")));
            }
            lines.extend(peers(devices.len()));
        }
        Err(why) => lines.push(format!("{:<20} not available: {why}", "driver")),
    }
    lines.push(match library::NVRTC.open() {
        Ok(found) => format!("{:<20} {}", "NVRTC", found.file),
        Err(why) => format!("{:<20} not available: {why}", "NVRTC"),
    });
    lines.push(match Nccl::open() {
        Ok(nccl) => format!("{:<20} {}, {}", "NCCL", nccl.file(), in_words(nccl.version)),
        Err(why) => format!("{:<20} not available: {why}", "NCCL"),
    });
    let inventory = inventory::before();
    let (label, driver) = ("NVML", inventory.driver.as_ref());
    lines.extend(driver.map(|driver| format!("{label:<20} driver {driver}")));
    lines.extend(inventory.unknown.iter().map(|why| format!("{label:<20} not available: {why}")));
    for (at, gpu) in inventory.gpus.iter().enumerate() {
        lines.push(format!("{:<20} {}", format!("bus {at}"), gpu.about()));
    }
    lines.extend(inventory.matrix());
    lines
}

/// Which GPU reaches which one's memory.
fn peers(count: usize) -> Vec<String> {
    let label = "reaches peers";
    match devices::peers(count) {
        Err(why) => vec![format!("{label:<20} not known: {why}")],
        Ok(matrix) => {
            let row = |(at, row): (usize, &Vec<bool>)| {
                let reached = row.iter().enumerate().filter(|&(other, can)| *can && other != at);
                let reached: Vec<String> = reached.map(|(other, _)| other.to_string()).collect();
                let reached = if reached.is_empty() { "none".into() } else { reached.join(", ") };
                format!("{label:<20} GPU {at}: {reached}")
            };
            matrix.iter().enumerate().map(row).collect()
        }
    }
}

fn columns(EnvironmentRow { variable, value, is_set }: EnvironmentRow) -> [String; 5] {
    let origin = if is_set { "environment" } else { "default" };
    let origin = match variable.usage {
        Usage::Used => origin.into(),
        Usage::Unused(why) => format!("known, not used: {why}"),
    };
    let value = if value.is_empty() { "-".into() } else { value };
    [variable.name.into(), value, variable.unit.into(), variable.about.into(), origin]
}

fn print_columns([variable, value, unit, meaning, origin]: [String; 5]) {
    println!("  {variable:<39} {value:>10} {unit:<4} {meaning:<45} {origin}");
}
