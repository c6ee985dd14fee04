//! `kolo schema`.

use anyhow::Result;
use results::compare::Comparisons;
use schemars::{Schema, schema_for};

use super::{Exit, info, validate, verify};

/// Print the JSON Schema of what a command prints with --json
///
/// Its field `schema` is the version of the output: it changes when a field is removed, or changes its meaning.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo schema compare
  kolo schema verify > verify.schema.json")]
pub struct Arguments {
    /// A command that has --json
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    command: String,
}

type Generate = fn() -> Schema;

/// Commands with --json, and the schema of what they print.
const SCHEMAS: [(&str, Generate); 4] = [
    ("compare", || schema_for!(Comparisons)),
    ("info", || schema_for!(info::Info)),
    ("validate", || schema_for!(validate::Published)),
    ("verify", || schema_for!(verify::Verified)),
];

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let (_, schema) = SCHEMAS
        .iter()
        .find(|(name, _)| *name == arguments.command)
        .expect("clap accepts these names only");
    println!("{}", serde_json::to_string_pretty(&schema())?);
    Ok(Exit::Right)
}

fn names() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().map(|(name, _)| *name)
}
