use super::*;
use crate::machine_file::Parameter;
use results::toml_file::Checked;
use std::path::Path;

fn summit() -> MachineFile {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/machines/summit.toml");
    MachineFile::read(Path::new(path)).unwrap()
}

#[test]
fn interpolated_times_match_simulated_ones() {
    for name in ["ring", "double-tree", "hierarchical", "halving-doubling"] {
        let plane = DataPlane::new(name, &summit(), 96, 0.0, Engine::Rounds).unwrap();
        let Kind::Scheduled(scheduled) = &plane.kind else { panic!() };
        for size_bytes in [5.3, 1_300.0, 71e3, 1.9e6, 44e6, 700e6] {
            let (a, b) = (plane.time(size_bytes).at_s, scheduled.simulate(96, size_bytes, 1).at_s);
            assert!((a / b - 1.0).abs() < 0.01, "{name}, {size_bytes} bytes: {a} for {b}");
        }
    }
}

/// Four segments of 64 KiB are sent on at once, and longer ones are announced first: no size in between is a mixture.
#[test]
fn times_jump_where_messages_begin_to_be_announced() {
    let mut file = summit();
    let parameter = |value| {
        let source = "a test".to_string();
        Some(Parameter { value, low: None, high: None, source })
    };
    for protocol in file.network.iter_mut().flat_map(BTreeMap::values_mut) {
        protocol.behind_data = parameter(1.0);
        protocol.announced_from_bytes = parameter(65_537.0);
    }
    (file.node.ranks, file.node.ranks_per_socket) = (1, 1);
    let plane = DataPlane::new("tree", &file, 2, 65_536.0, Engine::Rounds).unwrap();
    let per_byte_s = |bytes: f64| plane.time(bytes).at_s / bytes;
    let (at_once, announced) = (per_byte_s(4.0 * 65_536.0), per_byte_s(4.0 * 65_540.0));
    assert!(announced > 1.2 * at_once, "{announced} and {at_once}");
    assert!((per_byte_s(4.0 * 100e3) / announced - 1.0).abs() < 0.1);
}

#[test]
fn a_measured_curve_is_followed() {
    let plane = DataPlane::measured(vec![(1e3, 1e-3), (2e3, 3e-3)], 4);
    for (bytes, expected_s) in [(1.0, 1e-3), (1e3, 1e-3), (1.5e3, 2e-3), (2e3, 3e-3), (4e3, 6e-3)] {
        let moment = plane.time(bytes);
        assert!((moment.at_s - expected_s).abs() < 1e-12, "{bytes}");
        assert!((moment.latency_s + moment.bandwidth_s - moment.at_s).abs() < 1e-12);
    }
    assert_eq!(
        (plane.engine(), DataPlane::measured(vec![(1.0, 1.0)], 1).time(9.0).at_s),
        ("measured", 0.0)
    );
}

/// Where network cards are shared, the engines differ by some percent.
#[test]
fn events_are_the_other_engine() {
    let [rounds, events] = [Engine::Rounds, Engine::Events]
        .map(|engine| DataPlane::new("hierarchical", &summit(), 48, 0.0, engine).unwrap());
    assert_eq!((rounds.engine(), events.engine()), ("rounds", "events"));
    let [a, b] = [rounds, events].map(|plane| plane.time(64e6).at_s);
    assert!((a / b - 1.0).abs() < 0.1, "{a} by rounds, {b} by events");
}

/// A worker's node sends and receives each byte once instead of twice. A server that eight nodes share carries
/// eight times as much.
#[test]
fn servers_on_nodes_of_their_own_halve_what_the_network_carries() {
    let size_bytes = 32e6;
    let network_s = size_bytes / 23e9;
    // On Summit itself the rings inside nodes would be slower, over the bus between sockets.
    let mut machine = summit();
    machine.bus = Some(machine.socket.clone());
    machine.shared.bus_gb_s = None;
    for (name, times) in
        [("hierarchical:parameter-server", 2.0), ("server-nodes", 1.0), ("server-nodes:16", 8.0)]
    {
        let data = DataPlane::new(name, &machine, 768, 0.0, Engine::Rounds).unwrap();
        let [alone, latency, next] = [Overlap::Nothing, Overlap::Latency, Overlap::Stages]
            .map(|overlap| data.next(size_bytes, overlap));
        assert!((next.at_s / (times * network_s) - 1.0).abs() < 0.15, "{name}: {next:?}");
        assert!(next.at_s < latency.at_s && latency.at_s < alone.at_s, "{name}");
        // A single message is pushed first and pulled afterwards.
        assert!(alone.at_s > 2.0 * network_s, "{name}: {alone:?}");
    }
}

