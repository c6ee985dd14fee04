//! nccl-tests' table, of any version (`src/common.cu` and `src/util.cu` of NVIDIA/nccl-tests); also those of
//! rccl-tests and `kolo bench`.
//!
//! A line is a measurement if two whole numbers and an element type stand beside each other in it. Text before them is
//! passed over: prefixes of `srun -l`, `mpirun --tag-output` and of time stamps. The header names the columns that
//! follow; `redop` and `root` came and went over the versions, and columns of a version may be blank.

use std::collections::BTreeSet;

use super::Parsed;
use super::environment::value_of;
use super::table::{Operation, Point, Table, dtype, op};

/// Element types of nccl-tests and rccl-tests.
const TYPES: [&str; 18] = [
    "int8",
    "char",
    "uint8",
    "int32",
    "int",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
    "f8e4m3",
    "f8e5m2",
    "fp8_e4m3",
    "fp8_e5m2",
    "float8_e4m3",
    "float8_e5m2",
];

/// Larger relative errors are wrong data, in the versions whose column has the largest error.
const MOST_ERROR: f64 = 1e-2;

/// Columns of one half of a line: out of place, or in place.
const HALF: [&str; 3] = ["time", "algbw", "busbw"];

/// Whether a text has the header of such a table.
pub fn is_table(text: &str) -> bool {
    text.lines().any(|line| Columns::of(line).is_some())
        || text.lines().any(|line| line.contains("nThread ") && line.contains("minBytes"))
}

/// The columns that a header names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Columns {
    has_op: bool,
    has_root: bool,
    /// Columns of each half: four, or more with intervals of single iterations.
    half: usize,
}

impl Columns {
    /// Of a header line.
    fn of(line: &str) -> Option<Columns> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = |name: &str| words.iter().position(|word| *word == name);
        let first = at("time").or_else(|| at("cputime"))?;
        let size = at("size").or_else(|| at("bytes"))?;
        let is_time = |word: &str| matches!(word, "time" | "cputime");
        let rest = &words[first + 1..];
        let half = rest.iter().position(|word| is_time(word)).map_or(rest.len() + 1, |at| at + 1);
        let named = HALF[1..].iter().all(|name| rest.contains(name));
        (named && size < first && half >= HALF.len()).then(|| Columns {
            has_op: words[size..first].iter().any(|word| matches!(*word, "redop" | "op")),
            has_root: words[size..first].contains(&"root"),
            half: half.min(8),
        })
    }
}

/// What stands before a table and holds for it, and for those after it until it changes.
#[derive(Clone, Debug, Default)]
struct Preamble {
    operation: Option<Operation>,
    algorithm: Option<String>,
    protocol: Option<String>,
    started: String,
    is_median: bool,
    warmup: usize,
    iterations: Option<usize>,
    hosts: Vec<(String, usize)>,
    device: String,
    ranks: BTreeSet<usize>,
    /// Rank numbers that occur twice: several jobs wrote into one file.
    is_mixed: bool,
    emulated: bool,
    oversubscribed: bool,
    /// A table has been made of it.
    used: bool,
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let (mut before, mut columns) = (Preamble::default(), None);
    let ends_whole = text.ends_with('\n');
    let last = text.lines().count();
    let mut concluded = true;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(found) = Columns::of(line) {
            let mut table = before.table(number);
            let again = parsed.tables.last().is_some_and(|last: &Table| last.points.is_empty());
            if again {
                table.line = parsed.tables.pop().map_or(number, |table| table.line);
            }
            if before.is_mixed && !before.used {
                let what = "several jobs wrote into this log (a rank occurs twice); their ranks are not known";
                parsed.note(number, what);
            }
            if !before.is_mixed && !before.is_whole() && !before.used {
                let what =
                    "ranks are missing from the list of devices; how many there are is not known";
                parsed.note(number, what);
            }
            (concluded, before.used) = (false, true);
            parsed.tables.push(table);
            columns = Some(found);
            continue;
        }
        before.read(line);
        if line.contains("Out of bounds values") {
            concluded = true;
        }
        let Some((at, words)) = measurement(line) else { continue };
        let Some((columns, table)) = columns.as_ref().zip(parsed.tables.last_mut()) else {
            parsed.note(number, "a line of times before any header of a table is left out");
            continue;
        };
        if before.operation.is_none() && table.points.is_empty() {
            table.operation = unnamed(columns, &words[at..]);
        }
        match points(columns, &words[at..], line, (number, before.iterations)) {
            Ok(points) if number < last || ends_whole || points.len() == 2 => {
                table.points.extend(points);
            }
            Ok(_) => parsed.note(number, "the line is cut; it is left out"),
            Err(what) => parsed.note(number, format!("{what}; the line is left out")),
        }
    }
    if !concluded {
        parsed.note(last, "the end of the table is missing; what is whole is read");
    }
    parsed
}

