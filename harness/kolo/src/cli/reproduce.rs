//! `kolo reproduce`.

mod answers;
mod first;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use against::commit::{Built, build};
use against::launcher::Launcher;
use anyhow::Result;
use results::columnar;
use results::compare::{Comparisons, Repeated, Run};
use results::files::create_folder;
use results::inputs::{Input, Origin, fingerprint};
use results::provenance::{Build, Launch, PROVENANCE, Provenance, now};
use schemars::JsonSchema;
use serde::Serialize;

use self::answers::Answered;
use self::first::{First, Kind};
use super::printed::Printed;
use super::{Exit, usage};

const RUN: &str = "What to run";
const OUTPUT: &str = "Output";

/// Differences in times that do not matter in the comparison, as `kolo compare` has it.
const THRESHOLD: f64 = 0.02;

/// Run a sweep, a bench or the tuner again, and tell whether its results are reproduced
///
/// It runs the command that the provenance names, with the same configuration, seed, commit and variables of Horovod,
/// NCCL and the allocator. If this program is of another commit, that commit is built in a work tree below
/// target/reproduce. Then it says in what the runs differ, compares their times, and counts the medians that are within
/// the first run's intervals. A simulated sweep must give the same bytes. Of kolo tune, it compares the recommendation, and
/// what it saves.
///
/// Exit status: 0, reproduced; 1, not reproduced; 3, no case has an interval, or nothing is recommended.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo reproduce results/reference/quick
  kolo reproduce results/reference/bench/2-ranks.csv")]
pub struct Arguments {
    /// Folder of `kolo sweep` or `kolo tune`, or file of `kolo bench --out`
    results: PathBuf,
    /// Run this binary, of whatever commit
    #[arg(long, value_name = "FILE", help_heading = RUN)]
    binary: Option<PathBuf>,
    /// Command that starts ranks: "srun --ntasks={ranks} --mpi=pmix" [default: mpirun on this machine]
    #[arg(long, value_name = "COMMAND", help_heading = RUN)]
    launcher: Option<String>,
    /// Print the command without running it
    #[arg(long, help_heading = RUN)]
    dry_run: bool,
    /// List all cases of the comparison, not only the most different ones
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    all: bool,
    /// Folder, or file of a bench, for the results [default: results/DATE-again-NAME]
    #[arg(long, value_name = "PATH", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    #[command(flatten)]
    printed: Printed,
}

/// Version of [`Reproduced`] as JSON.
const SCHEMA: u32 = 1;

/// A run that was repeated.
#[derive(Serialize, JsonSchema)]
pub struct Reproduced {
    /// Version of this structure.
    schema: u32,
    /// The folder or file of the second run.
    results: String,
    /// In what its configuration or workload differs; null: in nothing.
    difference: Option<String>,
    /// Medians of the second run that are within the first run's intervals; null of a simulated sweep, and of the tuner.
    within: Option<usize>,
    /// Cases of both runs whose first median has an interval; null of a simulated sweep, and of the tuner.
    cases: Option<usize>,
    /// Whether the results are reproduced; null: nothing can be said.
    is_reproduced: Option<bool>,
    /// The same in words.
    verdict: String,
    /// The comparison of both runs; null of a simulated sweep, and of the tuner.
    comparison: Option<Comparisons>,
    /// Of the tuner, the answers of both runs for each topology; of others there are none.
    answers: Vec<Answered>,
}

/// Variables that change what a sweep does or how fast; others belong to a job or a terminal.
const VARIABLES: [&str; 4] = ["HOROVOD_", "MALLOC_", "NCCL_", "RAYON_"];

