use super::*;
use crate::block::{RankBlock, histogram};
use crate::conditions::Conditions;
use crate::row::{Key, SCHEMA, StepRow, StepSetting};

fn block(case: &str, block: usize, steps: usize) -> Block {
    let sample = |step| Sample {
        case: case.into(),
        block,
        step,
        time_us: 1.5,
        messages: if step == 0 { 3 } else { 0 },
        first_wrong: "a, \"b\"\nc".into(),
        ..Sample::default()
    };
    let mut latencies = histogram();
    latencies.record_n(1000 + block as u64, 5).unwrap();
    Block {
        samples: (0..steps).map(sample).collect(),
        messages: vec![Message { case: case.into(), block, ..Message::default() }; 3],
        ranks: vec![RankBlock { case: case.into(), block, ranks: 2, ..RankBlock::default() }; 2],
        latencies: Some(latencies),
        conditions: Some(Conditions {
            case: case.into(),
            block,
            steal_share: Some(0.25),
            ..Conditions::default()
        }),
    }
}

fn provenance() -> Provenance {
    Provenance {
        schema: SCHEMA,
        config: serde_json::Value::Null,
        seed: 1,
        workload_digest: String::new(),
        launches: vec![crate::provenance::Launch::default()],
        accounting: Vec::new(),
    }
}

fn row(case: &str) -> StepRow {
    let key = Key { case: case.into(), ..Key::default() };
    StepRow::failed(StepSetting { key, ..StepSetting::default() }, "a \"test\"".into())
}

fn written(folder: &Path) -> Vec<Block> {
    let mut store = Store::create(folder, &provenance()).unwrap();
    let blocks = vec![block("a", 0, 2), block("b", 0, 2), block("a", 1, 2)];
    blocks.iter().for_each(|block| store.append_block(block).unwrap());
    store.append_row(row("b")).unwrap();
    blocks
}

#[test]
fn what_was_written_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    let blocks = written(&folder);
    let (store, earlier) = Store::resume(&folder, 2).unwrap();
    assert_eq!(earlier.dropped, [""; 0]);
    assert_eq!(earlier.rows, [Row::Step(row("b"))]);
    let key = ("a".into(), 1);
    assert_eq!(store.block(&key).unwrap(), blocks[2]);
    assert_eq!(store.messages(&key).unwrap(), blocks[2].messages);
    assert_eq!(earlier.blocks[&key], Outline::from(&blocks[2]));
    assert_eq!(earlier.blocks.len(), 3);
}

/// The log of latencies has other names: it cannot hold commas.
#[test]
fn cases_with_commas_and_quotes_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    let blocks = [block("pipelined(ring, 4)", 0, 2), block("a \"b\"", 0, 2)];
    let mut store = Store::create(&folder, &provenance()).unwrap();
    blocks.iter().for_each(|block| store.append_block(block).unwrap());
    drop(store);
    let (store, earlier) = Store::resume(&folder, 2).unwrap();
    assert_eq!((earlier.dropped, earlier.blocks.len()), (Vec::new(), 2));
    for block in &blocks {
        assert_eq!(store.block(&(block.samples[0].case.clone(), 0)).unwrap(), *block);
    }
}

/// A line that is no line of its table is named when the block is read.
#[test]
fn a_malformed_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    written(&folder);
    let path = folder.join(MESSAGES);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // The second block's first line.
    fs::write(&path, text.replacen(lines[4], "b,0,0,0,x,0,0.0", 1)).unwrap();
    let (store, _) = Store::resume(&folder, 2).unwrap();
    let error = store.block(&("b".into(), 0)).unwrap_err().to_string();
    assert!(error.contains("messages.csv:5: "), "{error}");
    drop(store);
    // One column more than its neighbour has.
    fs::write(&path, text.replacen(lines[5], &format!("{},1", lines[5]), 1)).unwrap();
    let (store, _) = Store::resume(&folder, 2).unwrap();
    let error = store.block(&("b".into(), 0)).unwrap_err().to_string();
    assert!(error.contains("messages.csv:6: "), "{error}");
    drop(store);
    fs::write(&path, text.replacen(lines[4], "b", 1)).unwrap();
    let Err(error) = Store::resume(&folder, 2) else { panic!("it was resumed") };
    assert!(
        error.to_string().contains(
            "messages.csv:5: expected a case and the number of a block at its beginning; remove the line"
        ),
        "{error}"
    );
}

