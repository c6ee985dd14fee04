//! When a frame arrives, by the rate of links and the distance of racks.

/// How far ahead of its link a sender is read, in ns: enough to cover the sleep in between.
pub const AHEAD_NS: u64 = 1_000_000;

/// What may wait before a receiver's link: so much time, or these bytes if that is more.
const QUEUE_NS: u64 = 50_000_000;
const QUEUE_BYTES: usize = 3_000_000;

/// Senders are held back while more bytes than this wait before a receiver's link, so that two senders to one receiver
/// share its link without losing frames, as with the flow control of Ethernet (IEEE 802.3x) or of InfiniBand. Assumed: a
/// port's part of a switch's buffer. With less, a sender waits for one receiver while others are free.
const PAUSE_BYTES: usize = 1_000_000;

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
    /// Until when each node sends nothing, because too much of what it has sent waits.
    paused_ns: Vec<u64>,
}

impl Links {
    pub fn new(shape: Shape) -> Links {
        let free = || vec![0; shape.nodes];
        Links { shape, out_ns: free(), in_ns: free(), paused_ns: free() }
    }

    /// When all that `node` has sent so far is on its link, and it is not held back.
    pub fn free_ns(&self, node: usize) -> u64 {
        self.out_ns[node].max(self.paused_ns[node])
    }

    /// Takes a frame on the sender's link; says when its first bit comes to the receiver's.
    pub fn send_ns(&mut self, now_ns: u64, from: usize, to: usize, bytes: usize) -> u64 {
        let begins_ns = self.out_ns[from].max(now_ns);
        self.out_ns[from] = begins_ns + self.carry_ns(bytes);
        begins_ns + self.delay_ns(from, to)
    }

    /// Takes a frame on the receiver's link, in the order in which frames come there; says when it has
    /// arrived, or none if it is lost because too much waits. May hold its sender back.
    pub fn receive_ns(
        &mut self,
        comes_ns: u64,
        from: usize,
        to: usize,
        bytes: usize,
    ) -> Option<u64> {
        let begins_ns = self.in_ns[to].max(comes_ns);
        if begins_ns - comes_ns > QUEUE_NS.max(self.carry_ns(QUEUE_BYTES)) {
            return None;
        }
        self.in_ns[to] = begins_ns + self.carry_ns(bytes);
        let until_ns = self.in_ns[to].saturating_sub(self.carry_ns(PAUSE_BYTES));
        if until_ns > comes_ns {
            self.paused_ns[from] = self.paused_ns[from].max(until_ns);
        }
        Some(self.in_ns[to])
    }

    /// How long a link carries so many bytes.
    fn carry_ns(&self, bytes: usize) -> u64 {
        let bits = bytes as u128 * 8;
        (bits * 1_000_000_000).div_ceil(u128::from(self.shape.bits_per_s)) as u64
    }

