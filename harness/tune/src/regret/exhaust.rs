//! Every setting, measured.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::surface::Surface;
use results::error::RecordError;
use results::statistics::median;

/// Seconds of each setting, and which is the fastest.
pub type Surveyed = (BTreeMap<usize, f64>, usize);

/// Measures every setting of a plan `rounds` times, in rounds in random order. Returns the median time of
/// each in seconds over the odd rounds, and the setting that is the fastest in the even ones: so the least of
/// many noisy times is not mistaken for the truth. None if no setting could be measured.
///
/// # Errors
/// When results cannot be written.
pub fn exhaust(
    settings: usize,
    rounds: usize,
    surface: &mut dyn Surface,
    random: &mut ChaCha8Rng,
) -> Result<Option<Surveyed>, RecordError> {
    let mut times: [BTreeMap<usize, Vec<f64>>; 2] = Default::default();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..settings).collect();
        order.shuffle(random);
        for setting in order {
            if let Ok(observed) = surface.block(setting)? {
                times[round % 2].entry(setting).or_default().push(observed.step_s);
            }
        }
    }
    let [even, odd] = times.map(|times| -> BTreeMap<usize, f64> {
        let middle = |(setting, times)| Some((setting, median(times)?));
        times.into_iter().filter_map(middle).collect()
    });
    let fastest = even.keys().copied().min_by(|a, b| even[a].total_cmp(&even[b]));
    Ok(fastest.map(|fastest| (odd, fastest)))
}
