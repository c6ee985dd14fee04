//! Horovod's variables: their values, defaults, and use in kolo.
//!
//! Values are parsed as in Horovod 0.28 (`env_parser.cc`): a switch is on if it begins with a number above 0.
//! Where Horovod would accept a typo as a number (`64M` as 64), kolo reports an error.

mod reader;
pub mod variables;

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use reader::Reader;
use variables::Variable;

/// The prefix of Horovod's variables.
const PREFIX: &str = "HOROVOD_";

/// The largest fusion threshold in bytes.
pub const MOST_FUSION_THRESHOLD_BYTES: usize = 64 << 30;

/// The longest cycle time in ms.
pub const MOST_CYCLE_TIME_MS: f64 = 1e4;

/// The most responses that a cache remembers.
pub const MOST_CACHE_CAPACITY: usize = u32::MAX as usize;

/// A value and its origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting<T> {
    /// The effective value.
    pub value: T,
    /// `HOROVOD_CYCLE_TIME=5`, unless it is the default.
    pub set_by: Option<String>,
}

/// The values of Horovod's variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// Tensors are fused up to this size; 0 turns fusion off.
    pub fusion_threshold_bytes: Setting<usize>,
    /// Deadline from one cycle to the next, in ms; see [`cycle_time`].
    pub cycle_time_ms: Setting<f64>,
    /// Responses that the bit-vector plane remembers; 0: the coordinator always.
    pub cache_capacity: Setting<usize>,
    /// Inside nodes, then across them.
    pub hierarchical_allreduce: Setting<bool>,
    /// Rings along the rows and columns of a grid.
    pub torus_allreduce: Setting<bool>,
    /// Groups are fused alone.
    pub disable_group_fusion: Setting<bool>,
    /// Path of the timeline, if one is written.
    pub timeline: Setting<Option<PathBuf>>,
    /// Disables the check for stalled tensors.
    pub stall_check_disable: Setting<bool>,
    /// A tensor that waits longer is reported.
    pub stall_warning: Setting<Duration>,
    /// A tensor that waits longer ends the job; zero: never.
    pub stall_shutdown: Setting<Duration>,
    /// A row for every variable, in the order of [`variables::VARIABLES`].
    pub rows: Vec<EnvironmentRow>,
    /// Notices about variables that are set and ignored, with the reason.
    pub notices: Vec<String>,
}

/// A variable and its effective value.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentRow {
    /// The variable.
    pub variable: &'static Variable,
    /// The effective value in the variable's unit; empty if there is none.
    pub value: String,
    /// It comes from the environment; else it is the default.
    pub is_set: bool,
}

/// A variable's value is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} is \"{found}\", {expected}; correct it, or unset it {otherwise}")]
pub struct EnvironmentError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub found: String,
    /// Valid values.
    pub expected: String,
    /// The effect of not setting it, in brackets.
    pub otherwise: String,
}

impl Default for Environment {
    /// No variable is set.
    fn default() -> Environment {
        Environment::read(&[]).expect("the defaults are in range")
    }
}

impl Environment {
    /// Reads variables given by name and value; ignores other programs' variables.
    ///
    /// # Errors
    /// The first value of a used variable that is not understood or out of range.
    pub fn read(set: &[(String, String)]) -> Result<Environment, EnvironmentError> {
        let mut reader = Reader::new(set);
        let stall_warning = reader.seconds("HOROVOD_STALL_CHECK_TIME_SECONDS")?;
        Ok(Environment {
            fusion_threshold_bytes: reader
                .whole("HOROVOD_FUSION_THRESHOLD", MOST_FUSION_THRESHOLD_BYTES)?,
            cycle_time_ms: reader.cycle_time("HOROVOD_CYCLE_TIME")?,
            cache_capacity: reader.whole("HOROVOD_CACHE_CAPACITY", MOST_CACHE_CAPACITY)?,
            hierarchical_allreduce: reader.switch("HOROVOD_HIERARCHICAL_ALLREDUCE")?,
            torus_allreduce: reader.switch("HOROVOD_TORUS_ALLREDUCE")?,
            disable_group_fusion: reader.switch("HOROVOD_DISABLE_GROUP_FUSION")?,
            timeline: reader.timeline("HOROVOD_TIMELINE")?,
            stall_check_disable: reader.switch("HOROVOD_STALL_CHECK_DISABLE")?,
            stall_shutdown: reader
                .shutdown("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", stall_warning.value)?,
            stall_warning,
            rows: reader.rows(),
            notices: reader.notices(),
        })
    }
}

/// A cycle time, cut to whole microseconds as Horovod does.
pub fn cycle_time(ms: f64) -> Duration {
    Duration::from_micros((ms * 1e3) as u64)
}

/// What a text should have been.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A number of a range.
    #[error("expected a number from 0 to {most}")]
    Number {
        /// The largest.
        most: f64,
    },
    /// A whole number of a range.
    #[error("expected a whole number from 0 to {most}")]
    WholeNumber {
        /// The largest.
        most: usize,
    },
    /// The name of a file.
    #[error("expected the name of a file")]
    FileName,
}

