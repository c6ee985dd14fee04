//! Runs a compiled program on a transport.
//!
//! The program alone guarantees that other ranks may access a buffer while this rank works on it. A send begins
//! only after the receives it depends on. A receive writes only after the sends that read its destination have
//! been taken. A put writes only to chunks that the receiver has handed over. `algorithms::verify::programs`
//! checks the programs of every registered algorithm for violations, in adversarial orders.

use std::time::Duration;

use algorithms::program::Program;

use crate::kernel::ElementOp;
use crate::memory::Buffer;
use crate::transport::{Collective, Transport, TransportError};

/// Executes one rank's program on its buffer. On return the buffer holds the result. Returns the time spent combining
/// received elements with this rank's, where they are 4 KiB or more.
///
/// # Errors
/// When a peer does not answer or has given up. The contents of the buffer are then undefined.
pub fn execute<T: Transport>(
    transport: &mut T,
    program: &Program,
    buffer: &mut Buffer<'_>,
    combine: ElementOp,
) -> Result<Duration, TransportError> {
    let collective = Collective::new(buffer, program.chunks, combine);
    let panicking = AbortOnPanic;
    let ended = run(transport, program, &collective);
    let ended = transport.finish(&collective, program, ended);
    std::mem::forget(panicking);
    ended.map(|()| collective.combining.get())
}

fn run<T: Transport>(
    transport: &mut T,
    program: &Program,
    collective: &Collective,
) -> Result<(), TransportError> {
    let (mut begun, mut done) = (0, 0);
    while let Some(op) = program.ops.get(begun) {
        while done < op.after_receives as usize {
            done += finish_next(transport, program, collective, done)?;
        }
        let together = |next: &&algorithms::program::Op| {
            next.step == op.step && next.after_receives as usize <= done
        };
        let batch = program.ops[begun..].iter().take_while(together).count();
        transport.begin(collective, &program.ops[begun..begun + batch])?;
        begun += batch;
    }
    while done < program.receives.len() {
        done += finish_next(transport, program, collective, done)?;
    }
    transport.settle(program.sends)
}

/// Finishes the next receives; returns how many.
fn finish_next<T: Transport>(
    transport: &mut T,
    program: &Program,
    collective: &Collective,
    done: usize,
) -> Result<usize, TransportError> {
    let batch = program.batch(done);
    let sends = batch.iter().map(|op| op.after_sends).max().unwrap_or(0) as usize;
    if batch[0].staged {
        transport.stage(collective, batch)?;
        transport.settle(sends)?;
        transport.unstage(collective, batch)?;
    } else {
        transport.settle(sends)?;
        transport.receive(collective, batch)?;
    }
    Ok(batch.len())
}

/// Aborts on a panic inside a collective, which would free memory that other ranks may be reading.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!("a rank panicked inside a collective; other ranks may be reading its memory");
        std::process::abort();
    }
}
