//! OSU micro-benchmarks: text of `osu_allreduce`, `osu_latency` and `osu_bw` (and other programs, which are named), as
//! versions 3 to 7 print it, also with `-f` (columns of minimum, maximum and iterations) and `-c` (validation).
//!
//! OSU's logs do not say how many ranks there were; those of `kolo bench --format osu` do.

use super::Parsed;
use algorithms::topology::Topology;

use super::table::{Operation, Point, Table, dtype};

/// Whether a text has the header of such a log.
pub fn is_osu(text: &str) -> bool {
    text.lines().any(|line| title(line).is_some())
}

/// `OSU MPI-CUDA Allreduce Latency Test v7.3`, without version.
fn title(line: &str) -> Option<&str> {
    let title = &line[line.find("# OSU ")? + "# OSU ".len()..];
    let is_version = |at: &usize| title[at + 2..].starts_with(|c: char| c.is_ascii_digit());
    let end = title.rfind(" v").filter(is_version).unwrap_or(title.len());
    let title = title[..end].trim();
    title.ends_with("Test").then_some(title)
}

/// What the program measures, by its title.
fn operation(title: &str) -> Operation {
    let title = title.to_ascii_lowercase();
    // `mpi`, `mpi-cuda`, `mpi-rocm`; `mpi_put` is another program.
    let is_mpi = |program: &str| program == "mpi" || program.starts_with("mpi-");
    let is_plain = |what: &str| {
        title.split_once(' ').is_some_and(|(program, rest)| is_mpi(program) && rest.trim() == what)
    };
    if title.contains("allreduce latency") && !title.contains("non-blocking") {
        Operation::AllReduce
    } else if is_plain("latency test") {
        Operation::Message
    } else if is_plain("bandwidth test") {
        Operation::Stream
    } else {
        Operation::Other(title.trim_end_matches(" test").into())
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Size,
    Time,
    Least,
    Most,
    Iterations,
    /// MB/s.
    Bandwidth,
    Validation,
    Other,
}

impl Column {
    fn of(name: &str) -> Column {
        let name = name.trim_start_matches('#').trim().to_ascii_lowercase();
        match name.as_str() {
            "size" => Column::Size,
            "iterations" => Column::Iterations,
            "validation" => Column::Validation,
            _ if name.starts_with("min lat") => Column::Least,
            _ if name.starts_with("max lat") => Column::Most,
            _ if name.starts_with("latency") || name.starts_with("avg lat") => Column::Time,
            _ if name.starts_with("bandwidth") => Column::Bandwidth,
            _ => Column::Other,
        }
    }
}

/// The columns of a header: names stand apart by two spaces or a tab, or by their units.
fn columns(line: &str) -> Option<(usize, Vec<Column>)> {
    let at = line.find("# Size")?;
    let spaced = line[at..].replace('\t', "  ").replace(')', ")  ");
    let names: Vec<&str> =
        spaced.split("  ").map(str::trim).filter(|name| !name.is_empty()).collect();
    (names.len() > 1).then(|| (at, names.into_iter().map(Column::of).collect()))
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let (mut prefix, mut names, mut kind) = (0, Vec::new(), String::new());
    let last = text.lines().count();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(title) = title(line) {
            parsed.tables.push(Table::at(number, operation(title)));
            (names, kind) = (Vec::new(), String::new());
        } else if let Some((_, after)) =
            line.split_once(": algorithm ").filter(|_| line.contains("# written by kolo "))
        {
            // `kolo bench --format osu` says more than OSU: `ring, 2x2 over threads`.
            let (algorithm, after) = after.split_once(", ").unwrap_or((after, ""));
            let topology = after.split(' ').next().and_then(|text| text.parse::<Topology>().ok());
            if let Some(table) = parsed.tables.last_mut() {
                table.algorithm = Some(algorithm.into());
                let sizes =
                    |it: &Topology| (0..it.nodes()).map(|node| it.node(node).len()).collect();
                table.ranks_on_hosts = topology.as_ref().map(sizes).unwrap_or_default();
            }
        } else if let Some((_, name)) = line.split_once("# Datatype:") {
            kind = dtype(name.trim().trim_end_matches('.'));
        } else if let Some((at, found)) = columns(line) {
            (prefix, names) = (at, found);
        } else if let Some(table) = parsed.tables.last_mut().filter(|_| !names.is_empty()) {
            // `mpirun --tag-output` and `srun -l` put a prefix before every line, of the header's length.
            let Some(rest) = line.get(prefix..) else { continue };
            let words: Vec<&str> = rest.split_whitespace().collect();
            let Some(size_bytes) = words.first().and_then(|word| word.parse().ok()) else {
                continue;
            };
            let is_cut = number == last && !text.ends_with('\n') && words.len() < names.len();
            match point(&names, &words, (number, size_bytes)) {
                Some(point) if !is_cut => table.points.push(Point { dtype: kind.clone(), ..point }),
                _ if is_cut => parsed.note(number, "the line is cut; it is left out"),
                _ => {
                    let (found, expected) = (words.len(), names.len());
                    let what = format!(
                        "found {found} columns without a time, expected {expected} as in the header; the line is left out"
                    );
                    parsed.note(number, what);
                }
            }
        }
    }
    parsed
}

fn point(names: &[Column], words: &[&str], (line, size_bytes): (usize, usize)) -> Option<Point> {
    let word = |column: Column| {
        names.iter().position(|name| *name == column).and_then(|at| words.get(at).copied())
    };
    let number = |column: Column| {
        word(column)?.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0)
    };
    let streamed = || number(Column::Bandwidth).map(|mb_s| size_bytes as f64 / mb_s);
    Some(Point {
        line,
        size_bytes,
        dtype: String::new(),
        op: String::new(),
        in_place: false,
        time_us: number(Column::Time).or_else(streamed)?,
        time_us_min: number(Column::Least),
        time_us_max: number(Column::Most),
        iterations: number(Column::Iterations).map(|count| count as usize),
        wrong: match word(Column::Validation) {
            Some("Pass") => Some(0),
            Some("Fail") => Some(1),
            _ => None,
        },
    })
}