/// Results of a sweep.
const ROWS: &str = "rows.csv";

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let first = First::read(&arguments.results)?;
    columnar::check_readable(&first.path).map_err(usage)?;
    let out = arguments.out.clone().unwrap_or_else(|| {
        let end = if first.kind == Kind::Bench { ".csv" } else { "" };
        let name = format!("{}-again-{}{end}", now().replace(':', ""), first.name());
        Path::new("results").join(name)
    });
    let out = std::path::absolute(&out)?;
    let result = first.result(&out);
    if result.exists() {
        return Err(usage(format!(
            "{} exists; results are never overwritten: name another with --out",
            result.display()
        )));
    }
    let launch = &first.launch;
    let launcher = launcher(arguments, launch)?;
    let program = program(arguments, &first)?;
    let folder = place(&launch.inputs, &program).map_err(usage)?;
    let mut command = vec![program.program.display().to_string()];
    command.extend(first.words.iter().cloned());
    command.extend(["--out".into(), out.display().to_string()]);
    if let Some((launcher, ranks)) = launcher {
        command = launcher.command(ranks, &command);
    }
    let variables = variables(launch, std::env::vars());
    for (name, value) in &variables {
        match value {
            Some(value) => eprintln!("{name}={value} is set, as it was"),
            None => eprintln!("{name} is not set, as it was not"),
        }
    }
    eprintln!("in {}: {}", folder.display(), command.join(" "));
    if arguments.dry_run {
        return Ok(Exit::Right);
    }
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).current_dir(&folder);
    for (name, value) in variables {
        match value {
            Some(value) => process.env(name, value),
            None => process.env_remove(name),
        };
    }
    // The summary and figures of a run are on stdout; here they are progress.
    process.stdout(std::io::stderr());
    if let (Kind::Bench, Some(parent)) = (first.kind, out.parent()) {
        create_folder(parent)?;
    }
    let status = process.status().map_err(|error| usage(format!("{}: {error}", command[0])))?;
    if !result.is_file() {
        let name = result.file_name().unwrap_or_default().to_string_lossy();
        return Err(usage(format!("{}: {status}, and no {name}", command.join(" "))));
    }
    let reproduced = compare(&first, &out)?;
    if arguments.printed.is_text() {
        let Reproduced { difference, comparison, answers, verdict, .. } = &reproduced;
        difference.iter().for_each(|difference| println!("differs: {difference}"));
        comparison.iter().for_each(|comparison| print!("{}", comparison.text(arguments.all)));
        answers.iter().for_each(|answered| println!("{answered}"));
        println!("{verdict}");
    }
    let table = match first.kind {
        Kind::Tune => "/answers",
        Kind::Sweep | Kind::Bench => "/comparison/pairs/0/cases",
    };
    arguments.printed.print(&reproduced, table)?;
    Ok(match reproduced.is_reproduced {
        None => Exit::Inconclusive,
        Some(true) => Exit::Right,
        Some(false) => Exit::Wrong,
    })
}

/// What starts the ranks, and how many; none if they are threads.
fn launcher(arguments: &Arguments, launch: &Launch) -> Result<Option<(Launcher, usize)>> {
    let ranks: usize = launch.nodes.iter().map(|node| node.ranks.len()).sum();
    let nodes = launch.nodes.len();
    Ok(match &arguments.launcher {
        _ if ranks == 0 => None,
        Some(text) => Some((Launcher::parse(text).map_err(usage)?, ranks)),
        None if nodes > 1 => {
            return Err(usage(format!(
                "the run had {ranks} processes on {nodes} nodes; give --launcher the command that starts them, such as \
                 \"srun --nodes={nodes} --ntasks={{ranks}} --mpi=pmix\""
            )));
        }
        None => Some((Launcher::mpirun(), ranks)),
    })
}

/// The binary that measures, and the folder of its commit's files.
fn program(arguments: &Arguments, first: &First) -> Result<Built> {
    let First { launch, provenance, words, .. } = first;
    let here = std::env::current_dir()?;
    if let Some(binary) = &arguments.binary {
        if !binary.is_file() {
            return Err(usage(format!("{}: no such binary", binary.display())));
        }
        return Ok(Built { program: std::path::absolute(binary)?, tree: here });
    }
    let commit = launch.commit.trim_end_matches("-dirty");
    if commit != launch.commit {
        eprintln!(
            "warning: files had been changed since commit {commit}, which is run without them"
        );
    }
    if commit == "unknown" {
        eprintln!("warning: the run does not know its commit; this program runs it again");
    }
    if launch.commit == Build::this().commit || commit == "unknown" {
        return Ok(Built { program: std::env::current_exe()?, tree: here });
    }
    let transports = provenance.as_ref().and_then(|all| all.config.pointer("/sweep/transport"));
    let is_mpi = transports.is_some_and(|names| names.to_string().contains("mpi"));
    let by_columns = words.iter().any(|word| word == "parquet" || word == "--samples=parquet");
    let needed = [("mpi", is_mpi || !launch.nodes.is_empty()), ("parquet", by_columns)];
    let features: Vec<&str> =
        needed.into_iter().filter_map(|(feature, is)| is.then_some(feature)).collect();
    build(&here, commit, &features, |line| eprintln!("{line}")).map_err(usage)
}

