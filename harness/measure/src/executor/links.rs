//! A quick test of the bandwidth between the nodes of a job before the measurement. A wrong network interface is
//! ten times slower and would spoil all results unnoticed.

use std::time::Instant;

use algorithms::topology::Rank;

use transports::mpi::{TIMEOUT, World, give_up};
use transports::transport::TransportError;

/// The most nodes to test, so that the test stays short.
const MOST_NODES: usize = 16;
const MESSAGE_BYTES: usize = 4 << 20;
/// Measured messages, after as many for warm-up.
const MESSAGES: usize = 4;

/// Bandwidth from the first process of the first node to the first of each other, in Gbit/s; empty on processes
/// other than rank 0. All must call it.
///
/// # Errors
/// When an MPI call fails.
pub fn gbit_s(world: &World) -> Result<Vec<f64>, TransportError> {
    let mut all = Vec::new();
    let mut bytes = vec![1_u8; MESSAGE_BYTES];
    for node in world.nodes().iter().skip(1).take(MOST_NODES) {
        let peer = node.ranks[0];
        match world.rank() {
            0 => {
                let mut time = 0.0;
                for _ in 0..2 {
                    let start = Instant::now();
                    (0..MESSAGES).try_for_each(|_| exchange(world, &mut bytes, peer, true))?;
                    exchange(world, &mut bytes[..1], peer, false)?;
                    time = start.elapsed().as_secs_f64();
                }
                all.push((8 * MESSAGES * MESSAGE_BYTES) as f64 / time / 1e9);
            }
            rank if rank == peer => {
                for _ in 0..2 {
                    (0..MESSAGES).try_for_each(|_| exchange(world, &mut bytes, 0, false))?;
                    exchange(world, &mut bytes[..1], 0, true)?;
                }
            }
            _ => {}
        }
    }
    Ok(all)
}

fn exchange(
    world: &World,
    bytes: &mut [u8],
    peer: Rank,
    sends: bool,
) -> Result<(), TransportError> {
    let (at, count) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the bytes stay, untouched, until the request is over, or the process is.
    let mut requests = unsafe {
        if sends {
            world.comm().send(at, count, peer)?
        } else {
            world.comm().receive(at, count, peer)?
        }
    };
    let waited = world.waiting(TIMEOUT).request(&mut requests);
    waited.unwrap_or_else(|error| give_up(&error));
    Ok(())
}
