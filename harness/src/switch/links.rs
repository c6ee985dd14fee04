//! When a frame arrives, by the rate of links and the distance of racks.

/// How far ahead of its link a sender is read, in ns: enough to cover the sleep in between.
pub const AHEAD_NS: u64 = 1_000_000;

/// What may wait before a receiver's link: so much time, or these bytes if that is more.
const QUEUE_NS: u64 = 50_000_000;
const QUEUE_BYTES: usize = 1_000_000;

/// Nodes in racks, each with a link to one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of nodes.
    pub nodes: usize,
    /// Nodes in a rack; the last may have fewer.
    pub rack_size: usize,
    /// Rate of every link, in each direction.
    pub bits_per_s: u64,
    /// From node to node within a rack, one way.
    pub delay_ns: u64,
    /// From node to node of another rack, one way.
    pub cross_rack_delay_ns: u64,
}

/// The links of all nodes, and how long they are busy.
#[derive(Debug)]
pub struct Links {
    shape: Shape,
    /// When each node's link is free in the direction to the switch.
    out_ns: Vec<u64>,
    /// When each node's link is free in the direction from the switch.
    in_ns: Vec<u64>,
}

impl Links {
    pub fn new(shape: Shape) -> Links {
        Links { shape, out_ns: vec![0; shape.nodes], in_ns: vec![0; shape.nodes] }
    }

    /// When all that `node` has sent so far is on its link.
    pub fn free_ns(&self, node: usize) -> u64 {
        self.out_ns[node]
    }

    /// When a frame sent now has arrived; none if it is lost because too much waits for the receiver.
    /// It occupies the sender's link, then travels, then the receiver's, beginning there as soon as its
    /// first bit has come.
    pub fn arrival_ns(&mut self, now_ns: u64, from: usize, to: usize, bytes: usize) -> Option<u64> {
        let begins_ns = self.out_ns[from].max(now_ns);
        self.out_ns[from] = begins_ns + self.carry_ns(bytes);
        let comes_ns = begins_ns + self.delay_ns(from, to);
        let enters_ns = self.in_ns[to].max(comes_ns);
        if enters_ns - comes_ns > QUEUE_NS.max(self.carry_ns(QUEUE_BYTES)) {
            return None;
        }
        self.in_ns[to] = enters_ns + self.carry_ns(bytes);
        Some(self.in_ns[to])
    }

    /// How long a link carries so many bytes.
    fn carry_ns(&self, bytes: usize) -> u64 {
        let bits = bytes as u128 * 8;
        (bits * 1_000_000_000).div_ceil(u128::from(self.shape.bits_per_s)) as u64
    }

    fn delay_ns(&self, from: usize, to: usize) -> u64 {
        match from / self.shape.rack_size == to / self.shape.rack_size {
            true => self.shape.delay_ns,
            false => self.shape.cross_rack_delay_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four nodes in two racks; a link of 1 Gbit/s carries 125 bytes in 1 us.
    fn links() -> Links {
        Links::new(Shape {
            nodes: 4,
            rack_size: 2,
            bits_per_s: 1_000_000_000,
            delay_ns: 50_000,
            cross_rack_delay_ns: 200_000,
        })
    }

    #[test]
    fn a_frame_takes_its_time_on_the_link_once_and_the_delay_of_its_racks() {
        assert_eq!(links().arrival_ns(7, 0, 1, 1250), Some(7 + 50_000 + 10_000));
        assert_eq!(links().arrival_ns(7, 1, 2, 1250), Some(7 + 200_000 + 10_000));
        assert_eq!(links().arrival_ns(7, 3, 2, 0), Some(7 + 50_000));
    }

    #[test]
    fn frames_of_a_sender_follow_each_other() {
        let mut links = links();
        for k in 1..=1000 {
            assert_eq!(links.arrival_ns(0, 0, 1, 1250), Some(50_000 + k * 10_000));
            assert_eq!(links.free_ns(0), k * 10_000);
        }
        // After a pause the link does not make up for lost time.
        let late_ns = 20_000_000;
        assert_eq!(links.arrival_ns(late_ns, 0, 1, 1250), Some(late_ns + 60_000));
    }

    #[test]
    fn both_directions_of_a_link_are_free_at_once() {
        let mut links = links();
        let first = links.arrival_ns(0, 0, 1, 1250);
        assert_eq!(links.arrival_ns(0, 1, 0, 1250), first);
        assert_eq!(links.arrival_ns(0, 2, 3, 1250), first);
    }

    #[test]
    fn senders_to_one_receiver_share_its_link() {
        let mut links = links();
        let last = (0..300).filter_map(|k| links.arrival_ns(0, [0, 1, 3][k % 3], 2, 1250)).max();
        let three_senders_ns = 300 * 10_000;
        // The first that was sent comes from another rack.
        let delay_ns = 200_000;
        assert_eq!(last, Some(delay_ns + three_senders_ns));
    }

    #[test]
    fn arrivals_at_a_receiver_are_in_order_whoever_sends() {
        let mut links = links();
        let mut last_ns = 0;
        for k in 0..1000_u64 {
            let from = [0, 1, 3][(k * k % 7 % 3) as usize];
            if let Some(at_ns) = links.arrival_ns(k * 1_000, from, 2, (k % 9 * 700) as usize) {
                assert!(at_ns >= last_ns);
                last_ns = at_ns;
            }
        }
    }

    #[test]
    fn what_waits_for_a_receiver_is_bounded() {
        let mut links = links();
        let sent = |links: &mut Links| {
            [0, 1, 3].map(|from| links.arrival_ns(0, from, 2, 125_000).is_some())
        };
        let taken = (0..200).flat_map(|_| sent(&mut links)).filter(|&taken| taken).count();
        // Three senders at 1 Gbit/s each for 200 ms: a third passes, and 50 ms wait.
        assert!((200..=260).contains(&taken), "{taken} of 600 were taken");
    }

    #[test]
    fn a_slow_link_still_has_a_queue_for_whole_frames() {
        let mut links = Links::new(Shape { bits_per_s: 1_000_000, ..links().shape });
        for from in [0, 1, 3] {
            assert!(links.arrival_ns(0, from, 2, 64 << 10).is_some());
        }
    }
}