    fn delay_ns(&self, from: usize, to: usize) -> u64 {
        if from / self.shape.rack_size == to / self.shape.rack_size {
            self.shape.delay_ns
        } else {
            self.shape.cross_rack_delay_ns
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

    /// A frame alone on its way.
    fn pass(links: &mut Links, now_ns: u64, from: usize, to: usize, bytes: usize) -> Option<u64> {
        let comes_ns = links.send_ns(now_ns, from, to, bytes);
        links.receive_ns(comes_ns, from, to, bytes)
    }

    #[test]
    fn a_frame_takes_its_time_on_the_link_once_and_the_delay_of_its_racks() {
        assert_eq!(pass(&mut links(), 7, 0, 1, 1250), Some(7 + 50_000 + 10_000));
        assert_eq!(pass(&mut links(), 7, 1, 2, 1250), Some(7 + 200_000 + 10_000));
        assert_eq!(pass(&mut links(), 7, 3, 2, 0), Some(7 + 50_000));
    }

    #[test]
    fn frames_of_a_sender_follow_each_other() {
        let mut links = links();
        for k in 1..=1000 {
            assert_eq!(pass(&mut links, 0, 0, 1, 1250), Some(50_000 + k * 10_000));
            assert_eq!(links.free_ns(0), k * 10_000);
        }
        // After a pause the link does not make up for lost time.
        let late_ns = 20_000_000;
        assert_eq!(pass(&mut links, late_ns, 0, 1, 1250), Some(late_ns + 60_000));
    }

    #[test]
    fn both_directions_of_a_link_are_free_at_once() {
        let mut links = links();
        let first = pass(&mut links, 0, 0, 1, 1250);
        assert_eq!(pass(&mut links, 0, 1, 0, 1250), first);
        assert_eq!(pass(&mut links, 0, 2, 3, 1250), first);
    }

    #[test]
    fn a_frame_from_near_does_not_wait_for_one_from_afar() {
        let mut links = links();
        let far_ns = links.send_ns(0, 0, 2, 1250);
        let near_ns = links.send_ns(0, 3, 2, 1250);
        assert!(near_ns < far_ns);
        assert_eq!(links.receive_ns(near_ns, 3, 2, 1250), Some(50_000 + 10_000));
        assert_eq!(links.receive_ns(far_ns, 0, 2, 1250), Some(200_000 + 10_000));
    }

    #[test]
    fn senders_to_one_receiver_share_its_link() {
        let mut links = links();
        let senders = (0..300).map(|k| [0, 1, 3][k % 3]);
        let mut comes: Vec<(u64, usize)> =
            senders.map(|from| (links.send_ns(0, from, 2, 1250), from)).collect();
        comes.sort();
        let arrivals =
            comes.iter().map(|&(at_ns, from)| links.receive_ns(at_ns, from, 2, 1250).unwrap());
        let arrivals: Vec<u64> = arrivals.collect();
        assert!(arrivals.is_sorted_by(|before, after| after - before >= 10_000));
        // From its first bit on, which comes from the same rack, the link is never idle.
        assert_eq!(arrivals.last(), Some(&(50_000 + 300 * 10_000)));
    }

    #[test]
    fn what_waits_for_a_receiver_is_bounded() {
        let mut links = links();
        // Three senders at 1 Gbit/s each for 200 ms: a third passes, and 50 ms wait.
        let comes = (0..200).flat_map(|k| [0, 1, 3].map(|from| (k * 1_000_000, from)));
        let taken = comes.filter_map(|(at_ns, from)| links.receive_ns(at_ns, from, 2, 125_000));
        let taken = taken.count();
        assert!((245..=255).contains(&taken), "{taken} of 600 were taken");
    }

    /// Three senders that send whenever they may, for a second: nothing is lost, the receiver's link is never idle, and what
    /// waits is what the pause and the delays allow.
    #[test]
    fn senders_to_one_receiver_are_held_back_before_frames_are_lost() {
        let mut links = links();
        let (mut last_ns, mut most_ns) = (0, 0);
        for now_ns in (0..1_000_000_000).step_by(100_000) {
            for from in [0, 1, 3] {
                while links.free_ns(from) <= now_ns {
                    let comes_ns = links.send_ns(now_ns, from, 2, 12_500);
                    let at_ns = links.receive_ns(comes_ns, from, 2, 12_500).expect("room");
                    most_ns = most_ns.max(at_ns - comes_ns);
                    last_ns = at_ns;
                }
            }
        }
        assert!(last_ns >= 1_000_000_000, "idle for {} ns", 1_000_000_000 - last_ns);
        assert!(most_ns <= links.carry_ns(PAUSE_BYTES) + 1_000_000, "{most_ns} ns in the queue");
        // A sender to somebody else was never held back.
        assert_eq!(links.free_ns(2), 0);
    }

    #[test]
    fn a_slow_link_still_has_a_queue_for_whole_frames() {
        let mut links = Links::new(Shape { bits_per_s: 1_000_000, ..links().shape });
        for _ in 0..10 {
            assert!(links.receive_ns(0, 0, 2, 64 << 10).is_some());
        }
    }
}
