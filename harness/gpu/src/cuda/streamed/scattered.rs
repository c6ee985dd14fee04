//! Data that lies in several tensors, which are read and written where they lie.

use smallvec::SmallVec;

use super::{At, Place, Streamed, Task};
use crate::cuda::work::MOST_SOURCES;

/// Vectors of one task, and elements of each.
type Piece = (SmallVec<[At; MOST_SOURCES]>, usize);

/// Where tensors of a vector end, in elements.
struct Tensors {
    ends: Vec<usize>,
    element_bytes: usize,
}

impl Streamed {
    /// The same on data that every rank has in tensors of so many elements, in their order. What crosses a
    /// tensor's end becomes several copies or reductions, one after the other on the same stream, so that
    /// events stand for what they stood for.
    ///
    /// # Panics
    /// When the tensors do not have all the elements that the plan is for.
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
    /// Vectors, cut wherever one of them crosses the end of a tensor.
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

    /// Where the element so far behind a vector's beginning lies, and how many there are from it to the end
    /// of its tensor.
    fn find(&self, vector: &At, after: usize) -> (At, usize) {
        let Tensors { ends, element_bytes } = self;
        let offset_bytes = vector.offset_bytes + after * element_bytes;
        if vector.place == Place::Aside {
            return (At { offset_bytes, ..*vector }, usize::MAX);
        }
        let element = offset_bytes / element_bytes;
        // Tensors without elements end where they begin.
        let tensor = ends.partition_point(|&end| end <= element);
        assert!(tensor < ends.len(), "element {element} is in no tensor");
        let start = if tensor == 0 { 0 } else { ends[tensor - 1] };
        let offset_bytes = offset_bytes - start * element_bytes;
        let place = Place::Tensor(tensor as u32);
        (At { place, offset_bytes, ..*vector }, ends[tensor] - element)
    }
}
