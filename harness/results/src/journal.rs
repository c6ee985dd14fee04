//! Records which blocks were started, and which of them broke their processes, so that such a case is not
//! attempted forever.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::error::RecordError;
use crate::record::{Appended, Earlier, header};

/// The file's name in a folder of results.
const ATTEMPTS: &str = "attempts.csv";

/// Its name in folders of older versions.
const ATTEMPTS_BEFORE: &str = "tries.csv";

/// In the place of a reason: the case's earlier failures no longer count.
const FORGIVEN: &str = "measured again";

/// A case that has broken the processes so often is given up.
pub const MOST_ATTEMPTS: usize = 2;

/// A line of the file: a block is begun, or has broken its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct Attempt {
    /// The case's name.
    case: String,
    /// The block, from 0: each case is measured once in it.
    block: usize,
    /// Runs of the program that have worked on this folder, from 1.
    launch: usize,
    /// The reason of the failure; empty for the start of a block.
    broken: String,
}

/// The JSON Schema of a line of the file.
pub fn schema() -> Schema {
    schema_for!(Attempt)
}

/// The last launch that has worked on a folder, and the last whose processes failed; 0 for none, or if the file
/// cannot be read. A later launch may record the failure of an earlier one.
pub fn last_launches(folder: &Path) -> (usize, usize) {
    let path = [ATTEMPTS, ATTEMPTS_BEFORE].map(|name| folder.join(name));
    let path = path.iter().find(|path| path.exists());
    let Some(Ok(mut reader)) = path.map(csv::Reader::from_path) else { return (0, 0) };
    let attempts = reader.deserialize().flatten();
    attempts.fold((0, 0), |(last, broken), one: Attempt| {
        let breaks = if one.broken.is_empty() { 0 } else { one.launch };
        (last.max(one.launch), broken.max(breaks))
    })
}

/// The file and its contents; clones share it.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<Entries>>);

struct Entries {
    file: Appended,
    /// The running attempt.
    running: Option<Attempt>,
    /// Why each case has broken its processes, once for each time.
    reasons: HashMap<String, Vec<String>>,
}

