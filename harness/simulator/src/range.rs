//! The range of a simulated value, from the ranges of a machine's parameters.

use rayon::prelude::*;

use crate::machine_file::MachineFile;

/// How far a value goes down and up when each parameter is at either end of its range: deviations are independent, so
/// that their squares add up.
///
/// # Errors
/// The first error of `value`.
pub fn deviations<E: Send>(
    machine: &MachineFile,
    value: impl Fn(&MachineFile) -> Result<f64, E> + Sync,
) -> Result<(f64, f64), E> {
    let each = deviations_of_each(machine, |machine| Ok(vec![value(machine)?]))?;
    Ok(each[0])
}

/// How far each of several values goes down and up.
///
/// # Errors
/// The first error of `values`.
pub fn deviations_of_each<E: Send>(
    machine: &MachineFile,
    values: impl Fn(&MachineFile) -> Result<Vec<f64>, E> + Sync,
) -> Result<Vec<(f64, f64)>, E> {
    let nominal = values(machine)?;
    let changed: Vec<Vec<Vec<f64>>> = (0..machine.clone().parameters().len())
        .into_par_iter()
        .map(|at| at_ends(machine, at).iter().map(&values).collect())
        .collect::<Result<_, E>>()?;
    let of = |(place, &value): (usize, &f64)| {
        let (mut below, mut above) = (0.0, 0.0);
        for ends in &changed {
            let found = ends.iter().map(|values| values[place]);
            below += (value - found.clone().fold(value, f64::min)).powi(2);
            above += (found.fold(value, f64::max) - value).powi(2);
        }
        (below.sqrt(), above.sqrt())
    };
    Ok(nominal.iter().enumerate().map(of).collect())
}

/// The machine with one parameter, by its place, at each end of its range.
fn at_ends(machine: &MachineFile, place: usize) -> Vec<MachineFile> {
    let mut machine = machine.clone();
    let parameter = machine.parameters()[place].1.clone();
    let ends = [parameter.low, parameter.high].into_iter().flatten();
    ends.filter(|&end| end != parameter.value)
        .map(|end| {
            machine.parameters()[place].1.value = end;
            machine.clone()
        })
        .collect()
}

/// How many machines [`deviations_of_each`] asks for values.
pub fn machines(machine: &MachineFile) -> usize {
    let places = 0..machine.clone().parameters().len();
    1 + places.map(|place| at_ends(machine, place).len()).sum::<usize>()
}

/// Independent deviations together.
pub fn together<const COUNT: usize>(deviations: [f64; COUNT]) -> f64 {
    deviations.into_iter().map(|part| part * part).sum::<f64>().sqrt()
}
