//! Numbers as text.

/// Digits that a typical number of a column shows.
const DIGITS: i32 = 4;

/// As many decimals as give a column's median four digits, and three at most.
pub fn decimals(numbers: impl Iterator<Item = f64>) -> usize {
    let mut numbers: Vec<f64> = numbers.map(f64::abs).filter(|&number| number > 0.0).collect();
    if numbers.iter().all(|number| number.fract() == 0.0) {
        return 0;
    }
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.get(numbers.len() / 2).copied().unwrap_or(1.0);
    let before = middle.log10().floor() as i32 + 1;
    (DIGITS - before.max(1)).clamp(0, 3) as usize
}

/// Numbers as long as they need to be: 4, 0.5, 23.3111.
pub fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A field of a file without digits that come from binary fractions: 61.12 for 61.120000000000005.
pub fn tidy(field: &str) -> String {
    const LONG: usize = 9;
    const SMALL: f64 = 0.01;
    match field.parse::<f64>() {
        Ok(number) if field.len() > LONG && field.contains('.') && number.abs() >= SMALL => {
            short(number)
        }
        _ => field.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_as_many_decimals_as_its_middle_needs() {
        for (numbers, expected) in [
            (vec![38.21, 76.44, 120.5], 2),
            (vec![564.8, 849.5], 1),
            (vec![15_250.5], 0),
            (vec![0.013, 0.5], 3),
            (vec![3.0, 32.0], 0),
            (vec![], 0),
        ] {
            assert_eq!(decimals(numbers.iter().copied()), expected, "{numbers:?}");
        }
    }

    #[test]
    fn settings_have_no_trailing_zeros() {
        let fields = ["61.120000000000005", "12.5", "1.2345678901e-5", "2026-11-23", "1048576"];
        let expected = ["61.12", "12.5", "1.2345678901e-5", "2026-11-23", "1048576"];
        assert_eq!(fields.map(tidy), expected);
        assert_eq!([4.0, 0.5, 23.3111, 0.0].map(short), ["4", "0.5", "23.3111", "0"]);
    }
}
