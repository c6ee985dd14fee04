//! The kernels on a list of gradients, beside the device's own copy.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::arguments::Arguments;
use super::out::write_provenance;
use crate::cli::{Exit, usage};
use gpu::cuda::inventory;
use gpu::cuda::speed::{Speed, measure};
use gpu::cuda::streams::Streams;
use results::provenance::Launch;
use results::statistics::Summary;
use workloads::workload::{Gradient, Workload, workload_path};

/// A kernel, as a row of `--out`.
#[derive(Serialize)]
struct Row<'a> {
    /// The GPU.
    device: &'a str,
    workload: &'a str,
    kernel: &'a str,
    /// Of all gradients, f32.
    elements: usize,
    /// Read and written.
    moved_bytes: u64,
    repetitions: usize,
    time_us_min: f64,
    time_us_p50: f64,
    time_us_max: f64,
    /// Moved bytes over the median time; none for a launch alone.
    bandwidth_gb_s: Option<f64>,
    /// That bandwidth as a share of the copy's.
    of_copy: Option<f64>,
    /// The share that is expected.
    goal: Option<f64>,
}

/// With what the driver is, or none where devices are emulated.
pub fn run<S: Streams>(
    mut streams: S,
    arguments: &Arguments,
    path: &Path,
    driver: Option<String>,
) -> Result<Exit> {
    let mut launch = Launch::now();
    let is_name = path.extension().is_none() && !path.exists();
    let path = if is_name { named(path) } else { path.into() };
    let workload = Workload::read(&path).map_err(usage)?;
    let gradients: Vec<usize> = workload.gradients.iter().map(Gradient::elements).collect();
    let device = streams.devices()[0].clone();
    println!(
        "# kernels on GPU 0: {device}; {}: {} gradients, {:.1} MB in f32; median of {} rounds, by the device's clock",
        workload.name,
        gradients.len(),
        4e-6 * workload.elements() as f64,
        arguments.iters
    );
    launch.inventory = driver.is_some().then(inventory::before);
    launch.gpus = driver.into_iter().chain([format!("GPU 0: {device}")]).collect();
    let speeds = measure(&mut streams, &gradients, arguments.warmup_iters, arguments.iters)?;
    let copy_gb_s = bandwidth_gb_s(&speeds[0]);
    let rows: Vec<Row> = speeds
        .iter()
        .filter_map(|speed| {
            let times = Summary::of(&speed.times_us)?;
            let bandwidth_gb_s = bandwidth_gb_s(speed);
            Some(Row {
                device: &device,
                workload: &workload.name,
                kernel: speed.name,
                elements: workload.elements(),
                moved_bytes: speed.moved_bytes,
                repetitions: times.samples,
                time_us_min: times.min,
                time_us_p50: times.p50,
                time_us_max: times.max,
                bandwidth_gb_s,
                of_copy: bandwidth_gb_s.zip(copy_gb_s).map(|(own, copy)| own / copy),
                goal: speed.goal,
            })
        })
        .collect();
    print(&speeds, &rows);
    if launch.inventory.is_some() {
        launch.end(inventory::after).iter().for_each(|line| arguments.remark(line));
    }
    if let Some(out) = &arguments.out {
        write(out, &rows)
            .with_context(|| format!("{}: the rows cannot be written", out.display()))?;
        write_provenance(out, &launch)?;
    }
    Ok(Exit::Right)
}

fn write(out: &Path, rows: &[Row]) -> Result<()> {
    let mut file = csv::Writer::from_writer(File::create_new(out)?);
    rows.iter().try_for_each(|row| file.serialize(row))?;
    Ok(file.flush()?)
}

/// The file of a workload that is asked for by name.
fn named(name: &Path) -> PathBuf {
    workload_path(&name.to_string_lossy(), Path::new("configs/bench.toml"))
}

fn bandwidth_gb_s(speed: &Speed) -> Option<f64> {
    let times = Summary::of(&speed.times_us)?;
    (speed.moved_bytes > 0).then(|| speed.moved_bytes as f64 / times.p50 / 1e3)
}

fn print(speeds: &[Speed], rows: &[Row]) {
    println!(
        "# {:>18}  {:>9}  {:>9}  {:>8}  {:>7}  {:>4}",
        "kernel", "MB moved", "us", "GB/s", "of copy", "goal"
    );
    if rows.is_empty() {
        for speed in speeds {
            println!("{:>20}  N/A: the device has no clock", speed.name);
        }
    }
    for row in rows {
        let Row { kernel, moved_bytes, time_us_p50, .. } = row;
        let bandwidth = row.bandwidth_gb_s.map_or(String::new(), |gb_s| format!("  {gb_s:>8.1}"));
        let compared = row.of_copy.zip(row.goal).map_or(String::new(), |(share, goal)| {
            let verdict = if share >= goal { "reached" } else { "missed" };
            format!("  {share:>7.2}  {goal:.2}  {verdict}")
        });
        let mb = *moved_bytes as f64 / 1e6;
        println!("{kernel:>20}  {mb:>9.3}  {time_us_p50:>9.2}{bandwidth}{compared}");
    }
}
