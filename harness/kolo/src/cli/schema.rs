//! `kolo schema`.

use anyhow::Result;
use results::compare::Comparisons;
use schemars::{Schema, schema_for};

use super::{
    Exit, against, bench, calibrate, info, plot, predict, report, reproduce, schedule, site, sweep,
    timeline, validate, verify,
};
use tune::report::Tuning;

/// Print the JSON Schema of what a command prints with --json, or of a line of rows.csv
///
/// Its field `schema` is the version of the output: it changes when a field is removed, or changes its meaning.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo schema compare
  kolo schema verify > verify.schema.json")]
pub struct Arguments {
    /// A command that has --json, or `rows`
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    command: String,
}

type Generate = fn() -> Schema;

/// Commands with --json, and the schema of what they print; and rows of results.
const SCHEMAS: [(&str, Generate); 20] = [
    ("against-autotune", || schema_for!(against::autotune::Regrets)),
    ("against-horovod", || schema_for!(against::horovod::Beside)),
    ("bench", || schema_for!(bench::Benched)),
    ("calibrate", || schema_for!(calibrate::Calibrated)),
    ("compare", || schema_for!(Comparisons)),
    ("info", || schema_for!(info::Info)),
    ("plot", || schema_for!(plot::Plotted)),
    ("predict", || schema_for!(predict::Forecast)),
    ("report", || schema_for!(report::Written)),
    ("reproduce", || schema_for!(reproduce::Reproduced)),
    ("rows", results::row::schema),
    ("schedule", || schema_for!(schedule::Listed)),
    ("site-check", || schema_for!(site::Checked)),
    ("site-list", || schema_for!(site::Sites)),
    ("sweep", || schema_for!(sweep::Concluded)),
    ("sweep-dry-run", || schema_for!(sweep::Intended)),
    ("timeline", || schema_for!(timeline::Analysed)),
    ("tune", || schema_for!(Tuning)),
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
