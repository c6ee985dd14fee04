use super::*;

const SUMMIT: &str = include_str!("../../../../configs/machines/summit.toml");

const CORRELATION: &str = "step_correlation = { value = 0.5, source = \"a test\" }\n";

const CONGESTION: &str = r#"
[congestion]
longer = { value = 0.16, low = 0, high = 0.3, source = "a test" }
"#;

const INTERRUPTIONS: &str = r#"
[interruptions.short]
per_second = { value = 10, low = 5, high = 20, source = "a test" }
duration_us = { value = 50, low = 30, high = 90, source = "a test" }
[interruptions.long]
per_second = { value = 0.2, source = "a test" }
duration_us = { value = 4000, source = "a test" }
"#;

fn read(text: &str) -> Result<MachineFile, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.toml");
    std::fs::write(&path, text).unwrap();
    MachineFile::read(&path).map_err(|error| error.problem.to_string())
}

#[test]
fn shipped_machines_are_read_and_name_their_sources() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/machines"));
    let entries = [folder.to_path_buf(), folder.join("published")].map(|it| it.read_dir().unwrap());
    let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.is_file()) {
        let mut file = MachineFile::read(&path).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str(), Some(file.name.as_str()));
        for (key, parameter) in file.parameters() {
            let has_range = parameter.low.is_some() && parameter.high.is_some();
            assert!(!parameter.is_assumed() || has_range, "{}: {key} has no range", path.display());
        }
    }
}

#[test]
fn summit_is_what_its_guide_says() {
    let summit = read(SUMMIT).unwrap();
    let machine = summit.machine();
    assert_eq!((machine.local_size, machine.socket_size, machine.shared.nics), (6, 3, 2));
    assert_eq!(machine.shared.node, Some(23e9));
    assert_eq!(summit.misfit(27_600), None);
    assert_eq!(
        summit.misfit(27_654).unwrap().to_string(),
        "machine summit has 27648 ranks (4608 nodes of 6), but 27654 were asked for"
    );
    assert_eq!(
        summit.misfit(20).unwrap().to_string(),
        "20 ranks do not fill nodes of machine summit evenly; use a multiple of 6"
    );
}

/// Rates are exact at sizes in the file, interpolated between them, and constant beyond the last.
#[test]
fn rates_depend_on_the_size_of_the_buffer() {
    let rate = |gb_s: f64| format!("combine_gb_s = {{ value = {gb_s}, source = \"a test\" }}\n");
    let sizes = [(1 << 20, 10.0), (65536, 40.0), (4 << 20, 5.0)];
    let tables =
        sizes.map(|(bytes, gb_s)| format!("[reduction.by_buffer.{bytes}]\n{}", rate(gb_s)));
    let machine = read(&format!("{SUMMIT}\n{}", tables.concat())).unwrap().machine();
    let gb_s = |bytes: f64| 1e-9 / machine.for_buffer(bytes).reduction.sending.gamma_s;
    for (bytes, expected) in
        [(1.0, 40.0), (65536.0, 40.0), (1048576.0, 10.0), (2097152.0, 1.0 / 0.15), (1e9, 5.0)]
    {
        assert!((gb_s(bytes) / expected - 1.0).abs() < 1e-9, "{} at {bytes}", gb_s(bytes));
    }
}