/// The words of a line that holds a measurement, and where it begins.
fn measurement(line: &str) -> Option<(usize, Vec<&str>)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let whole = |word: &str| word.parse::<u64>().is_ok();
    let begins = |three: &[&str]| whole(three[0]) && whole(three[1]) && TYPES.contains(&three[2]);
    let at = words.windows(3).position(begins)?;
    Some((at, words))
}

/// What was timed, where no program is named: an allreduce has a reduction, no root, and a bus bandwidth of 2 (n - 1) / n
/// of its algorithm bandwidth, which is at least 1.
fn unnamed(columns: &Columns, words: &[&str]) -> Operation {
    let other = |what: &str| Operation::Other(what.into());
    let decimal = |word: &&str| word.contains('.').then(|| word.parse::<f64>().ok()).flatten();
    let (op, root) = (words.get(3).copied().unwrap_or("none"), words.get(4).copied());
    let rates: Vec<f64> = words.iter().filter_map(decimal).skip(1).take(2).collect();
    if !columns.has_op || op == "none" || op.parse::<f64>().is_ok() {
        other("a collective that reduces nothing")
    } else if columns.has_root
        && root.and_then(|root| root.parse::<i64>().ok()).is_some_and(|root| root >= 0)
    {
        other("a collective with a root")
    } else if rates.len() == 2 && rates[1] < 0.98 * rates[0] {
        other("a collective whose bus bandwidth is below its algorithm bandwidth")
    } else {
        Operation::AllReduce
    }
}

/// Both halves of a line, or one.
fn points(
    columns: &Columns,
    words: &[&str],
    line: &str,
    (number, iterations): (usize, Option<usize>),
) -> Result<Vec<Point>, String> {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let mut rest = &words[3..];
    let mut reduction = "";
    if let Some(word) = rest.first().filter(|word| columns.has_op && !is_number(word)) {
        (reduction, rest) = (word, &rest[1..]);
    }
    // A root is a whole number. Where it is blank, the columns that follow are a whole number of halves, and perhaps
    // date and time.
    let is_root = |word: &&str| word.parse::<i64>().is_ok();
    let is_odd = matches!(rest.len() % columns.half, 1 | 3);
    if columns.has_root
        && rest.first().is_some_and(|word| is_root(word) && (is_odd || *word == "-1"))
    {
        rest = &rest[1..];
    }
    let half = columns.half;
    let blank = line.contains("                            ") && rest.len() < 2 * half;
    let count = rest.len() / half;
    if count == 0 {
        let found = rest.len();
        return Err(format!("found {found} columns of times, expected {half} or {}", 2 * half));
    }
    let size_bytes: usize = words[0].parse().map_err(|_| format!("{} is no size", words[0]))?;
    let mut points = Vec::new();
    for (index, half) in rest.chunks_exact(half).take(2).enumerate() {
        let in_place = index == 1 || (count == 1 && blank);
        if half[0] == "N/A" {
            continue;
        }
        let time_us =
            half[0].parse::<f64>().ok().filter(|time_us| time_us.is_finite() && *time_us >= 0.0);
        let Some(time_us) = time_us else {
            return Err(format!("found {:?}, expected a time in microseconds", half[0]));
        };
        if time_us == 0.0 {
            continue;
        }
        let wrong = half.get(3).and_then(|wrong| wrong.parse::<f64>().ok());
        points.push(Point {
            line: number,
            size_bytes,
            dtype: dtype(words[2]),
            op: op(reduction),
            in_place,
            time_us,
            // Of single iterations, with `-I 1`.
            time_us_min: half.get(4).and_then(|time_us| time_us.parse().ok()),
            time_us_max: half.get(5).and_then(|time_us| time_us.parse().ok()),
            iterations,
            // Before 2.12 the column had the largest error, which is tiny where data are right.
            wrong: wrong.map(|wrong| {
                if wrong < 1.0 { u64::from(wrong > MOST_ERROR) } else { wrong as u64 }
            }),
        });
    }
    Ok(points)
}

