//! What a rank's processor does besides communicating: computing, also beside messages, packing, and what else
//! interrupts it.

use super::computing::Computing;
use super::estimate::Estimate;
use super::interruptions::Interruptions;
use super::patterns::{Reach, Shape, chunks, pairs, plane, schedule};
use super::runner::{Program, Runner};
use super::work::{PACKED_BYTES, Work};
use results::statistics::{median, quantile};
use transports::transport::TransportError;

/// Copies of a fusion buffer.
const PACKINGS: usize = 15;

/// Seconds of exchanging beside which computation is timed.
const BESIDE_S: f64 = 0.4;

/// Bytes of each message meanwhile, as large as a segment.
const MESSAGE_BYTES: usize = 512 << 10;

/// Its steps.
const STEPS: usize = 8;

/// The measured costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// How long ranks compute.
    pub computing: Computing,
    /// The rate at which all ranks at once copy tensors into a fusion buffer, in 10^9 bytes per second; of the slowest
    /// and of the fastest rank.
    pub pack_gb_s: Estimate,
    /// By how much computation takes longer while messages are exchanged, in parts of its time; of the least and of the
    /// most delayed rank.
    pub beside: Estimate,
    /// What interrupts computation; not measured where ranks share cores and so interrupt each other.
    pub interruptions: Option<Interruptions>,
}

impl Host {
    /// Measures packing, computing beside messages, and interruptions; `computing` is what has been measured without them.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn measure(runner: &mut dyn Runner, computing: Computing) -> Result<Host, TransportError> {
        let packings = runner.work(Work::Pack, PACKINGS)?;
        let seconds = packings.into_iter().filter_map(|times| {
            // The first touches new memory.
            median(times.get(1..)?.iter().map(|packed| packed.time_s).collect())
        });
        let rates = seconds.map(|seconds| PACKED_BYTES as f64 / seconds / 1e9);
        let pack_gb_s = middle_and_ends(rates.collect());
        let alone_s = computing.medians_s();
        let beside_s = beside(runner)?;
        let longer = beside_s.iter().zip(&alone_s);
        let longer = longer.map(|(beside_s, alone_s)| (beside_s / alone_s - 1.0).max(0.0));
        let beside = middle_and_ends(longer.collect());
        let own_cores = !runner.is_oversubscribed();
        let interruptions = own_cores.then(|| Interruptions::measure(runner)).transpose()?;
        Ok(Host { computing, pack_gb_s, beside, interruptions })
    }
}

/// Seconds of each rank's computation while neighbours exchange messages.
fn beside(runner: &mut dyn Runner) -> Result<Vec<f64>, TransportError> {
    let topology = runner.topology();
    let reach = if topology.nodes() > 1 { Reach::Between } else { Reach::Inside };
    let shape = Shape::Exchange { reduces: true };
    let schedule = schedule(topology.ranks(), &pairs(topology, reach), shape, STEPS);
    let plane = plane(schedule);
    let size_bytes = MESSAGE_BYTES * chunks(shape, STEPS);
    let program = |repetitions| Program {
        plane: &plane,
        size_bytes,
        segment_bytes: 0,
        warmup: 1,
        repetitions,
    };
    let once_s = runner.time(&program(1))?[0];
    let repetitions = (BESIDE_S / once_s.max(1e-6)).ceil() as usize;
    runner.compute_beside(&program(repetitions.clamp(1, 10_000)))
}

/// The median of some ranks' values, and those of the first and the last rank.
fn middle_and_ends(values: Vec<f64>) -> Estimate {
    let at = |share| quantile(values.clone(), share).unwrap_or(0.0);
    Estimate { value: at(0.5), low: at(0.0), high: at(1.0) }
}

#[cfg(test)]
mod tests {
    use super::super::runner::Threads;
    use super::*;

    #[test]
    fn threads_pack_and_compute_beside_messages() {
        let mut threads = Threads::new(2);
        let mut computing = Computing::default();
        computing.measure(&mut threads).unwrap();
        let host = Host::measure(&mut threads, computing).unwrap();
        let Host { pack_gb_s, beside, interruptions, .. } = host;
        assert_eq!(interruptions.is_none(), threads.is_oversubscribed());
        assert!(pack_gb_s.low > 0.0 && pack_gb_s.low <= pack_gb_s.value, "{pack_gb_s:?}");
        assert!(beside.low >= 0.0 && beside.value <= beside.high, "{beside:?}");
    }
}