/// A number from 0 to `most`.
///
/// # Errors
/// When the text is no number from 0 to `most`.
pub fn number(text: &str, most: f64) -> Result<f64, ValueError> {
    let number = text.trim().parse().ok().filter(|number| (0.0..=most).contains(number));
    number.ok_or(ValueError::Number { most })
}

/// A whole number from 0 to `most`.
///
/// # Errors
/// When the text is no whole number from 0 to `most`.
pub fn whole_number(text: &str, most: usize) -> Result<usize, ValueError> {
    let number = text.trim().parse().ok().filter(|&number| number <= most);
    number.ok_or(ValueError::WholeNumber { most })
}

#[cfg(test)]
mod tests {
    use super::variables::{OF_THE_BUILD, Usage, VARIABLES};
    use super::*;

    fn read(name: &str, text: &str) -> Result<Environment, EnvironmentError> {
        Environment::read(&[(name.into(), text.into())])
    }

    #[test]
    fn defaults_are_those_of_horovod() {
        let environment = Environment::default();
        assert_eq!(environment.fusion_threshold_bytes.value, 128 << 20);
        assert_eq!(environment.cycle_time_ms.value, 1.0);
        assert_eq!(environment.cache_capacity.value, 1024);
        assert_eq!(environment.stall_warning.value, Duration::from_secs(60));
        assert!(environment.stall_shutdown.value.is_zero());
        assert!(environment.timeline.value.is_none());
        let switches = [
            environment.hierarchical_allreduce,
            environment.torus_allreduce,
            environment.disable_group_fusion,
            environment.stall_check_disable,
        ];
        assert!(switches.iter().all(|switch| !switch.value && switch.set_by.is_none()));
        assert!(environment.notices.is_empty());
        assert!(environment.rows.iter().all(|row| !row.is_set));
        assert!(environment.rows.iter().all(|row| row.value == row.variable.default));
    }

    #[test]
    fn numbers_are_read_and_0_is_one() {
        for (name, text, shown) in [
            ("HOROVOD_FUSION_THRESHOLD", "0", "0"),
            ("HOROVOD_FUSION_THRESHOLD", " 67108864 ", "67108864"),
            ("HOROVOD_FUSION_THRESHOLD", "68719476736", "68719476736"),
            ("HOROVOD_CYCLE_TIME", "0", "0"),
            ("HOROVOD_CYCLE_TIME", "2.5", "2.5"),
            ("HOROVOD_CYCLE_TIME", "0.0019", "0.001"),
            ("HOROVOD_CYCLE_TIME", "1e1", "10"),
            ("HOROVOD_CACHE_CAPACITY", "0", "0"),
            ("HOROVOD_CACHE_CAPACITY", "4294967295", "4294967295"),
            ("HOROVOD_STALL_CHECK_TIME_SECONDS", "0", "0"),
            ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60", "60"),
            ("HOROVOD_TIMELINE", "/tmp/a b.json", "/tmp/a b.json"),
        ] {
            let environment = read(name, text).unwrap();
            let row = environment.rows.iter().find(|row| row.variable.name == name).unwrap();
            assert_eq!((row.value.as_str(), row.is_set), (shown, true), "{name}={text}");
        }
        assert_eq!(cycle_time(2.3456789), Duration::from_micros(2345));
    }

    #[test]
    fn other_values_of_numbers_are_refused() {
        let whole = [
            ("HOROVOD_FUSION_THRESHOLD", "68719476737", "0 to 68719476736 B", "134217728 B"),
            ("HOROVOD_CACHE_CAPACITY", "4294967296", "0 to 4294967295", "1024"),
            ("HOROVOD_STALL_CHECK_TIME_SECONDS", "2147483648", "0 to 2147483647 s", "60 s"),
            ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2147483648", "0 to 2147483647 s", "0 s"),
        ];
        let not_whole =
            ["", " ", "-1", "-0.5", "1.5", "64M", "0x10", "1e6", "abc", "NaN", "inf", "1 2"];
        let huge = "99999999999999999999999";
        for (name, above, range, default) in whole {
            for text in not_whole.into_iter().chain([above, huge]) {
                let error = read(name, text).unwrap_err().to_string();
                let expected = format!(
                    "{name} is \"{text}\", expected a whole number from {range}; correct it, or \
                     unset it for the default, {default}"
                );
                assert_eq!(error, expected);
            }
        }
        for text in
            ["", " ", "-1", "-0.001", "10000.1", "5ms", "abc", "NaN", "inf", "-inf", "1e400"]
        {
            let error = read("HOROVOD_CYCLE_TIME", text).unwrap_err().to_string();
            let expected = format!(
                "HOROVOD_CYCLE_TIME is \"{text}\", expected a number from 0 to 10000 ms; correct \
                 it, or unset it for the default, 1 ms"
            );
            assert_eq!(error, expected);
        }
        assert_eq!(
            read("HOROVOD_TIMELINE", "").unwrap_err().to_string(),
            "HOROVOD_TIMELINE is \"\", expected the name of a file; correct it, or unset it to do \
             without it"
        );
    }

