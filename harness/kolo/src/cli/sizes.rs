//! Sizes and ranges as users write them: `64M`, `8:64M:x2`, `1..64`.

use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

/// A text that is no size or range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// It is no size.
    #[error("\"{text}\" is not a size; write 1048576, 1024K or 1M")]
    Size { text: String },
    /// It is no range of sizes.
    #[error("\"{text}\" is not a range of sizes; write 8:64M:x2, 1M:4M:+1M or 1M")]
    Sizes { text: String },
    /// The range is empty.
    #[error("sizes from {from} to {to} bytes: the range is empty")]
    NoSizes { from: usize, to: usize },
    /// The range has no end.
    #[error("sizes must grow by a factor of at least 2")]
    SmallFactor,
    /// Likewise.
    #[error("sizes must grow by at least 1 byte")]
    NoIncrement,
    /// Likewise.
    #[error("sizes that grow by a factor cannot begin at 0")]
    FromZero,
    /// It is no whole number.
    #[error("expected a whole number from 0")]
    WholeNumber,
    /// It is no whole number, or 0.
    #[error("expected a whole number from 1")]
    Positive,
    /// It is no range of ranks.
    #[error("\"{text}\" is not a range of ranks; write 1..64 or 8")]
    Ranks { text: String },
}

/// `64`, `64K`, `1M`, `2G`: bytes, in powers of 1024 as in nccl-tests.
pub fn size(text: &str) -> Result<usize, ParseError> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB") {
        "" | "B" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1_usize << 30,
        _ => return Err(ParseError::Size { text: text.into() }),
    };
    let number = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(scale));
    number.ok_or_else(|| ParseError::Size { text: text.into() })
}

/// How sizes follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// A factor.
    Factor(usize),
    /// A number of bytes.
    Bytes(usize),
}

/// A range of sizes: `8:64M:x2` from 8 bytes to 64 MiB doubling, `1M:4M:+1M`, or `1M` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Smallest, in bytes.
    pub from: usize,
    /// Largest, in bytes.
    pub to: usize,
    /// How they follow each other.
    pub stride: Stride,
}

impl Sizes {
    /// Reads `FROM[:TO[:xFACTOR|:+BYTES]]`.
    pub fn parse(text: &str) -> Result<Sizes, ParseError> {
        let problem = || ParseError::Sizes { text: text.into() };
        let parts: Vec<&str> = text.split(':').collect();
        let [from, rest @ ..] = parts.as_slice() else {
            return Err(problem());
        };
        let from = size(from).map_err(|_| problem())?;
        let to = rest.first().map_or(Ok(from), |to| size(to)).map_err(|_| problem())?;
        let stride = match rest.get(1).map(|stride| stride.split_at_checked(1)) {
            None => Stride::Factor(2),
            Some(Some(("x", factor))) => Stride::Factor(factor.parse().map_err(|_| problem())?),
            Some(Some(("+", bytes))) => Stride::Bytes(size(bytes).map_err(|_| problem())?),
            Some(_) => return Err(problem()),
        };
        if rest.len() > 2 {
            return Err(problem());
        }
        Sizes { from, to, stride }.checked()
    }

    /// Refuses a range that is empty or has no end.
    pub fn checked(self) -> Result<Sizes, ParseError> {
        match self.stride {
            _ if self.to < self.from => Err(ParseError::NoSizes { from: self.from, to: self.to }),
            Stride::Factor(0 | 1) => Err(ParseError::SmallFactor),
            Stride::Bytes(0) => Err(ParseError::NoIncrement),
            Stride::Factor(_) if self.from == 0 && self.to > 0 => Err(ParseError::FromZero),
            _ => Ok(self),
        }
    }

    /// Every size, in bytes.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let next = move |&size: &usize| match self.stride {
            Stride::Factor(factor) => size.checked_mul(factor).filter(|_| size > 0),
            Stride::Bytes(bytes) => size.checked_add(bytes),
        };
        std::iter::successors(Some(self.from), next).take_while(move |&size| size <= self.to)
    }
}

/// A whole number.
///
/// # Errors
/// What was expected.
pub fn whole<T: FromStr>(text: &str) -> Result<T, ParseError> {
    text.trim().parse().map_err(|_| ParseError::WholeNumber)
}

/// A whole number from 1 on.
///
/// # Errors
/// What was expected.
pub fn positive(text: &str) -> Result<u64, ParseError> {
    whole(text).ok().filter(|&number| number > 0).ok_or(ParseError::Positive)
}

/// A range of ranks: `1..64` includes both ends; `8` alone.
pub fn ranks(text: &str) -> Result<RangeInclusive<usize>, ParseError> {
    let problem = || ParseError::Ranks { text: text.into() };
    let number = |part: &str| part.trim().parse::<usize>().map_err(|_| problem());
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (number(from)?, number(to.trim_start_matches('='))?),
        None => (number(text)?, number(text)?),
    };
    if from == 0 || to < from { Err(problem()) } else { Ok(from..=to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("8", 8), ("64K", 65536), ("1M", 1 << 20), ("2g", 2 << 30), ("3MiB", 3 << 20)]
        {
            assert_eq!(size(text), Ok(bytes));
        }
        for text in ["", "M", "1T", "-1", "1.5M", "99999999999999999999"] {
            size(text).unwrap_err();
        }
    }

    #[test]
    fn ranges_of_sizes_are_read() {
        let all = |text: &str| Sizes::parse(text).map(|sizes| sizes.iter().collect::<Vec<_>>());
        assert_eq!(all("8:64:x2"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(all("8:70:x4"), Ok(vec![8, 32]));
        assert_eq!(all("1K:3K:+1K"), Ok(vec![1024, 2048, 3072]));
        assert_eq!(all("1M"), Ok(vec![1 << 20]));
        assert_eq!(all("0"), Ok(vec![0]));
        for text in ["", "8:4", "1:8:x1", "1:8:+0", "0:8:x2", "1:8:2", "1:8:x2:9", "a:b"] {
            all(text).unwrap_err();
        }
    }

    #[test]
    fn ranges_of_ranks_are_read() {
        assert_eq!(ranks("1..64"), Ok(1..=64));
        assert_eq!(ranks("8"), Ok(8..=8));
        for text in ["0", "0..4", "5..2", "x", ""] {
            ranks(text).unwrap_err();
        }
    }
}
