//! Horovod with PyTorch: the steps of a case, replayed by the script that `kolo tune --confirm-script` writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use results::statistics::median;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tune::confirm::{REPORT, Setting, script};
use tune::space::variables;

use crate::engine::{BlockError, Engine, Steps, limit, own_time};
use crate::host_times::{FrameworkTimes, LOOP_GRADIENTS, LoopTimes, WorkTimes};
use crate::launcher::Launcher;
use crate::plan::{Compared, Origin, Plan, RING, dtype_name};
use crate::process::{Process, ProcessError, output};
use crate::resident::Resident;
use crate::tuners::Autotuned;

/// The version with which this project is compared.
pub const VERSION: &str = "0.28.1";

/// What an environment has.
const PROBE: &str = "\
import json, platform, torch, horovod, horovod.torch as hvd
print('PROBE ' + json.dumps({'horovod': horovod.__version__, 'torch': torch.__version__,
    'python': platform.python_version(), 'mpi': hvd.mpi_built(), 'gloo': hvd.gloo_built()}))";

/// Times its loop.
const LOOP_SCRIPT: &str = include_str!("loop_times.py");
/// Runs steps until its autotune has finished.
const AUTOTUNE_SCRIPT: &str = include_str!("autotune.py");

/// Steps in which all gradients are ready at once.
const AT_ONCE: usize = 30;

/// Blocks in which work on gradients is timed. It differs by 10 to 20 % from block to block.
const WORK_BLOCKS: usize = 3;

/// Ranks that stay are replaced after so many blocks: where a process has its memory is a matter of chance.
const BLOCKS_TO_STAY: usize = 5;

/// A threshold that fuses all gradients of one element.
pub const FUSED_BYTES: usize = 128 << 20;

/// Why Horovod cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HorovodError {
    /// There is no such interpreter.
    #[error("{}: there is no Python; `make horovod` installs Horovod, or name your own with --python", .0.display())]
    NoPython(PathBuf),
    /// It cannot import Horovod with PyTorch.
    #[error("{} has no Horovod with PyTorch: {cause}", python.display())]
    Import {
        /// The interpreter.
        python: PathBuf,
        /// What it said.
        #[source]
        cause: ProcessError,
    },
    /// It says something else than asked.
    #[error("cannot determine the Horovod version of {}: {said}", python.display())]
    Garbled {
        /// The interpreter.
        python: PathBuf,
        /// What it said.
        said: String,
    },
    /// It was built without MPI.
    #[error("Horovod {version} was built without MPI; build it with HOROVOD_WITH_MPI=1")]
    WithoutMpi {
        /// Its version.
        version: String,
    },
    /// It was built without Gloo, which a case needs.
    #[error(
        "Horovod {version} was built without Gloo, which {case} needs; build it with HOROVOD_WITH_GLOO=1, or leave \
         \"{RING}\" out"
    )]
    WithoutGloo {
        /// Its version.
        version: String,
        /// The case.
        case: String,
    },
}

/// An installed Horovod.
pub struct Horovod {
    python: PathBuf,
    launcher: Launcher,
    /// Starts ranks that Gloo connects: with MPI's control plane, Gloo's allreduce crashes (Horovod 0.28.1).
    gloo_launcher: Launcher,
    scratch: PathBuf,
    /// What the environment has.
    pub installed: Installed,
    /// Scripts of configurations that have been written.
    scripts: Vec<PathBuf>,
    /// Ranks stay for several blocks.
    stays: bool,
    /// Those of one configuration, by case.
    residents: BTreeMap<String, (usize, Resident)>,
    /// How many there have been.
    started: usize,
}

/// What an environment has.
#[derive(Clone, Debug, Deserialize)]
pub struct Installed {
    /// Version of Horovod.
    pub horovod: String,
    /// Version of PyTorch.
    pub torch: String,
    /// Version of Python.
    pub python: String,
    mpi: bool,
    gloo: bool,
}

