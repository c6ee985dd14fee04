//! Data in several tensors, which are read and written in place.

use smallvec::SmallVec;

use super::{At, Place, Streamed, Task};
use crate::cuda::work::MOST_SOURCES;

/// Vectors of one task, and elements of each.
type Piece = (SmallVec<[At; MOST_SOURCES]>, usize);

/// Ends of a vector's tensors, in elements.
struct Tensors {
    ends: Vec<usize>,
    element_bytes: usize,
}

impl Streamed {
    /// The same tasks for data in tensors of these lengths, in order. A task that crosses the end of a tensor
    /// becomes several, one after the other on the same stream, so that the meaning of events does not change.
    ///
    /// # Panics
    /// When the tensors' lengths do not add up to the plan's elements.
    #[must_use]
    pub fn scattered(self, tensors: &[usize], element_bytes: usize) -> Streamed {
        let ends = tensors.iter().scan(0, |end, elements| {
            *end += elements;
            Some(*end)
        });
        let cut = Tensors { ends: ends.collect(), element_bytes };
        let mut tasks = Vec::new();
        for (rank, task) in self.tasks {
            match task {
                Task::Copy { from, into, elements } => {
                    for (vectors, elements) in cut.pieces(&[from, into], elements) {
                        let (from, into) = (vectors[0], vectors[1]);
                        tasks.push((rank, Task::Copy { from, into, elements }));
                    }
                }
                Task::Reduce { vectors, elements } => {
                    let pieces = cut.pieces(&vectors, elements).into_iter();
                    tasks.extend(
                        pieces
                            .map(|(vectors, elements)| (rank, Task::Reduce { vectors, elements })),
                    );
                }
                event => tasks.push((rank, event)),
            }
        }
        Streamed { tasks, tensors: tensors.len(), ..self }
    }
}

impl Tensors {
    /// Vectors, split where one of them crosses the end of a tensor.
    fn pieces(&self, vectors: &[At], elements: usize) -> Vec<Piece> {
        let (mut pieces, mut done) = (Vec::new(), 0);
        while done < elements {
            let places = vectors.iter().map(|vector| self.find(vector, done));
            let (places, rooms): (_, SmallVec<[usize; MOST_SOURCES]>) = places.unzip();
            let together = rooms.into_iter().min().unwrap_or(0).min(elements - done);
            pieces.push((places, together));
            done += together;
        }
        pieces
    }

    /// The location of the element at that offset from a vector's beginning, and the number of elements up to the
    /// end of its tensor.
    fn find(&self, vector: &At, after: usize) -> (At, usize) {
        let Tensors { ends, element_bytes } = self;
        let offset_bytes = vector.offset_bytes + after * element_bytes;
        if vector.place == Place::Aside {
            return (At { offset_bytes, ..*vector }, usize::MAX);
        }
        let element = offset_bytes / element_bytes;
        // An empty tensor ends where it begins.
        let tensor = ends.partition_point(|&end| end <= element);
        assert!(tensor < ends.len(), "element {element} is in no tensor");
        let start = if tensor == 0 { 0 } else { ends[tensor - 1] };
        let offset_bytes = offset_bytes - start * element_bytes;
        let place = Place::Tensor(tensor as u32);
        (At { place, offset_bytes, ..*vector }, ends[tensor] - element)
    }
}
