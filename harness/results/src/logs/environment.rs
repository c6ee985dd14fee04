//! NCCL's algorithm and protocol, where a log or the name of its file has them.

use std::path::Path;

/// NCCL's algorithms, as `NCCL_ALGO` spells them.
const ALGORITHMS: [&str; 7] =
    ["Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"];

/// NCCL's protocols, as `NCCL_PROTO` spells them.
const PROTOCOLS: [&str; 3] = ["LL128", "LL", "Simple"];

/// The value of a variable that a line sets: `NAME=value` (also of a command line, `-x NAME=value`), or `NAME set by
/// environment to value`, as NCCL itself logs it.
pub(super) fn value_of(line: &str, name: &str) -> Option<String> {
    let after = &line[line.find(name)? + name.len()..];
    let after = after
        .strip_prefix('=')
        .or_else(|| after.strip_prefix(" set by environment to "))
        .or_else(|| after.strip_prefix(": "))?;
    let end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | ')' | '\\');
    let value = after.trim_start_matches(['"', '\'']).split(end).next()?.trim_end_matches('.');
    (!value.is_empty() && !value.starts_with('$')).then(|| spelled(value))
}

/// As NCCL spells it, if it is one of its names.
fn spelled(value: &str) -> String {
    let known = ALGORITHMS.iter().chain(&PROTOCOLS).find(|known| known.eq_ignore_ascii_case(value));
    known.map_or(value, |known| *known).into()
}

/// Algorithm and protocol in the name of a file, as words: `ring-ll128.log`, `allreduce_Tree_Simple.txt`.
pub fn named_in_path(path: &Path) -> (Option<String>, Option<String>) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let among = |known: &[&str]| {
        let mut found =
            known.iter().filter(|known| words.iter().any(|word| word.eq_ignore_ascii_case(known)));
        // Two names say nothing of the tables.
        found.next().filter(|_| found.next().is_none()).map(|known| known.to_string())
    };
    (among(&ALGORITHMS), among(&PROTOCOLS))
}
