//! `kolo compare --interleaved`.

use std::env::current_exe;
use std::path::{Path, PathBuf};

use against::interleaved::{More, Session, SessionError, Turn};
use against::launcher::Launcher;
use against::variant::{Variant, parse_environment};
use anyhow::Result;
use cluster::launch::Launched;
use measure::config::{Allocation, Config, Measure};
use measure::plan::Plan;
use results::compare::{Comparisons, Run};
use results::config_kind::ConfigKind;
use results::provenance::{Launch, Override, PROVENANCE, Provenance};
use results::toml_file::{Checked, ConfigProblem};
use serde_json::Value;
use workloads::workload::Workload;

use super::INTERLEAVED;
use crate::cli::{configuration, not_for, usage};

/// Without `--blocks`, the noise of so many tells how many a case needs.
const BLOCKS: usize = 8;

/// Without `--blocks`, no case has more.
const MOST_BLOCKS: usize = 100;

/// As many as there are letters.
const MOST_VARIANTS: usize = 26;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = INTERLEAVED)]
pub struct Options {
    /// Measure binaries of kolo on a configuration, in turns, and compare that
    ///
    /// The last argument is a configuration of training steps, or the name of an embedded one; those before it are
    /// binaries. Without any, and with --with, it is this program. They take turns block by block, in one random order.
    #[arg(long)]
    interleaved: bool,
    /// Variables, as "NCCL_ALGO=Ring"; each --with is compared
    ///
    /// Several variables are separated by spaces. A single --with is compared with the environment as it is.
    #[arg(long, value_name = "NAME=VALUE", requires = "interleaved")]
    with: Vec<String>,
    /// Blocks of each case [default: as many as tell the threshold]
    ///
    /// By default the noise of the first blocks, those of the configuration and at least 8, tells how many a difference as
    /// large as the threshold takes. At most 100 are measured.
    #[arg(long, value_name = "COUNT", requires = "interleaved", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: Option<u32>,
    /// Command that starts ranks: "srun --ntasks={ranks} --mpi=pmix" [default: mpirun on this machine]
    #[arg(long, value_name = "COMMAND", requires = "interleaved", hide_short_help = true)]
    launcher: Option<String>,
    /// Print the order of blocks without measuring
    #[arg(long, requires = "interleaved", hide_short_help = true)]
    dry_run: bool,
    /// Continue the run in --out: blocks that it has are not measured again
    #[arg(long, requires_all = ["interleaved", "out"], hide_short_help = true)]
    resume: bool,
    /// Folder for DIR/a, DIR/b, ... [default: results/DATE-compare-CONFIG]
    #[arg(long, value_name = "DIR", requires = "interleaved")]
    out: Option<PathBuf>,
}

impl Options {
    /// Whether runs are to be measured.
    pub fn is_set(&self) -> bool {
        self.interleaved
    }
}

/// Measures, to tell differences as large as `threshold`; returns the folders of results, none with `--dry-run`, and
/// whether a case was given up.
pub fn measure(
    options: &Options,
    words: &[PathBuf],
    threshold: f64,
) -> Result<(Vec<PathBuf>, bool)> {
    let [programs @ .., config] = words else { return Err(usage("a configuration is missing")) };
    let variants = variants(programs, &options.with)?;
    if let Some(Launched { tasks: 2.., .. }) = Launched::here() {
        return Err(usage(
            "kolo compare --interleaved starts ranks itself: run it once, and give --launcher the command that starts \
             them",
        ));
    }
    let launcher = match &options.launcher {
        Some(text) => Launcher::parse(text).map_err(usage)?,
        None => Launcher::mpirun(),
    };
    let mut launch = Launch::now();
    let name = config.file_stem().unwrap_or_default().to_string_lossy();
    let folder = format!("{}-compare-{name}", launch.started.replace(':', ""));
    let out = options.out.clone().unwrap_or_else(|| Path::new("results").join(folder));
    let (variants, launcher) = (&variants[..], &launcher);
    let blocks = match options.blocks {
        None if options.resume => Blocks::of_folder(&out.join(&variants[0].name)),
        None => Blocks::First,
        Some(count) => Blocks::Given(count as usize),
    };
    let (plan, workload) = plan(config, blocks, &mut launch)?;
    let more = |runs: &[Run]| more(&plan, runs, threshold);
    let more: Option<More> = if matches!(blocks, Blocks::First) { Some(&more) } else { None };
    let session = Session { plan: &plan, workload: &workload, variants, launcher, out: &out, more };
    if options.dry_run {
        if session.more.is_some() {
            eprintln!("these are the first blocks; their noise tells how many more there are");
        }
        for Turn { case, variant, block, .. } in session.order() {
            println!("block {block}: {}: {}", variants[variant], plan.cases[case].case);
        }
        return Ok((Vec::new(), false));
    }
    check(variants)?;
    inherited().iter().for_each(|name| {
        eprintln!("{name} is ignored: give it by --with, or put its value into the configuration");
    });
    let ended = session.run(&launch, options.resume, &mut |line| eprintln!("{line}"));
    let ended = ended.map_err(|error| match error {
        SessionError::Record(cause) => anyhow::Error::from(cause),
        SessionError::File { .. } => error.into(),
        _ => usage(error),
    })?;
    eprintln!("results in {}", out.display());
    Ok((ended.folders, ended.given_up > 0))
}