/// Blocks are parsed in batches, in parallel.
#[test]
fn more_blocks_than_a_batch_are_read_again_and_the_first_problem_of_a_file_is_named() {
    const BLOCKS: usize = 600;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    written(&folder);
    let append = |name: &str, bytes: &dyn Fn(&Block) -> Vec<u8>| {
        let path = folder.join(name);
        let mut text = fs::read(&path).unwrap();
        (2..BLOCKS).for_each(|number| text.extend(bytes(&block("a", number, 2))));
        fs::write(&path, text).unwrap();
    };
    append(SAMPLES, &|block| csv_bytes(&block.samples, false));
    append(MESSAGES, &|block| csv_bytes(&block.messages, false));
    append(RANKS, &|block| csv_bytes(&block.ranks, false));
    append(CONDITIONS, &|block| csv_bytes(block.conditions.as_slice(), false));
    let log = fs::read_to_string(folder.join(LATENCIES)).unwrap();
    let first = log.lines().find(|line| line.starts_with("Tag=a#0,")).unwrap();
    append(LATENCIES, &|block| {
        let tag = format!("Tag=a#{},", block.samples[0].block);
        (first.replacen("Tag=a#0,", &tag, 1) + "\n").into_bytes()
    });
    let (_, earlier) = Store::resume(&folder, 2).unwrap();
    assert_eq!((earlier.dropped, earlier.blocks.len()), (Vec::new(), BLOCKS + 1));
    let path = folder.join(SAMPLES);
    let text = fs::read_to_string(&path).unwrap();
    let line = 1 + text.lines().position(|line| line.starts_with("a,300,")).unwrap();
    for later in ["a,400,x,", "no,key,"] {
        let wrong = text.replacen("\na,300,", "\na,300,x,", 1);
        let wrong = wrong.replacen("\na,400,", &format!("\n{later}"), 1);
        fs::write(&path, wrong).unwrap();
        let Err(error) = Store::resume(&folder, 2) else { panic!("it was resumed") };
        let expected = format!("samples.csv:{line}: ");
        assert!(error.to_string().contains(&expected), "{error}, expected {expected}");
    }
}

/// A folder that another version has begun is left as it is.
#[test]
fn other_columns_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    written(&folder);
    let path = folder.join("rows.csv");
    let text = fs::read_to_string(&path).unwrap().replacen("schema,", "version,", 1);
    fs::write(&path, &text).unwrap();
    let Err(error) = Store::resume(&folder, 2) else { panic!("it was resumed") };
    assert!(error.to_string().contains("rows.csv: its columns are those of another"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

/// The files of a run but for its provenance.
const FILES: [&str; 6] =
    ["rows.csv", "samples.csv", "messages.csv", "ranks.csv", "conditions.csv", "latencies.hlog"];

#[test]
fn blocks_that_are_set_aside_can_be_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    let mut store = Store::create(&folder, &provenance()).unwrap();
    let blocks = [block("a", 0, 2), block("b", 0, 2), block("a", 1, 2)];
    blocks.iter().for_each(|block| store.append_block(block).unwrap());
    let key = ("a".to_string(), 0);
    store.set_aside(&[key.clone()].into(), &[]).unwrap();
    // What is left has other places in the files.
    assert_eq!(store.block(&("a".into(), 1)).unwrap(), blocks[2]);
    drop(store);
    let text = fs::read_to_string(folder.join("aside.csv")).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("a,0,")).count(), 2, "{text}");
    let (mut store, left) = Store::resume(&folder, 2).unwrap();
    assert!(left.rows.is_empty() && left.dropped.is_empty());
    assert_eq!(
        left.blocks.into_values().collect::<Vec<_>>(),
        [2, 1].map(|at| Outline::from(&blocks[at]))
    );
    store.append_block(&blocks[0]).unwrap();
    drop(store);
    let (again, earlier) = Store::resume(&folder, 2).unwrap();
    assert_eq!((earlier.blocks.len(), again.block(&key).unwrap()), (3, blocks[0].clone()));
}

