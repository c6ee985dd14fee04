//! Example outputs on the pages match the program's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::cli::sandbox::{Ended, kolo};

/// Pages and their commands whose outputs depend only on the repository.
const EXAMPLES: [(&str, &str); 11] = [
    (
        "harness/kolo/README.md",
        "compare results/reference/tune/four-nodes results/reference/tune/four-nodes-busy",
    ),
    ("harness/kolo/README.md", "plot results/reference/quick --verbose --out f1"),
    ("harness/kolo/README.md", "calibrate --logs harness/results/tests/data/logs/ring-simple.log"),
    ("harness/kolo/README.md", "report results/reference/quick --out r3.html"),
    ("harness/kolo/README.md", "verify --algorithm ring,hierarchical --ranks 1..4"),
    ("harness/kolo/README.md", "schedule --algorithm ring --ranks 4"),
    ("harness/kolo/README.md", "site list"),
    ("harness/kolo/README.md", "info"),
    ("harness/kolo/README.md", "site check generic"),
    (
        "harness/kolo/README.md",
        "predict results/reference/scaling/measured --machine results/reference/scaling/machine.toml --known-ranks 2 \
         --no-figures",
    ),
    ("slurm/README.md", "sweep --slurm configs/ci.toml --site virtual --dry-run"),
];

/// Pages and their commands whose numbers are measured, or depend on the machine.
const MEASURED: [(&str, &str); 3] = [
    ("harness/kolo/README.md", "sweep configs/quick.toml --dry-run"),
    ("slurm/README.md", "sweep --slurm configs/cluster.toml --site virtual --nodes 8 --dry-run"),
    ("harness/kolo/README.md", "bench --algorithm ring --ranks 2 -b 1K -e 1M -f 32"),
];

/// The output below `$ kolo COMMAND` on a page.
fn shown<'p>(page: &'p str, command: &str) -> Vec<&'p str> {
    let (_, rest) = page.split_once(&format!("\n$ kolo {command}\n")).expect(command);
    rest.lines().take_while(|line| *line != "```" && !line.starts_with("$ ")).collect()
}

/// Every number becomes `#`, and every gap one space.
fn without_numbers(line: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let blind = |word: &str| match word.strip_prefix(is_number) {
        Some(_) if word != "..." => format!("#{}", word.trim_start_matches(is_number)),
        _ => word.to_string(),
    };
    line.split_whitespace().map(blind).collect::<Vec<_>>().join(" ")
}

/// `0.01 s` becomes `T s`.
fn without_times(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 1..words.len() {
        if words[at] == "s" && words[at - 1].parse::<f64>().is_ok() {
            words[at - 1] = "T";
        }
    }
    words.join(" ")
}

/// Whether the lines are shown, in this order; `...` stands for any number of lines.
fn is_shown(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "..." => {
            (0..=printed.len()).any(|left_out| is_shown(rest, &printed[left_out..]))
        }
        Some((line, rest)) => printed.first() == Some(line) && is_shown(rest, &printed[1..]),
    }
}

#[test]
fn example_outputs_are_what_the_program_prints() {
    let all = EXAMPLES.iter().map(|example| (example, without_times as fn(&str) -> String));
    let all =
        all.chain(MEASURED.iter().map(|example| (example, without_numbers as fn(&str) -> String)));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // As in the root of the repository, but for what is written.
    let folder = tempfile::tempdir().unwrap();
    for name in ["configs", "harness", "results", "slurm"] {
        symlink(root.join(name).canonicalize().unwrap(), folder.path().join(name)).unwrap();
    }
    for ((name, command), compared) in all {
        let page = fs::read_to_string(root.join(name)).unwrap();
        let mut kolo = kolo(&command.split_whitespace().collect::<Vec<_>>());
        if command.starts_with("predict") {
            kolo.arg("--out").arg(folder.path().join("out"));
        }
        // Without Slurm, as on the page.
        let ended = Ended::of(kolo.current_dir(folder.path()).env("PATH", folder.path()));
        // What is not drawn is said on stderr.
        let said = if command.starts_with("plot") { ended.stderr.as_str() } else { "" };
        let printed = ended.stdout.lines().chain(said.lines());
        let printed: Vec<String> = printed.map(compared).collect();
        let shown: Vec<String> = shown(&page, command).into_iter().map(compared).collect();
        assert!(
            is_shown(&shown, &printed),
            "{name} shows for kolo {command}:\n{}\nit prints:\n{}{}",
            shown.join("\n"),
            printed.join("\n"),
            ended.stderr
        );
    }
}

#[test]
fn left_out_lines_are_any_number_and_others_are_compared() {
    let lines = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
    assert!(is_shown(&lines("a ... d"), &lines("a b c d")));
    assert!(is_shown(&lines("a ..."), &lines("a")));
    assert!(!is_shown(&lines("a ... d"), &lines("a b c")));
    assert!(!is_shown(&lines("a b"), &lines("a b c")));
    assert_eq!(without_times("proved, 0.01 s"), "proved, T s");
}
