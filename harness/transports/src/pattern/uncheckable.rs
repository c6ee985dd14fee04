//! Reductions whose results cannot be checked.

use algorithms::control::DataType;
use thiserror::Error;

/// Why the result of a reduction cannot be checked.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Uncheckable {
    /// The type has too few bits for sums of so many numbers.
    #[error(
        "{} sums over {ranks} ranks{} cannot be checked exactly: {bits} bits are too few for two values per rank; \
         use at most {most} ranks{} or a wider type",
        dtype.name(),
        if *passes > 1 { format!(" and {passes} backward passes") } else { String::new() },
        if *passes > 1 { ", fewer passes" } else { "" },
    )]
    TooNarrow {
        /// The type that the reduction works on.
        dtype: DataType,
        /// World size.
        ranks: usize,
        /// Backward passes whose gradients each rank adds up before.
        passes: usize,
        /// Bits of integers that the type holds exactly.
        bits: u32,
        /// The most ranks for which it suffices.
        most: usize,
    },
    /// The factors lead to numbers that the type does not hold.
    #[error(
        "factors {prescale} before and {postscale} after the reduction make numbers of about {reached:e}, which {} \
         does not hold; use factors nearer to 1 or a wider type",
        dtype.name(),
    )]
    OutOfRange {
        /// The type that the reduction works on.
        dtype: DataType,
        /// The factor before the reduction.
        prescale: f64,
        /// The factor after it.
        postscale: f64,
        /// The first number that the type does not hold.
        reached: f64,
    },
}
