//! The table of `osu_allreduce -f`.

use std::io::{self, Write};

use algorithms::control::DataType;

use super::arguments::Arguments;
use super::request::Request;
use results::provenance::Launch;
use results::row::CollectiveResult;

/// Title and origin. The title has no version of OSU's, since kolo measured.
pub fn preamble(
    to: &mut dyn Write,
    arguments: &Arguments,
    request: &Request,
    name: &str,
    launch: &Launch,
) -> io::Result<()> {
    writeln!(to, "\n# OSU MPI Allreduce Latency Test")?;
    let (version, commit, topology) = (&launch.version, &launch.commit, &request.topology);
    writeln!(
        to,
        "# written by {version} commit {commit}: algorithm {name}, {topology} over {}",
        request.back_end
    )?;
    writeln!(
        to,
        "# times of the slowest rank: mean, shortest and longest of {} iterations",
        arguments.iters
    )?;
    if let [dtype] = request.types[..]
        && let Some(name) = mpi_name(dtype)
    {
        writeln!(to, "# Datatype: {name}.")?;
    }
    Ok(())
}

pub fn header(to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations")
}

/// A line of the table; nothing for what has no times.
pub fn row(to: &mut dyn Write, size_bytes: usize, result: &CollectiveResult) -> io::Result<()> {
    let Some(times) = &result.times else { return Ok(()) };
    let (mean, least, most) = (times.time_us_mean, times.time_us_min, times.time_us_max);
    writeln!(
        to,
        "{size_bytes:<10}{mean:>18.2}{least:>18.2}{most:>18.2}{:>12}",
        result.effort.samples
    )
}

/// MPI's name of an element type, if it has one.
fn mpi_name(dtype: DataType) -> Option<&'static str> {
    match dtype {
        DataType::F32 => Some("MPI_FLOAT"),
        DataType::F64 => Some("MPI_DOUBLE"),
        DataType::U8 => Some("MPI_UINT8_T"),
        DataType::I32 => Some("MPI_INT32_T"),
        DataType::I64 => Some("MPI_INT64_T"),
        DataType::F16 | DataType::BF16 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::row::{Effort, Times};

    /// A line of OSU 7.3 with `-f`, made from its format.
    #[test]
    fn a_row_lines_up_with_the_header() {
        let result = CollectiveResult {
            effort: Effort { samples: 1000, ..Effort::default() },
            times: Some(Times {
                time_us_mean: 53.34,
                time_us_min: 24.8,
                time_us_max: 158.96,
                ..Times::default()
            }),
            ..CollectiveResult::default()
        };
        let mut line = Vec::new();
        row(&mut line, 1, &result).unwrap();
        let expected =
            "1                      53.34             24.80            158.96        1000\n";
        assert_eq!(String::from_utf8(line).unwrap(), expected);
    }
}
