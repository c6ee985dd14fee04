//! Time limits as Slurm writes them.

use thiserror::Error;

/// A text that is no time limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{text}\" is not a time limit; write minutes (30), hours:minutes:seconds (1:30:00) or \
     days-hours:minutes:seconds (2-12:00:00)"
)]
pub struct TimeLimitError {
    /// The text.
    pub text: String,
}

/// A time limit in seconds: `30` is minutes, `30:00`, `1:30:00`, `2-12`, `2-12:30`, `2-12:30:00`. None for
/// `UNLIMITED` and `infinite`.
///
/// # Errors
/// When the text is not a time limit.
pub fn parse(text: &str) -> Result<Option<u64>, TimeLimitError> {
    let wrong = || TimeLimitError { text: text.into() };
    if ["unlimited", "infinite"].contains(&text.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, text),
    };
    let number = |digits: &str| {
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            digits.parse::<u32>().map(u64::from).map_err(|_| wrong())
        } else {
            Err(wrong())
        }
    };
    let parts = clock.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
    let seconds = match (days.is_some(), parts.as_slice()) {
        (false, [minutes]) => minutes * 60,
        (false, [minutes, seconds]) => minutes * 60 + seconds,
        (true, [hours]) => hours * 3600,
        (true, [hours, minutes]) => hours * 3600 + minutes * 60,
        (_, [hours, minutes, seconds]) => hours * 3600 + minutes * 60 + seconds,
        _ => return Err(wrong()),
    };
    Ok(Some(seconds + days.map_or(Ok(0), number)? * 86_400))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_form_is_read() {
        for (text, seconds) in [
            ("30", 1800),
            ("30:15", 1815),
            ("01:30:00", 5400),
            ("2-12", 216_000),
            ("2-12:30", 217_800),
            ("2-12:30:05", 217_805),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Some(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "infinite"] {
            assert_eq!(parse(text), Ok(None));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "-", "1-", "1h", "-5", "1:2:3:4", "1-1:2:3:4", "99999999999", "+5"] {
            assert!(parse(text).unwrap_err().to_string().contains("is not a time limit"), "{text}");
        }
    }
}
