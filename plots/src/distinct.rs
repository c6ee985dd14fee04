//! Distinct values.

/// The distinct numbers in ascending order.
pub(crate) fn ascending(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers
}

/// The distinct values in the order of their first occurrence.
pub(crate) fn in_order<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_kept_once() {
        let numbers = [3.0, 1.0, 3.0, 2.0, 1.0];
        assert_eq!(ascending(numbers.into_iter()), [1.0, 2.0, 3.0]);
        assert_eq!(in_order(numbers.into_iter()), [3.0, 1.0, 2.0]);
    }
}
