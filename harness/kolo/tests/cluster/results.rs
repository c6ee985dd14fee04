//! Checks of a folder of results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use algorithms::topology::Topology;

use crate::cluster::Failure;

/// Lines by column.
type Table = Vec<BTreeMap<String, String>>;

/// A folder of results, read strictly: a line that is cut is an error.
pub struct Results {
    folder: PathBuf,
    rows: Table,
    samples: Table,
}

fn table(path: &Path) -> Result<Table, Failure> {
    let mut reader = csv::Reader::from_path(path)?;
    let lines: Result<Table, _> = reader.deserialize().collect();
    Ok(lines.map_err(|error| format!("{}: {error}", path.display()))?)
}

impl Results {
    pub fn read(folder: &Path) -> Result<Results, Failure> {
        Ok(Results {
            folder: folder.into(),
            rows: table(&folder.join("rows.csv"))?,
            samples: table(&folder.join("samples.csv"))?,
        })
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Every case once, right, with all its steps; and no step of another.
    pub fn complete(&self, cases: usize, steps: usize) -> Result<(), Failure> {
        self.all_right(cases)?;
        for row in &self.rows {
            let own = self.samples.iter().filter(|sample| sample["case"] == row["case"]);
            let mut keys: Vec<_> = own.map(|sample| (&sample["block"], &sample["step"])).collect();
            let count = keys.len();
            keys.sort_unstable();
            keys.dedup();
            if (keys.len(), count) != (steps, steps) {
                return Err(
                    self.failure(&format!("{}: {count} steps, expected {steps}", row["case"]))
                );
            }
        }
        Ok(())
    }

    /// So many cases, each once and right.
    pub fn all_right(&self, cases: usize) -> Result<(), Failure> {
        let mut names: Vec<&str> = self.rows.iter().map(|row| &*row["case"]).collect();
        names.sort_unstable();
        names.dedup();
        if (names.len(), self.rows.len()) != (cases, cases) {
            let problem = format!("{} rows, expected {cases} cases once", self.rows.len());
            return Err(self.failure(&problem));
        }
        self.rows.iter().try_for_each(|row| self.is_right(row))
    }

    fn is_right(&self, row: &BTreeMap<String, String>) -> Result<(), Failure> {
        if (&*row["status"], &*row["wrong"]) == ("ok", "0") {
            return Ok(());
        }
        let (status, reason) = (&row["status"], &row["reason"]);
        Err(self.failure(&format!("{}: {status}: {reason}", row["case"])))
    }

    /// All lines could be read, so nothing is cut; and there is something.
    pub fn whole(&self) -> Result<(), Failure> {
        match self.samples.len() {
            0 => Err(self.failure("nothing was measured before")),
            _ => Ok(()),
        }
    }

    pub fn has_worlds(&self, topologies: &[&str]) -> Result<(), Failure> {
        for topology in topologies {
            let part = format!("mpi/{topology}/");
            if !self.rows.iter().any(|row| row["case"].starts_with(&part)) {
                return Err(self.failure(&format!("no case of {topology}")));
            }
        }
        Ok(())
    }

    /// Every block has the conditions of all its nodes.
    pub fn tells_of_all_nodes(&self) -> Result<(), Failure> {
        let blocks = table(&self.folder.join("conditions.csv"))?;
        for block in &blocks {
            let world = block["case"].split('/').nth(1).unwrap_or_default();
            let nodes = world.parse::<Topology>()?.nodes();
            if block["nodes"] != nodes.to_string() {
                let told = &block["nodes"];
                return Err(self.failure(&format!("{}: {told} nodes have told", block["case"])));
            }
        }
        if blocks.is_empty() { Err(self.failure("no block has conditions")) } else { Ok(()) }
    }

    /// Every row has this value in a column.
    pub fn says_in_each(&self, column: &str, value: &str) -> Result<(), Failure> {
        match self.rows.iter().find(|row| row[column] != value) {
            Some(row) => {
                Err(self.failure(&format!("{}: {column} is {}", row["case"], row[column])))
            }
            None => Ok(()),
        }
    }

    /// How often the program was started on it.
    pub fn launches(&self) -> Result<usize, Failure> {
        let text = fs::read_to_string(self.folder.join("provenance.json"))?;
        let provenance: serde_json::Value = serde_json::from_str(&text)?;
        Ok(provenance["launches"].as_array().map_or(0, Vec::len))
    }

    fn failure(&self, problem: &str) -> Failure {
        let attempts = fs::read_to_string(self.folder.join("attempts.csv")).unwrap_or_default();
        format!("{}: {problem}\n{attempts}", self.folder.display()).into()
    }
}
