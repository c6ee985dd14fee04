//! The virtual cluster's switch; `slurm/virtual-cluster` starts it.

#![cfg(target_os = "linux")]

mod frame;
mod links;
mod switch;
mod tap;

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use thiserror::Error;

use links::Shape;
use switch::Switch;

/// Carry frames between the nodes of a virtual cluster, at the rate and delay of a network.
///
/// Creates the interfaces fab1 to fabN in this network namespace; `slurm/virtual-cluster shape` hands
/// them to the nodes. Ends when one of them does.
#[derive(Parser)]
#[command(name = "kolo-switch", version, max_term_width = 100)]
struct Arguments {
    /// Number of nodes.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    nodes: u8,
    /// Nodes in a rack.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    rack_size: u8,
    /// Rate of every link in each direction, as in 1gbit.
    #[arg(long, value_parser = bits_per_s)]
    rate: u64,
    /// One-way delay between nodes, as in 50us.
    #[arg(long, value_parser = delay)]
    delay: Duration,
    /// One-way delay between nodes of different racks [default: as within].
    #[arg(long, value_parser = delay)]
    cross_rack_delay: Option<Duration>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let nanoseconds = |delay: Duration| delay.as_nanos() as u64;
    let shape = Shape {
        nodes: arguments.nodes.into(),
        rack_size: arguments.rack_size.into(),
        bits_per_s: arguments.rate,
        delay_ns: nanoseconds(arguments.delay),
        cross_rack_delay_ns: nanoseconds(arguments.cross_rack_delay.unwrap_or(arguments.delay)),
    };
    Switch::create(shape)?.run()?;
    Ok(())
}

/// A text that is no rate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected a whole number above 0 with a unit: 100mbit, 1gbit or 10gbit")]
struct RateError;

/// `100mbit`, `1gbit`: as the kernel's `tc` writes rates, in powers of 1000.
fn bits_per_s(text: &str) -> Result<u64, RateError> {
    let units = [("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    let rate = units.iter().find_map(|&(unit, scale)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(scale).filter(|&rate| rate > 0)
    });
    rate.ok_or(RateError)
}

/// A text that is no delay.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected a whole number with a unit, up to 10s: 50us or 1ms")]
struct DelayError;

/// `50us`, `1ms`: up to 10 s.
fn delay(text: &str) -> Result<Duration, DelayError> {
    let units = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];
    let delay_us = units.iter().find_map(|&(unit, scale)| {
        text.strip_suffix(unit)?
            .parse::<u64>()
            .ok()?
            .checked_mul(scale)
            .filter(|&us| us <= 10_000_000)
    });
    delay_us.map(Duration::from_micros).ok_or(DelayError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(bits_per_s("100mbit"), Ok(100_000_000));
        assert_eq!(bits_per_s("10gbit"), Ok(10_000_000_000));
        for text in ["", "1", "gbit", "0gbit", "-1gbit", "1.5gbit", "1Gbit", "99999999999999gbit"] {
            bits_per_s(text).unwrap_err();
        }
    }

    #[test]
    fn delays_are_read() {
        assert_eq!(delay("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(delay("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(delay("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(delay("0us"), Ok(Duration::ZERO));
        for text in ["", "50", "us", "-1us", "11s", "1ns", "99999999999999999999ms"] {
            delay(text).unwrap_err();
        }
    }
}
