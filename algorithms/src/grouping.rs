//! How an algorithm reduces tensors in groups: see [`crate::grouped`].

/// How the tensors of one message become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Copied into the fusion buffer and back.
    Packed,
    /// Read and written where they lie.
    Scattered,
}

/// An algorithm whose tensors become ready in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// How a message's tensors become one vector.
    pub packing: Packing,
}