impl Journal {
    /// The journal of a folder of results. The last started block, if it is missing, counts as failed if a failure
    /// of its processes was observed.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(
        folder: &Path,
        earlier: &Earlier,
        saw_a_break: bool,
    ) -> Result<Journal, RecordError> {
        let (path, before) = (folder.join(ATTEMPTS), folder.join(ATTEMPTS_BEFORE));
        if before.exists() && !path.exists() {
            fs::rename(&before, &path).map_err(RecordError::io(&before))?;
        }
        let mut file = Appended::open(path)?;
        let attempts: Vec<Attempt> = file.read(&header::<Attempt>(), &mut Vec::new())?;
        file.begin(&header::<Attempt>())?;
        let mut entries = Entries { file, running: None, reasons: HashMap::new() };
        let is_there = |one: &Attempt| {
            earlier.blocks.contains_key(&(one.case.clone(), one.block))
                || earlier.rows.iter().any(|row| row.key().case == one.case)
        };
        let unfinished = attempts.last().filter(|last| last.broken.is_empty() && !is_there(last));
        entries.running = unfinished.filter(|_| saw_a_break).cloned();
        for Attempt { case, broken, .. } in
            attempts.into_iter().filter(|one| !one.broken.is_empty())
        {
            if broken == FORGIVEN {
                entries.reasons.remove(&case);
            } else {
                entries.reasons.entry(case).or_default().push(broken);
            }
        }
        let journal = Journal(Arc::new(Mutex::new(entries)));
        journal.broke("its processes ended without a message")?;
        Ok(journal)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block begins.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(&self, case: &str, block: usize, launch: usize) -> Result<(), RecordError> {
        let begun = Attempt { case: case.into(), block, launch, broken: String::new() };
        let mut entries = self.entries();
        entries.file.append(std::slice::from_ref(&begun))?;
        entries.running = Some(begun);
        Ok(())
    }

    /// It is over, well or not, and the processes are whole.
    pub fn end(&self) {
        self.entries().running = None;
    }

    /// The processes are about to end, for this reason, in whatever block runs.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn broke(&self, reason: &str) -> Result<(), RecordError> {
        let mut entries = self.entries();
        let Some(running) = entries.running.take() else { return Ok(()) };
        let broken = Attempt { broken: reason.into(), ..running };
        entries.file.append(std::slice::from_ref(&broken))?;
        entries.reasons.entry(broken.case).or_default().push(broken.broken);
        Ok(())
    }

    /// Earlier failures of a case no longer count.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forgive(&self, case: &str) -> Result<(), RecordError> {
        let mut entries = self.entries();
        if entries.reasons.remove(case).is_some() {
            let attempt =
                Attempt { case: case.into(), broken: FORGIVEN.into(), ..Attempt::default() };
            entries.file.append(std::slice::from_ref(&attempt))?;
        }
        Ok(())
    }

    /// Why a case is not attempted again, if it has broken its processes often enough.
    pub fn verdict(&self, case: &str) -> Option<String> {
        let entries = self.entries();
        let reasons = entries.reasons.get(case).filter(|reasons| reasons.len() >= MOST_ATTEMPTS)?;
        Some(format!(
            "its processes failed {} times; the last time: {}",
            reasons.len(),
            reasons.last()?
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Outline;
    use tempfile::tempdir;

    #[test]
    fn a_file_of_an_older_version_goes_on_under_the_new_name() {
        let folder = tempdir().unwrap();
        let before = folder.path().join(ATTEMPTS_BEFORE);
        fs::write(&before, "case,block,launch,broken\nring,0,3,rank 1 is gone\n").unwrap();
        assert_eq!(last_launches(folder.path()), (3, 3));
        let journal = Journal::open(folder.path(), &Earlier::default(), false).unwrap();
        assert!(!before.exists() && folder.path().join(ATTEMPTS).exists());
        journal.begin("ring", 1, 4).unwrap();
        journal.broke("rank 1 is gone").unwrap();
        assert!(journal.verdict("ring").is_some(), "the older attempt counts");
    }

    #[test]
    fn forgiven_failures_do_not_count() {
        let folder = tempdir().unwrap();
        let open = || Journal::open(folder.path(), &Earlier::default(), false).unwrap();
        let fail = |journal: &Journal| {
            journal.begin("ring", 0, 1).unwrap();
            journal.broke("rank 1 is gone").unwrap();
        };
        let journal = open();
        (0..2).for_each(|_| fail(&journal));
        assert!(journal.verdict("ring").is_some());
        journal.forgive("ring").unwrap();
        journal.forgive("tree").unwrap();
        assert_eq!((journal.verdict("ring"), open().verdict("ring")), (None, None));
        fail(&journal);
        assert!(open().verdict("ring").is_none(), "once since then");
        fail(&journal);
        assert!(open().verdict("ring").is_some());
    }

    #[test]
    fn a_case_that_breaks_twice_is_given_up() {
        let folder = tempdir().unwrap();
        let open =
            |saw_a_break| Journal::open(folder.path(), &Earlier::default(), saw_a_break).unwrap();
        let journal = open(false);
        journal.begin("ring", 0, 1).unwrap();
        journal.end();
        journal.begin("tree", 0, 1).unwrap();
        journal.broke("rank 3 is gone").unwrap();
        journal.broke("told twice").unwrap();
        assert_eq!(last_launches(folder.path()), (1, 1));
        assert_eq!(last_launches(&folder.path().join("none")), (0, 0));
        assert_eq!(journal.verdict("tree"), None);
        let journal = open(true);
        assert_eq!(journal.verdict("tree"), None, "what broke was told");
        journal.begin("tree", 0, 2).unwrap();
        assert_eq!(last_launches(folder.path()), (2, 1), "the second has not broken");
        let verdict =
            "its processes failed 2 times; the last time: its processes ended without a message";
        assert_eq!(open(true).verdict("tree").as_deref(), Some(verdict));
        assert_eq!(open(false).verdict("tree").as_deref(), Some(verdict), "it was written down");
        assert_eq!(open(true).verdict("ring"), None);
    }

    #[test]
    fn a_case_that_was_only_stopped_is_attempted_again() {
        let folder = tempdir().unwrap();
        for launch in 1..5 {
            let journal = Journal::open(folder.path(), &Earlier::default(), false).unwrap();
            assert_eq!(journal.verdict("ring"), None);
            journal.begin("ring", 0, launch).unwrap();
        }
        let mut earlier = Earlier::default();
        earlier.blocks.insert(("ring".into(), 0), Outline::default());
        for _ in 0..3 {
            let journal = Journal::open(folder.path(), &earlier, true).unwrap();
            assert_eq!(journal.verdict("ring"), None, "the block is there");
        }
    }
}
