//! A table of tensors, split into pieces: one launch packs or unpacks thousands of tensors.

use algorithms::control::DataType;

use super::CudaError;
use super::work::{Address, aligned};

/// Bytes that a thread block moves at a time: so few that the blocks end together.
pub const PIECE_BYTES: usize = 16 << 10;

/// Alignment of tensors in the fusion buffer, as in Horovod's batched copies, so that threads move whole vectors.
pub const PADDING_BYTES: usize = 16;

/// A part of one tensor: its source, destination and elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its source.
    pub from: Address,
    /// Its destination.
    pub into: Address,
    /// How many elements it has.
    pub elements: usize,
}

impl Piece {
    /// As the kernel reads it.
    pub fn words(&self) -> [u64; 3] {
        [self.from, self.into, self.elements as u64]
    }
}

/// Tensors of one type, each somewhere in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its address.
    pub address: Address,
    /// How many elements it has.
    pub elements: usize,
}

/// Offsets of tensors in a fusion buffer, in elements of this type, and the total length.
pub fn layout(elements: impl IntoIterator<Item = usize>, dtype: DataType) -> (Vec<usize>, usize) {
    let line = PADDING_BYTES / dtype.size_bytes();
    let mut end = 0;
    let place = |elements: usize| {
        let start = end;
        end += elements.div_ceil(line) * line;
        start
    };
    let starts = elements.into_iter().map(place).collect();
    (starts, end)
}

/// The pieces for copying tensors of type `from` to tensors of type `into`, given as pairs of addresses.
///
/// # Errors
/// When an address is not aligned for such elements.
pub fn pieces(
    pairs: impl IntoIterator<Item = (Tensor, Address)>,
    from: DataType,
    into: DataType,
) -> Result<Vec<Piece>, CudaError> {
    let (from_bytes, into_bytes) = (from.size_bytes(), into.size_bytes());
    let most = PIECE_BYTES / from_bytes.max(into_bytes);
    let mut pieces = Vec::new();
    for (tensor, place) in pairs {
        let (address, place) = (aligned(tensor.address, from)?, aligned(place, into)?);
        for first in (0..tensor.elements).step_by(most) {
            pieces.push(Piece {
                from: address + (first * from_bytes) as u64,
                into: place + (first * into_bytes) as u64,
                elements: most.min(tensor.elements - first),
            });
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_begin_on_whole_lines() {
        let (starts, elements) = layout([1, 0, 4, 5, 1000], DataType::F32);
        assert_eq!((starts, elements), (vec![0, 4, 4, 8, 16], 1016));
        let (starts, elements) = layout([9, 1], DataType::F16);
        assert_eq!((starts, elements), (vec![0, 16], 24));
        assert_eq!(layout([], DataType::F64), (vec![], 0));
    }

    /// Every element is in exactly one piece, whatever the lengths.
    #[test]
    fn pieces_cover_every_element_once() {
        let most = PIECE_BYTES / 4;
        let lengths = [0, 1, most - 1, most, most + 1, 3 * most + 7];
        let tensors = lengths.iter().enumerate().map(|(index, &elements)| {
            let address = (index as u64 + 1) << 32;
            (Tensor { address, elements }, address >> 16)
        });
        let pieces = pieces(tensors, DataType::F32, DataType::F16).unwrap();
        assert!(pieces.iter().all(|piece| (1..=most).contains(&piece.elements)));
        for (index, &elements) in lengths.iter().enumerate() {
            let address = (index as u64 + 1) << 32;
            let own = pieces.iter().filter(|piece| piece.from >> 32 == index as u64 + 1);
            let mut next = 0;
            for piece in own {
                assert_eq!(piece.from, address + 4 * next as u64);
                assert_eq!(piece.into, (address >> 16) + 2 * next as u64);
                next += piece.elements;
            }
            assert_eq!(next, elements);
        }
    }

    #[test]
    fn what_is_no_address_of_an_element_is_refused() {
        let pairs = [(Tensor { address: 64, elements: 1 }, 3)];
        let refused = pieces(pairs, DataType::F32, DataType::F16).unwrap_err();
        assert!(matches!(refused, CudaError::Unaligned { address: 3, size_bytes: 2 }));
    }
}