#[test]
fn a_file_without_the_newer_tables_says_what_is_left_out() {
    let noise = format!("{SUMMIT}\n{INTERRUPTIONS}");
    let noise = noise.replacen("gpu_factors = [", &format!("{CORRELATION}gpu_factors = ["), 1);
    assert_eq!(read(&noise).unwrap().leaves_out(), None);
    assert_eq!(
        read(SUMMIT).unwrap().leaves_out().unwrap(),
        "machine summit has no variability.step_correlation: no noise lasts for more than a step; no \
             [interruptions]: the operating system interrupts no rank"
    );
    let before = SUMMIT.split("[variability]").next().unwrap();
    let older = read(before).unwrap().leaves_out().unwrap();
    assert_eq!(
        older,
        "machine summit has no [variability]: GPUs are equally fast, unless [jitter] says otherwise; no \
             [interruptions]: the operating system interrupts no rank; no [interference]: messages do not slow computation \
             down"
    );
    for (from, to, expected) in [
        (
            "multiprocessors = { value = 0.15",
            "multiprocessors = { value = 40",
            "0 to 10 of the computation's time",
        ),
        ("memory_per_gb_s = {", "memory_gb_s = {", "unknown field `memory_gb_s`"),
    ] {
        let problem = read(&SUMMIT.replacen(from, to, 1)).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    }
}

/// Every number of a table of switches is a parameter; tables that NCCL could not use are refused.
#[test]
fn switches_that_reduce_need_the_gpus_and_the_protocol_for_it() {
    let hopper = include_str!("../../../../configs/machines/dgx-h100.toml");
    let keys: Vec<String> =
        read(hopper).unwrap().parameters().into_iter().map(|(key, _)| key).collect();
    for key in ["nccl.nvls.channels", "nccl.nvls.channel_gb_s", "nccl.nvls_tree.channel_gb_s"] {
        assert!(keys.iter().any(|found| found == key), "{key} of {keys:?}");
    }
    let older =
        "nccl.nvls is a table, expected no such table where generation is older than hopper";
    for (from, to, expected) in [
        ("generation = \"hopper\"", "generation = \"ampere\"", older),
        ("generation = \"hopper\"", "generation = \"hopper\"\nlinks = \"pci\"", older),
        (
            "generation = \"hopper\"",
            "generation = \"hopper\"\nprotocols = [\"ll\"]",
            "nccl.nvls is a table, expected simple in nccl.protocols",
        ),
        (
            "[nccl.nvls]\nchannels = { value = 8",
            "[nccl.nvls]\nchannels = { value = -8",
            "nccl.nvls.channels is -8",
        ),
        ("[nccl.nvls]", "[nccl.nvls]\nheads = 8", "unknown field `heads`"),
    ] {
        assert!(hopper.contains(from), "{from}");
        let problem = read(&hopper.replacen(from, to, 1)).unwrap_err();
        assert!(problem.contains(expected), "{problem}\nexpected {expected}");
    }
}

#[test]
fn congestion_is_between_nodes_and_has_a_range() {
    let file = read(&format!("{SUMMIT}{CONGESTION}")).unwrap();
    let expected = training::Congestion { mean: 0.16, nodes: 3 };
    assert_eq!(file.congestion(18), expected);
    assert_eq!(file.at_ends(true).congestion(18).mean, 0.3);
    assert_eq!(read(SUMMIT).unwrap().congestion(18).mean, 0.0);
    for (from, to, expected) in [
        (
            "value = 0.16",
            "value = -1",
            "congestion.longer is -1, expected 0 to 100 of a message's time",
        ),
        ("longer = {", "share = {", "unknown field `share`"),
    ] {
        let problem = read(&format!("{SUMMIT}{}", CONGESTION.replacen(from, to, 1))).unwrap_err();
        assert!(problem.contains(expected), "{problem}\nexpected {expected}");
    }
}

