//! Why the fusion of tensors into a message stopped.

/// Why no more tensors were fused into a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing else was ready.
    Empty = 0,
    /// The next one would have exceeded the threshold.
    Threshold = 1,
    /// The others that were ready are of another type, reduction, factor or device.
    Unlike = 2,
    /// Its group is complete, and groups are not fused.
    Group = 3,
    /// It is never fused: an error, or a static bucket.
    Alone = 4,
}

impl Stop {
    /// Every reason.
    pub const ALL: [Stop; 5] =
        [Stop::Empty, Stop::Threshold, Stop::Unlike, Stop::Group, Stop::Alone];

    /// Its name in CSV files.
    pub fn name(self) -> &'static str {
        match self {
            Stop::Empty => "empty",
            Stop::Threshold => "threshold",
            Stop::Unlike => "unlike",
            Stop::Group => "group",
            Stop::Alone => "alone",
        }
    }

    /// The reason of a code on the wire.
    pub fn from_code(code: u8) -> Option<Stop> {
        Stop::ALL.get(code as usize).copied()
    }
}
