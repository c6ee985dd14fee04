//! `kolo` on a library that poses as NVML.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use results::gpus::Gpu;
use results::gpus::Inventory;
use results::provenance::Launch;

use crate::cuda::driver::{folder as driver, kolo};
use crate::nccl::processor::compiled;

/// The folder of both libraries; none where there is no compiler.
fn folder() -> Option<&'static Path> {
    static ONCE: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let make = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/cuda/nvml.cpp");
        let (nvml, driver) = (compiled(&source, "nvml-posing.so")?, driver()?);
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(nvml, folder.path().join("libnvidia-ml.so.1")).unwrap();
        std::fs::copy(driver.join("libcuda.so.1"), folder.path().join("libcuda.so.1")).unwrap();
        let path = folder.path().to_path_buf();
        Some((folder, path))
    };
    ONCE.get_or_init(make).as_ref().map(|(_, path)| path.as_path())
}

/// Runs a bench; what it says, and what its provenance says.
fn bench(folder: &Path, posing: &str) -> (String, Inventory) {
    let out = tempfile::tempdir().unwrap();
    let rows = out.path().join("rows.csv");
    let bench = ["bench", "--transport", "cuda", "-b", "64", "-e", "64", "-n", "1", "-w", "0"];
    let output = kolo(folder, posing, &[&bench[..], &["--out", rows.to_str().unwrap()]].concat());
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{errors}");
    let text = std::fs::read_to_string(rows.with_extension("provenance.json")).unwrap();
    let launch: Launch = serde_json::from_str(&text).unwrap();
    assert!(launch.ended.is_some());
    (said.into_owned(), launch.inventory.unwrap())
}

#[test]
fn provenance_has_gpus_before_and_after() {
    let Some(folder) = folder() else { return };
    let (said, inventory) = bench(folder, "");
    assert!(!said.contains("# warning") && !said.contains("# not known"), "{said}");
    assert_eq!(inventory.driver.as_deref(), Some("999.1"));
    assert_eq!(inventory.topology, [["X", "NV2"], ["NV2", "X"]]);
    let gpu = &inventory.gpus[1];
    assert_eq!((gpu.uuid.as_str(), gpu.bus_id.as_str()), ("GPU-posed-2", "00000000:19:00.0"));
    assert_eq!((gpu.sm_mhz_most, gpu.memory_mhz_most), (Some(1980), Some(2620)));
    assert_eq!((gpu.persistence, gpu.ecc, gpu.mig), (Some(true), Some(true), Some(false)));
    assert_eq!(gpu.compute_mode.as_deref(), Some("exclusive process"));
    assert_eq!(gpu.cpus.as_deref(), Some("0-3,8"));
    assert_eq!((gpu.pcie_generation_most, gpu.pcie_width_most), (Some(5), Some(16)));
    assert_eq!(gpu.power_limit_w, Some(700.0));
    let links: Vec<_> = gpu.nvlinks.iter().map(|link| (link.link, link.version)).collect();
    assert_eq!(links, [(0, Some(5)), (2, Some(5))]);
    assert_eq!(gpu.nvlinks[0].peer_bus_id, inventory.gpus[0].bus_id);
    for state in [&gpu.before, gpu.after.as_ref().unwrap()] {
        assert_eq!((state.sm_mhz, state.memory_mhz), (Some(345), Some(2619)));
        assert_eq!((state.temperature_c, state.power_w), (Some(32), Some(71.5)));
        assert_eq!(state.throttle.as_deref(), Some(&["idle".to_string()][..]));
        assert_eq!((state.pcie_generation, state.pcie_width), (Some(1), Some(8)));
    }
}

#[test]
fn a_gpu_that_was_throttled_is_warned_of() {
    let Some(folder) = folder() else { return };
    let (said, inventory) = bench(folder, "hot");
    let words = "# warning: GPU 1 of the bus (a GPU that poses, GPU-posed-2) was throttled after the run (345 of \
                 1980 MHz): power limit, heat (hardware)";
    assert!(said.contains(words), "{said}");
    let after = inventory.gpus[0].after.as_ref().unwrap();
    assert_eq!(after.throttle.as_ref().unwrap().len(), 2);
}

#[test]
fn unknown_nvml_values_are_empty_and_a_missing_library_is_reported() {
    let Some(folder) = folder() else { return };
    let (said, inventory) = bench(folder, "mute");
    assert!(!said.contains("# warning"), "{said}");
    let gpu = &inventory.gpus[0];
    let known = Gpu {
        name: gpu.name.clone(),
        uuid: gpu.uuid.clone(),
        bus_id: gpu.bus_id.clone(),
        after: gpu.after.clone(),
        pci_path: gpu.pci_path.clone(),
        numa_node: gpu.numa_node,
        ..Gpu::default()
    };
    assert_eq!(*gpu, known);
    assert_eq!(inventory.topology[0], ["X", "SYS"]);

    let (said, inventory) = bench(folder, "lost");
    assert!(
        said.contains("# not known: nvmlDeviceGetHandleByIndex_v2 of GPU 1 failed: GPU is lost")
    );
    assert_eq!(inventory.gpus.len(), 1);

    let (said, inventory) = bench(folder, "closed");
    assert!(said.contains("# not known: nvmlInit_v2 failed: Driver Not Loaded"), "{said}");
    assert_eq!(inventory.gpus, []);

    let alone = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join("libcuda.so.1"), alone.path().join("libcuda.so.1")).unwrap();
    if gpu::cuda::nvml::NVML.open().is_err() {
        let (said, _) = bench(alone.path(), "");
        assert!(
            said.contains("# not known: NVML was not found: looked for libnvidia-ml.so.1"),
            "{said}"
        );
    }
}

#[test]
fn info_draws_the_topology() {
    let Some(folder) = folder() else { return };
    let info = |posing| String::from_utf8(kolo(folder, posing, &["info"]).stdout).unwrap();
    let said = info("switch");
    for words in [
        "compute capability 9.0, GPU-10111213-1415-1617-1819-1a1b1c1d1e1f",
        "reaches peers        GPU 0: 1",
        "NVML                 driver 999.1",
        "GPU-posed-1 at 00000000:18:00.0, SM clock 345 of 1980 MHz",
        "PCIe generation 1 of 5, lanes 8 of 16, persistence on, ECC on, MIG off",
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
    let line = said.lines().find(|line| line.trim_start().starts_with("GPU1 ")).unwrap();
    let columns: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(columns[1..3], ["NV2", "X"], "{line}");
    assert!(info("apart").contains("reaches peers        GPU 1: none"));
}
