//! The tables of rows: which columns of `rows.csv` a page shows, and how.

use super::cell::{decimals, short};
use super::{Column, Record, Table};
use crate::run::Run;

/// A column of the page, from one of the file.
struct Shown {
    column: &'static str,
    header: &'static str,
    how: How,
}

/// How the fields of a column are shown.
#[derive(Clone, Copy)]
enum How {
    /// As they are.
    Text,
    /// As a mark, if they are true.
    Mark,
    /// Divided, with as many digits as they need.
    Setting(f64),
    /// Divided, all with the same number of decimals.
    Number(f64),
    /// The same, followed by a column with the interval.
    Median(f64),
}

const fn shown(column: &'static str, header: &'static str, how: How) -> Shown {
    Shown { column, header, how }
}

/// A kind of row: its name in the file, what the page calls its rows, the column by which they are sorted, where a minus
/// means the largest first, and columns whose zeros mean nothing there.
type Kind = (&'static str, &'static str, &'static str, &'static [&'static str]);

const KINDS: [Kind; 4] = [
    ("step", "Training steps", "time_us_p50", &[]),
    ("allreduce", "Allreduces alone", "time_us_p50", &["tensors"]),
    ("message", "Messages", "-busbw_gb_s", &["tensors", "wrong", "cache_capacity"]),
    ("control", "Control planes alone", "rank0_us_p50", &[]),
];

const MS: f64 = 1e3;
const PERCENT: f64 = 0.01;

/// The columns of the page, in their order: what usually differs, results, and the rest. Of a pair with the same field, a kind of row has the unit of its times.
const SHOWN: &[Shown] = &[
    shown("source", "source", How::Text),
    shown("workload", "workload", How::Text),
    shown("machine", "machine", How::Text),
    shown("policy", "policy", How::Text),
    shown("engine", "engine", How::Text),
    shown("transport", "transport", How::Text),
    shown("nodes", "nodes", How::Setting(1.0)),
    shown("ranks", "ranks", How::Setting(1.0)),
    shown("control_plane", "control plane", How::Text),
    shown("algorithm", "algorithm", How::Text),
    shown("size_bytes", "size (B)", How::Setting(1.0)),
    shown("fusion_threshold_bytes", "fusion threshold (MiB)", How::Setting(1_048_576.0)),
    shown("cycle_time_ms", "cycle time (ms)", How::Setting(1.0)),
    shown("time_us_p50", "step time (ms)", How::Median(MS)),
    shown("time_us_p50", "time (us)", How::Median(1.0)),
    shown("rank0_us_p50", "rank 0 (us)", How::Median(1.0)),
    shown("network_us_p50", "assumed network (us)", How::Number(1.0)),
    shown("throughput_samples_s_p50", "throughput (samples/s)", How::Median(1.0)),
    shown("efficiency_p50", "efficiency (%)", How::Median(PERCENT)),
    shown("exposed_us_p50", "exposed communication (ms)", How::Number(MS)),
    shown("negotiation_us_p50", "negotiation (ms)", How::Number(MS)),
    shown("cycle_wait_us_p50", "a gradient's wait for a cycle (ms)", How::Number(MS)),
    shown("until_cycle_us_p50", "waiting for a cycle (ms)", How::Number(MS)),
    shown("packing_us_p50", "packing (ms)", How::Number(MS)),
    shown("reduction_us_p50", "reducing (ms)", How::Number(MS)),
    shown("part_compute_us", "computation (ms)", How::Number(MS)),
    shown("part_jitter_us", "slowest rank (ms)", How::Number(MS)),
    shown("part_cycle_us", "cycle (ms)", How::Number(MS)),
    shown("part_negotiation_us", "negotiating (ms)", How::Number(MS)),
    shown("part_latency_us", "latency (ms)", How::Number(MS)),
    shown("part_bandwidth_us", "bandwidth (ms)", How::Number(MS)),
    shown("part_contention_us", "contention (ms)", How::Number(MS)),
    shown("part_reduction_us", "reduction (ms)", How::Number(MS)),
    shown("messages_p50", "messages", How::Setting(1.0)),
    shown("algbw_gb_s", "algorithm bandwidth (GB/s)", How::Number(1.0)),
    shown("busbw_gb_s", "bus bandwidth (GB/s)", How::Median(1.0)),
    shown("bound_us", "bound (us)", How::Number(1.0)),
    shown("driven", "driven", How::Text),
    shown("grouping", "grouping", How::Text),
    shown("backward_passes_per_step", "backward passes", How::Setting(1.0)),
    shown("compression", "compression", How::Text),
    shown("dtype", "dtype", How::Text),
    shown("op", "op", How::Text),
    shown("tensors", "tensors", How::Setting(1.0)),
    shown("cache_capacity", "cache capacity", How::Setting(1.0)),
    shown("batch", "batch", How::Setting(1.0)),
    shown("ready_order", "ready order", How::Text),
    shown("miss_share", "cache misses (%)", How::Setting(PERCENT)),
    shown("invalid_share", "cache invalid (%)", How::Setting(PERCENT)),
    shown("wrong", "wrong elements", How::Setting(1.0)),
    shown("samples", "samples", How::Setting(1.0)),
    shown("emulated", "emulated", How::Mark),
    shown("oversubscribed", "oversubscribed", How::Mark),
    shown("status", "status", How::Text),
    shown("reason", "reason", How::Text),
];

/// A table for each kind of row.
pub fn of_rows(runs: &[Run]) -> Vec<Table> {
    KINDS.iter().filter_map(|kind| of_kind(runs, kind)).collect()
}

fn of_kind(runs: &[Run], (kind, caption, sorted_by, without): &Kind) -> Option<Table> {
    let mut records: Vec<(String, Record)> = Vec::new();
    for run in runs {
        let files = run.files.iter().filter(|file| file.is_of_rows());
        let of_kind = files.flat_map(|file| file.records()).filter(|row| row.text("kind") == *kind);
        records.extend(of_kind.map(|record| (run.path.display().to_string(), record)));
    }
    if records.is_empty() {
        return None;
    }
    let (column, sign) = match sorted_by.strip_prefix('-') {
        Some(column) => (column, -1.0),
        None => (*sorted_by, 1.0),
    };
    let order = |record: &Record| record.number(column).map_or(f64::INFINITY, |it| sign * it);
    // Rows without a time come last.
    records.sort_by(|(_, a), (_, b)| order(a).total_cmp(&order(b)));
    let mut table = Table {
        caption: caption.to_string(),
        file: records_file(&records),
        rows: vec![Vec::new(); records.len()],
        ..Table::default()
    };
    if runs.len() > 1 {
        table.add(text_column("run"), records.iter().map(|(run, _)| run.clone()));
    }
    let records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
    let is_of_steps = *kind == "step";
    for shown in SHOWN {
        let is_of_other_unit =
            shown.column == "time_us_p50" && is_of_steps != shown.header.contains("(ms)");
        if is_of_other_unit || without.contains(&shown.column) {
            continue;
        }
        let first = table.columns.len();
        shown.add_to(&mut table, &records);
        if shown.column == column {
            table.columns[first].sorted = if sign > 0.0 { "ascending" } else { "descending" };
        }
    }
    Some(table.without_repetition())
}

/// The names of the files of some records.
fn records_file(records: &[(String, Record)]) -> String {
    let mut names: Vec<String> = records.iter().map(|(_, record)| record.file_name()).collect();
    names.sort();
    names.dedup();
    names.join(" and ")
}

fn text_column(header: &str) -> Column {
    Column { header: header.into(), ..Column::default() }
}

fn number_column(header: String) -> Column {
    Column { header, is_number: true, sorted: "" }
}

impl Table {
    fn add(&mut self, column: Column, cells: impl Iterator<Item = String>) {
        self.columns.push(column);
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
    }
}

impl Shown {
    fn add_to(&self, table: &mut Table, records: &[Record]) {
        let numbers = |column: &str, divisor: f64| -> Vec<Option<f64>> {
            records.iter().map(|row| row.number(column).map(|number| number / divisor)).collect()
        };
        match self.how {
            How::Text => {
                let cells = records.iter().map(|row| row.text(self.column).to_string());
                table.add(text_column(self.header), cells);
            }
            How::Mark => {
                let mark = |row: &Record| if row.text(self.column) == "true" { "yes" } else { "" };
                table.add(text_column(self.header), records.iter().map(|row| mark(row).into()));
            }
            How::Setting(divisor) => {
                let cells = numbers(self.column, divisor).into_iter();
                table.add(
                    number_column(self.header.into()),
                    cells.map(|number| number.map_or(String::new(), short)),
                );
            }
            How::Number(divisor) => {
                let numbers = numbers(self.column, divisor);
                let places = decimals(numbers.iter().flatten().copied());
                let cells = numbers.iter().map(|number| fixed(*number, places));
                table.add(number_column(self.header.into()), cells);
            }
            How::Median(divisor) => {
                // The ends of `busbw_gb_s` are `busbw_gb_s_low` and `busbw_gb_s_high`.
                let ends = |end: &str| numbers(&format!("{}_{end}", self.column), divisor);
                let (medians, lows, highs) =
                    (numbers(self.column, divisor), ends("low"), ends("high"));
                let places = decimals(medians.iter().flatten().copied());
                let cells = medians.iter().map(|number| fixed(*number, places));
                table.add(number_column(self.header.into()), cells);
                let interval = |(low, high): (&Option<f64>, &Option<f64>)| match (low, high) {
                    (Some(low), Some(high)) => format!("[{low:.places$}, {high:.places$}]"),
                    _ => String::new(),
                };
                let unit = self.header.rsplit_once(" (").map_or("", |(_, unit)| unit);
                let header = format!("95 % interval ({unit}");
                table.add(number_column(header), lows.iter().zip(&highs).map(interval));
            }
        }
    }
}

fn fixed(number: Option<f64>, places: usize) -> String {
    number.map_or(String::new(), |number| format!("{number:.places$}"))
}