/// Those that are compared: binaries, or environments of one.
fn variants(programs: &[PathBuf], with: &[String]) -> Result<Vec<Variant>> {
    let environments = with.iter().map(|text| parse_environment(text).map_err(usage));
    let mut environments = environments.collect::<Result<Vec<_>>>()?;
    let pairs: Vec<(PathBuf, _)> = match (programs, environments.len()) {
        ([] | [_], 0) => {
            return Err(usage(
                "there is nothing to compare with: give two binaries before the configuration, or --with NAME=VALUE",
            ));
        }
        ([_, _, ..], 0) => programs.iter().map(|program| (program.clone(), Vec::new())).collect(),
        ([_, _, ..], _) => {
            return Err(usage(
                "several binaries and --with: give one binary with several --with, or several binaries without",
            ));
        }
        (one, count) => {
            let program = one.first().cloned().map_or_else(current_exe, Ok)?;
            if count == 1 {
                environments.insert(0, Vec::new());
            }
            environments.into_iter().map(|environment| (program.clone(), environment)).collect()
        }
    };
    if pairs.len() > MOST_VARIANTS {
        return Err(usage(format!(
            "{} are too many to compare at once; expected 2 to 26",
            pairs.len()
        )));
    }
    let named = ('a'..='z').zip(pairs).map(|(letter, (program, environment))| Variant {
        name: letter.into(),
        program: std::path::absolute(&program).unwrap_or(program),
        environment,
    });
    Ok(named.collect())
}

/// Asks every binary what it is.
fn check(variants: &[Variant]) -> Result<()> {
    let log = std::env::temp_dir().join(format!("kolo-compare-{}", std::process::id()));
    let asked: Result<Vec<String>, _> =
        variants.iter().map(|variant| variant.version(&log)).collect();
    let _ = std::fs::remove_file(&log);
    asked.map(drop).map_err(usage)
}

/// How many blocks a case has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    /// Those that tell the noise, and then as many as it takes.
    First,
    /// As `--blocks` says.
    Given(usize),
    /// As a folder says that goes on.
    Found(usize),
}

impl Blocks {
    /// Of a folder that was begun without `--blocks`. Its first blocks may not be all there.
    fn of_folder(folder: &Path) -> Blocks {
        let Ok(before) = Provenance::read(&folder.join(PROVENANCE)) else { return Blocks::First };
        let launch = before.launches.last();
        let is_raised =
            launch.is_some_and(|launch| launch.overrides.iter().any(|it| it.set_by == FROM_NOISE));
        let count = before.config.pointer("/measure/blocks_min").and_then(Value::as_u64);
        match count.and_then(|count| usize::try_from(count).ok()) {
            Some(count) if is_raised => Blocks::Found(count),
            _ => Blocks::First,
        }
    }
}

/// What set a number of blocks: nobody, and the noise of the first ones.
const BY_DEFAULT: &str = "kolo compare --interleaved";
const FROM_NOISE: &str = "kolo compare --interleaved, from the noise of the first blocks";

