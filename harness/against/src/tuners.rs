//! What two tuners choose for a configuration: Horovod's own autotune, and `kolo tune` with a tenth of its steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use algorithms::control::{bitvector, coordinator};
use measure::config::{Case, Data, Host, Step};
use measure::environment::cycle_time;
use results::files::write_whole;
use results::units::MIB;
use serde::{Deserialize, Serialize};
use workloads::framework::Framework;

use crate::block::Runner;
use crate::engine::BlockError;
use crate::horovod::Horovod;
use crate::launcher::Launcher;
use crate::plan::{Compared, Plan};
use crate::process::output;

/// Autotune is given up after so many steps.
pub const MOST_STEPS: usize = 5000;

/// `kolo tune` gets this part of autotune's steps.
pub const PART: usize = 10;

/// The file of answers in a folder of results.
const FILE: &str = "answers.json";

/// Horovod's defaults since v0.21: MiB and ms.
const DEFAULT: (f64, f64) = (128.0, 1.0);

/// A setting of Horovod.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// The fusion threshold.
    pub fusion_threshold_mib: f64,
    /// The cycle time.
    pub cycle_time_ms: f64,
    /// Whether the response cache is on.
    pub is_cached: bool,
}

impl Default for Chosen {
    fn default() -> Chosen {
        let (fusion_threshold_mib, cycle_time_ms) = DEFAULT;
        Chosen { fusion_threshold_mib, cycle_time_ms, is_cached: true }
    }
}

impl Chosen {
    /// The case that has this setting, as another case otherwise.
    pub fn case(&self, like: &Compared, name: &str) -> Compared {
        let control_plane = if self.is_cached { bitvector::NAME } else { coordinator::NAME };
        let case = Case {
            control_plane: control_plane.into(),
            fusion_threshold_bytes: (self.fusion_threshold_mib * MIB).round() as usize,
            cycle_time: cycle_time(self.cycle_time_ms),
            ..like.case.clone()
        };
        let runners = vec![Runner::Horovod];
        Compared { origin: like.origin, name: format!("{name}:{case}"), case, runners }
    }
}

/// What autotune has found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Autotuned {
    /// It has finished; otherwise the setting is the last one that it tried.
    pub finished: bool,
    /// Steps until then.
    pub steps: usize,
    /// Seconds until then.
    pub seconds: f64,
    /// The setting.
    #[serde(flatten)]
    pub chosen: Chosen,
}

/// What `kolo tune` has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// `change`, `lean`, `keep` or `unknown`.
    pub verdict: String,
    /// Steps that it measured, warm-up included.
    pub steps: usize,
    /// How long that took.
    pub seconds: f64,
    /// The recommended setting; the default if there is none.
    #[serde(flatten)]
    pub chosen: Chosen,
    /// The default's step in parts of the recommended setting's, as promised for Horovod: mean, 95 % interval.
    pub promised: Option<(f64, f64, f64)>,
    /// The latency between two processors for which the promise holds, on a virtual machine whose processors move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_to_core_ns: Option<f64>,
}

/// Both answers for a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Horovod's, if it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autotune: Option<Autotuned>,
    /// This program's.
    pub kolo: Tuned,
}

/// The answers for one configuration; those that the folder has are not asked for again. With `steps` Horovod is not asked, and
/// `kolo tune` gets so many.
///
/// # Errors
/// When a tuner fails, or a file cannot be read or written.
pub fn answers(
    plan: &Plan,
    origin: usize,
    horovod: &mut Horovod,
    kolo: &KoloTune,
    steps: Option<usize>,
    folder: &Path,
    report: impl Fn(String),
) -> Result<Answers, BlockError> {
    const WHAT: &str = "answers of tuners";
    let path = folder.join(FILE);
    let mut answers: BTreeMap<String, Answers> = BTreeMap::new();
    if path.exists() {
        let text = fs::read_to_string(&path).map_err(BlockError::file(WHAT))?;
        answers = serde_json::from_str(&text).map_err(BlockError::file(WHAT))?;
    }
    let name = &plan.origins[origin].name;
    if let Some(answers) = answers.get(name) {
        return Ok(answers.clone());
    }
    let mut cases = plan.cases.iter();
    let first = cases.find(|case| case.origin == origin).expect("a configuration has a case");
    let autotune = match steps {
        None => Some(autotune(plan, first, horovod, &report)?),
        Some(_) => None,
    };
    if let Some(Autotuned { steps, seconds, .. }) = autotune {
        report(format!("{name}: autotune: {steps} steps, {seconds:.0} s"));
    }
    let part = autotune.map(|autotune| autotune.steps / PART);
    let kolo = kolo.tune(plan, first, steps.or(part).expect("one of them is known"))?;
    report(format!("{name}: kolo tune: {} steps, {:.0} s", kolo.steps, kolo.seconds));
    let both = Answers { autotune, kolo };
    answers.insert(name.clone(), both.clone());
    let text = serde_json::to_string_pretty(&answers).expect("plain data");
    write_whole(&path, (text + "\n").as_bytes()).map_err(BlockError::file(WHAT))?;
    Ok(both)
}

/// What autotune finds. It is asked once more if it fails: in Horovod 0.28.1 it was seen to end with `unordered_map::at`.
fn autotune(
    plan: &Plan,
    case: &Compared,
    horovod: &mut Horovod,
    report: impl Fn(String),
) -> Result<Autotuned, BlockError> {
    horovod.autotune(plan, case, MOST_STEPS).or_else(|problem| {
        report(format!("{}: autotune failed, and runs once more: {problem}", case.name));
        horovod.autotune(plan, case, MOST_STEPS)
    })
}

