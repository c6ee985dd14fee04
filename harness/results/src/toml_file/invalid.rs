//! A value of a configuration that is refused.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;

use algorithms::control;
use thiserror::Error;

/// A refused value of a configuration. The text has the key, the value found, the value expected, and what to do
/// unless that is obvious.
#[derive(Clone, Debug, Error)]
pub enum Invalid {
    /// The value itself is wrong.
    #[error("{key} is {found}, expected {expected}{}", and(advice))]
    Value {
        /// The key, as in `measure.steps_per_block`.
        key: String,
        /// The value found.
        found: String,
        /// The value expected.
        expected: String,
        /// What to do; may be empty.
        advice: String,
    },
    /// The object that the value names is refused.
    #[error("{key}: {cause}")]
    Because {
        /// The key.
        key: String,
        /// Why.
        #[source]
        cause: Arc<dyn Error + Send + Sync>,
    },
}

fn and(advice: &str) -> String {
    if advice.is_empty() { String::new() } else { format!("; {advice}") }
}

impl Invalid {
    /// The value `found` of `key`, where something else was expected.
    pub fn value(
        key: impl Into<String>,
        found: impl Display,
        expected: impl Into<String>,
    ) -> Invalid {
        let (key, found, expected) = (key.into(), found.to_string(), expected.into());
        Invalid::Value { key, found, expected, advice: String::new() }
    }

    /// A name that is none of `names`.
    pub fn name<Name: AsRef<str>>(
        key: impl Into<String>,
        found: &str,
        names: impl IntoIterator<Item = Name>,
    ) -> Invalid {
        let names: Vec<Name> = names.into_iter().collect();
        let names: Vec<&str> = names.iter().map(Name::as_ref).collect();
        let expected = match names[..] {
            [only] => format!("\"{only}\""),
            _ => format!("one of {}", names.join(", ")),
        };
        Invalid::value(key, format!("\"{found}\""), expected)
    }

    /// The value of `key` is refused for a cause of its own.
    pub fn because(
        key: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Invalid {
        Invalid::Because { key: key.into(), cause: Arc::from(cause.into()) }
    }

    /// The same, with what to do.
    #[must_use]
    pub fn with_advice(mut self, text: impl Into<String>) -> Invalid {
        if let Invalid::Value { advice, .. } = &mut self {
            *advice = text.into();
        }
        self
    }

    /// The same for a key below a table: `groups` in `framework.` is `framework.groups`.
    #[must_use]
    pub fn below(mut self, table: &str) -> Invalid {
        let (Invalid::Value { key, .. } | Invalid::Because { key, .. }) = &mut self;
        key.insert_str(0, table);
        self
    }
}

/// Checks that a number is in a closed range.
///
/// # Errors
/// When it is not, or is NaN.
pub fn within(key: &str, found: f64, least: f64, most: f64) -> Result<(), Invalid> {
    if (least..=most).contains(&found) {
        Ok(())
    } else {
        Err(Invalid::value(key, found, format!("{least} to {most}")))
    }
}

/// Checks that a count is not 0.
///
/// # Errors
/// When it is.
pub fn at_least_1(key: &str, found: usize) -> Result<(), Invalid> {
    if found == 0 { Err(Invalid::value(key, 0, "at least 1")) } else { Ok(()) }
}

/// Checks that a list of this length has an element.
///
/// # Errors
/// When it is empty.
pub fn not_empty(key: &str, length: usize) -> Result<(), Invalid> {
    if length == 0 { Err(Invalid::value(key, "empty", "at least one value")) } else { Ok(()) }
}

/// The one spelling of a control plane's name.
///
/// # Errors
/// When there is no such control plane.
pub fn control_plane(key: &str, name: &str) -> Result<String, Invalid> {
    control::spelling(name).ok_or_else(|| Invalid::name(key, name, control::NAMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_key_found_expected_and_advice() {
        assert!(within("a.b", 1.0, 1.0, 2.0).is_ok() && at_least_1("a", 1).is_ok());
        for (problem, expected) in [
            (within("a.b", 3.0, 1.0, 2.0).unwrap_err(), "a.b is 3, expected 1 to 2"),
            (within("a.b", f64::NAN, 1.0, 2.0).unwrap_err(), "a.b is NaN, expected 1 to 2"),
            (at_least_1("a", 0).unwrap_err().below("b."), "b.a is 0, expected at least 1"),
            (not_empty("a", 0).unwrap_err(), "a is empty, expected at least one value"),
            (Invalid::name("a", "x", ["b", "c"]), "a is \"x\", expected one of b, c"),
            (Invalid::name("a", "x", ["b"]), "a is \"x\", expected \"b\""),
            (
                Invalid::value("a", 0, "more").with_advice("leave it out"),
                "a is 0, expected more; leave it out",
            ),
            (Invalid::because("a", "there is no ring").below("b."), "b.a: there is no ring"),
        ] {
            assert_eq!(problem.to_string(), expected);
        }
    }

    #[test]
    fn causes_can_be_followed() {
        let cause = "x".parse::<usize>().unwrap_err();
        let problem = Invalid::because("a", cause.clone());
        assert_eq!(problem.source().map(ToString::to_string), Some(cause.to_string()));
    }
}
