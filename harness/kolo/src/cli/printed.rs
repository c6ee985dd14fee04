//! How a command prints its result: as text, or for programs and pages.

use std::io::Read;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

/// Options of a command that prints a result.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Printed {
    /// Print for programs; `kolo schema` describes it
    #[arg(long, conflicts_with = "format", help_heading = "Output", hide_short_help = true)]
    pub json: bool,
    /// How to print
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Output",
        hide_short_help = true
    )]
    pub format: Format,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal
    Text,
    /// All of it for programs, as --json
    Json,
    /// Its table for a page
    Markdown,
    /// Its table for programs
    Csv,
}

impl Printed {
    /// The result is printed as text, which the command does itself.
    pub fn is_text(self) -> bool {
        self.kind() == Format::Text
    }

    /// How the result is printed.
    pub fn kind(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// Prints a result otherwise: as JSON, or its table, which is the list at this JSON pointer (empty: the whole).
    ///
    /// # Errors
    /// When the result is no JSON.
    pub fn print(self, result: &impl Serialize, table: &str) -> Result<()> {
        match self.kind() {
            Format::Text => {}
            Format::Json => println!("{}", serde_json::to_string_pretty(result)?),
            Format::Markdown => print!("{}", Table::of(&list(result, table)?).markdown()),
            Format::Csv => print!("{}", Table::of(&list(result, table)?).csv()?),
        }
        Ok(())
    }

    /// Prints every value of a structure as a table of names and values, as CSV or for a page.
    ///
    /// # Errors
    /// When the structure is no JSON.
    pub fn print_values(self, structure: &impl Serialize) -> Result<()> {
        let mut fields = Vec::new();
        flatten(String::new(), &serde_json::to_value(structure)?, &mut fields);
        let lines: Vec<Value> = fields
            .into_iter()
            .map(|(name, value)| serde_json::json!({"name": name, "value": value}))
            .collect();
        self.print(&lines, "")
    }
}

/// Columns of rows that a table shows.
const OF_ROWS: &[&str] = &[
    "kind",
    "case",
    "status",
    "ranks",
    "size_bytes",
    "samples",
    "wrong",
    "time_us_p50",
    "time_us_p50_low",
    "time_us_p50_high",
    "over_best",
    "over_best_low",
    "algbw_gb_s",
    "busbw_gb_s",
    "throughput_samples_s_p50",
    "efficiency_p50",
];

/// Prints rows of results as a table, as CSV or for a page: their main columns, as far as any row has them.
///
/// # Errors
/// When they are not CSV.
pub fn print_rows(rows: impl Read, format: Format) -> Result<()> {
    let table = Table::of_rows(rows)?;
    match format {
        Format::Csv => print!("{}", table.csv()?),
        _ => print!("{}", table.markdown()),
    }
    Ok(())
}

fn list(result: &impl Serialize, pointer: &str) -> Result<Value> {
    let mut value = serde_json::to_value(result)?;
    Ok(value.pointer_mut(pointer).map(Value::take).unwrap_or_default())
}

/// Columns in the order in which they occur, and lines of as many fields.
struct Table {
    columns: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// From a list: an object is a line, and fields of objects in it are columns `outer.inner`. In a list of lists,
    /// `list` is the place of the inner one.
    fn of(list: &Value) -> Table {
        let mut table = Table { columns: Vec::new(), lines: Vec::new() };
        for (place, item) in list.as_array().into_iter().flatten().enumerate() {
            match item {
                Value::Array(inner) => {
                    for item in inner {
                        table.add(vec![("list".into(), place.to_string())], item);
                    }
                }
                item => table.add(Vec::new(), item),
            }
        }
        table.lines.iter_mut().for_each(|line| line.resize(table.columns.len(), String::new()));
        table
    }

    /// The main columns of rows that any row has, in the order of the rows.
    fn of_rows(rows: impl Read) -> Result<Table> {
        let mut reader = csv::Reader::from_reader(rows);
        let header = reader.headers()?.clone();
        let records = reader.records().collect::<csv::Result<Vec<_>>>()?;
        let place = |column: &&str| header.iter().position(|name| name == *column);
        let is_there = |at: &usize| records.iter().any(|record| !record[*at].is_empty());
        let places: Vec<usize> = OF_ROWS.iter().filter_map(place).filter(is_there).collect();
        let fields =
            |record: &csv::StringRecord| places.iter().map(|&at| record[at].into()).collect();
        Ok(Table { columns: fields(&header), lines: records.iter().map(fields).collect() })
    }

    fn add(&mut self, mut fields: Vec<(String, String)>, item: &Value) {
        flatten(String::new(), item, &mut fields);
        let mut line = vec![String::new(); self.columns.len()];
        for (column, field) in fields {
            match self.columns.iter().position(|known| *known == column) {
                Some(place) => line[place] = field,
                None => {
                    self.columns.push(column);
                    line.push(field);
                }
            }
        }
        self.lines.push(line);
    }

    fn markdown(&self) -> String {
        let line = |fields: &[String]| {
            let fields: Vec<String> = fields.iter().map(|it| it.replace('|', "\\|")).collect();
            format!("| {} |\n", fields.join(" | "))
        };
        let rule = format!("|{}\n", "---|".repeat(self.columns.len()));
        let lines: String = self.lines.iter().map(|fields| line(fields)).collect();
        line(&self.columns) + &rule + &lines
    }

    fn csv(&self) -> Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&self.columns)?;
        for line in &self.lines {
            writer.write_record(line)?;
        }
        Ok(String::from_utf8(writer.into_inner()?)?)
    }
}

/// The fields of a value. A list of values is one field, separated by spaces.
fn flatten(name: String, value: &Value, fields: &mut Vec<(String, String)>) {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(format!("{name}{dot}{key}"), value, fields);
            }
        }
        Value::Array(values) => {
            fields.push((name, values.iter().map(text).collect::<Vec<_>>().join(" ")));
        }
        value => fields.push((if name.is_empty() { "value".into() } else { name }, text(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_of_objects_is_a_table() {
        let table = Table::of(&json!([
            {"name": "ring", "time": {"p50": 1.5, "low": null}, "notes": ["a", "b"]},
            {"name": "a|b", "more": true},
        ]));
        assert_eq!(
            table.csv().unwrap(),
            "name,time.p50,time.low,notes,more\nring,1.5,,a b,\na|b,,,,true\n"
        );
        assert_eq!(
            table.markdown(),
            "| name | time.p50 | time.low | notes | more |\n|---|---|---|---|---|\n| ring | 1.5 |  | a b |  |\n\
             | a\\|b |  |  |  | true |\n"
        );
    }

    #[test]
    fn rows_have_the_columns_that_any_of_them_has() {
        let rows = "schema,case,host,time_us_p50,wrong,efficiency_p50\n7,a,vm,1.5,0,\n7,b,vm,,1,\n";
        let table = Table::of_rows(rows.as_bytes()).unwrap();
        assert_eq!(table.csv().unwrap(), "case,wrong,time_us_p50\na,0,1.5\nb,1,\n");
        assert!(Table::of_rows("a,b\n1\n".as_bytes()).is_err());
    }

    #[test]
    fn lists_of_lists_and_of_words_are_tables_too() {
        let table = Table::of(&json!([[{"to": 1}], [{"to": 2}, {"to": 3}]]));
        assert_eq!(table.csv().unwrap(), "list,to\n0,1\n1,2\n1,3\n");
        assert_eq!(Table::of(&json!(["x", "y"])).csv().unwrap(), "value\nx\ny\n");
        assert_eq!(Table::of(&json!([])).lines.len(), 0);
    }
}
