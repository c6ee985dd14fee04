//! Cases that are in several files. Figures draw one row of each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::rows::{Row, Rows};
use crate::selection;

/// The cases that two files have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated {
    /// The file whose rows of these cases are not drawn.
    pub earlier: PathBuf,
    /// The file whose rows are.
    pub later: PathBuf,
    /// The number of cases.
    pub cases: usize,
}

impl Rows {
    /// The pairs of files with cases in common: cases of the same name and the same conditions.
    /// Messages are not counted, as they belong to the steps that sent them.
    pub fn repeated(&self) -> Vec<Repeated> {
        let mut latest: BTreeMap<Vec<String>, &Row> = BTreeMap::new();
        let mut pairs: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let counted = |row: &&Row| row.status == "ok" && row.kind != "message";
        for row in self.all().filter(counted).filter(|row| !row.case.is_empty()) {
            let names =
                [&row.kind, &row.case, &row.machine, &row.policy, &row.sync].map(String::clone);
            let key = [names.to_vec(), selection::values(row)].concat();
            let Some(other) = latest.get(&key).copied() else {
                latest.insert(key, row);
                continue;
            };
            let (earlier, later) =
                if row.started >= other.started { (other, row) } else { (row, other) };
            if earlier.file != later.file {
                *pairs.entry((earlier.file, later.file)).or_default() += 1;
            }
            latest.insert(key, later);
        }
        let file = |index: usize| self.files[index].clone();
        let repeated = |((earlier, later), cases)| Repeated {
            earlier: file(earlier),
            later: file(later),
            cases,
        };
        pairs.into_iter().map(repeated).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{grid, message, step, table};

    fn repeated(tables: &[&str]) -> Vec<(usize, usize, usize)> {
        let rows = Rows::of_all(tables);
        let place = |file: &PathBuf| rows.files.iter().position(|other| other == file);
        let of = |it: Repeated| {
            let [earlier, later] = [&it.earlier, &it.later].map(|file| place(file).expect("read"));
            (earlier, later, it.cases)
        };
        rows.repeated().into_iter().map(of).collect()
    }

    #[test]
    fn cases_of_two_files_are_counted_and_the_later_start_is_drawn() {
        let named = |day: &str| {
            let rows = grid(&["ring"], &[0.0, 64.0], &[1.0, 5.0]);
            let rows = rows.iter().enumerate().map(|(index, row)| {
                row.with("case", &format!("case-{index}")).with("started", day)
            });
            let message = message("message", "ring", 64.0).with("case", "message");
            table(&rows.chain([message]).collect::<Vec<_>>())
        };
        let (first, second) = (named("2026-03-01T00:00:00Z"), named("2026-03-02T00:00:00Z"));
        assert_eq!(repeated(&[&first, &second]), [(0, 1, 8)]);
        assert_eq!(repeated(&[&second, &first]), [(1, 0, 8)]);
        assert_eq!(repeated(&[&first, &first]), [(0, 1, 8)]);
        assert_eq!(repeated(&[&first]), []);
    }

    #[test]
    fn other_conditions_failures_and_rows_without_a_name_are_no_repetition() {
        let row = step("ring", "coordinator", 64.0, 5.0).with("case", "a");
        let first = table(std::slice::from_ref(&row));
        for (column, value) in
            [("case", "b"), ("case", ""), ("workload", "x"), ("ranks", "8"), ("status", "failed")]
        {
            assert_eq!(repeated(&[&first, &table(&[row.with(column, value)])]), [], "{column}");
        }
        assert_eq!(repeated(&[&first, &table(&[row.with("host", "b")])]), [(0, 1, 1)]);
    }
}
