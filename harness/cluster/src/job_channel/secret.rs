//! The secret that the processes of one job share.

use std::fmt;

use thiserror::Error;

/// Environment variable that holds the secret, as hexadecimal digits.
pub const JOB_SECRET: &str = "KOLO_JOB_SECRET";

/// Length of a secret.
pub const SECRET_BYTES: usize = 32;

/// A job's secret. `Debug` does not show it.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why there is no secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The system's random source fails.
    #[error("the system provides no random numbers: {0}")]
    Random(getrandom::Error),
    /// The variable holds something else. The message does not repeat it.
    #[error(
        "{JOB_SECRET} has {length} characters, and must be {} hexadecimal digits; set it to the output of \
         `openssl rand -hex {SECRET_BYTES}`, or unset it",
        2 * SECRET_BYTES
    )]
    Malformed {
        /// Characters of its value.
        length: usize,
    },
}

impl Secret {
    /// A fresh secret from the system's random source.
    ///
    /// # Errors
    /// [`SecretError::Random`].
    pub fn generate() -> Result<Secret, SecretError> {
        random_bytes().map(Secret)
    }

    /// The secret of [`JOB_SECRET`], if that is set.
    ///
    /// # Errors
    /// [`SecretError::Malformed`].
    pub fn from_environment() -> Result<Option<Secret>, SecretError> {
        Secret::from_variable(std::env::var(JOB_SECRET).ok().as_deref())
    }

    /// As [`Self::from_environment`], for a value of the variable; an empty one counts as unset.
    ///
    /// # Errors
    /// [`SecretError::Malformed`].
    pub fn from_variable(value: Option<&str>) -> Result<Option<Secret>, SecretError> {
        let Some(text) = value.map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let malformed = SecretError::Malformed { length: text.chars().count() };
        Secret::from_hex(text).map(Some).ok_or(malformed)
    }

    pub(super) fn from_hex(text: &str) -> Option<Secret> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let bytes: Vec<u8> =
            digits?.chunks(2).map(|pair| pair[0] << 4 | pair[pair.len() - 1]).collect();
        let is_whole = text.len() == 2 * SECRET_BYTES;
        bytes.try_into().ok().filter(|_| is_whole).map(Secret)
    }

    pub(super) fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

/// Bytes of the system's random source.
pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], SecretError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(SecretError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_back() {
        let secret = Secret::generate().unwrap();
        let read =
            Secret::from_variable(Some(&format!(" {}\n", secret.to_hex()))).unwrap().unwrap();
        assert_eq!(read.as_bytes(), secret.as_bytes());
        assert_ne!(Secret::generate().unwrap().as_bytes(), secret.as_bytes());
        assert!(Secret::from_variable(None).unwrap().is_none());
        assert!(Secret::from_variable(Some("")).unwrap().is_none());
    }

    #[test]
    fn malformed_values_are_refused_without_repeating_them() {
        let short = "ab".repeat(SECRET_BYTES - 1);
        for text in [short.clone(), short.clone() + "a", short.clone() + "xy", short + "abab"] {
            let error = Secret::from_variable(Some(&text)).unwrap_err().to_string();
            assert!(error.contains(&format!("has {} characters", text.len())), "{error}");
            assert!(!error.contains(&text), "{error}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::from_hex(&"7a".repeat(SECRET_BYTES)).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