/// Runs `kolo tune` on ranks that a launcher starts.
pub struct KoloTune {
    /// The program.
    pub program: PathBuf,
    /// The launcher.
    pub launcher: Launcher,
    /// Where results are kept for a while.
    pub scratch: PathBuf,
}

/// A configuration of `kolo tune`.
#[derive(Serialize)]
struct TuneFile<'a> {
    workload: String,
    step: Step,
    host: Host,
    data: &'a Data,
    framework: &'a Framework,
    tune: TuneTable,
}

#[derive(Serialize)]
struct TuneTable {
    transport: &'static str,
    topology: String,
    budget: &'static str,
    steps: usize,
}

/// The part of `tune.json` that counts here.
#[derive(Deserialize)]
struct TuneJson {
    verdict: String,
    recommended: Option<Setting>,
    compared: Vec<ComparedSetting>,
    steps: usize,
    seconds: f64,
    #[serde(default)]
    core_to_core_ns: Option<f64>,
}

#[derive(Clone, Deserialize)]
struct Setting {
    control_plane: String,
    fusion_threshold_bytes: usize,
    cycle_time_ms: f64,
}

#[derive(Deserialize)]
struct ComparedSetting {
    setting: Setting,
    promised: Promised,
}

#[derive(Deserialize)]
struct Promised {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Setting {
    fn chosen(&self) -> Chosen {
        Chosen {
            fusion_threshold_mib: self.fusion_threshold_bytes as f64 / MIB,
            cycle_time_ms: self.cycle_time_ms,
            is_cached: self.control_plane == bitvector::NAME,
        }
    }
}

impl KoloTune {
    /// Tunes the configuration of a case for so many steps.
    ///
    /// # Errors
    /// When the processes fail, or write no result.
    pub fn tune(&self, plan: &Plan, like: &Compared, steps: usize) -> Result<Tuned, BlockError> {
        const WHAT: &str = "configuration of kolo tune";
        const LIMIT: Duration = Duration::from_secs(900);
        let origin = plan.origin(like);
        let config = &origin.config;
        let workload = &origin.workload_path;
        let workload = workload.canonicalize().unwrap_or_else(|_| workload.clone());
        let file = TuneFile {
            workload: workload.display().to_string(),
            step: config.step,
            host: origin.host,
            data: &config.data,
            framework: &config.framework,
            tune: TuneTable {
                transport: like.case.transport.name(),
                topology: like.case.topology.to_string(),
                budget: "10m",
                steps,
            },
        };
        let path = self.scratch.join("tune.toml");
        let text = toml::to_string(&file).map_err(BlockError::file(WHAT))?;
        fs::write(&path, text).map_err(BlockError::file(WHAT))?;
        let out = self.scratch.join("tuned");
        let _ = fs::remove_dir_all(&out);
        let [program, path, folder] =
            [&self.program, &path, &out].map(|path| path.display().to_string());
        let words = [&*program, "tune", &path, "--out", &folder, "--force"];
        let words: Vec<String> = words.map(str::to_string).into();
        let command = self.launcher.command(like.case.topology.ranks(), &words);
        let own =
            |(name, _): (String, String)| name.starts_with("HOROVOD_").then_some((name, None));
        let variables: Vec<_> = std::env::vars().filter_map(own).collect();
        let said = output(&command, &variables, &self.scratch.join("tune-output"), LIMIT);
        let text = match (fs::read_to_string(out.join("tune.json")), said) {
            // It ends with another status if it recommends nothing.
            (Ok(text), _) => text,
            (Err(_), Err(error)) => return Err(error.into()),
            (Err(error), Ok(_)) => return Err(BlockError::file("result of kolo tune")(error)),
        };
        let json: TuneJson =
            serde_json::from_str(&text).map_err(BlockError::file("result of kolo tune"))?;
        Ok(tuned(&json))
    }
}

fn tuned(json: &TuneJson) -> Tuned {
    let chosen = json.recommended.as_ref().map(Setting::chosen).unwrap_or_default();
    let default =
        json.compared.iter().find(|compared| compared.setting.chosen() == Chosen::default());
    let promised = default.map(|default| &default.promised).map(|it| (it.ratio, it.low, it.high));
    let core_to_core_ns = json.core_to_core_ns.filter(|_| promised.is_some());
    let &TuneJson { steps, seconds, .. } = json;
    Tuned { verdict: json.verdict.clone(), steps, seconds, chosen, promised, core_to_core_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_none_is_the_default() {
        let json = r#"{"verdict": "change", "steps": 125, "seconds": 9.5, "blocks": 25,
            "recommended": {"control_plane": "coordinator", "fusion_threshold_bytes": 524288,
                            "cycle_time_ms": 2.5, "step_ms": 61},
            "compared": [
              {"setting": {"control_plane": "bitvector", "fusion_threshold_bytes": 67108864,
                           "cycle_time_ms": 5}, "promised": {"ratio": 1.1, "low": 1, "high": 1.2}},
              {"setting": {"control_plane": "bitvector", "fusion_threshold_bytes": 134217728,
                           "cycle_time_ms": 1}, "promised": {"ratio": 1.4, "low": 1.3, "high": 1.5}}]}"#;
        let read: TuneJson = serde_json::from_str(json).unwrap();
        let Tuned { chosen, promised, steps, .. } = tuned(&read);
        let expected = Chosen { fusion_threshold_mib: 0.5, cycle_time_ms: 2.5, is_cached: false };
        assert_eq!((chosen, promised, steps), (expected, Some((1.4, 1.3, 1.5)), 125));
        let read = TuneJson { recommended: None, ..read };
        assert_eq!(tuned(&read).chosen, Chosen::default());
    }
}
