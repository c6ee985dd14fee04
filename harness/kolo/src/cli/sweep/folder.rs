//! The folder of a sweep's results: opened before the first case, and finished after the last.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, anyhow};
use schemars::JsonSchema;
use serde::Serialize;

use super::Arguments;
use crate::cli::printed::{Format, print_rows};
use crate::cli::{Exit, plot, usage};
use results::command::without;
use results::conclusion::{CONCLUSION, Conclusion, ToCopy};
use results::provenance::{Launch, PROVENANCE, Provenance, Subject};
use results::record::{Earlier, Output, Store};
use results::row::{Row, Status};

/// A new folder, or one to resume, with its provenance written. Nothing in it is changed before it is known to
/// hold this very sweep.
pub fn open(
    arguments: &Arguments,
    plan: &impl Subject,
    launch: Launch,
    steps_per_block: usize,
) -> Result<(Store, Earlier, Provenance)> {
    let name = arguments.config.file_stem().unwrap_or_default().to_string_lossy();
    if let Some(folder) = of_earlier(arguments)? {
        if !folder.join(PROVENANCE).exists() {
            return Err(usage(format!(
                "{}: no {PROVENANCE}, so there is no run to resume; leave out --resume",
                folder.display()
            )));
        }
        let path = folder.join(PROVENANCE);
        let grows = Provenance::read(&path)?.wants_more_launches(&plan.config());
        let provenance = Provenance::resume(&path, plan, launch, arguments.force)?;
        let (mut store, mut earlier) = Store::resume(&folder, steps_per_block)?;
        if grows {
            forget(&mut store, &mut earlier, Status::Ok)?;
        }
        provenance.write(&folder.join(PROVENANCE))?;
        earlier.dropped.iter().for_each(|sentence| eprintln!("{sentence}"));
        return Ok((store, earlier, provenance));
    }
    let folder = arguments.out.clone().unwrap_or_else(|| {
        Path::new("results").join(format!("{}-{name}", launch.started.replace(':', "")))
    });
    let provenance = Provenance::new(plan, launch);
    let store = Store::create(&folder, &provenance)?;
    provenance.write(&folder.join(PROVENANCE))?;
    Ok((store, Earlier::default(), provenance))
}

/// Removes rows of cases that have failed, so that they are measured again; returns the cases.
pub fn forget_failed(store: &mut Store, earlier: &mut Earlier) -> Result<Vec<String>> {
    let failed = forget(store, earlier, Status::Failed)?;
    eprintln!("cases that have failed and are measured again: {}", failed.len());
    Ok(failed)
}

/// Removes rows of cases that ended like this, and keeps their blocks; returns the cases.
fn forget(store: &mut Store, earlier: &mut Earlier, status: Status) -> Result<Vec<String>> {
    let ended_so = |row: &Row| match row {
        Row::Step(row) => row.outcome.status() == status,
        _ => false,
    };
    let (gone, rows): (Vec<Row>, Vec<Row>) =
        std::mem::take(&mut earlier.rows).into_iter().partition(ended_so);
    store.replace_rows(&rows)?;
    earlier.rows = rows;
    Ok(gone.iter().map(|row| row.key().case.clone()).collect())
}

/// The folder of the run to continue, if one is to be continued.
///
/// # Errors
/// When there is none in `results`.
pub fn of_earlier(arguments: &Arguments) -> Result<Option<PathBuf>> {
    let name = arguments.config.file_stem().unwrap_or_default().to_string_lossy();
    let is_there = |folder: &PathBuf| folder.join(PROVENANCE).exists();
    let goes_on = arguments.go_on && arguments.out.as_ref().is_some_and(is_there);
    match &arguments.out {
        _ if !arguments.resume && !goes_on => Ok(None),
        Some(folder) => Ok(Some(folder.clone())),
        None => newest(Path::new("results"), &name).map(Some),
    }
}

/// Ends a launch that another one follows.
pub fn end_launch(store: &Store, provenance: &mut Provenance) -> Result<()> {
    if let Some(launch) = provenance.launches.last_mut() {
        launch.end(gpu::cuda::inventory::after).iter().for_each(|sentence| eprintln!("{sentence}"));
    }
    Ok(provenance.write(&store.folder().join(PROVENANCE))?)
}

/// Ends the launch, writes provenance, summary, conclusion, figures and report, and prints the summary.
pub fn finish(
    arguments: &Arguments,
    store: &Store,
    mut provenance: Provenance,
    summary: &str,
    conclusion: &Conclusion,
) -> Result<()> {
    let folder = store.folder();
    end_launch(store, &mut provenance)?;
    store.write_whole("summary.txt", summary.as_bytes())?;
    if !conclusion.verdicts.is_empty() {
        store.write_whole(CONCLUSION, &conclusion.json())?;
    }
    let figures =
        if arguments.no_figures { String::new() } else { plot::figures_and_report(folder)? };
    match arguments.printed.kind() {
        Format::Text => {
            print!("{summary}{figures}");
            println!("results in {}", folder.display());
            Ok(())
        }
        Format::Json => arguments.printed.print(&Concluded::of(folder, conclusion), ""),
        format => print_rows(fs::File::open(folder.join("rows.csv"))?, format),
    }
}

/// Version of [`Concluded`] as JSON.
const SCHEMA: u32 = 1;

/// What a sweep concludes.
#[derive(Serialize, JsonSchema)]
pub struct Concluded {
    /// Version of this structure.
    schema: u32,
    /// The folder of the results: `rows.csv` has a line for each case.
    results: String,
    /// What the run says, a sentence or two for each thing that it was asked. A simulated sweep says nothing here.
    verdicts: Vec<String>,
    /// What limits the verdicts.
    limits: Vec<String>,
    /// What to copy to follow them.
    to_copy: Vec<ToCopy>,
}

impl Concluded {
    fn of(folder: &Path, conclusion: &Conclusion) -> Concluded {
        let Conclusion { verdicts, limits, to_copy, .. } = conclusion.clone();
        let results = folder.display().to_string();
        Concluded { schema: SCHEMA, results, verdicts, limits, to_copy }
    }
}

/// Replaces this program by its next launch, which continues the run in `folder`. Returns only if that fails.
pub fn launch_again(folder: &Path) -> Result<Exit> {
    let words = without(std::env::args_os().skip(1), &["--out"], &["--resume", "--go-on"]);
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    command.args(words).args(["--go-on", "--out"]).arg(folder);
    Err(anyhow!("{}: {}", program.display(), command.exec()))
}

/// The newest run of a configuration.
fn newest(results: &Path, name: &str) -> Result<PathBuf> {
    let none = || usage(format!("{}/*-{name}: there is no run to resume", results.display()));
    let entries = fs::read_dir(results).map_err(|_| none())?;
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(&format!("Z-{name}")))
        .filter(|path| path.join(PROVENANCE).exists())
        .collect();
    folders.sort();
    folders.pop().ok_or_else(none)
}