impl Preamble {
    /// Whatever a line says of the tables that follow.
    fn read(&mut self, line: &str) {
        if let Some(program) = program(line) {
            if self.used {
                self.begin();
            }
            self.operation = Some(Operation::of_program(program));
        }
        if let Some(after) = after(line, "# Collective test starting:") {
            let (program, algorithm) = after.split_once(", algorithm ").unwrap_or((after, ""));
            self.begin();
            self.operation = Some(Operation::of_program(program));
            if !algorithm.is_empty() {
                let (name, protocol) = named(algorithm.trim());
                (self.algorithm, self.protocol) = (Some(name), protocol);
            }
        } else if let Some(after) = after(line, "nThread ") {
            // Versions before 2.17 begin with this line.
            if self.used {
                self.begin();
            }
            self.warmup = number_after(after, "warmup iters:").unwrap_or(0);
            let single = after.replace("warmup iters:", "").replace("agg iters:", "");
            self.iterations = number_after(&single, "iters:");
        } else if let Some((rank, host, device)) = device(line) {
            self.is_mixed |= !self.ranks.insert(rank);
            match self.hosts.iter_mut().find(|(known, _)| *known == host) {
                Some((_, ranks)) => *ranks += 1,
                None => self.hosts.push((host, 1)),
            }
            if self.device.is_empty() {
                self.device = device;
            }
        } else if line.contains("# time: median over ") {
            self.is_median = true;
        } else if line.contains("# emulated:") {
            self.emulated = true;
        } else if line.contains("# oversubscribed:") {
            self.oversubscribed = true;
        }
        for (name, found) in
            [("NCCL_ALGO", &mut self.algorithm), ("NCCL_PROTO", &mut self.protocol)]
        {
            if let Some(value) = value_of(line, name) {
                *found = Some(value);
            }
        }
    }

    /// Another run begins. What its environment said before may still hold, if it was said since the last table.
    fn begin(&mut self) {
        if self.used {
            *self = Preamble::default();
        } else {
            self.hosts.clear();
            self.ranks.clear();
        }
    }

    /// The list of devices has every rank up to the last, or none.
    fn is_whole(&self) -> bool {
        self.ranks.last().is_none_or(|last| last + 1 == self.ranks.len())
    }

    fn table(&self, line: usize) -> Table {
        let operation = self.operation.clone().unwrap_or(Operation::AllReduce);
        let ranks_on_hosts = self.hosts.iter().map(|(_, ranks)| *ranks).collect();
        Table {
            ranks_on_hosts: if self.is_mixed || !self.is_whole() {
                Vec::new()
            } else {
                ranks_on_hosts
            },
            host: self.hosts.first().map_or(String::new(), |(host, _)| host.clone()),
            device: self.device.clone(),
            started: self.started.clone(),
            algorithm: self.algorithm.clone(),
            protocol: self.protocol.clone(),
            is_median: self.is_median,
            warmup: self.warmup,
            emulated: self.emulated,
            oversubscribed: self.oversubscribed,
            ..Table::at(line, operation)
        }
    }
}

/// The program that a command line names, such as `./build/all_reduce_perf -b 8`.
fn program(line: &str) -> Option<&str> {
    let is_program = |word: &&str| word.ends_with("_perf") || word.ends_with("_perf_mpi");
    line.split_whitespace().find(is_program).filter(|_| !line.contains("Collective test"))
}

/// The text after some words.
fn after<'l>(line: &'l str, words: &str) -> Option<&'l str> {
    line.find(words).map(|at| line[at + words.len()..].trim())
}

fn number_after(text: &str, words: &str) -> Option<usize> {
    after(text, words)?.split_whitespace().next()?.parse().ok()
}

/// NCCL's own allreduce in a table of kolo names algorithm and protocol: `nccl-allreduce:ring:simple`.
fn named(algorithm: &str) -> (String, Option<String>) {
    let mut parts = algorithm.split(':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("nccl-allreduce"), Some(name), protocol) => (name.into(), protocol.map(String::from)),
        _ => (algorithm.into(), None),
    }
}

/// Rank, host and device of a rank's line: `#  Rank  0 Group  0 Pid 6 on host device  0 [0x07] Tesla V100`. A table of
/// kolo names the node after the device.
fn device(line: &str) -> Option<(usize, String, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = |word: &str| words.iter().position(|found| *found == word);
    let (rank, on) = (at("Rank")?, at("on")?);
    at("Pid").filter(|pid| rank < *pid && *pid < on)?;
    let rank = words.get(rank + 1)?.parse().ok()?;
    let host = *words.get(on + 1)?;
    let node = line.split_once("[node ").and_then(|(_, after)| after.split(']').next());
    let name = line.rsplit_once(']').map_or("", |(_, name)| name.trim());
    let host = node.map_or(host.to_string(), |node| format!("{host} node {node}"));
    Some((rank, host, name.into()))
}
