//! When messages are under way, and how far computation gets beside them.

/// Times at which messages are under way, in order, without overlap; and the factor by which computation takes longer.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy(Vec<Interval>);

#[derive(Clone, Copy, Debug)]
struct Interval {
    begin_s: f64,
    end_s: f64,
    slowdown: f64,
}

impl Busy {
    /// Adds a message, which does not begin before those so far end.
    pub fn add(&mut self, begin_s: f64, end_s: f64, slowdown: f64) {
        match self.0.last_mut() {
            Some(last) if begin_s <= last.end_s && slowdown == last.slowdown => {
                last.end_s = last.end_s.max(end_s);
            }
            _ => self.0.push(Interval { begin_s, end_s, slowdown }),
        }
    }

    /// Seconds without messages in which as much is computed as from `from_s` to `until_s`.
    pub fn computed_s(&self, (from_s, until_s): (f64, f64)) -> f64 {
        let lost_s = |interval: &Interval| {
            let busy_s = interval.end_s.min(until_s) - interval.begin_s.max(from_s);
            (1.0 - 1.0 / interval.slowdown) * busy_s.max(0.0)
        };
        until_s - from_s - self.0.iter().map(lost_s).sum::<f64>()
    }

    /// When that much is computed.
    pub fn end_s(&self, from_s: f64, computed_s: f64) -> f64 {
        let (mut now_s, mut left_s) = (from_s, computed_s);
        for &Interval { begin_s, end_s, slowdown } in self.0.iter().filter(|it| it.end_s > from_s) {
            let before_s = (begin_s - now_s).max(0.0);
            let beside_s = (end_s - begin_s.max(now_s)) / slowdown;
            if left_s <= before_s {
                break;
            } else if left_s <= before_s + beside_s {
                return now_s + before_s + (left_s - before_s) * slowdown;
            }
            left_s -= before_s + beside_s;
            now_s = end_s;
        }
        now_s + left_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computation_is_slower_beside_messages_and_only_there() {
        let mut busy = Busy::default();
        assert_eq!(busy.end_s(1.0, 2.0), 3.0);
        busy.add(2.0, 4.0, 3.0);
        busy.add(4.0, 5.0, 3.0);
        busy.add(7.0, 8.0, 2.0);
        assert_eq!(busy.0.len(), 2, "like messages without a gap are one interval");
        // From 1 to 2 alone, to 5 at a third, to 7 alone, to 8 at half, then alone.
        for (computed_s, end_s) in
            [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0), (1.5, 3.5), (2.0, 5.0), (4.0, 7.0), (5.0, 8.5)]
        {
            assert!((busy.end_s(1.0, computed_s) - end_s).abs() < 1e-12, "{computed_s}");
            let back_s = busy.computed_s((1.0, end_s));
            assert!((back_s - computed_s).abs() < 1e-12, "{computed_s}: {back_s}");
        }
        // It begins within a message.
        assert!((busy.end_s(4.0, 1.0) - 5.0 - 2.0 / 3.0).abs() < 1e-12);
    }
}
