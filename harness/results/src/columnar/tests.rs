use std::fs;

use super::*;

/// A folder with a table of this text.
fn folder_with(name: &str, text: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), text).unwrap();
    folder
}

#[test]
fn a_table_is_found_in_either_file_and_csv_counts() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(find(folder.path(), "samples"), None);
    let [text, columns] = files(folder.path(), "samples");
    fs::write(&columns, "PAR1").unwrap();
    assert_eq!(find(folder.path(), "samples"), Some(columns.clone()));
    assert!(is_columnar(&columns) && !is_columnar(&text));
    fs::write(&text, "case\n").unwrap();
    assert_eq!(find(folder.path(), "samples"), Some(text.clone()));
    let mut read = String::new();
    open(&text, None).unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "case\n");
    check_readable(folder.path()).unwrap();
    // A kill between the two steps of a conversion has left both.
    restore(folder.path()).unwrap();
    assert!(text.exists() && !columns.exists());
}

#[cfg(not(feature = "parquet"))]
mod without {
    use crate::compare::Run;
    use crate::provenance::{Launch, Provenance};
    use crate::record::Store;
    use crate::row::SCHEMA;

    use super::*;

    /// What every reader says of a file by columns, which stays as it is.
    #[test]
    fn other_builds_say_what_they_found_and_how_to_build() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let launches = vec![Launch::default()];
        let provenance = Provenance {
            schema: SCHEMA,
            config: serde_json::Value::Null,
            seed: 1,
            workload_digest: String::new(),
            launches,
            accounting: Vec::new(),
        };
        drop(Store::create(&folder, &provenance).unwrap());
        fs::remove_file(folder.join("samples.csv")).unwrap();
        let path = folder.join("samples.parquet");
        fs::write(&path, "PAR1").unwrap();
        let rows = "schema,kind,case,status,time_us_p50\n1,step,a,ok,2.5\n";
        fs::write(folder.join("rows.csv"), rows).unwrap();
        let expected = format!(
            "{}: it is Apache Parquet, which this build of kolo does not read; expected a CSV file, or a build that reads it: \
             cargo build --release --features parquet",
            path.display()
        );
        assert_eq!(open(&path, None).err().unwrap().to_string(), expected);
        assert_eq!(check_readable(&folder).unwrap_err().to_string(), expected);
        assert_eq!(restore(&folder).unwrap_err().to_string(), expected);
        assert_eq!(Store::resume(&folder, 1).err().unwrap().to_string(), expected);
        assert_eq!(Run::read(&folder).unwrap_err().to_string(), expected);
        assert_eq!(fs::read_to_string(&path).unwrap(), "PAR1");
        assert!(!folder.join("samples.csv").exists());
    }

    #[test]
    fn other_builds_write_none() {
        let folder = folder_with("samples.csv", b"case\na\n");
        let why = convert(folder.path()).unwrap_err().to_string();
        let expected = "--samples parquet: this build of kolo writes no Apache Parquet; leave the option out, or build one that \
                        does: cargo build --release --features parquet";
        assert_eq!(why, expected);
        assert!(folder.path().join("samples.csv").exists());
    }
}

#[cfg(feature = "parquet")]
mod with {
    use std::path::Path;

    use parquet::file::reader::{FileReader, SerializedFileReader};

    use crate::block::{Message, Sample};
    use crate::compare::Run;
    use crate::record::csv_bytes;

    use super::*;

    fn text_of(path: &Path, columns: Option<&[&str]>) -> String {
        let mut text = String::new();
        open(path, columns).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// A sample whose fields all differ from those of an empty one, and from each other.
    fn sample(step: usize, time_us: f64, device_us: Option<f64>, first_wrong: &str) -> Sample {
        Sample {
            case: "threads/2x2, \"quoted\"/ring\nnext".into(),
            block: 1,
            launch: 2,
            order: 3,
            step,
            time_us,
            device_us,
            negotiation_us: 0.1 + 0.2,
            wait_us: 1e-9,
            data_us: 1.5e300,
            packing_us: 4.0,
            reduction_us: Some(1.5),
            until_cycle_us: None,
            ended_s: Some(1795789717.125),
            compression_us: 5.25,
            aggregation_us: -0.0,
            cycles: 6,
            idle_cycles: 7,
            messages: 8,
            control_bytes: 9,
            cycle_wait_us: 10.125,
            slow_cycles: 11,
            hits: 12,
            misses: 13,
            invalid: 14,
            evictions: 15,
            stop_empty: 16,
            stop_threshold: 17,
            stop_unlike: 18,
            stop_group: 19,
            stop_alone: 20,
            control_messages: 21,
            rank0_sent: 22,
            rank0_received: 23,
            rank0_bytes_wire: 24,
            bytes_wire: 25,
            bytes_horovod: 26,
            bits_bytes: 27,
            cpu_share: device_us.map(|share| share / 2.0),
            inside_bytes: 28,
            between_bytes: 1 << 50,
            checked: device_us.is_some(),
            wrong: 30,
            first_wrong: first_wrong.into(),
            warmup: 31,
        }
    }

    /// Fields of every kind, empty ones among them, and texts with commas, quotes and ends of lines.
    #[test]
    fn every_field_is_the_same_again() {
        let samples = [
            sample(0, 1.0, None, ""),
            sample(1, 45_123.456, Some(0.25), "rank 1, \"element\" 7\nwas wrong"),
            sample(2, f64::MIN_POSITIVE, Some(1e15), ",,\"\""),
            sample(3, 1e16, None, " ä "),
        ];
        let message = |index| Message {
            case: "a,b".into(),
            block: 1,
            step: 2,
            index,
            tensors: 4,
            size_bytes: 5,
            time_us: 6.5,
        };
        let messages = [message(0), message(1)];
        let (of_samples, of_messages) = (csv_bytes(&samples, true), csv_bytes(&messages, true));
        let folder = folder_with("samples.csv", &of_samples);
        fs::write(folder.path().join("messages.csv"), &of_messages).unwrap();
        let converted = convert(folder.path()).unwrap();
        let lines: Vec<u64> = converted.iter().map(|table| table.lines).collect();
        assert_eq!(lines, [4, 2]);
        assert_eq!(converted[0].before_bytes, of_samples.len() as u64);
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["messages.parquet", "samples.parquet"]);
        let [text, columns] = files(folder.path(), "samples");
        assert_eq!(text_of(&columns, None).as_bytes(), of_samples);
        let read = csv::Reader::from_reader(open(&columns, None).unwrap()).into_deserialize();
        assert_eq!(read.collect::<Result<Vec<Sample>, _>>().unwrap(), samples);
        let path = find(folder.path(), "messages").unwrap();
        assert_eq!(text_of(&path, None).as_bytes(), of_messages);
        restore(folder.path()).unwrap();
        assert_eq!(fs::read(&text).unwrap(), of_samples);
        assert!(!columns.exists() && folder.path().join("messages.csv").exists());
        // A second time, over files that are there.
        assert_eq!(convert(folder.path()).unwrap(), converted);
    }

