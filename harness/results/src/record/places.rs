//! Where blocks are, in a temporary file: memory has a number for each case, however many blocks it has.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::blocks::Table;
use super::lines::{Key, Lines};
use crate::error::RecordError;

/// Where a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Its position in its round.
    pub order: usize,
    /// Its lines in each table.
    pub lines: [Lines; Table::ALL.len()],
}

/// The places of blocks. Each is a record of the file, which tells where that of the same case's block before it begins.
pub(super) struct Places {
    folder: PathBuf,
    file: File,
    end: u64,
    /// Where the record of each case's last block begins.
    last: HashMap<String, u64>,
    /// The case that was asked for last, and its places by block: often all of them are asked for.
    asked: RefCell<Option<(String, HashMap<usize, Place>)>>,
}

/// Numbers of a record: where the one before begins, the block, its order, and two for its lines in each table.
const NUMBERS: usize = 3 + 2 * Table::ALL.len();
const RECORD_BYTES: usize = NUMBERS * size_of::<u64>();

/// There is no record before.
const NONE: u64 = u64::MAX;

/// A record.
struct Record {
    before: u64,
    block: usize,
    place: Place,
}

impl Record {
    fn bytes(&self) -> [u8; RECORD_BYTES] {
        let lines = self.place.lines.iter().flat_map(|lines| lines.numbers());
        let numbers = [self.before, self.block as u64, self.place.order as u64];
        let mut bytes = [0; RECORD_BYTES];
        for (number, bytes) in numbers.into_iter().chain(lines).zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8; RECORD_BYTES]) -> Record {
        let number =
            |at: usize| u64::from_le_bytes(bytes[8 * at..][..8].try_into().expect("eight bytes"));
        let lines = std::array::from_fn(|table| {
            Lines::of_numbers([number(3 + 2 * table), number(4 + 2 * table)])
        });
        let place = Place { order: number(2) as usize, lines };
        Record { before: number(0), block: number(1) as usize, place }
    }
}

impl Places {
    /// Without any; the temporary file is in this folder, and has no name.
    pub fn new(folder: &Path) -> Result<Places, RecordError> {
        let file = tempfile::tempfile_in(folder).map_err(RecordError::io(folder))?;
        let folder = folder.into();
        Ok(Places { folder, file, end: 0, last: HashMap::new(), asked: RefCell::default() })
    }

    /// Adds that of a block which has none.
    pub fn add(&mut self, key: &Key, place: Place) -> Result<(), RecordError> {
        let before = self.last.get(&key.0).copied().unwrap_or(NONE);
        let record = Record { before, block: key.1, place };
        let at = self.end;
        self.file.write_all_at(&record.bytes(), at).map_err(RecordError::io(&self.folder))?;
        self.end += RECORD_BYTES as u64;
        if let Some((case, places)) = self.asked.get_mut()
            && *case == key.0
        {
            places.insert(key.1, place);
        }
        match self.last.get_mut(&key.0) {
            Some(last) => *last = at,
            None => drop(self.last.insert(key.0.clone(), at)),
        }
        Ok(())
    }

    /// That of a block.
    ///
    /// # Panics
    /// If it was never added.
    pub fn get(&self, key: &Key) -> Result<Place, RecordError> {
        let mut asked = self.asked.borrow_mut();
        let (_, places) = match asked.take_if(|(case, _)| *case == key.0) {
            Some(same) => asked.insert(same),
            None => {
                let places = self.of_case(&key.0).collect::<Result<_, _>>()?;
                asked.insert((key.0.clone(), places))
            }
        };
        Ok(*places.get(&key.1).expect("the block was added"))
    }

    /// All that `is_kept` takes, in the order in which rounds measure them.
    pub fn all(&self, is_kept: impl Fn(&Key) -> bool) -> Result<Vec<(Key, Place)>, RecordError> {
        let mut all = Vec::new();
        for case in self.last.keys() {
            for of_block in self.of_case(case) {
                let (block, place) = of_block?;
                all.push(((case.clone(), block), place));
            }
        }
        all.retain(|(key, _)| is_kept(key));
        all.sort_by_key(|(key, place)| (key.1, place.order));
        Ok(all)
    }

    /// The blocks of a case and their places, from the last one.
    fn of_case(&self, case: &str) -> impl Iterator<Item = Result<(usize, Place), RecordError>> {
        let mut at = self.last.get(case).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let mut bytes = [0; RECORD_BYTES];
            let read = self.file.read_exact_at(&mut bytes, at);
            let Record { before, block, place } = match read {
                Ok(()) => Record::of(&bytes),
                Err(error) => return Some(Err(RecordError::io(&self.folder)(error))),
            };
            at = before;
            Some(Ok((block, place)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(start: u64) -> Place {
        let lines = |table| Lines::of(start + table as u64, 1 + table, table);
        Place { order: start as usize, lines: std::array::from_fn(lines) }
    }

    #[test]
    fn the_place_of_each_block_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = Places::new(folder.path()).unwrap();
        let keys = [("a", 0), ("b", 0), ("b", 2), ("a", 2), ("a", 1)];
        let keys = keys.map(|(case, block)| (case.to_string(), block));
        for (at, key) in keys.iter().enumerate() {
            places.add(key, place(10 + at as u64)).unwrap();
        }
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(places.get(key).unwrap(), place(10 + at as u64), "{key:?}");
        }
        let all = places.all(|key| key.1 != 1).unwrap();
        let expected = [("a", 0), ("b", 0), ("b", 2), ("a", 2)];
        let found: Vec<(&str, usize)> = all.iter().map(|(key, _)| (&*key.0, key.1)).collect();
        assert_eq!(found, expected);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
    }
}