/// What rank 0 of a block reports.
#[derive(Debug, Deserialize)]
struct Reported {
    error: Option<String>,
    #[serde(default)]
    ranks: usize,
    #[serde(default)]
    steps_ms: Vec<f64>,
    #[serde(default)]
    moments_s: Option<[f64; 2]>,
    #[serde(default)]
    ends_s: Vec<f64>,
    #[serde(default)]
    wake_us: f64,
    #[serde(default)]
    hand_over_us: f64,
    #[serde(default)]
    take_back_us: f64,
    #[serde(default)]
    framework_mib: f64,
    #[serde(default)]
    add_mb_us: f64,
    #[serde(default)]
    cast_mb_us: f64,
    #[serde(default)]
    cast_back_mb_us: f64,
    /// Processes of ranks that stay, which stop themselves now.
    #[serde(default)]
    pids: Vec<i32>,
}

impl Horovod {
    /// The Horovod of a Python interpreter. Its scripts are kept in `scratch`.
    ///
    /// # Errors
    /// When it has none with PyTorch and MPI.
    pub fn find(
        python: &Path,
        launcher: Launcher,
        scratch: &Path,
    ) -> Result<Horovod, HorovodError> {
        if !python.exists() {
            return Err(HorovodError::NoPython(python.into()));
        }
        let command = [&*python.display().to_string(), "-c", PROBE].map(str::to_string);
        let said = output(&command, &[], &scratch.join("probe"), Duration::from_secs(120))
            .map_err(|cause| HorovodError::Import { python: python.into(), cause })?;
        let found = said.lines().find_map(|line| line.strip_prefix("PROBE "));
        let installed: Option<Installed> = found.and_then(|found| serde_json::from_str(found).ok());
        let garbled = || HorovodError::Garbled { python: python.into(), said: said.clone() };
        let installed = installed.ok_or_else(garbled)?;
        if !installed.mpi {
            return Err(HorovodError::WithoutMpi { version: installed.horovod });
        }
        // A virtual environment is known by the path of its link.
        let python = std::path::absolute(python).unwrap_or(python.into());
        let (gloo_launcher, scratch) = (Launcher::horovodrun(&python), scratch.into());
        let (scripts, stays, residents, started) = Default::default();
        Ok(Horovod {
            python,
            launcher,
            gloo_launcher,
            scratch,
            installed,
            scripts,
            stays,
            residents,
            started,
        })
    }

    /// With ranks that stay for several blocks of a case, as far as no other configuration comes in between, and are stopped while
    /// something else runs. Ranks on several nodes do not stay.
    #[must_use]
    pub fn staying(self) -> Horovod {
        Horovod { stays: true, ..self }
    }

    /// With another command that starts ranks which Gloo connects.
    #[must_use]
    pub fn with_gloo_launcher(self, gloo_launcher: Launcher) -> Horovod {
        Horovod { gloo_launcher, ..self }
    }

    /// The command that starts a case's ranks.
    pub fn launcher_of(&self, case: &Compared) -> &Launcher {
        if case.is_over_gloo() { &self.gloo_launcher } else { &self.launcher }
    }