#[test]
fn interruptions_have_names_rates_and_durations() {
    let mut file = read(&format!("{SUMMIT}{INTERRUPTIONS}")).unwrap();
    let kind = |per_second, duration_s| Interruption { per_second, duration_s };
    assert_eq!(file.interruptions(), [kind(0.2, 4e-3), kind(10.0, 5e-5)]);
    let keys: Vec<String> = file.parameters().into_iter().map(|(key, _)| key).collect();
    assert!(keys.contains(&"interruptions.short.per_second".to_string()), "{keys:?}");
    // More of them is slower.
    let ends = [false, true].map(|slow| file.at_ends(slow).interruptions()[1]);
    assert_eq!(ends, [kind(5.0, 3e-5), kind(20.0, 9e-5)]);
    assert_eq!(read(SUMMIT).unwrap().interruptions(), []);
    for (from, to, expected) in [
        (
            "per_second = { value = 10, low = 5",
            "per_second = { value = 10, low = -5",
            "interruptions.short.per_second is -5, expected 0 to 1000000 per second",
        ),
        (
            "duration_us = { value = 4000",
            "duration_us = { value = 4e12",
            "interruptions.long.duration_us is 4000000000000, expected 0 to 1000000000 microseconds; is that another unit?",
        ),
        (
            "duration_us = { value = 4000",
            "us = { value = 4000",
            "unknown field `us`, expected `per_second` or `duration_us`",
        ),
        (
            INTERRUPTIONS,
            "[interruptions]",
            "interruptions is empty, expected a kind; add [interruptions.NAME]",
        ),
    ] {
        let problem = read(&format!("{SUMMIT}{}", INTERRUPTIONS.replacen(from, to, 1)));
        let problem = problem.unwrap_err();
        assert!(problem.contains(expected), "{problem}\nexpected {expected}");
    }
}

#[test]
fn distributions_that_make_no_sense_are_refused_with_their_line() {
    let line = 1 + SUMMIT[..SUMMIT.find("[variability]").unwrap()].matches('\n').count();
    for (from, to, expected) in [
        (
            "step_cv = { value = 0.005, low = 0.002",
            "step_cv = { value = -0.1",
            "variability.step_cv is -0.1, expected",
        ),
        (
            "gpu_factors = [0.952",
            "gpu_factors = [-1",
            "an element of variability.gpu_factors is -1, expected 0.5 to 100",
        ),
        (
            "gpu_factors = [0.952, ",
            "gpu_factors = [",
            "variability.gpu_factors is a list of 11, expected 12 factors",
        ),
    ] {
        assert!(SUMMIT.contains(from), "{from}");
        let problem = read(&SUMMIT.replacen(from, to, 1)).unwrap_err();
        assert!(problem.starts_with(&format!("line {line}: {expected}")), "{problem}");
    }
}

#[test]
fn invalid_machine_files_are_refused() {
    let network = SUMMIT.find("[network.").unwrap();
    let after = network + SUMMIT[network..].find("[shared]").unwrap();
    let without_network = format!("{}{}", &SUMMIT[..network], &SUMMIT[after..]);
    let problem = read(&without_network).unwrap_err();
    assert!(
        problem.starts_with("network is missing, expected [network.NAME] with alpha_us"),
        "{problem}"
    );
    for (from, to, expected) in [
        (
            "node_gb_s = { value = 23",
            "node_gb_s = { value = 23e9",
            "shared.node_gb_s is 23000000000, expected 0.000001 to 100000 GB/s (10^9 bytes per second); is that another unit?",
        ),
        ("nics = 2", "nics = 2\ncards = 2", "unknown field `cards`"),
        ("[reduction]", "[reduction]\ngamma_us = 1", "unknown field `gamma_us`"),
        (
            "[shared]",
            "[reduction.by_buffer.1MiB]\ncombine_gb_s = { value = 1, source = \"a test\" }\n[shared]",
            "a key of reduction.by_buffer is 1MiB, expected the size of a buffer in bytes",
        ),
        (
            "ranks_per_socket = 3",
            "ranks_per_socket = 7",
            "node.ranks_per_socket is 7, expected at most node.ranks (6)",
        ),
        (
            "node_gb_s = { value = 23",
            "node_gb_s = { low = 24, high = 25, value = 23",
            "shared.node_gb_s is 23, expected a value between its low 24 and high 25",
        ),
    ] {
        assert!(SUMMIT.contains(from), "{from}");
        let problem = read(&SUMMIT.replacen(from, to, 1)).unwrap_err();
        assert!(problem.contains(expected), "{problem}\nexpected {expected}");
    }
}
