//! The JSON that nccl-tests writes with `-J` (versions 1 to 3, `src/util.cu`), also that of `kolo bench -J`. It names no
//! collective in some versions; then the program in `args` tells.

use serde::Deserialize;

use super::Parsed;
use super::environment::value_of;
use super::table::{Operation, Point, Table, dtype, op};

/// Whether a text is such a file, whole or cut.
pub fn is_json(text: &str) -> bool {
    let beginning: String = text.trim_start().chars().take(4096).collect();
    let keys = ["\"version\"", "\"start_time\"", "\"args\""];
    beginning.starts_with('{') && keys.iter().all(|key| beginning.contains(key))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    start_time: String,
    args: Vec<String>,
    env: Vec<String>,
    config: Config,
    results: Vec<Line>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    warmup_iters: usize,
    iterations: Option<usize>,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    hostname: String,
    #[serde(default)]
    device_hex: String,
    #[serde(default)]
    device_info: String,
}

#[derive(Deserialize)]
struct Line {
    size: usize,
    #[serde(rename = "type", default)]
    dtype: String,
    #[serde(default)]
    redop: String,
    out_of_place: Option<Half>,
    in_place: Option<Half>,
    actual_iterations: Option<usize>,
    #[serde(default)]
    experiment_name: String,
}

#[derive(Deserialize)]
struct Half {
    #[serde(alias = "cpu_time")]
    time: f64,
    nwrong: Option<f64>,
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let file: File = match serde_json::from_str(text) {
        Ok(file) => file,
        Err(error) => {
            let whole = error.is_eof().then(|| whole_part(text)).flatten();
            let whole = whole.and_then(|whole| serde_json::from_str(&whole).ok());
            let (line, what) = match whole {
                Some(_) => (
                    text.lines().count(),
                    "the end of the file is missing; what is whole is read".into(),
                ),
                None => {
                    (error.line(), format!("{error}, expected JSON as -J of nccl-tests writes it"))
                }
            };
            parsed.note(line, what);
            match whole {
                Some(file) => file,
                None => return parsed,
            }
        }
    };
    let program = file.args.first().map_or("all_reduce", String::as_str);
    // `kolo bench` times allreduces alone, and names the algorithm.
    let is_kolo = file.args.get(1).is_some_and(|command| command == "bench");
    let operation = if is_kolo { Operation::AllReduce } else { Operation::of_program(program) };
    let mut table = Table::at(1, operation);
    let mut hosts: Vec<(String, usize)> = Vec::new();
    for Device { hostname, device_hex, device_info } in &file.config.devices {
        // Of kolo the node of an emulated rank.
        let node =
            if device_hex.starts_with("node ") { format!(" {device_hex}") } else { String::new() };
        let hostname = &format!("{hostname}{node}");
        match hosts.iter_mut().find(|(known, _)| known == hostname) {
            Some((_, ranks)) => *ranks += 1,
            None => hosts.push((hostname.clone(), 1)),
        }
        if table.device.is_empty() {
            table.device = device_info.clone();
        }
    }
    table.ranks_on_hosts = hosts.iter().map(|(_, ranks)| *ranks).collect();
    table.host = hosts.first().map_or(String::new(), |(host, _)| host.clone());
    (table.started, table.warmup) = (file.start_time, file.config.warmup_iters);
    let variable = |name| file.env.iter().find_map(|variable| value_of(variable, name));
    (table.algorithm, table.protocol) = (variable("NCCL_ALGO"), variable("NCCL_PROTO"));
    if let Some(name) = file.results.first().map(|line| &line.experiment_name).filter(|_| is_kolo) {
        (table.algorithm, table.is_median) = (Some(name.clone()), true);
    }
    for line in &file.results {
        let halves = [(&line.out_of_place, false), (&line.in_place, true)];
        let halves =
            halves.into_iter().filter_map(|(half, in_place)| Some((half.as_ref()?, in_place)));
        for (half, in_place) in halves.filter(|(half, _)| half.time > 0.0) {
            table.points.push(Point {
                line: line_of(text, table.points.len()),
                size_bytes: line.size,
                dtype: dtype(&line.dtype),
                op: op(&line.redop),
                in_place,
                time_us: half.time,
                time_us_min: None,
                time_us_max: None,
                iterations: line.actual_iterations.or(file.config.iterations),
                wrong: half.nwrong.map(|wrong| wrong as u64),
            });
        }
    }
    parsed.tables.push(table);
    parsed
}

/// The line of the n-th half; JSON of nccl-tests is one line.
fn line_of(text: &str, index: usize) -> usize {
    let at = text.match_indices("_place\":").nth(index).map_or(0, |(at, _)| at);
    text[..at].matches('\n').count() + 1
}

/// A file that was cut, up to its last whole result, and closed there.
fn whole_part(text: &str) -> Option<String> {
    let (mut open, mut in_string, mut escaped, mut whole) = (Vec::new(), false, false, None);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => open.push(c),
            '}' | ']' => {
                open.pop();
                // An element of a list at the top, such as a result.
                if c == '}' && open == ['{', '['] {
                    whole = Some(at + 1);
                }
            }
            _ => {}
        }
    }
    whole.map(|end| format!("{}]}}", &text[..end]))
}
