//! Reads variables one by one, and collects notices.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::variables::{OF_THE_BUILD, Usage, VARIABLES, Variable};
use super::{
    EnvironmentError, EnvironmentRow, MOST_CYCLE_TIME_MS, PREFIX, Setting, ValueError, cycle_time,
    number, whole_number,
};
use results::names::nearest;

/// Reads variables, and collects notices about them.
pub(super) struct Reader<'a> {
    set: &'a [(String, String)],
    /// The effective value of each variable that was read, and whether it is set.
    values: BTreeMap<&'static str, (String, bool)>,
    notices: Vec<String>,
}

impl Reader<'_> {
    pub fn new(set: &[(String, String)]) -> Reader<'_> {
        Reader { set, values: BTreeMap::new(), notices: Vec::new() }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.set.iter().find(|(set, _)| set == name).map(|(_, text)| text.as_str())
    }

    /// A variable's value, or its default, which is written in the same way.
    fn read<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, ValueError>,
        show: impl Fn(&T) -> String,
    ) -> Result<Setting<T>, EnvironmentError> {
        let variable = find(name).expect("a variable that is read has a line in the table");
        let text = self.text(name);
        let value =
            parse(text.unwrap_or(variable.default)).map_err(|expected| EnvironmentError {
                name: variable.name,
                found: text.unwrap_or_default().into(),
                expected: with_unit(&expected.to_string(), variable),
                otherwise: match variable.default {
                    "" => "to do without it".into(),
                    default => format!("for the default, {}", with_unit(default, variable)),
                },
            })?;
        let set_by = text.map(|text| format!("{name}={text}"));
        self.values.insert(variable.name, (show(&value), set_by.is_some()));
        Ok(Setting { value, set_by })
    }

    /// # Errors
    /// When the value of the variable is not valid.
    pub fn whole(&mut self, name: &str, most: usize) -> Result<Setting<usize>, EnvironmentError> {
        self.read(name, |text| whole_number(text, most), usize::to_string)
    }

    /// # Errors
    /// When the value of the variable is not valid.
    pub fn seconds(&mut self, name: &str) -> Result<Setting<Duration>, EnvironmentError> {
        let Setting { value, set_by } = self.whole(name, i32::MAX as usize)?;
        Ok(Setting { value: Duration::from_secs(value as u64), set_by })
    }

    /// # Errors
    /// When the value of the variable is not valid.
    pub fn cycle_time(&mut self, name: &str) -> Result<Setting<f64>, EnvironmentError> {
        let show = |&ms: &f64| (cycle_time(ms).as_micros() as f64 / 1e3).to_string();
        self.read(name, |text| number(text, MOST_CYCLE_TIME_MS), show)
    }

    /// On if the text begins with a number above 0, as for C's `strtol`; never an error.
    ///
    /// # Errors
    /// When the value of the variable is not valid.
    pub fn switch(&mut self, name: &str) -> Result<Setting<bool>, EnvironmentError> {
        let is_on = |text: &str| {
            let text = text.trim_start();
            let digits = text.strip_prefix('+').unwrap_or(text).bytes();
            Ok(digits.take_while(u8::is_ascii_digit).any(|digit| digit != b'0'))
        };
        let setting = self.read(name, is_on, |&on| u8::from(on).to_string())?;
        if let Some(set_by) = &setting.set_by
            && self.text(name).is_some_and(|text| text.trim().parse::<i64>().is_err())
        {
            let state = if setting.value { "on" } else { "off" };
            self.notices.push(format!(
                "{set_by} counts as {state}: like Horovod, kolo reads a leading number; write 1 or 0"
            ));
        }
        Ok(setting)
    }

    /// # Errors
    /// When the value of the variable is not valid.
    pub fn timeline(&mut self, name: &str) -> Result<Setting<Option<PathBuf>>, EnvironmentError> {
        let is_set = self.text(name).is_some();
        let parse = |text: &str| match text {
            "" if is_set => Err(ValueError::FileName),
            "" => Ok(None),
            file => Ok(Some(PathBuf::from(file))),
        };
        let show = |file: &Option<PathBuf>| {
            file.as_ref().map_or(String::new(), |file| file.display().to_string())
        };
        let timeline = self.read(name, parse, show)?;
        Ok(if timeline.value.as_ref().is_some_and(|file| file.as_os_str() == "DYNAMIC") {
            self.ignore(name, timeline, None, "kolo has no call to start it; name a file")
        } else {
            timeline
        })
    }

    /// # Errors
    /// When the variable has a value that makes no sense.
    pub fn shutdown(
        &mut self,
        name: &str,
        warning: Duration,
    ) -> Result<Setting<Duration>, EnvironmentError> {
        let shutdown = self.seconds(name)?;
        let why = format!("it is below the time of the warning, {} s", warning.as_secs());
        Ok(if !shutdown.value.is_zero() && shutdown.value < warning {
            self.ignore(name, shutdown, Duration::ZERO, &why)
        } else {
            shutdown
        })
    }

    /// Uses the default although the variable is set.
    fn ignore<T>(&mut self, name: &str, found: Setting<T>, default: T, why: &str) -> Setting<T> {
        self.notices.extend(found.set_by.map(|set_by| format!("{set_by} is ignored: {why}")));
        if let Some(variable) = find(name) {
            self.values.insert(variable.name, (variable.default.into(), false));
        }
        Setting { value: default, set_by: None }
    }

    pub fn rows(&self) -> Vec<EnvironmentRow> {
        let row = |variable: &'static Variable| {
            let read = self.values.get(variable.name).cloned();
            let (value, is_set) = read.unwrap_or_else(|| {
                let text = self.text(variable.name);
                (text.unwrap_or(variable.default).into(), text.is_some())
            });
            EnvironmentRow { variable, value, is_set }
        };
        VARIABLES.iter().map(row).collect()
    }

    /// Notices from reading, then variables that are set and not read, by reason.
    pub fn notices(&mut self) -> Vec<String> {
        let mut notices = std::mem::take(&mut self.notices);
        let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, _) in self.set.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
            let reason = match find(name).map(|variable| variable.usage) {
                Some(Usage::Used) => continue,
                Some(Usage::Unused(why)) => format!("known, but not used: {why}"),
                None if OF_THE_BUILD.contains(&name.as_str()) => {
                    "known, but not used: it is for building Horovod".into()
                }
                None => unknown(name),
            };
            by_reason.entry(reason).or_default().push(name);
        }
        let said =
            by_reason.iter().map(|(reason, names)| format!("{}: {reason}", names.join(", ")));
        notices.extend(said);
        notices
    }
}

fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

fn with_unit(value: &str, variable: &Variable) -> String {
    format!("{value} {}", variable.unit).trim_end().to_string()
}

/// The notice for an unknown variable, with a suggestion if at most a third of its letters differ.
fn unknown(name: &str) -> String {
    let few = (name.len() - PREFIX.len()) / 3;
    let near = nearest(name, VARIABLES.iter().map(|variable| variable.name), few);
    let advice = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    format!("not a variable of Horovod 0.28{advice}")
}
