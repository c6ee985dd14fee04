//! When messages are under way, and how far computation gets beside them.

/// Times at which the stream of messages is busy: in order, without overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy(Vec<(f64, f64)>);

impl Busy {
    /// Adds a message, which does not begin before those so far end.
    pub fn add(&mut self, begin_s: f64, end_s: f64) {
        match self.0.last_mut() {
            Some((_, last_s)) if begin_s <= *last_s => *last_s = last_s.max(end_s),
            _ => self.0.push((begin_s, end_s)),
        }
    }

    /// Seconds without messages in which as much is computed as from `from_s` to `until_s`, if computation takes longer
    /// by the factor `slowdown` beside messages.
    pub fn computed_s(&self, (from_s, until_s): (f64, f64), slowdown: f64) -> f64 {
        let busy = |&(begin_s, end_s): &(f64, f64)| {
            (end_s.min(until_s) - begin_s.max(from_s)).max(0.0)
        };
        let busy_s: f64 = self.0.iter().map(busy).sum();
        until_s - from_s - (1.0 - 1.0 / slowdown) * busy_s
    }

    /// When that much is computed.
    pub fn end_s(&self, from_s: f64, computed_s: f64, slowdown: f64) -> f64 {
        let (mut now_s, mut left_s) = (from_s, computed_s);
        for &(begin_s, end_s) in self.0.iter().filter(|(_, end_s)| *end_s > from_s) {
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
        assert_eq!(busy.end_s(1.0, 2.0, 3.0), 3.0);
        busy.add(2.0, 4.0);
        busy.add(4.0, 5.0);
        busy.add(7.0, 8.0);
        assert_eq!(busy.0.len(), 2, "messages without a gap are one interval");
        // From 1 to 2 alone, to 5 at a third, to 7 alone, to 8 at a third, then alone.
        for (computed_s, end_s) in
            [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0), (1.5, 3.5), (2.0, 5.0), (4.0, 7.0), (5.0, 8.0 + 2.0 / 3.0)]
        {
            assert!((busy.end_s(1.0, computed_s, 3.0) - end_s).abs() < 1e-12, "{computed_s}");
            let back_s = busy.computed_s((1.0, end_s), 3.0);
            assert!((back_s - computed_s).abs() < 1e-12, "{computed_s}: {back_s}");
        }
        // It begins within a message.
        assert!((busy.end_s(4.0, 1.0, 2.0) - 5.5).abs() < 1e-12);
        assert_eq!(busy.end_s(1.0, 7.5, 1.0), 8.5);
    }
}
