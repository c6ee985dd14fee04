//! Where the lines of blocks are in their files.

use crate::error::RecordError;

/// A case and the number of a block.
pub type Key = (String, usize);

/// Neighbouring lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The position of the first one in bytes.
    pub(super) start: u64,
    bytes: u32,
    count: u32,
}

impl Lines {
    /// So many lines, which begin there.
    ///
    /// # Panics
    /// When they have 4 GiB or more: a block has less.
    pub(super) fn of(start: u64, bytes: usize, count: usize) -> Lines {
        let small =
            |number: usize| u32::try_from(number).expect("lines of a block are below 4 GiB");
        Lines { start, bytes: small(bytes), count: small(count) }
    }

    /// The same lines elsewhere.
    pub(super) fn moved_to(self, start: u64) -> Lines {
        Lines { start, ..self }
    }

    /// As two numbers.
    pub(super) fn numbers(self) -> [u64; 2] {
        [self.start, u64::from(self.bytes) << 32 | u64::from(self.count)]
    }

    /// From what [`Self::numbers`] gave.
    pub(super) fn of_numbers([start, both]: [u64; 2]) -> Lines {
        Lines { start, bytes: (both >> 32) as u32, count: both as u32 }
    }

    pub(super) fn bytes(self) -> u64 {
        self.bytes.into()
    }

    pub(super) fn count(self) -> usize {
        self.count as usize
    }
}

/// Divides lines into those of blocks, which are neighbours.
pub(super) struct Blocks<Take> {
    /// The key that a line begins with, and how many bytes that takes; none for a line of another kind.
    of: fn(&[u8]) -> Option<(Key, usize)>,
    take: Take,
    current: Option<Current>,
}

/// The block of the last line.
struct Current {
    key: Key,
    start: u64,
    /// With this each of its lines begins.
    prefix: usize,
    lines: Vec<u8>,
    count: usize,
}

impl<Take: FnMut(Key, Lines, Vec<u8>) -> Result<(), RecordError>> Blocks<Take> {
    /// `take` gets each block's key, where its lines are, and these lines.
    pub fn new(of: fn(&[u8]) -> Option<(Key, usize)>, take: Take) -> Blocks<Take> {
        Blocks { of, take, current: None }
    }

    /// The next line and where it begins; false if it has no key.
    pub fn add(&mut self, line: &[u8], start: u64) -> Result<bool, RecordError> {
        if let Some(current) = &mut self.current
            && line.starts_with(&current.lines[..current.prefix])
        {
            current.lines.extend_from_slice(line);
            current.count += 1;
            return Ok(true);
        }
        let Some((key, prefix)) = (self.of)(line) else { return Ok(false) };
        self.end()?;
        self.current = Some(Current { key, start, prefix, lines: line.to_vec(), count: 1 });
        Ok(true)
    }

    /// After the last line.
    pub fn end(&mut self) -> Result<(), RecordError> {
        let Some(Current { key, start, lines, count, .. }) = self.current.take() else {
            return Ok(());
        };
        (self.take)(key, Lines::of(start, lines.len(), count), lines)
    }
}

/// The first two fields of a line of CSV: a case and the number of a block.
pub(super) fn key_in_csv(line: &[u8]) -> Option<(Key, usize)> {
    let mut is_quoted = false;
    let is_separator = |byte: &u8| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    };
    let mut separators = line.iter().map(is_separator).enumerate().filter(|(_, is_one)| *is_one);
    let (case, block) = (separators.next()?.0, separators.next()?.0);
    let number = std::str::from_utf8(&line[case + 1..block]).ok()?.parse().ok()?;
    let case = std::str::from_utf8(&line[..case]).ok()?;
    let unquoted = case.strip_prefix('"').and_then(|case| case.strip_suffix('"'));
    let case = unquoted.map_or_else(|| case.to_string(), |case| case.replace("\"\"", "\""));
    Some(((case, number), block + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_its_case_and_block() {
        let key = |line: &str| key_in_csv(line.as_bytes());
        assert_eq!(key("a/b,12,x\n"), Some((("a/b".into(), 12), 7)));
        assert_eq!(key("\"a,\"\"b\"\"\",3,\n"), Some((("a,\"b\"".into(), 3), 12)));
        assert_eq!(key("a,b,c\n"), None);
        assert_eq!(key("a,1\n"), None);
    }

    #[test]
    fn neighbouring_lines_of_a_key_are_a_block() {
        let mut found = Vec::new();
        let take = |key: Key, lines: Lines, text: Vec<u8>| {
            assert_eq!(lines.bytes() as usize, text.len());
            found.push((key.0, key.1, lines.start, lines.count()));
            Ok(())
        };
        let mut blocks = Blocks::new(key_in_csv, take);
        let mut start = 0;
        for line in ["a,1,x\n", "a,1,y\n", "a,11,x\n", "b,11,x\n", "a,1,z\n"] {
            assert!(blocks.add(line.as_bytes(), start).unwrap());
            start += line.len() as u64;
        }
        assert!(!blocks.add(b"# no key\n", start).unwrap());
        blocks.end().unwrap();
        let expected = [("a", 1, 0, 2), ("a", 11, 12, 1), ("b", 11, 19, 1), ("a", 1, 26, 1)];
        assert_eq!(
            found,
            expected.map(|(case, block, at, count)| (case.to_string(), block, at, count))
        );
    }
}