fn dgx_h100() -> MachineFile {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/machines/dgx-h100.toml");
    MachineFile::read(Path::new(path)).unwrap()
}

/// The machine with switches between nodes that reduce, too.
fn with_collnet() -> MachineFile {
    let mut machine = dgx_h100();
    let nccl = machine.nccl.as_mut().unwrap();
    (nccl.collnet_chain, nccl.collnet_direct) = (nccl.nvls_tree.clone(), nccl.nvls_tree.clone());
    machine
}

#[test]
fn switches_reduce_where_the_machine_file_says_so() {
    let time_s = |name, machine: &MachineFile, ranks, bytes| {
        let plane = DataPlane::new(name, machine, ranks, 0.0, Engine::Rounds).unwrap();
        plane.time(bytes).at_s
    };
    let (plain, collnet) = (dgx_h100(), with_collnet());
    for (machine, ranks, name) in
        [(&plain, 8, "nccl:nvls"), (&plain, 32, "nccl:nvls-tree"), (&collnet, 1024, "nccl:collnet")]
    {
        for bytes in [64.0, 1e6, 1e9] {
            let of = |name| time_s(name, machine, ranks, bytes);
            let (chosen, forced, ring) = (of(NCCL), of(name), of("nccl:ring"));
            assert!(chosen <= forced.min(ring), "{name}, {bytes} bytes");
        }
        assert_eq!(time_s(name, machine, 1, 1e9), 0.0);
    }
    assert_eq!(time_s(NCCL, &plain, 8, 1e9), time_s("nccl:nvls", &plain, 8, 1e9));
    assert_eq!(time_s(NCCL, &plain, 8, 64.0), time_s("nccl:ring", &plain, 8, 64.0));
    assert_eq!(
        time_s("nccl:collnet", &collnet, 16, 1e6),
        time_s("nccl:collnet", &collnet, 1024, 1e6)
    );
}

#[test]
fn machines_whose_switches_do_not_reduce_say_what_is_missing() {
    let (plain, collnet) = (dgx_h100(), with_collnet());
    for (name, machine, ranks, expected) in [
        (
            "nccl:nvls",
            &summit(),
            6,
            "nccl:nvls needs switches that reduce, and machine summit has no [nccl.nvls]: its NVLink switches do not \
                 reduce; add the table if they do, or choose nccl",
        ),
        ("nccl:nvls-tree", &summit(), 12, "machine summit has no [nccl.nvls_tree]"),
        (
            "nccl:collnet",
            &plain,
            16,
            "machine dgx-h100 has no [nccl.collnet_chain] or [nccl.collnet_direct]: its network does not reduce",
        ),
        (
            "nccl:nvls",
            &plain,
            16,
            "nccl:nvls does not run on 16 ranks of machine dgx-h100: it is for one node; choose nccl",
        ),
        ("nccl:nvls-tree", &plain, 8, "it is for several nodes"),
        ("nccl:collnet", &collnet, 8, "it is for several nodes"),
    ] {
        let Err(problem) = DataPlane::new(name, machine, ranks, 0.0, Engine::Rounds) else {
            panic!("{name}")
        };
        assert!(problem.to_string().contains(expected), "{problem}");
        assert!(check_name(name).is_ok());
    }
}

#[test]
fn missing_data_planes_are_refused_with_the_reason() {
    for (name, ranks, expected) in [
        ("server-nodes", 24_000, "server-nodes supports at most 1024 nodes of workers"),
        ("server-nodes:5", 768, "server-nodes:5 needs a multiple of 5 nodes"),
        ("rign", 6, "algorithm \"rign\" is unknown"),
        ("one-shot", 600, "one-shot supports at most 64 ranks"),
        ("nccl", 7, "7 ranks do not fill nodes of machine summit evenly"),
        ("ring", 1 << 20, "machine summit has 27648 ranks"),
    ] {
        let Err(problem) = DataPlane::new(name, &summit(), ranks, 0.0, Engine::Rounds) else {
            panic!("{name}")
        };
        assert!(problem.to_string().starts_with(expected), "{problem}");
    }
    let without = MachineFile { nccl: None, ..summit() };
    let Err(problem) = DataPlane::new(NCCL, &without, 6, 0.0, Engine::Rounds) else { panic!() };
    assert_eq!(
        problem.to_string(),
        "machine summit has no [nccl]; choose an algorithm of this repository, such as ring"
    );
}
