//! The command line. stdout has results, stderr progress and advice.

mod against;
mod bench;
mod calibrate;
mod compare;
mod completions;
mod info;
mod init;
mod man;
mod plot;
mod predict;
mod printed;
mod report;
mod reproduce;
mod schedule;
mod schema;
mod site;
mod sizes;
mod sweep;
mod timeline;
mod timelines;
mod tune;
mod validate;
mod verify;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use cluster::launch::Launched;
use results::config_kind::ConfigKind;
use results::error::RecordError;
use results::inputs::{self, CONFIGS};
use results::toml_file::{ConfigError, ConfigProblem, TomlFile};

/// How the program ends; see `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// All cases measured and right.
    Right = 0,
    /// Some case failed or was wrong; the rest is recorded.
    Wrong = 1,
    /// The command line or the configuration is not understood.
    Usage = 2,
    /// No conclusion is possible.
    Inconclusive = 3,
    /// Cases are left for another run.
    Left = 4,
}

impl Exit {
    /// The meaning of an exit status of another run of this program.
    fn of(status: u8) -> Exit {
        match status {
            0 => Exit::Right,
            2 => Exit::Usage,
            3 => Exit::Inconclusive,
            4 => Exit::Left,
            _ => Exit::Wrong,
        }
    }
}

/// kolo compares collective algorithms and Horovod's control planes on this machine or cluster
///
/// Start with `kolo sweep quick`. It takes a real model's gradients through ring, tree, hierarchical and grouped
/// allreduce and two control planes, in a minute or two, and draws figures.
///
/// Exit status: 0, all cases are measured and right; 1, a case failed or was wrong (the others are recorded); 2, the
/// command line or the configuration is not understood; 3, nothing can be concluded; 4, cases are left for another
/// run (--resume).
#[derive(Parser)]
#[command(name = "kolo", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  kolo sweep quick
  kolo tune --workload resnet50 --backward-ms 100")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sweep(sweep::Arguments),
    Init(init::Arguments),
    Bench(Box<bench::Arguments>),
    Verify(verify::Arguments),
    Calibrate(calibrate::Arguments),
    Validate(validate::Arguments),
    Predict(predict::Arguments),
    Tune(Box<tune::Arguments>),
    Against(against::Arguments),
    Compare(compare::Arguments),
    Reproduce(reproduce::Arguments),
    Plot(plot::Arguments),
    Report(report::Arguments),
    Timeline(timeline::Arguments),
    Schedule(schedule::Arguments),
    Schema(schema::Arguments),
    Site(site::Arguments),
    Info(info::Arguments),
    Completions(completions::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
}

/// The command line. A negative number is the value of the option before it, which reports its range, and not an
/// option.
fn command() -> clap::Command {
    Arguments::command().mut_subcommands(|subcommand| {
        subcommand.mut_args(|argument| {
            let takes_value = argument.get_action().takes_values();
            argument.allow_negative_numbers(takes_value)
        })
    })
}

/// Runs the command line; errors are printed with their causes.
pub fn main() -> ExitCode {
    inputs::embed(shipped::configs(), voice());
    let parsed = Arguments::from_arg_matches(&command().get_matches());
    let arguments = parsed.unwrap_or_else(|error| error.format(&mut command()).exit());
    let ended = match arguments.command {
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Against(arguments) => against::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Plot(arguments) => plot::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Timeline(arguments) => timeline::run(&arguments),
        Command::Schedule(arguments) => schedule::run(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Site(arguments) => site::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    };
    let exit = ended.unwrap_or_else(|error| {
        eprintln!("kolo: {error}");
        for cause in error.chain().skip(1).map(|cause| cause.to_string()) {
            if !error.to_string().contains(&cause) {
                eprintln!("  because: {cause}");
            }
        }
        let refused = match error.downcast_ref() {
            Some(RecordError::Io { .. }) | None => false,
            Some(_) => true,
        };
        if refused || error.is::<UsageError>() || error.is::<ConfigError>() {
            Exit::Usage
        } else {
            Exit::Wrong
        }
    });
    ExitCode::from(exit as u8)
}

/// How this process advises the user: not at all if it is not the first of several.
fn voice() -> fn(&str) {
    match Launched::here() {
        Some(Launched { rank: 1.., .. }) => |_| {},
        _ => |sentence| eprintln!("{sentence}"),
    }
}

/// Finds the configuration that the user requests, by path or name, on disk or embedded.
fn configuration(asked: &Path) -> Result<TomlFile, ConfigError> {
    let chosen = inputs::choose(asked, CONFIGS, "configuration");
    TomlFile::read(&chosen.map_err(ConfigError::at(asked))?)
}

/// The error of a command that takes no configuration of this kind.
fn not_for(file: &TomlFile, kind: ConfigKind, command: &str) -> anyhow::Error {
    let by = match kind {
        ConfigKind::Training | ConfigKind::ControlPlanes | ConfigKind::Simulated => "kolo sweep",
        ConfigKind::Regret => "kolo tune",
        ConfigKind::PublishedPoints => "kolo validate --points",
        ConfigKind::Machine => "kolo predict --machine",
    };
    let problem = format!("this is {kind}, which `{command}` does not take; use `{by}`");
    file.refuse(ConfigProblem::unusable(problem)).into()
}

/// The command line or what it names is not understood.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct UsageError(Box<dyn Error + Send + Sync>);

fn usage(problem: impl Into<Box<dyn Error + Send + Sync>>) -> anyhow::Error {
    UsageError(problem.into()).into()
}

#[cfg(test)]
mod tests;
