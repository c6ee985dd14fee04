//! `kolo info`.

use algorithms::registry::ALL;
use algorithms::{control, registry};
use anyhow::Result;
use measure::back_ends;

use super::printed::Printed;
use super::{Exit, usage};
use gpu::cuda::devices::{self, Found, Gpu};
use gpu::cuda::inventory;
use gpu::cuda::{self, library};
use gpu::nccl::library::{Nccl, in_words};
use measure::environment::variables::Usage;
use measure::environment::{Environment, EnvironmentRow};
use results::provenance::{Launch, Machine};
use schemars::JsonSchema;
use serde::Serialize;

/// Show what this build and this machine offer, and the values of Horovod's variables
///
/// Where something is not available, the reason is shown.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo info
  HOROVOD_CYCLE_TIME=5 kolo info")]
pub struct Arguments {
    #[command(flatten)]
    printed: Printed,
}

/// Version of [`Info`] as JSON.
const SCHEMA: u32 = 1;

/// What this build and this machine offer.
#[derive(Serialize, JsonSchema)]
pub struct Info {
    /// Version of this structure.
    schema: u32,
    /// Name and version of the program.
    version: String,
    /// Compiler and profile.
    build: String,
    /// The commit that the program was built from.
    commit: String,
    /// This machine.
    machine: Machine,
    /// Names that configurations and options accept.
    algorithms: Vec<AlgorithmInfo>,
    /// Names of control planes.
    control_planes: Vec<String>,
    /// Where ranks can run.
    transports: Vec<TransportInfo>,
    /// Drivers, libraries and GPUs, a line each.
    gpus: Vec<String>,
    /// Horovod's variables.
    variables: Vec<VariableInfo>,
    /// Advice on variables that are set, in sentences.
    notices: Vec<String>,
}

/// An algorithm.
#[derive(Serialize, JsonSchema)]
struct AlgorithmInfo {
    name: String,
    about: String,
    /// The most ranks that it takes; null: any number.
    most_ranks: Option<usize>,
}

/// A transport.
#[derive(Serialize, JsonSchema)]
struct TransportInfo {
    name: String,
    available: bool,
    /// What was found, or why it is not available.
    what: String,
}

/// A variable of the environment.
#[derive(Serialize, JsonSchema)]
struct VariableInfo {
    name: String,
    /// The value in effect; empty if there is none.
    value: String,
    /// The unit of the value; empty if it has none.
    unit: String,
    about: String,
    /// The environment has it; else the value is the default.
    is_set: bool,
    /// Why kolo does not read it; null: `kolo sweep` reads it.
    not_used: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let info = info()?;
    if arguments.printed.is_text() {
        print(&info);
    }
    arguments.printed.print(&info, "/variables")?;
    Ok(Exit::Right)
}

fn info() -> Result<Info> {
    let launch = Launch::now();
    let algorithms = ALL.iter().map(|entry| {
        Ok(AlgorithmInfo {
            name: entry.name.into(),
            about: entry.about.into(),
            most_ranks: registry::find(entry.name)?.limit().map(|limit| limit.ranks),
        })
    });
    let transports = back_ends::all().into_iter().map(|back_end| {
        let found = back_end.availability();
        TransportInfo {
            name: back_end.name().into(),
            available: found.is_ok(),
            what: found.unwrap_or_else(|why| why.source.to_string()),
        }
    });
    let environment = Environment::read(&launch.environment).map_err(usage)?;
    Ok(Info {
        schema: SCHEMA,
        algorithms: algorithms.collect::<Result<_>>()?,
        control_planes: control::NAMES.iter().map(ToString::to_string).collect(),
        transports: transports.collect(),
        gpus: gpus(),
        variables: environment.rows.into_iter().map(variable).collect(),
        notices: environment.notices,
        version: launch.version,
        build: launch.build,
        commit: launch.commit,
        machine: launch.machine,
    })
}

fn variable(EnvironmentRow { variable, value, is_set }: EnvironmentRow) -> VariableInfo {
    VariableInfo {
        name: variable.name.into(),
        value,
        unit: variable.unit.into(),
        about: variable.about.into(),
        is_set,
        not_used: match variable.usage {
            Usage::Used => None,
            Usage::Unused(why) => Some(why.into()),
        },
    }
}

fn print(info: &Info) {
    let machine = &info.machine;
    println!("{} ({}), commit {}", info.version, info.build, info.commit);
    println!(
        "host {}: {}, {} cores, {} of memory; kernel {}, clock source {}, frequency governor {}",
        machine.host,
        machine.cpu,
        machine.cores,
        machine.memory_bytes.map_or("unknown".into(), |b| format!("{} GB", b / 1_000_000_000)),
        machine.kernel,
        machine.clock_source,
        machine.frequency_governor.as_deref().unwrap_or("not reported by the kernel"),
    );
    println!(
        "\nalgorithms (INNER is {} unless named, as in hierarchical:tree)",
        algorithms::algorithm::DEFAULT_INNER
    );
    for AlgorithmInfo { name, about, most_ranks } in &info.algorithms {
        let limit = most_ranks.map_or(String::new(), |ranks| format!("; up to {ranks} ranks"));
        println!("  {name:<24} {about}{limit}");
    }
    println!("\ncontrol planes");
    for name in &info.control_planes {
        println!("  {name}");
    }
    println!("\ntransports");
    for TransportInfo { name, available, what } in &info.transports {
        let word = if *available { "available" } else { "not available" };
        println!("  {name:<20} {word}: {what}");
    }
    println!("\nGPUs, for transport cuda, and with NCCL for transport nccl");
    info.gpus.iter().for_each(|line| println!("  {line}"));
    println!("\nvariables of Horovod 0.28 that `kolo sweep` reads; options take precedence");
    let heading = ["variable", "value", "unit", "meaning", "source"];
    print_columns(heading.map(str::to_string));
    info.variables.iter().map(columns).for_each(print_columns);
    info.notices.iter().for_each(|sentence| println!("{sentence}"));
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

fn columns(shown: &VariableInfo) -> [String; 5] {
    let VariableInfo { name, value, unit, about, is_set, not_used } = shown;
    let origin = match not_used {
        None => if *is_set { "environment" } else { "default" }.to_string(),
        Some(why) => format!("known, not used: {why}"),
    };
    let value = if value.is_empty() { "-" } else { value };
    [name.clone(), value.into(), unit.clone(), about.clone(), origin]
}

fn print_columns([variable, value, unit, meaning, origin]: [String; 5]) {
    println!("  {variable:<39} {value:>10} {unit:<4} {meaning:<45} {origin}");
}