    /// Checks that Horovod has what the cases need.
    ///
    /// # Errors
    /// When it has not.
    pub fn check(&self, plan: &Plan) -> Result<(), HorovodError> {
        match plan.cases.iter().find(|case| case.is_over_gloo()) {
            Some(case) if !self.installed.gloo => Err(HorovodError::WithoutGloo {
                version: self.installed.horovod.clone(),
                case: case.name.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The script that replays the steps of a configuration's cases.
    fn script(&mut self, plan: &Plan, origin: usize) -> Result<PathBuf, BlockError> {
        while self.scripts.len() <= origin {
            let index = self.scripts.len();
            let from = &plan.origins[index];
            let cases = plan.cases.iter().filter(|case| case.origin == index);
            let mut settings: Vec<Setting> = cases.map(|case| setting(from, case)).collect();
            let plain = settings.first().cloned().unwrap_or_default();
            let (framework, groups) = Default::default();
            settings.push(Setting { framework, groups, ..plain });
            let text = script(&settings, &from.workload, from.config.times(), 1);
            let path = self.scratch.join(format!("horovod-{index}.py"));
            std::fs::write(&path, text).map_err(BlockError::file("script of Horovod's steps"))?;
            self.scripts.push(path);
        }
        Ok(self.scripts[origin].clone())
    }
}

/// A case as the script runs it.
fn setting(origin: &Origin, case: &Compared) -> Setting {
    let framework = case.framework(origin);
    let groups = framework.groups(&origin.workload, None);
    Setting {
        label: case.name.clone(),
        variables: variables(&origin.config, &case.case),
        groups: groups.expect("they were checked when the configuration was read"),
        framework,
    }
}

impl Engine for Horovod {
    fn about(&self) -> String {
        let Installed { horovod, torch, python, gloo, .. } = &self.installed;
        let gloo = if *gloo { " and Gloo" } else { "" };
        format!("Horovod {horovod} with MPI{gloo}; PyTorch {torch}; Python {python}")
    }

    fn run(&mut self, plan: &Plan, case: &Compared) -> Result<Steps, BlockError> {
        let report =
            if self.stays { self.next_block(plan, case)? } else { self.block_of(plan, case)? };
        let Reported { steps_ms: times_ms, moments_s, ends_s, .. } = report;
        Ok(Steps { times_ms, moments_s, ends_s, shares: None })
    }
}

impl Horovod {
    /// How long the framework's thread is busy, and how much memory its process has, in one block of a configuration's first
    /// case without options of Horovod's optimizer.
    ///
    /// # Errors
    /// When the block fails.
    pub fn framework_times(
        &mut self,
        plan: &Plan,
        origin: usize,
    ) -> Result<FrameworkTimes, BlockError> {
        let of_origin = || plan.cases.iter().filter(|case| case.origin == origin);
        let first = of_origin().next().expect("a configuration has a case");
        let Reported { wake_us, hand_over_us, take_back_us, framework_mib: memory_mib, .. } =
            self.block(plan, first, of_origin().count(), AT_ONCE)?;
        Ok(FrameworkTimes { wake_us, hand_over_us, take_back_us, memory_mib })
    }

    /// How long Horovod's loop is busy, in a group of one rank.
    ///
    /// # Errors
    /// When the rank fails.
    pub fn loop_times(&self) -> Result<LoopTimes, BlockError> {
        Ok(LoopTimes { fused_us: self.loop_us(FUSED_BYTES)?, alone_us: self.loop_us(0)? })
    }

    /// How long the framework takes for a megabyte of a configuration's gradients: the median over blocks of its first case
    /// that casts them, or of its first case if it adds them; nothing if it does neither.
    ///
    /// # Errors
    /// When a block fails.
    pub fn work_times(&mut self, plan: &Plan, origin: usize) -> Result<WorkTimes, BlockError> {
        let config = &plan.origins[origin].config;
        let of_origin = || plan.cases.iter().filter(|case| case.origin == origin);
        let casts = |case: &&Compared| {
            case.framework(&plan.origins[origin]).wire(config.dtype()) != config.dtype()
        };
        let adds = config.framework.backward_passes_per_step > 1;
        let Some(case) = of_origin().find(casts).or(of_origin().next().filter(|_| adds)) else {
            return Ok(WorkTimes::default());
        };
        let blocks = (0..WORK_BLOCKS).map(|_| self.block_of(plan, case));
        let blocks = blocks.collect::<Result<Vec<Reported>, _>>()?;
        let of = |us: fn(&Reported) -> f64| median(blocks.iter().map(us).collect());
        let if_cast =
            |us: fn(&Reported) -> f64| of(us).filter(|_| casts(&case)).unwrap_or_default();
        Ok(WorkTimes {
            add_us: of(|block| block.add_mb_us).unwrap_or_default(),
            cast_us: if_cast(|block| block.cast_mb_us),
            cast_back_us: if_cast(|block| block.cast_back_mb_us),
        })
    }

    /// Time on a core of the loop for each gradient, at a fusion threshold.
    fn loop_us(&self, threshold_bytes: usize) -> Result<f64, BlockError> {
        const LIMIT: Duration = Duration::from_secs(120);
        #[derive(Deserialize)]
        struct LoopReport {
            gradient_us: f64,
        }
        let words = [LOOP_GRADIENTS, threshold_bytes].map(|number| number.to_string());
        let text = self.python("loop_times.py", LOOP_SCRIPT, &words, 1, LIMIT)?;
        Ok(the_report::<LoopReport>(&text)?.gradient_us)
    }

    /// Ends ranks that have stayed.
    pub fn end_residents(&mut self) {
        self.residents.clear();
    }

    /// The plan has more cases than its scripts.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Replays the steps of a configuration until Horovod's autotune has finished.
    ///
    /// # Errors
    /// When the processes fail.
    pub fn autotune(
        &mut self,
        plan: &Plan,
        like: &Compared,
        most_steps: usize,
    ) -> Result<Autotuned, BlockError> {
        let Origin { config, .. } = plan.origin(like);
        let dtype = dtype_name(config).expect("other types are left out");
        let script = self.script(plan, like.origin)?;
        let log = self.scratch.join("autotune.csv");
        let _ = std::fs::remove_file(&log);
        let [script, log] = [&script, &log].map(|path| path.display().to_string());
        let words = [script, log, most_steps.to_string(), dtype.into()];
        let ranks = like.case.topology.ranks();
        let limit = limit(&plan.origin(like).config) + 10 * own_time(config) * most_steps as u32;
        let text = self.python("autotune.py", AUTOTUNE_SCRIPT, &words, ranks, limit)?;
        the_report(&text)
    }

    /// The output of a script on so many ranks.
    fn python(
        &self,
        name: &str,
        script: &str,
        words: &[String],
        ranks: usize,
        limit: Duration,
    ) -> Result<String, BlockError> {
        let path = self.scratch.join(name);
        std::fs::write(&path, script).map_err(BlockError::file("script"))?;
        let [python, path] = [&self.python, &path].map(|path| path.display().to_string());
        let command = self.launcher.command(ranks, &[&[python, path], words].concat());
        Ok(output(&command, &[], &self.scratch.join("horovod-output"), limit)?)
    }

    /// What rank 0 reports of the next block of a case by ranks that stay.
    fn next_block(&mut self, plan: &Plan, case: &Compared) -> Result<Reported, BlockError> {
        self.residents.retain(|_, (origin, _)| *origin == case.origin);
        let (ranks, limit) = (case.case.topology.ranks(), limit(&plan.origin(case).config));
        let known = self.residents.remove(&case.name);
        if let Some((origin, mut resident)) = known.filter(|(_, it)| it.blocks < BLOCKS_TO_STAY) {
            let text = resident.next(limit, |text| reports(whole_lines(text)).count())?;
            let report = of_group(last_report(&text)?, ranks)?;
            resident.rest()?;
            self.residents.insert(case.name.clone(), (origin, resident));
            return Ok(report);
        }
        let script = self.script(plan, case.origin)?;
        let mut words = self.words(plan, case, setting_of(plan, case), 0)?;
        words.push("--stay".into());
        let command = self.launcher_of(case).command(ranks, &words);
        self.started += 1;
        let log = self.scratch.join(format!("horovod-output-{}", self.started));
        let mut process = Process::start(&command, &[], &log)?;
        let has_reported = |text: &str| reports(whole_lines(text)).next().is_some();
        let text = process.wait_for(limit, has_reported)?;
        let report = of_group(last_report(&text)?, ranks)?;
        if report.pids.is_empty() {
            process.wait(limit)?;
        } else if let Some(resident) = Resident::of(process, &report.pids, &script) {
            resident.rest()?;
            self.residents.insert(case.name.clone(), (case.origin, resident));
        } else {
            // They are not on this machine.
            self.stays = false;
        }
        Ok(report)
    }

    /// What rank 0 reports of one block of a case.
    fn block_of(&mut self, plan: &Plan, case: &Compared) -> Result<Reported, BlockError> {
        self.block(plan, case, setting_of(plan, case), 0)
    }

    /// What rank 0 reports of one block of a setting of the script, with so many further steps in which all gradients are
    /// ready at once.
    fn block(
        &mut self,
        plan: &Plan,
        case: &Compared,
        setting: usize,
        at_once: usize,
    ) -> Result<Reported, BlockError> {
        let words = self.words(plan, case, setting, at_once)?;
        let ranks = case.case.topology.ranks();
        let command = self.launcher_of(case).command(ranks, &words);
        let log = self.scratch.join("horovod-output");
        let text = output(&command, &[], &log, limit(&plan.origin(case).config))?;
        of_group(the_report(&text)?, ranks)
    }

    /// The command of a rank.
    fn words(
        &mut self,
        plan: &Plan,
        case: &Compared,
        setting: usize,
        at_once: usize,
    ) -> Result<Vec<String>, BlockError> {
        let script = self.script(plan, case.origin)?;
        let config = &plan.origin(case).config;
        let dtype = dtype_name(config).expect("other types are left out");
        Ok(vec![
            self.python.display().to_string(),
            script.display().to_string(),
            format!("--worker={setting}"),
            format!("--warmup={}", config.measure.warmup_steps),
            format!("--steps={}", config.measure.steps_per_block),
            format!("--at-once={at_once}"),
            "--device=cpu".into(),
            format!("--dtype={dtype}"),
        ])
    }
}

/// The number of a case in the script of its configuration.
fn setting_of(plan: &Plan, case: &Compared) -> usize {
    let of_origin = plan.cases.iter().filter(|other| other.origin == case.origin);
    of_origin.take_while(|other| other.name != case.name).count()
}

/// What rank 0 of so many reports, unless that is an error.
fn of_group(mut report: Reported, ranks: usize) -> Result<Reported, BlockError> {
    if let Some(error) = report.error.take() {
        return Err(BlockError::Result(error));
    }
    if report.ranks != ranks {
        let problem = format!("Horovod found {} ranks, expected {ranks}", report.ranks);
        return Err(BlockError::Result(problem));
    }
    Ok(report)
}

/// The one report in the output of a script.
fn the_report<T: DeserializeOwned>(text: &str) -> Result<T, BlockError> {
    let mut reports = reports(text);
    let (Some(first), None) = (reports.next(), reports.next()) else {
        let problem =
            "Horovod's ranks did not report once; the launcher must start them as one group";
        return Err(BlockError::Result(problem.into()));
    };
    serde_json::from_str(first).map_err(BlockError::file("report of Horovod's rank 0"))
}

/// The last of several reports of ranks that stay.
fn last_report(text: &str) -> Result<Reported, BlockError> {
    let last = reports(whole_lines(text)).last().unwrap_or_default();
    serde_json::from_str(last).map_err(BlockError::file("report of Horovod's rank 0"))
}

/// The reports in the output of a script.
fn reports(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.split_once(REPORT)).map(|(_, it)| it)
}

/// Lines that have ended, of a script that still writes.
fn whole_lines(text: &str) -> &str {
    text.rsplit_once('\n').map_or("", |(whole, _)| whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(text: &str, ranks: usize) -> Result<Reported, BlockError> {
        of_group(the_report(text)?, ranks)
    }

    #[test]
    fn reports_are_found_among_other_output() {
        let text = "warning\nKOLO-REPORT {\"ranks\": 2, \"steps_ms\": [1.5, 2.5]}\nbye\n";
        assert_eq!(reported(text, 2).unwrap().steps_ms, [1.5, 2.5]);
        let error = |text: &str| reported(text, 2).unwrap_err().to_string();
        assert!(error("nothing").contains("did not report once"));
        assert!(error(&format!("{text}{text}")).contains("as one group"));
        assert!(error("KOLO-REPORT {\"ranks\": 1, \"steps_ms\": [1]}").contains("found 1 ranks"));
        let wrong = error("KOLO-REPORT {\"error\": \"rank 1 has a wrong result\"}");
        assert_eq!(wrong, "rank 1 has a wrong result");
    }

    #[test]
    fn an_interpreter_that_is_missing_or_has_no_horovod_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let find = |python: &Path| match Horovod::find(python, Launcher::mpirun(), folder.path()) {
            Ok(_) => panic!("{} has no Horovod", python.display()),
            Err(error) => error.to_string(),
        };
        let error = find(&folder.path().join("python"));
        assert!(error.contains("there is no Python; `make horovod` installs"), "{error}");
        let error = find(Path::new("/bin/false"));
        assert!(
            error.contains("/bin/false has no Horovod with PyTorch: exit status: 1"),
            "{error}"
        );
        let error = find(Path::new("/bin/echo"));
        assert!(error.contains("cannot determine the Horovod version of /bin/echo"), "{error}");
    }
}
