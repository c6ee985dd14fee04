//! Logs of latencies, read by HdrHistogram's own readers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::process::Command;

use results::record::{Output, Store};

use crate::cli::sandbox::{Ended, Sweep};

/// A Python that has `hdrhistogram`; `make test-hlog` sets it.
const PYTHON: &str = "KOLO_HDRHISTOGRAM_PYTHON";

/// Debian's place for the Java library.
const JAR: &str = "/usr/share/java/hdrhistogram.jar";

const SCRIPT: &str = r#"
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
log = HistogramLogReader(sys.argv[1], HdrHistogram(1, 600_000_000_000, 3))
while (interval := log.get_next_interval_histogram()) is not None:
    quantiles = [interval.get_value_at_percentile(percent) for percent in (50, 99)]
    print(interval.get_tag(), interval.get_total_count(), *quantiles, interval.get_max_value(), sep="\t")
"#;

/// Count, median, 99th percentile and maximum in nanoseconds, by tag.
type Intervals = BTreeMap<String, [u64; 4]>;

fn number<E: Debug>(text: Option<&str>, parse: impl Fn(&str) -> Result<u64, E>) -> u64 {
    parse(text.expect("a number")).expect("a number")
}

fn by_python(python: &str, log: &Path) -> Intervals {
    let ended = Ended::of(Command::new(python).args(["-c", SCRIPT]).arg(log));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let interval = |line: &str| {
        let mut fields = line.split('\t');
        let tag = fields.next().unwrap().to_string();
        (tag, [(); 4].map(|()| number(fields.next(), str::parse)))
    };
    ended.stdout.lines().map(interval).collect()
}

/// What the processor of logs prints for a tag: percentiles from the smallest, and a last line with the maximum.
fn by_java(log: &Path, tag: &str) -> [u64; 4] {
    let mut java = Command::new("java");
    java.args(["-cp", JAR, "org.HdrHistogram.HistogramLogProcessor", "-tag", tag]);
    let ended = Ended::of(java.args(["-outputValueUnitRatio", "1", "-i"]).arg(log));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let nanoseconds = |text: &str| text.parse::<f64>().map(|value| value as u64);
    let percentiles = ended.stdout.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let value = nanoseconds(fields.next()?).ok()?;
        Some((value, fields.next()?.parse::<f64>().ok()?))
    });
    let percentiles: Vec<(u64, f64)> = percentiles.collect();
    let at = |share: f64| percentiles.iter().find(|(_, percentile)| *percentile >= share);
    let last = ended.stdout.lines().find(|line| line.starts_with("#[Max ")).expect("a maximum");
    let mut numbers = last.split(['=', ',', ']']).skip(1).step_by(2).map(str::trim);
    let most = number(numbers.next(), nanoseconds);
    let count = number(numbers.next(), nanoseconds);
    [count, at(0.5).expect("a median").0, at(0.99).expect("a percentile").0, most]
}

#[test]
#[ignore = "needs Python with hdrhistogram, and Java with its library: make test-hlog"]
fn other_readers_find_the_same_intervals() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let (store, earlier) = Store::resume(&sweep.path("out"), 3).unwrap();
    let written = earlier.blocks.keys().filter_map(|key| {
        let (case, block) = key;
        let latencies = store.block(key).unwrap().latencies?;
        let quantiles = [0.5, 0.99].map(|share| latencies.value_at_quantile(share));
        let numbers = [latencies.len(), quantiles[0], quantiles[1], latencies.max()];
        Some((format!("{case}#{block}"), numbers))
    });
    let written: Intervals = written.collect();
    assert_eq!(written.len(), 16, "8 cases of 2 blocks");
    let log = sweep.path("out/latencies.hlog");
    let python = std::env::var(PYTHON).unwrap_or_else(|_| panic!("{PYTHON} is not set"));
    assert_eq!(by_python(&python, &log), written);
    assert!(Path::new(JAR).exists(), "{JAR} is missing: libhdrhistogram-java");
    for (tag, numbers) in written.iter().step_by(5) {
        let [count, median, most_of, most] = by_java(&log, tag);
        assert_eq!((count, most), (numbers[0], numbers[3]), "{tag}");
        // Its percentiles are on a grid, and not below those asked for.
        assert!(median >= numbers[1] && most_of >= numbers[2], "{tag}: {median} {most_of}");
        assert!(median <= most && most_of <= most, "{tag}");
    }
}