    /// As C's `strtol` above 0; other text gets a notice.
    #[test]
    fn a_switch_is_on_if_it_begins_with_a_number_above_0() {
        let switches = [
            "HOROVOD_HIERARCHICAL_ALLREDUCE",
            "HOROVOD_TORUS_ALLREDUCE",
            "HOROVOD_DISABLE_GROUP_FUSION",
            "HOROVOD_STALL_CHECK_DISABLE",
        ];
        for name in switches {
            for (text, on, is_number) in [
                ("1", true, true),
                ("2", true, true),
                ("+1", true, true),
                (" 007", true, true),
                ("0", false, true),
                ("-1", false, true),
                ("1yes", true, false),
                ("99999999999999999999999", true, false),
                ("true", false, false),
                ("yes", false, false),
                ("", false, false),
                ("0x10", false, false),
                ("- 1", false, false),
            ] {
                let environment = read(name, text).unwrap();
                let row = environment.rows.iter().find(|row| row.variable.name == name).unwrap();
                assert_eq!(row.value, if on { "1" } else { "0" }, "{name}={text}");
                let state = if on { "on" } else { "off" };
                let notice = format!("{name}={text} counts as {state}: like Horovod");
                let is_said = environment.notices.iter().any(|said| said.starts_with(&notice));
                assert_eq!(is_said, !is_number, "{:?}", environment.notices);
            }
        }
    }

    #[test]
    fn ignored_variables_get_a_notice() {
        for (set, expected) in [
            (
                vec![("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "59")],
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=59 is ignored: it is below the time of the \
                 warning, 60 s",
            ),
            (
                vec![("HOROVOD_TIMELINE", "DYNAMIC")],
                "HOROVOD_TIMELINE=DYNAMIC is ignored: kolo has no call to start it; name a file",
            ),
            (
                vec![("HOROVOD_RANK", "0"), ("HOROVOD_SIZE", "8")],
                "HOROVOD_RANK, HOROVOD_SIZE: known, but not used: sweep.topology, mpirun or srun \
                 determines ranks",
            ),
            (
                vec![("HOROVOD_NCCL_HOME", "/opt/nccl")],
                "HOROVOD_NCCL_HOME: known, but not used: it is for building Horovod",
            ),
            (
                vec![("HOROVOD_FUSION_TRESHOLD", "1")],
                "HOROVOD_FUSION_TRESHOLD: not a variable of Horovod 0.28; did you mean \
                 HOROVOD_FUSION_THRESHOLD?",
            ),
            (
                vec![("HOROVOD_CYCLE_TIME_MS", "1")],
                "HOROVOD_CYCLE_TIME_MS: not a variable of Horovod 0.28; did you mean \
                 HOROVOD_CYCLE_TIME?",
            ),
            (vec![("HOROVOD_", "1")], "HOROVOD_: not a variable of Horovod 0.28"),
            (
                vec![("HOROVOD_SLEEP_INTERVAL", "2")],
                "HOROVOD_SLEEP_INTERVAL: not a variable of Horovod 0.28",
            ),
        ] {
            let set: Vec<_> =
                set.into_iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
            let notices = Environment::read(&set).unwrap().notices;
            assert!(notices.iter().any(|notice| notice == expected), "{notices:#?}");
        }
        let is_left_alone = read("PATH", "/bin").unwrap().notices.is_empty();
        assert!(is_left_alone);
    }

    #[test]
    fn a_shutdown_time_must_not_be_below_the_warning_time() {
        let set = [
            ("HOROVOD_STALL_CHECK_TIME_SECONDS".to_string(), "5".to_string()),
            ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS".to_string(), "5".to_string()),
        ];
        let environment = Environment::read(&set).unwrap();
        assert_eq!(environment.stall_shutdown.value, Duration::from_secs(5));
    }

    /// Every variable that is marked as used is read, and no other.
    #[test]
    fn the_table_matches_the_variables_that_are_read() {
        for variable in VARIABLES {
            let is_read = !matches!(variable.usage, Usage::Unused(_));
            let environment = read(variable.name, "nonsense");
            let is_noticed = match environment {
                Ok(environment) => {
                    let by_reading =
                        |notice: &String| notice.starts_with(&format!("{}=", variable.name));
                    environment.notices.iter().any(by_reading)
                        || environment.timeline.value.is_some()
                }
                Err(error) => error.name == variable.name,
            };
            assert_eq!(is_noticed, is_read, "{}", variable.name);
        }
        let mut names: Vec<_> = VARIABLES.iter().map(|variable| variable.name).collect();
        names.extend(OF_THE_BUILD);
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "a name comes twice");
        assert!(names.iter().all(|name| name.starts_with(PREFIX)));
    }
}