/// Fixes the number of blocks; returns what that overrides.
fn fix_blocks(measure: &mut Measure, count: usize, set_by: &str) -> Vec<Override> {
    let mut overrides = Vec::new();
    for (key, value) in [
        ("measure.blocks_min", &mut measure.blocks_min),
        ("measure.blocks_max", &mut measure.blocks_max),
    ] {
        if *value != count {
            overrides.push(Override {
                key: key.into(),
                value: count.to_string(),
                instead_of: value.to_string(),
                set_by: set_by.into(),
            });
            *value = count;
        }
    }
    overrides
}

/// The plan with as many blocks as tell the threshold at the noise of the first ones; none if these are enough.
fn more(plan: &Plan, runs: &[Run], threshold: f64) -> Option<(Plan, Vec<Override>)> {
    let (first, others) = runs.split_first()?;
    let compared = Comparisons::of(first, others, threshold).ok()?;
    let (needed, noise) = compared.needed()?;
    let has = plan.config.measure.blocks_min;
    let needs = needed.map_or("more than 10000".into(), |needed| needed.to_string());
    let then = match needed.map_or(MOST_BLOCKS, |needed| needed.min(MOST_BLOCKS)) {
        count if count <= has => "these are enough".into(),
        count if needed == Some(count) => format!("{} more are measured", count - has),
        count => format!("{} more are measured, for more give --blocks", count - has),
    };
    eprintln!(
        "{has} blocks of each case: noise {:.1} %; to tell a difference of {:.1} % takes {needs}, so {then}",
        100.0 * noise,
        100.0 * threshold
    );
    let count = needed.unwrap_or(MOST_BLOCKS).min(MOST_BLOCKS);
    if count <= has {
        return None;
    }
    let mut config = plan.config.clone();
    let overrides = fix_blocks(&mut config.measure, count, FROM_NOISE);
    Some((Plan::new(config, plan.workload.clone()), overrides))
}

/// The plan of a configuration with a fixed number of blocks, and the path of its workload.
fn plan(config: &Path, blocks: Blocks, launch: &mut Launch) -> Result<(Plan, PathBuf)> {
    let file = configuration(config)?;
    let kind = ConfigKind::of_file(&file)?;
    if kind != ConfigKind::Training {
        return Err(not_for(&file, kind, "kolo compare --interleaved"));
    }
    let mut config = Config::of(&file)?;
    config.sweep.settle(Allocation::of_this_machine());
    let measure = &mut config.measure;
    let (count, set_by) = match blocks {
        Blocks::Given(count) => (count, format!("--blocks {count}")),
        Blocks::Found(count) => (count, FROM_NOISE.into()),
        Blocks::First => (measure.blocks_min.max(BLOCKS), BY_DEFAULT.into()),
    };
    launch.overrides.extend(fix_blocks(measure, count, &set_by));
    let path = config.workload_path(&file.path);
    let workload =
        Workload::read(&path).map_err(|error| file.refuse(ConfigProblem::unusable(error)))?;
    let plan = Plan::new(config, workload);
    if plan.order(0).is_empty() {
        return Err(usage(format!("{}: no case can be run here", file.path.display())));
    }
    Ok((plan, path))
}

/// Horovod's variables that are set, which blocks are not given.
fn inherited() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("HOROVOD_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(programs: &[&str], with: &[&str]) -> Result<Vec<String>> {
        let programs: Vec<PathBuf> = programs.iter().map(PathBuf::from).collect();
        let with: Vec<String> = with.iter().map(ToString::to_string).collect();
        let variants = variants(&programs, &with)?;
        Ok(variants.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn binaries_or_environments_of_one_are_compared() {
        assert_eq!(compared(&["/x", "/y"], &[]).unwrap(), ["a (/x)", "b (/y)"]);
        assert_eq!(compared(&["/x"], &["A=1 B=2"]).unwrap(), ["a (/x)", "b (/x with A=1 B=2)"]);
        let two = ["a (/x with A=1)", "b (/x with A=2)"];
        assert_eq!(compared(&["/x"], &["A=1", "A=2"]).unwrap(), two);
        assert_eq!(compared(&[], &["A=1"]).unwrap().len(), 2, "of this program");
        for (programs, with, expected) in [
            (&["/x"][..], &[][..], "there is nothing to compare with"),
            (&["/x", "/y"], &["A=1"], "several binaries and --with"),
            (&["/x"], &["A"], "\"A\" is no variable of the environment"),
            (&["/x"; 27], &[], "27 are too many to compare at once"),
        ] {
            let why = compared(programs, with).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
    }
}
