//! Control-plane latencies as a log of HdrHistogram intervals, version 1.3, as HdrHistogram's log readers and HdrHistogram
//! plotters expect it: a line for each block, `Tag=CASE#BLOCK,start,length,max,histogram`.
//!
//! Times are seconds since the start in the header; a block's interval has the length of its samples, and ends when the
//! block is written. Lines of folders that were written before the header was are kept as they are, with times of 0.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};
use chrono::DateTime;

use super::lines::Key;
use crate::block::{Histogram, Sample};

/// The log as far as what follows in it depends on it.
#[derive(Debug, Default)]
pub(super) struct LatencyLog {
    /// Since the epoch; none in an empty log, and in those of earlier versions.
    start: Option<Duration>,
}

impl LatencyLog {
    /// A line that is not of a block; false if it does not belong there.
    pub(super) fn read(&mut self, line: &[u8]) -> bool {
        let Ok(line) = std::str::from_utf8(line) else { return false };
        if let Some(after) = line.strip_prefix("#[StartTime: ") {
            let seconds = after.split(' ').next().and_then(|seconds| seconds.parse().ok());
            self.start = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        }
        line.starts_with('#') || line.trim_end() == COLUMNS
    }

    /// The lines above those of blocks.
    pub(super) fn header(&self) -> String {
        self.start.map_or(String::new(), header)
    }

    /// What to append for a block whose samples have just ended: the header, if the file is empty, and its line.
    pub(super) fn append(
        &mut self,
        is_empty: bool,
        samples: &[Sample],
        latencies: &Histogram,
    ) -> [String; 2] {
        let Some(sample) = samples.first() else { return Default::default() };
        let length_s = samples.iter().map(|sample| sample.time_us).sum::<f64>() / 1e6;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut began =
            now.saturating_sub(Duration::try_from_secs_f64(length_s).unwrap_or_default());
        let mut header = String::new();
        if is_empty {
            // In milliseconds, as in the file: a log that is read again is the same.
            began = Duration::from_millis(began.as_millis() as u64);
            self.start = Some(began);
            header = self.header();
        }
        let (start_s, length_s) = match self.start {
            Some(start) => (began.saturating_sub(start).as_secs_f64(), length_s),
            None => (0.0, 0.0),
        };
        [header, line(sample, (start_s, length_s), latencies)]
    }
}

/// The line above the intervals.
const COLUMNS: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"";

fn header(start: Duration) -> String {
    let seconds = start.as_secs_f64();
    let date = DateTime::from_timestamp(start.as_secs() as i64, 0)
        .map_or(String::new(), |date| date.format("%Y-%m-%dT%H:%M:%SZ").to_string());
    format!(
        "#[Control-plane latencies of kolo: a line for each block, tagged CASE#BLOCK; maxima in milliseconds]\n\
         #[Histogram log format version 1.3]\n\
         #[StartTime: {seconds:.3} (seconds since epoch), {date}]\n\
         #[BaseTime: {seconds:.3} (seconds since epoch)]\n\
         {COLUMNS}\n"
    )
}

fn line(sample: &Sample, (start_s, length_s): (f64, f64), latencies: &Histogram) -> String {
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(latencies, &mut bytes);
    written.expect("writing to memory does not fail");
    let max_ms = latencies.max() as f64 / 1e6;
    let tag = format!("{}#{}", sample.case, sample.block).replace(',', ";");
    format!("Tag={tag},{start_s:.3},{length_s:.3},{max_ms:.3},{}\n", BASE64.encode(&bytes))
}

/// The case and block of a line, and how many bytes they take.
pub(super) fn key_in_log(line: &[u8]) -> Option<(Key, usize)> {
    let text = std::str::from_utf8(line).ok()?;
    let tag = text.strip_prefix("Tag=")?.split(',').next()?;
    let (case, block) = tag.rsplit_once('#')?;
    Some(((case.to_string(), block.parse().ok()?), "Tag=,".len() + tag.len()))
}

/// The latencies of a line.
pub(super) fn latencies(line: &str) -> Option<Histogram> {
    let bytes = BASE64.decode(line.trim_end().split(',').nth(4)?).ok()?;
    hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::histogram;

    #[test]
    fn intervals_have_times_and_a_log_that_is_read_again_continues() {
        let sample =
            |block| Sample { case: "a,b".into(), block, time_us: 250e3, ..Sample::default() };
        let mut of_block = histogram();
        of_block.record_n(2000, 5).unwrap();
        let mut log = LatencyLog::default();
        let samples = [sample(0), sample(0)];
        let first = log.append(true, &samples, &of_block).concat();
        let lines: Vec<&str> = first.lines().collect();
        assert_eq!(lines[1], "#[Histogram log format version 1.3]");
        assert_eq!(lines[4], COLUMNS);
        // Two samples of 250 ms, from the start of the log; 2000 ns at most.
        assert!(lines[5].starts_with("Tag=a;b#0,0.000,0.500,0.002,HISTF"), "{first}");
        assert_eq!(latencies(lines[5]), Some(of_block.clone()));
        assert_eq!(key_in_log(lines[5].as_bytes()), Some((("a;b".into(), 0), 10)));
        let mut again = LatencyLog::default();
        assert!(lines[..5].iter().all(|line| again.read(line.as_bytes())));
        assert_eq!(again.header(), lines[..5].join("\n") + "\n");
        let [none, second] = again.append(false, &[sample(1)], &of_block);
        assert_eq!(none, "");
        let start_s: f64 = second.split(',').nth(1).unwrap().parse().unwrap();
        // It began after the first, and not before the epoch.
        assert!((0.0..3600.0).contains(&start_s), "{second}");
        assert!(!again.read(b"Tag=x\n") && key_in_log(b"Tag=x\n").is_none());
        // Logs of earlier versions have no header.
        let [_, old] = LatencyLog::default().append(false, &[sample(1)], &of_block);
        assert!(old.starts_with("Tag=a;b#1,0.000,0.000,"));
    }
}