    #[test]
    fn an_empty_table_keeps_its_header() {
        let header = crate::record::header::<Message>() + "\n";
        let folder = folder_with("messages.csv", header.as_bytes());
        assert_eq!(convert(folder.path()).unwrap()[0].lines, 0);
        assert_eq!(text_of(&folder.path().join("messages.parquet"), None), header);
    }

    /// Columns that a reader does not ask for are not read, and those that are missing are left out.
    #[test]
    fn a_reader_gets_the_columns_that_it_needs() {
        let folder = folder_with("samples.csv", &csv_bytes(&[sample(5, 2.5, Some(0.5), "")], true));
        convert(folder.path()).unwrap();
        let columns = ["time_us", "block", "nowhere", "cpu_share"];
        let text = text_of(&folder.path().join("samples.parquet"), Some(&columns));
        assert_eq!(text, "block,time_us,cpu_share\n1,2.5,0.25\n");
    }

    /// Only one group of lines is in memory at a time.
    #[test]
    fn large_tables_are_written_and_read_in_groups() {
        let line = |index: usize| Message {
            case: format!("case {}", index % 7),
            index,
            time_us: index as f64 / 8.0,
            ..Message::default()
        };
        let lines: Vec<Message> = (0..(1 << 17) + 3).map(line).collect();
        let text = csv_bytes(&lines, true);
        let folder = folder_with("messages.csv", &text);
        convert(folder.path()).unwrap();
        let path = folder.path().join("messages.parquet");
        let file = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let group = |group: usize| file.metadata().row_group(group).num_rows();
        assert_eq!((0..file.num_row_groups()).map(group).collect::<Vec<_>>(), [65536, 65536, 3]);
        assert!(text_of(&path, None).as_bytes() == text, "the text is the same");
    }

    /// Whatever is wrong with a file, it stays as it is.
    #[test]
    fn what_cannot_be_converted_is_told_and_kept() {
        let header = crate::record::header::<Message>();
        for (line, expected) in [
            ("a,0,x,0,0,0,1.0", ":2: column step has \"x\", expected a whole number"),
            ("a,0,0,0,0,0,", ":2: column time_us has \"\", expected a number"),
            ("a,0,0,0,0", "found record with 5 fields, but the previous record has 7 fields"),
            (
                "a,0,0,0,0,0,1.50",
                ": read back from columns, it differs from byte 64; expected a file that kolo alone has written",
            ),
        ] {
            let text = format!("{header}\n{line}\n");
            let folder = folder_with("messages.csv", text.as_bytes());
            let why = convert(folder.path()).unwrap_err().to_string();
            assert!(why.contains("messages.csv") && why.contains(expected), "{why}");
            assert_eq!(fs::read_to_string(folder.path().join("messages.csv")).unwrap(), text);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{line}");
        }
        let folder = folder_with("samples.parquet", b"case,block\n");
        let path = folder.path().join("samples.parquet");
        let why = open(&path, None).err().unwrap().to_string();
        assert!(why.starts_with(&format!("{}: Parquet error: ", path.display())), "{why}");
        assert!(why.ends_with("; expected a table that `kolo sweep --samples parquet` wrote"));
        assert!(restore(folder.path()).is_err() && path.exists());
    }

    #[test]
    fn runs_are_compared_by_samples_of_either_file() {
        let rows = "schema,kind,case,status,time_us_p50\n1,step,a,ok,2.5\n";
        let folder = folder_with("rows.csv", rows.as_bytes());
        let line = |block: usize, time_us: f64| Sample {
            case: "a".into(),
            block,
            launch: 1,
            time_us,
            ..Sample::default()
        };
        let samples = [line(0, 1.0), line(0, 3.0), line(1, 5.0)];
        fs::write(folder.path().join("samples.csv"), csv_bytes(&samples, true)).unwrap();
        let before = Run::read(folder.path()).unwrap();
        assert_eq!(before.cases["step a"].blocks.len(), 2);
        convert(folder.path()).unwrap();
        check_readable(folder.path()).unwrap();
        assert_eq!(Run::read(folder.path()).unwrap(), before);
    }
}
