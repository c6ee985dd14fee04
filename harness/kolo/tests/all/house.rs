//! House rules: pages and configurations match the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use algorithms::control::{DataType, ReduceOp};
use measure::config::{Allocation, Config};
use measure::control_sweep;
use measure::environment::variables::{Usage, VARIABLES};
use measure::plan::{Plan, Planned};
use results::conclusion::Conclusion;
use results::config_kind::ConfigKind;
use results::row::StepRow;
use results::toml_file::{Checked, TomlFile};
use workloads::framework::Framework;
use workloads::workload::Workload;

use crate::coverage::all_worlds;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder}/*{end}");
    files
}

#[test]
fn every_configuration_can_be_planned() {
    for path in files("configs", ".toml") {
        let file = TomlFile::read(&path).unwrap();
        match ConfigKind::of_file(&file).unwrap() {
            ConfigKind::ControlPlanes => {
                let config = control_sweep::config::Config::of(&file).unwrap();
                assert!(!control_sweep::Plan::new(config, &path).unwrap().cases.is_empty());
            }
            ConfigKind::Simulated => {
                let config = simulator::config::Config::of(&file).unwrap();
                let plan = simulator::sweep::Plan::new(config, &path).unwrap();
                let misfit = |case: &simulator::config::Case| plan.machine.misfit(case.ranks);
                assert!(plan.config.cases().iter().all(|case| misfit(case).is_none()));
            }
            ConfigKind::Regret => drop(tune::regret::Config::of(&file).unwrap()),
            ConfigKind::Machine => panic!("{} is not in machines/", path.display()),
            ConfigKind::PublishedPoints => drop(simulator::published::Points::of(&file).unwrap()),
            ConfigKind::Training => {
                let config = Config::of(&file).unwrap();
                let workload = Workload::read(&config.workload_path(&path)).unwrap();
                let plan = Plan::new(config, workload);
                let is_ready = |planned: &Planned| planned.data_plane.is_ok();
                assert!(plan.cases.iter().all(is_ready), "{}", path.display());
            }
        }
    }
}

/// The limits of the quick sweep: at most 48 cases, both pairs of defaults, all of ResNet-50.
#[test]
fn the_quick_sweep_is_what_the_readme_says() {
    let path = root().join("configs/quick.toml");
    let config = Config::read(&path).unwrap();
    let workload = Workload::read(&config.workload_path(&path)).unwrap();
    assert_eq!((workload.gradients.len(), workload.elements()), (161, 25_557_032));
    let measure = &config.measure;
    assert!(measure.blocks_min >= 2 && measure.blocks_min * measure.steps_per_block >= 6);
    let cases = config.cases();
    assert!(cases.len() <= 48);
    for (mib, ms) in [(128, 1.0), (64, 5.0)] {
        let default = |case: &measure::config::Case| {
            case.fusion_threshold_bytes == mib << 20 && case.cycle_time_ms() == ms
        };
        assert!(cases.iter().any(default), "{mib} MiB, {ms} ms");
    }
}

/// The scaling sweep as its header and slurm/README.md describe it, on 64 nodes.
#[test]
fn the_scaling_sweep_is_what_its_header_says() {
    let mut config = Config::read(&root().join("configs/cluster.toml")).unwrap();
    config.sweep.transport = vec!["mpi".into()];
    config.sweep.settle(Allocation { nodes: 64, ranks_per_node: 4 });
    let cases = config.cases();
    assert_eq!(cases.len(), 182);
    for nodes in [1, 2, 4, 8, 16, 32, 64] {
        let own = || cases.iter().filter(move |case| case.topology.nodes() == nodes);
        assert_eq!(own().count(), 26);
        for name in ["ring", "tree", "hierarchical", "grouped", "mpi-allreduce"] {
            let has = |plane: &str, mib: usize, ms: f64| {
                own().any(|case| {
                    let threshold = (case.fusion_threshold_bytes, case.cycle_time_ms());
                    (&*case.control_plane, &*case.algorithm) == (plane, name)
                        && threshold == (mib << 20, ms)
                })
            };
            for plane in ["bitvector", "coordinator"] {
                assert!(has(plane, 128, 1.0) && has(plane, 64, 5.0), "{plane} {name}");
            }
        }
    }
    let measure = &config.measure;
    assert!(measure.blocks_min * measure.steps_per_block >= 6 && measure.repeat_base);
}

/// Pages quote the outputs of the reference runs.
#[test]
fn pages_quote_the_reference_runs() {
    let page = read("harness/measure/README.md");
    assert!(page.contains(read("results/reference/quick/summary.txt").trim_end()));
    let said = read("results/reference/control-planes/summary.txt");
    let (_, sentences) = said.rsplit_once("\n\n").unwrap();
    assert!(page.contains(sentences.trim_end()), "the page does not quote\n{sentences}");
    let said = read("results/reference/tune/four-nodes-2/summary.txt");
    assert!(read("harness/tune/README.md").contains(said.trim_end()));
    let readme = read("README.md");
    assert!(readme.lines().count() < 150, "the first page is short");
    let answer = readme.split("```\n").find(|block| block.starts_with("densenet121")).unwrap();
    for line in answer.lines().filter(|line| *line != "...") {
        assert!(said.lines().any(|other| other == line), "{line}");
    }
}

/// The quick sweep's conclusion is that of its rows.
#[test]
fn the_conclusion_of_the_quick_sweep_is_that_of_its_rows() {
    let folder = root().join("results/reference/quick");
    let rows = csv::Reader::from_path(folder.join("rows.csv")).unwrap().into_deserialize();
    let rows: Vec<StepRow> = rows.filter_map(|row| StepRow::of(row.unwrap())).collect();
    let said = measure::summary::conclusion(&rows);
    let written = Conclusion::read(&folder).unwrap().unwrap();
    assert_eq!((&written.verdicts, &written.to_copy), (&said.verdicts, &said.to_copy));
    // What the blocks tell about the spread comes after what the rows tell.
    assert!(written.limits.starts_with(&said.limits), "{:?}", written.limits);
}

/// Folders below one that have rows.
fn with_rows(folder: &Path, found: &mut Vec<PathBuf>) {
    if folder.join("rows.csv").exists() {
        found.push(folder.into());
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            with_rows(&path, found);
        }
    }
}

/// Rows of a reference run are those of the launches beside them.
#[test]
fn reference_rows_are_of_the_launches_in_their_provenance() {
    let mut folders = Vec::new();
    with_rows(&root().join("results/reference"), &mut folders);
    assert!(folders.len() > 20);
    for folder in folders.iter().filter(|folder| folder.join("provenance.json").exists()) {
        let text = fs::read_to_string(folder.join("provenance.json")).unwrap();
        let provenance: serde_json::Value = serde_json::from_str(&text).unwrap();
        let launches = provenance["launches"].as_array().unwrap();
        let commits: BTreeSet<&str> =
            launches.iter().filter_map(|launch| launch["commit"].as_str()).collect();
        let mut rows = csv::Reader::from_path(folder.join("rows.csv")).unwrap();
        let Some(at) = rows.headers().unwrap().iter().position(|name| name == "commit") else {
            continue;
        };
        for row in rows.records() {
            let row = row.unwrap();
            assert!(
                row[at].is_empty() || commits.contains(&row[at]),
                "{}: {}",
                folder.display(),
                &row[at]
            );
        }
    }
}

/// Markdown files of the repository, from its root.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn every_link_of_every_page_leads_somewhere() {
    let mut found = Vec::new();
    pages(&root(), &mut found);
    assert!(found.len() >= 15, "{found:?}");
    for path in found {
        let page = fs::read_to_string(&path).unwrap();
        let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(to.exists(), "{} links to {link}", path.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&to).unwrap();
                let is_there = text.lines().any(|line| anchor_of(line).as_deref() == Some(anchor));
                assert!(is_there, "{} links to {link}", path.display());
            }
        }
    }
}

/// The anchor of a line that is a heading.
fn anchor_of(line: &str) -> Option<String> {
    let heading =
        line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))?;
    let letter = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    Some(heading.chars().filter_map(letter).collect())
}

#[test]
fn the_options_on_the_page_are_understood() {
    let page = read("configs/README.md");
    let (_, rest) = page.split_once("```toml\n[framework]\n").unwrap();
    let options = rest.split_once("```").unwrap().0;
    let framework: Framework = toml::from_str(options).unwrap();
    framework.check(DataType::F32, ReduceOp::Average).unwrap();
    assert_eq!(options.lines().count(), 5, "every option but the plain factors");
}

#[test]
fn every_workload_can_be_read() {
    for path in files("configs/workloads", ".csv") {
        if !path.to_string_lossy().ends_with(".ready.csv") {
            Workload::read(&path).unwrap();
        }
    }
}

#[test]
fn every_algorithm_is_on_its_page() {
    let page = read("algorithms/README.md");
    for entry in algorithms::registry::ALL {
        let (plain, over) = (format!("`{}`", entry.name), format!("`{}[:INNER]`", entry.name));
        assert!(page.contains(&plain) || page.contains(&over), "{}", entry.name);
    }
}

#[test]
fn every_control_plane_is_on_its_page() {
    let page = read("algorithms/README.md");
    for name in algorithms::control::NAMES {
        assert!(page.contains(&format!("| `{name}")), "{name}");
    }
}

#[test]
fn every_variable_that_is_used_is_on_its_page() {
    let page = read("configs/README.md");
    for variable in VARIABLES.iter().filter(|variable| variable.usage == Usage::Used) {
        assert!(page.contains(&format!("`{}`", variable.name)), "{}", variable.name);
    }
}

/// Names of crates, by crate.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Everything that a crate uses, and what that uses.
fn with_what_these_use(uses: &Graph, name: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut left: Vec<&String> = uses[name].iter().collect();
    while let Some(next) = left.pop() {
        if all.insert(next.clone()) {
            left.extend(&uses[next]);
        }
    }
    all
}

/// The crates of the workspace and what each uses, as Cargo knows it: tests left out.
fn uses_by_cargo() -> Graph {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_string();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let of_package = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let own = dependencies.filter(|other| other["path"].is_string() && other["kind"].is_null());
        (name(package), own.map(name).collect())
    };
    packages.map(of_package).collect()
}

/// The same from the code map, and the crates of `harness/` in its order.
fn uses_by_code_map() -> (Graph, Vec<String>) {
    let page = read("ARCHITECTURE.md");
    let (mut uses, mut order) = (Graph::new(), Vec::new());
    for line in page.lines().filter(|line| line.starts_with("| [`")) {
        let folder = line.split('`').nth(1).unwrap();
        let used = line.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        let name = folder.rsplit('/').next().unwrap().to_string();
        let used: BTreeSet<String> = match used {
            "" => continue,
            "nothing" => BTreeSet::new(),
            "all" => order.iter().cloned().chain(["plots".into()]).collect(),
            names => names.split(", ").map(str::to_string).collect(),
        };
        if folder.starts_with("harness/") || folder == "algorithms" {
            order.push(name.clone());
        }
        uses.insert(name, used);
    }
    (uses, order)
}

#[test]
fn the_code_map_is_the_graph_of_cargo() {
    let (cargo, (page, order)) = (uses_by_cargo(), uses_by_code_map());
    // The virtual cluster's switch is a part of `slurm`, which is no crate.
    let names = || cargo.keys().filter(|name| *name != "switch");
    assert!(names().eq(page.keys()), "Cargo: {:?}, the page: {:?}", cargo.keys(), page.keys());
    assert!(cargo["switch"].is_empty());
    for name in names() {
        let (found, said) = (with_what_these_use(&cargo, name), with_what_these_use(&page, name));
        assert_eq!(
            found, said,
            "{name} uses the first by Cargo, and the second by ARCHITECTURE.md"
        );
    }
    for (at, name) in order.iter().enumerate() {
        let below = &order[at..];
        let up = cargo[name].iter().find(|other| below.contains(other));
        assert_eq!(up, None, "{name} uses a crate that stands below it in ARCHITECTURE.md");
    }
}

/// The code block behind a marker on the page of algorithms.
fn block(marker: &str) -> String {
    let page = read("algorithms/README.md");
    let (_, rest) = page.split_once(&format!("<!-- {marker} -->\n```rust\n")).expect(marker);
    rest.split_once("```").unwrap().0.to_string()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            fs::copy(path, copy).unwrap();
        }
    }
}

/// The walk-through, done to a copy of the crate: the file, its `mod` line and the registry line
/// are all it takes for the algorithm to be proved.
#[test]
fn the_walk_through_adds_an_algorithm() {
    let copy = tempfile::tempdir().unwrap();
    let source = copy.path().join("algorithms/src");
    copy_folder(&root().join("algorithms/src"), &source);
    fs::write(source.join("chain.rs"), block("algorithms/src/chain.rs")).unwrap();
    let change = |name: &str, from: &str, to: String| {
        let text = fs::read_to_string(source.join(name)).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        fs::write(source.join(name), text.replacen(from, &to, 1)).unwrap();
    };
    change("lib.rs", "pub mod combinators;", "pub mod chain;\npub mod combinators;".into());
    let list = "pub const ALL: &[Entry] = &[\n";
    change("registry.rs", list, format!("{list}{}", block("algorithms/src/registry.rs")));
    fs::write(
        copy.path().join("Cargo.toml"),
        "[package]\nname = \"algorithms\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\npath = \"algorithms/src/lib.rs\"\n[[bin]]\nname = \"prove\"\npath = \"prove.rs\"\n\
         [workspace]\n[profile.dev]\ndebug = false\n",
    )
    .unwrap();
    fs::write(
        copy.path().join("prove.rs"),
        r#"
        use algorithms::{registry::find, topology::Topology, verify};
        const MOST_RANKS: usize = 64;
        fn main() {
            for ranks in 1..=MOST_RANKS {
                for name in ["chain", "hierarchical:chain", "grouped:chain"] {
                    verify::algorithm(&*find(name).unwrap(), &Topology::flat(ranks)).unwrap();
                }
            }
            let world = Topology::uniform(3, 4);
            let proof = verify::algorithm(&*find("chain").unwrap(), &world).unwrap();
            println!("{} steps, {} transfers", proof.steps, proof.transfers);
        }"#
        .replace("= 64;", if all_worlds() { "= 64;" } else { "= 12;" }),
    )
    .unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline"])
        .current_dir(copy.path())
        .env("CARGO_TARGET_DIR", copy.path().join("target"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "22 steps, 22 transfers\n", "{}", text(&output.stderr));
    let lines = block("algorithms/src/chain.rs").lines().count();
    assert!(lines <= 70, "the walk-through's file has {lines} lines");
}
