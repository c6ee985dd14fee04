//! The fields of one record of a table, by column name.

use std::collections::HashMap;
use std::path::Path;

use crate::PlotError;
use crate::rows::{Estimate, PARTS};

/// Columns that may be missing, in which case their values are not known: the case's name, which no
/// figure needs, parts of a measured step, and columns of control planes and simulations, which files of older versions lack.
const LATER: [&str; 39] = [
    "over_best",
    "over_best_low",
    "case",
    "data_us_p50",
    "packing_us_p50",
    "reduction_us_p50",
    "compression_us_p50",
    "sync",
    "wait_us_p50",
    "cycle_wait_us_p50",
    "until_cycle_us_p50",
    "ready_order",
    "miss_share",
    "invalid_share",
    "rank0_us_p50",
    "rank0_us_p50_low",
    "rank0_us_p50_high",
    "network_us_p50",
    "network_alpha_us",
    "network_message_us",
    "network_bandwidth_gb_s",
    "machine",
    "policy",
    "engine",
    "driven",
    "batch",
    "seeds",
    "interval_over",
    "throughput_samples_s_p50",
    "throughput_samples_s_p50_low",
    "throughput_samples_s_p50_high",
    "efficiency_p50",
    "efficiency_p50_low",
    "efficiency_p50_high",
    "efficiency_base_ranks",
    "group",
    "perfect",
    "simulated_low",
    "simulated_high",
];

/// One record, its file and the columns of the file.
///
/// Every method fails with [`PlotError::MissingColumn`] if the file has no such column, and with
/// [`PlotError::BadValue`] if the field has a value that the method does not allow.
pub(crate) struct Fields<'a> {
    pub path: &'a Path,
    pub columns: &'a HashMap<&'a str, usize>,
    pub record: &'a csv::StringRecord,
}

impl Fields<'_> {
    fn get(&self, column: &'static str) -> Result<&str, PlotError> {
        let Some(index) = self.columns.get(column) else {
            if LATER.contains(&column) || PARTS.contains(&column) {
                return Ok("");
            }
            let mut found: Vec<_> = self.columns.iter().collect();
            found.sort_by_key(|(_, index)| **index);
            let names: Vec<_> = found.iter().map(|(name, _)| **name).collect();
            return Err(PlotError::MissingColumn {
                file: self.path.to_path_buf(),
                column,
                found: names.join(", "),
            });
        };
        Ok(self.record.get(*index).unwrap_or_default().trim())
    }

    /// Any text.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn text(&self, column: &'static str) -> Result<String, PlotError> {
        self.get(column).map(str::to_string)
    }

    /// One of some words. `expected` lists them for the error.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn one_of(
        &self,
        column: &'static str,
        words: &[&str],
        expected: &'static str,
    ) -> Result<String, PlotError> {
        let found = self.get(column)?;
        if words.contains(&found) {
            return Ok(found.to_string());
        }
        Err(self.bad(column, found, expected))
    }

    /// `true` or `false`. `None` if the field is empty.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn truth(&self, column: &'static str) -> Result<Option<bool>, PlotError> {
        match self.get(column)? {
            "" => Ok(None),
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            found => Err(self.bad(column, found, "true or false")),
        }
    }

    /// A count, size or time: finite and at least 0. `None` if the field is empty.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn number(&self, column: &'static str) -> Result<Option<f64>, PlotError> {
        let found = self.get(column)?;
        if found.is_empty() {
            return Ok(None);
        }
        match found.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => Err(self.bad(column, found, "a number of at least 0")),
        }
    }

    /// A finite number that must not be missing.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn signed(&self, column: &'static str) -> Result<f64, PlotError> {
        let found = self.get(column)?;
        let number = found.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.bad(column, found, "a number"))
    }

    /// A number above 0 that must not be missing.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn positive(&self, column: &'static str) -> Result<f64, PlotError> {
        match self.number(column)? {
            Some(number) if number > 0.0 => Ok(number),
            _ => Err(self.bad(column, self.get(column)?, "a number above 0")),
        }
    }

    /// A whole number that must not be missing.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn whole(&self, column: &'static str) -> Result<u64, PlotError> {
        let found = self.get(column)?;
        found.parse().map_err(|_| self.bad(column, found, "a whole number"))
    }

    /// Numbers of at least 0, separated by spaces.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn numbers(&self, column: &'static str) -> Result<Vec<f64>, PlotError> {
        let found = self.get(column)?;
        let number = |word: &str| {
            word.parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite())
        };
        let numbers: Option<Vec<f64>> = found.split_whitespace().map(number).collect();
        numbers.ok_or_else(|| self.bad(column, found, "numbers of at least 0, separated by spaces"))
    }

    /// A value and its interval, from three columns.
    ///
    /// # Errors
    /// When the column is missing or its field cannot be read.
    pub fn estimate(
        &self,
        value: &'static str,
        low: &'static str,
        high: &'static str,
    ) -> Result<Estimate, PlotError> {
        Ok(Estimate {
            value: self.number(value)?,
            interval: self.number(low)?.zip(self.number(high)?),
        })
    }

    fn bad(&self, column: &'static str, found: &str, expected: &'static str) -> PlotError {
        PlotError::BadValue {
            file: self.path.to_path_buf(),
            line: self.record.position().map_or(1, csv::Position::line),
            column,
            found: found.to_string(),
            expected,
        }
    }
}
