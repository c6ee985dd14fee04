//! The range of a simulated value, from the ranges of a machine's parameters.

use crate::machine_file::MachineFile;

/// How far a value goes down and up when each parameter is at either end of its range: deviations are independent, so
/// that their squares add up.
///
/// # Errors
/// The first error of `value`.
pub fn deviations<E>(
    machine: &MachineFile,
    value: impl Fn(&MachineFile) -> Result<f64, E>,
) -> Result<(f64, f64), E> {
    let mut changed = machine.clone();
    let nominal = value(machine)?;
    let (mut below, mut above) = (0.0, 0.0);
    for at in 0..changed.parameters().len() {
        let parameter = changed.parameters()[at].1.clone();
        let (mut least, mut most) = (nominal, nominal);
        let ends = [parameter.low, parameter.high].into_iter().flatten();
        for end in ends.filter(|&end| end != parameter.value) {
            changed.parameters()[at].1.value = end;
            let found = value(&changed)?;
            (least, most) = (least.min(found), most.max(found));
        }
        changed.parameters()[at].1.value = parameter.value;
        below += (nominal - least).powi(2);
        above += (most - nominal).powi(2);
    }
    Ok((below.sqrt(), above.sqrt()))
}

/// Independent deviations together.
pub fn together<const COUNT: usize>(deviations: [f64; COUNT]) -> f64 {
    deviations.into_iter().map(|part| part * part).sum::<f64>().sqrt()
}
