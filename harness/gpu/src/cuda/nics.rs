//! Network cards, and which is near which GPU: as the kernel shows them under /sys.

use std::fs;
use std::path::Path;

use results::gpus::Nic;

/// The folder in which the kernel lists devices.
pub const SYS: &str = "/sys";

/// Cards with a PCI device, InfiniBand's and RoCE's first, by name.
pub fn nics(sys: &Path) -> Vec<Nic> {
    let of = |class: &'static str| {
        let entries = fs::read_dir(sys.join("class").join(class)).into_iter().flatten().flatten();
        let mut nics: Vec<Nic> = entries
            .filter_map(|entry| {
                let (pci_path, numa_node) = place(&entry.path().join("device"))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Some(Nic { name, class: class.into(), pci_path, numa_node, levels: Vec::new() })
            })
            .collect();
        nics.sort_by(|a, b| a.name.cmp(&b.name));
        nics
    };
    ["infiniband", "net"].into_iter().flat_map(of).collect()
}

/// PCI path and NUMA node of a GPU with this bus id, in NVML's format.
pub fn gpu_place(sys: &Path, bus_id: &str) -> Option<(String, Option<usize>)> {
    let (domain, rest) = bus_id.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let name = format!("{domain:04x}:{}", rest.to_lowercase());
    place(&sys.join("bus/pci/devices").join(name))
}

/// The PCI path of a link's target, and its NUMA node; none if it is not a PCI device.
fn place(link: &Path) -> Option<(String, Option<usize>)> {
    let device = fs::canonicalize(link).ok()?;
    let parts: Vec<String> =
        device.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let root = parts.iter().position(|part| part.starts_with("pci") && part.contains(':'))?;
    // A device below a PCI device, such as virtio's, has that device's location.
    let is_pci = |part: &&String| part.matches(':').count() == 2 && part.contains('.');
    let path: Vec<&str> = std::iter::once(&parts[root])
        .chain(parts[root + 1..].iter().take_while(is_pci))
        .map(String::as_str)
        .collect();
    let above = device.ancestors().nth(parts.len() - root - path.len())?;
    let numa = fs::read_to_string(above.join("numa_node")).ok();
    // -1 means a machine with one node, or a kernel without the information.
    let numa = numa.and_then(|text| text.trim().parse().ok());
    (path.len() > 1).then(|| (path.join("/"), numa))
}

/// The connection of two devices, in nvidia-smi's terms: PIX (one bridge at most), PXB (several), PHB (a host
/// bridge), NODE (several of one NUMA node), SYS (NUMA nodes).
pub fn level(a: (&str, Option<usize>), b: (&str, Option<usize>)) -> &'static str {
    let ((a, a_numa), (b, b_numa)) = (a, b);
    let common = a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b).count();
    // Two ports of one switch differ in the port and in the devices below it.
    let deepest = a.split('/').count().min(b.split('/').count());
    match common {
        _ if a.is_empty() || b.is_empty() => "unknown",
        0 if a_numa != b_numa => "SYS",
        0 => "NODE",
        1 => "PHB",
        common if common + 2 >= deepest => "PIX",
        _ => "PXB",
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree of its own: devices by path and NUMA node, and links to them.
    fn tree(devices: &[(&str, &str)], links: &[(&str, &str)]) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        for (path, numa) in devices {
            fs::create_dir_all(sys.path().join("devices").join(path)).unwrap();
            fs::write(sys.path().join("devices").join(path).join("numa_node"), numa).unwrap();
        }
        for (link, path) in links {
            let link = sys.path().join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(sys.path().join("devices").join(path), link).unwrap();
        }
        sys
    }

    const SWITCH: &str = "pci0000:16/0000:16:01.0/0000:17:00.0";

    #[test]
    fn cards_are_found_with_path_and_numa_node() {
        let near = format!("{SWITCH}/0000:18:01.0/0000:1a:00.0");
        let virtio = "pci0000:00/0000:00:04.0";
        let hanging = format!("{virtio}/virtio1");
        let sys = tree(
            &[(&near, "0\n"), (virtio, "-1\n"), (&hanging, "7\n"), ("virtual/net/lo", "0\n")],
            &[
                ("class/infiniband/mlx5_0/device", &near),
                ("class/net/ib0/device", &near),
                ("class/net/eth0/device", &hanging),
                ("class/net/lo/device", "virtual/net/lo"),
                ("class/net/gone/device", "pci0000:00/0000:00:09.0"),
            ],
        );
        fs::create_dir_all(sys.path().join("class/net/bond0")).unwrap();
        let found: Vec<_> = nics(sys.path())
            .into_iter()
            .map(|nic| (nic.class, nic.name, nic.pci_path, nic.numa_node))
            .collect();
        let nic = |class: &str, name: &str, path: &str, numa| {
            (class.to_string(), name.to_string(), path.to_string(), numa)
        };
        assert_eq!(
            found,
            [
                nic("infiniband", "mlx5_0", &near, Some(0)),
                nic("net", "eth0", virtio, None),
                nic("net", "ib0", &near, Some(0)),
            ]
        );
        assert_eq!(nics(&sys.path().join("nowhere")), []);
    }

    #[test]
    fn a_gpu_is_found_by_the_bus_id_of_nvml() {
        let path = format!("{SWITCH}/0000:18:00.0/0000:AF:00.0");
        let sys = tree(&[(&path, "1")], &[("bus/pci/devices/0000:af:00.0", &path)]);
        assert_eq!(gpu_place(sys.path(), "00000000:AF:00.0"), Some((path, Some(1))));
        assert_eq!(gpu_place(sys.path(), "00000000:B0:00.0"), None);
        assert_eq!(gpu_place(sys.path(), ""), None);
    }

    #[test]
    fn what_lies_between_two_devices_has_nvidias_names() {
        let gpu = format!("{SWITCH}/0000:18:00.0/0000:19:00.0");
        let same_switch = format!("{SWITCH}/0000:18:01.0/0000:1a:00.0");
        let next_switch =
            "pci0000:16/0000:16:01.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0/0000:1e:00.0";
        for (path, numa, expected) in [
            (same_switch.as_str(), 0, "PIX"),
            (next_switch, 0, "PXB"),
            ("pci0000:16/0000:16:02.0/0000:30:00.0", 0, "PHB"),
            ("pci0000:80/0000:80:02.0/0000:81:00.0", 0, "NODE"),
            ("pci0000:80/0000:80:02.0/0000:81:00.0", 1, "SYS"),
            ("", 1, "unknown"),
        ] {
            let (a, b) = ((gpu.as_str(), Some(0)), (path, Some(numa)));
            assert_eq!((level(a, b), level(b, a)), (expected, expected), "{path}");
        }
        // Two functions of one card.
        let port = |at| format!("pci0000:16/0000:16:01.0/0000:17:00.{at}");
        assert_eq!(level((&port(0), None), (&port(1), None)), "PIX");
    }
}
