//! `MPI_Allreduce`, called as Horovod calls it: tensors are packed whole into the fusion buffer, and one blocking
//! call reduces it in place.

use std::time::Duration;

use cluster::failure_detector::activity::Works;

use super::endpoint::Endpoint;
use crate::allreduce::VectorAllReduce;
use crate::kernel::ElementOp;
use crate::memory::Buffer;
use crate::transport::{Transport, TransportError};

/// The library's own allreduce. It blocks: only the failure detector notices a rank that does not arrive.
pub struct LibraryAllReduce(pub Endpoint);

impl VectorAllReduce for LibraryAllReduce {
    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn prepare(&mut self, _: usize) {}

    fn reduce(
        &mut self,
        buffer: &mut Buffer<'_>,
        op: ElementOp,
    ) -> Result<Option<Duration>, TransportError> {
        let Some((block, offset, elements)) = buffer.pieces(0..buffer.elements()).next() else {
            return Ok(None);
        };
        assert_eq!(elements, buffer.elements(), "one block: the library knows no others");
        let _works = Works;
        // SAFETY: the buffer belongs to this rank alone.
        unsafe {
            let at = buffer.address(block, offset);
            self.0.comm().all_reduce(at, elements, (buffer.dtype(), op)).map(|()| None)
        }
    }
}
