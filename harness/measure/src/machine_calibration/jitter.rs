//! Variation of computation between ranks: all ranks do the same work at the same time, repeatedly.

use super::estimate::Estimate;
use super::runner::Runner;
use results::statistics::median;
use transports::transport::TransportError;

/// Some hundred milliseconds.
const TIMES: usize = 60;

/// Standard deviation of a rank's computation in parts of its mean, over ranks and repetitions; low and high
/// are those of the steadiest and the least steady rank.
///
/// # Errors
/// When a rank does not answer.
pub fn measure(runner: &mut dyn Runner) -> Result<Estimate, TransportError> {
    let times = runner.compute(TIMES)?;
    let own = times.iter().map(|times| variation(times));
    let (low, high) = own.fold((f64::MAX, 0.0), |(low, high), cv| (low.min(cv), cv.max(high)));
    let value = variation(&times.concat());
    Ok(Estimate { value, low: low.min(value), high: high.max(value) })
}

/// Standard deviation over the mean, without the one in a hundred that was interrupted for long.
fn variation(times: &[f64]) -> f64 {
    let middle = median(times.to_vec()).unwrap_or(0.0);
    let usual: Vec<f64> = times.iter().copied().filter(|time| *time < 3.0 * middle).collect();
    let mean = usual.iter().sum::<f64>() / usual.len() as f64;
    let variance = usual.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / usual.len() as f64;
    variance.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::super::runner::Threads;
    use super::*;

    #[test]
    fn variation_is_relative_and_forgets_interruptions() {
        assert_eq!(variation(&[2.0; 9]), 0.0);
        let uneven = [0.9, 1.1].repeat(50);
        assert!((variation(&uneven) - 0.1).abs() < 1e-12);
        assert!((variation(&[&uneven[..], &[50.0]].concat()) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn threads_compute_at_once() {
        let Estimate { value, low, high } = measure(&mut Threads::new(2)).unwrap();
        assert!(0.0 <= low && low <= value && value <= high && high < 2.0);
    }
}