/// The folder in which every file that the run read from disk is what it was: the working folder, or that of the commit.
///
/// # Errors
/// The first file that is another, in words.
fn place(inputs: &[Input], built: &Built) -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let other = |folder: &Path| {
        let on_disk = inputs.iter().filter(|input| input.origin == Origin::Disk);
        let is_other = |input: &&Input| {
            fingerprint(&folder.join(&input.path)).ok() != Some(input.fnv1a.clone())
        };
        { on_disk }.find(is_other).map(|input| folder.join(&input.path))
    };
    match (other(&here), other(&built.tree)) {
        (None, _) => Ok(here),
        (_, None) => Ok(built.tree.clone()),
        (Some(path), Some(_)) => Err(format!(
            "{} is missing, or not the file that the run read (its fingerprint in {PROVENANCE} is another); run this in \
             the folder in which the run was started, with its files",
            path.display()
        )),
    }
}

/// The variables of the run that are set otherwise now, with the value that they had.
fn variables(
    launch: &Launch,
    set: impl Iterator<Item = (String, String)>,
) -> Vec<(String, Option<String>)> {
    let counts = |name: &str| VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    let set: Vec<(String, String)> = set.filter(|(name, _)| counts(name)).collect();
    let had = |name: &str| launch.environment.iter().any(|(other, _)| other == name);
    let before = launch.environment.iter().filter(|pair| counts(&pair.0) && !set.contains(pair));
    let given = before.map(|(name, value)| (name.clone(), Some(value.clone())));
    let removed = set.iter().filter(|(name, _)| !had(name)).map(|(name, _)| (name.clone(), None));
    given.chain(removed).collect()
}

/// In what the runs differ, and whether the second one gives the results of the first.
fn compare(first: &First, second: &Path) -> Result<Reproduced> {
    let nothing = Reproduced {
        schema: SCHEMA,
        results: second.display().to_string(),
        difference: difference(first, second)?,
        within: None,
        cases: None,
        is_reproduced: None,
        verdict: String::new(),
        comparison: None,
        answers: Vec::new(),
    };
    if first.kind == Kind::Tune {
        let answers = Answered::read(&first.path, second)?;
        let (is_reproduced, verdict) = answers::verdict(&answers);
        return Ok(Reproduced { answers, is_reproduced, verdict, ..nothing });
    }
    let is_simulated =
        first.provenance.as_ref().is_some_and(|all| all.config.get("simulate").is_some());
    if is_simulated {
        let (is_same, verdict) = simulated(&first.path, second)?;
        return Ok(Reproduced { is_reproduced: Some(is_same), verdict, ..nothing });
    }
    let [first, second] = [&first.path, second].map(|path| Run::read(path).map_err(usage));
    let (first, second) = (first?, second?);
    let compared = Comparisons::of(&first, std::slice::from_ref(&second), THRESHOLD);
    let repeated = Repeated::of(&first, &second);
    Ok(Reproduced {
        within: Some(repeated.within),
        cases: Some(repeated.cases),
        is_reproduced: repeated.agrees(),
        verdict: repeated.to_string(),
        comparison: Some(compared.map_err(usage)?),
        ..nothing
    })
}

/// In what configuration or workload a second run differs, in words; nothing of a file, whose command is all of it.
fn difference(first: &First, second: &Path) -> Result<Option<String>> {
    let Some(provenance) = &first.provenance else { return Ok(None) };
    let again = Provenance::read(&second.join(PROVENANCE)).map_err(usage)?;
    let difference = provenance.difference((&again.config, &again.workload_digest));
    Ok(difference.map(|difference| difference.to_string()))
}

/// Virtual time does not differ from run to run.
fn simulated(first: &Path, second: &Path) -> Result<(bool, String)> {
    let read = |folder: &Path| fs::read_to_string(folder.join(ROWS));
    let (before, after) = (read(first)?, read(second)?);
    if before == after {
        let lines = before.lines().count();
        return Ok((
            true,
            format!("reproduced: {ROWS} is the same, byte for byte ({lines} lines)"),
        ));
    }
    let lines = before.lines().zip(after.lines());
    let same = lines.take_while(|(before, after)| before == after).count();
    let verdict = format!(
        "not reproduced: {ROWS} differs from line {}; before it had {} lines, now {}",
        same + 1,
        before.lines().count(),
        after.lines().count()
    );
    Ok((false, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_what_they_were() {
        let before = [("HOROVOD_CYCLE_TIME", "5"), ("SLURM_JOB_ID", "7"), ("NCCL_ALGO", "Ring")];
        let before = before.map(|(name, value)| (name.to_string(), value.to_string()));
        let before = Launch { environment: before.into(), ..Launch::default() };
        let now = [("HOROVOD_FUSION_THRESHOLD", "0"), ("NCCL_ALGO", "Ring"), ("HOME", "/")];
        let now = now.map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(
            variables(&before, now.into_iter()),
            [
                ("HOROVOD_CYCLE_TIME".to_string(), Some("5".to_string())),
                ("HOROVOD_FUSION_THRESHOLD".to_string(), None),
            ]
        );
    }
}
