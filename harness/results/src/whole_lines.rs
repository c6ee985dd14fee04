//! CSV files as far as they are whole: a run that was killed may have left a last line that is cut.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use csv::StringRecord;

/// Reads a CSV file line by line, and returns the number of a last line that is cut, counted from 1; it is left out. A cut
/// line has fewer fields than the header.
///
/// `header` gets the names of the columns, and returns what gets each line.
///
/// # Errors
/// When the file cannot be read, a line before the last one is no CSV, or no line after the header is whole; or what
/// `header` and the lines return.
pub fn read<Error: From<csv::Error>, Line: FnMut(&StringRecord) -> Result<(), Error>>(
    path: &Path,
    header: impl FnOnce(&StringRecord) -> Result<Line, Error>,
) -> Result<Option<u64>, Error> {
    read_text(File::open(path).map_err(csv::Error::from)?, header)
}

/// The same of a text that is in no file of CSV.
///
/// # Errors
/// As [`read`].
pub fn read_text<Error: From<csv::Error>, Line: FnMut(&StringRecord) -> Result<(), Error>>(
    text: impl Read,
    header: impl FnOnce(&StringRecord) -> Result<Line, Error>,
) -> Result<Option<u64>, Error> {
    let mut reader = csv::Reader::from_reader(text);
    let mut each = header(reader.headers()?)?;
    let mut record = StringRecord::new();
    let mut lines = 0;
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => each(&record)?,
            Ok(false) => return Ok(None),
            Err(cut) => {
                let line = cut.position().map(csv::Position::line);
                let is_last = !matches!(reader.read_record(&mut record), Ok(true) | Err(_));
                return match line {
                    Some(line) if is_last && lines > 0 => Ok(Some(line)),
                    _ => Err(cut.into()),
                };
            }
        }
        lines += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn lines(text: &str) -> Result<(Vec<String>, Option<u64>), csv::Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        fs::write(&path, text).unwrap();
        let mut lines = Vec::new();
        let cut = read::<csv::Error, _>(&path, |_| {
            Ok(|record: &StringRecord| {
                lines.push(record[0].to_string());
                Ok(())
            })
        })?;
        Ok((lines, cut))
    }

    #[test]
    fn a_cut_last_line_is_left_out_and_told() {
        for (text, whole, cut) in [
            ("a,b\n1,2\n3,4\n", vec!["1", "3"], None),
            ("a,b\n1,2\n3,4", vec!["1", "3"], None),
            ("a,b\n1,2\n3", vec!["1"], Some(3)),
            ("a,b\n1,\"x\"\n3,\"y", vec!["1", "3"], None),
            ("a,b\n1,2\n\"3", vec!["1"], Some(3)),
            ("a,b\n", vec![], None),
        ] {
            let (found, at) = lines(text).unwrap();
            assert_eq!((found, at), (whole.into_iter().map(String::from).collect(), cut), "{text}");
        }
    }

    #[test]
    fn lines_in_between_are_whole_and_one_line_is_there() {
        for text in ["a,b\n1\n2,3\n", "a,b\n1", "a,b\n1,2\n3\n4\n"] {
            assert!(lines(text).is_err(), "{text}");
        }
    }
}