/// Wherever the files are cut, complete data are kept, and the rest can be appended again.
#[test]
fn a_cut_at_any_byte_loses_at_most_the_blocks_concerned() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let blocks = written(&whole);
    let all = std::env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1");
    for name in ["samples.csv", "messages.csv", "ranks.csv", "latencies.hlog"] {
        let bytes = fs::read(whole.join(name)).unwrap();
        for cut in (0..bytes.len()).step_by(if all { 7 } else { 31 }).chain([bytes.len() - 1]) {
            let copy = folder.path().join(format!("{name}-{cut}"));
            fs::create_dir(&copy).unwrap();
            for file in FILES {
                fs::copy(whole.join(file), copy.join(file)).unwrap();
            }
            fs::write(copy.join(name), &bytes[..cut]).unwrap();
            let (mut store, earlier) = Store::resume(&copy, 2).unwrap();
            assert!(earlier.blocks.len() < 3, "{name} cut at {cut}");
            let kept = earlier.blocks.keys().map(|key| store.block(key).unwrap());
            assert!({ kept }.all(|kept| blocks.contains(&kept)));
            let last = cut + 8 > bytes.len();
            assert!(!last || earlier.blocks.len() == 2, "{name}: only the last block is lost");
            for wanted in &blocks {
                let key = (wanted.samples[0].case.clone(), wanted.samples[0].block);
                if !earlier.blocks.contains_key(&key) {
                    store.append_block(wanted).unwrap();
                }
            }
            drop(store);
            let (_, again) = Store::resume(&copy, 2).unwrap();
            assert_eq!(again.dropped, [""; 0], "{name} cut at {cut}");
            assert_eq!(again.blocks.len(), 3);
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

/// Folders of earlier versions have no conditions.
#[test]
fn blocks_without_conditions_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    let blocks = written(&folder);
    fs::remove_file(folder.join("conditions.csv")).unwrap();
    let (_, earlier) = Store::resume(&folder, 2).unwrap();
    assert_eq!((earlier.blocks.len(), earlier.dropped.len()), (blocks.len(), 0));
    assert!(earlier.blocks.values().all(|block| block.conditions.is_none()));
}

#[test]
fn folders_are_not_overwritten_nor_shared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    let store = Store::create(&folder, &provenance()).unwrap();
    assert!(matches!(Store::resume(&folder, 1), Err(RecordError::InUse { .. })));
    drop(store);
    let Err(error) = Store::create(&folder, &provenance()) else { panic!("overwritten") };
    assert!(error.to_string().ends_with("name another folder with --out"), "{error}");
}

#[test]
fn a_folder_that_a_kill_left_empty_counts_as_new() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    fs::create_dir(&folder).unwrap();
    for name in [LOCK, ROWS, SAMPLES] {
        fs::write(folder.join(name), "").unwrap();
    }
    drop(Store::create(&folder, &provenance()).unwrap());
    assert!(Store::create(&folder, &provenance()).is_err());
    let other = folder.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine.txt"), "").unwrap();
    assert!(Store::create(&other, &provenance()).is_err(), "somebody's folder");
}

#[test]
fn tables_have_their_header_from_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    drop(Store::create(&folder, &provenance()).unwrap());
    let expected = [
        (ROWS, row::columns()),
        (SAMPLES, header::<Sample>()),
        (MESSAGES, header::<Message>()),
        (RANKS, header::<RankBlock>()),
    ];
    for (name, header) in &expected {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), format!("{header}\n"));
    }
    // Folders of older versions have tables without a header, and a kill may cut one.
    fs::write(folder.join(SAMPLES), "").unwrap();
    fs::write(folder.join(ROWS), &expected[0].1[..20]).unwrap();
    let (store, earlier) = Store::resume(&folder, 1).unwrap();
    assert_eq!(earlier.dropped, ["the last line of rows.csv was cut off and is dropped"]);
    drop(store);
    for (name, header) in &expected {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), format!("{header}\n"));
    }
}
