//! What the switch reads of a frame.

/// The header that the kernel puts before a frame: what is left to be done about checksums and
/// segments. It is handed on as it came, so that 64 KiB pass at once.
const OFFLOAD_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;

/// Bytes that hold the largest frame.
pub const CAPACITY_BYTES: usize = OFFLOAD_BYTES + ETHERNET_BYTES + (64 << 10);

/// Addresses of the nodes' cards begin with this, and end with the node's number.
const CARD: [u8; 5] = *b"\x02kolo";

/// Which node, counted from 0, a frame is for; none if it is for nobody here, as broadcasts are.
pub fn destination(frame: &[u8], nodes: usize) -> Option<usize> {
    let address = frame.get(OFFLOAD_BYTES..OFFLOAD_BYTES + 6)?;
    let number = address.strip_prefix(&CARD)?.first()?;
    usize::from(*number).checked_sub(1).filter(|&node| node < nodes)
}

/// What a link has to carry of it.
pub fn length_bytes(frame: &[u8]) -> usize {
    frame.len().saturating_sub(OFFLOAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(address: &[u8]) -> Vec<u8> {
        [&[0; OFFLOAD_BYTES], address, b"\x02kolo\x01\x08\x00payload"].concat()
    }

    #[test]
    fn frames_are_for_the_node_in_their_address() {
        assert_eq!(destination(&frame(b"\x02kolo\x01"), 4), Some(0));
        assert_eq!(destination(&frame(b"\x02kolo\x04"), 4), Some(3));
    }

    #[test]
    fn frames_for_nobody_here_are_none() {
        for address in
            [b"\x02kolo\x00", b"\x02kolo\x05", b"\xff\xff\xff\xff\xff\xff", b"\x0akolo\x01"]
        {
            assert_eq!(destination(&frame(address), 4), None, "{address:02x?}");
        }
        for bytes in 0..OFFLOAD_BYTES + 6 {
            assert_eq!(destination(&frame(b"\x02kolo\x01")[..bytes], 4), None);
        }
    }

    #[test]
    fn the_header_before_the_frame_costs_nothing() {
        assert_eq!(length_bytes(&frame(b"\x02kolo\x01")), ETHERNET_BYTES + 7);
        assert_eq!(length_bytes(&[]), 0);
    }
}
