//! Control-plane latencies as a log of HdrHistogram intervals, version 1.3, as HdrHistogram's log readers and HdrHistogram
//! plotters expect it: a line for each block, `Tag=CASE#BLOCK,start,length,max,histogram`.
//!
//! Times are seconds since the start in the header; a block's interval has the length of its samples, and ends when the
//! block is written. Lines of folders that were written before the header was are kept as they are, with times of 0.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};
use chrono::DateTime;

use crate::block::{Histogram, Sample};

/// A case and the number of a block.
type Key = (String, usize);

/// The log in memory: when it began, and its lines.
#[derive(Debug, Default)]
pub(super) struct LatencyLog {
    /// Since the epoch; none in an empty log, and in those of earlier versions.
    start: Option<Duration>,
    /// As they are in the file.
    lines: HashMap<Key, String>,
}

impl LatencyLog {
    /// Reads complete lines.
    ///
    /// # Errors
    /// The line, from 1, that is no interval.
    pub(super) fn read(text: &str) -> Result<(LatencyLog, HashMap<Key, Histogram>), u64> {
        let (mut log, mut histograms) = (LatencyLog::default(), HashMap::new());
        for (index, line) in text.lines().enumerate() {
            if let Some(after) = line.strip_prefix("#[StartTime: ") {
                let seconds = after.split(' ').next().and_then(|seconds| seconds.parse().ok());
                log.start = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            }
            if line.starts_with('#') || line == COLUMNS {
                continue;
            }
            let (key, histogram) = parse(line).ok_or(index as u64 + 1)?;
            log.lines.insert(key.clone(), format!("{line}\n"));
            histograms.insert(key, histogram);
        }
        Ok((log, histograms))
    }

    /// What to append for a block whose samples have just ended; with the header if the file is empty.
    pub(super) fn append(
        &mut self,
        is_empty: bool,
        samples: &[Sample],
        latencies: &Histogram,
    ) -> String {
        let Some(sample) = samples.first() else { return String::new() };
        let length_s = samples.iter().map(|sample| sample.time_us).sum::<f64>() / 1e6;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut began =
            now.saturating_sub(Duration::try_from_secs_f64(length_s).unwrap_or_default());
        let mut text = String::new();
        if is_empty {
            // In milliseconds, as in the file: a log that is read again is the same.
            began = Duration::from_millis(began.as_millis() as u64);
            (self.start, text) = (Some(began), header(began));
        }
        let (start_s, length_s) = match self.start {
            Some(start) => (began.saturating_sub(start).as_secs_f64(), length_s),
            None => (0.0, 0.0),
        };
        let line = line(sample, (start_s, length_s), latencies);
        text += &line;
        self.lines.insert((sample.case.clone(), sample.block), line);
        text
    }

    /// The whole file with the lines of these blocks alone.
    pub(super) fn of_blocks<'k>(&self, blocks: impl Iterator<Item = &'k Key>) -> String {
        let lines: String = blocks.filter_map(|key| self.lines.get(key)).cloned().collect();
        match self.start {
            Some(start) if !lines.is_empty() => header(start) + &lines,
            _ => lines,
        }
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

fn parse(line: &str) -> Option<(Key, Histogram)> {
    let mut fields = line.strip_prefix("Tag=")?.split(',');
    let (case, block) = fields.next()?.rsplit_once('#')?;
    let bytes = BASE64.decode(fields.nth(3)?).ok()?;
    let histogram = hdrhistogram::serialization::Deserializer::new();
    let histogram = { histogram }.deserialize(&mut bytes.as_slice()).ok()?;
    Some(((case.to_string(), block.parse().ok()?), histogram))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::histogram;

    #[test]
    fn intervals_have_times_and_a_log_that_is_read_again_continues() {
        let sample =
            |block| Sample { case: "a,b".into(), block, time_us: 250e3, ..Sample::default() };
        let mut latencies = histogram();
        latencies.record_n(2000, 5).unwrap();
        let mut log = LatencyLog::default();
        let first = log.append(true, &[sample(0), sample(0)], &latencies);
        let lines: Vec<&str> = first.lines().collect();
        assert_eq!(lines[1], "#[Histogram log format version 1.3]");
        assert_eq!(lines[4], COLUMNS);
        // Two samples of 250 ms, from the start of the log; 2000 ns at most.
        assert!(lines[5].starts_with("Tag=a;b#0,0.000,0.500,0.002,HISTF"), "{first}");
        let (mut again, histograms) = LatencyLog::read(&first).unwrap();
        assert_eq!(histograms[&("a;b".to_string(), 0)], latencies);
        assert_eq!(again.of_blocks([("a;b".to_string(), 0)].iter()), first);
        let second = again.append(false, &[sample(1)], &latencies);
        let start_s: f64 = second.split(',').nth(1).unwrap().parse().unwrap();
        // It began after the first, and not before the epoch.
        assert!((0.0..3600.0).contains(&start_s), "{second}");
        assert_eq!(LatencyLog::read("Tag=x\n").unwrap_err(), 1);
        // Lines of earlier versions keep their form.
        let old = "Tag=a;b#0,0.000,0.000,0.002,".to_string()
            + lines[5].rsplit(',').next().unwrap()
            + "\n";
        let (mut old_log, _) = LatencyLog::read(&old).unwrap();
        assert_eq!(old_log.of_blocks([("a;b".to_string(), 0)].iter()), old);
        assert!(
            old_log.append(false, &[sample(1)], &latencies).starts_with("Tag=a;b#1,0.000,0.000,")
        );
    }
}
