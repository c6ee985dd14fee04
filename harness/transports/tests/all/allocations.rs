//! After `AllReduce::prepare`, an allreduce allocates nothing on any rank.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use algorithms::algorithm::Choice;
use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::split;
use algorithms::grouping::Packing;
use algorithms::registry::{ALL, find};
use algorithms::topology::Topology;
use transports::allreduce::{AllReduce, Fused, Scheduled, Sizes};
use transports::memory::{Buffer, Memory};
use transports::threads::{Links, run_ranks};
use transports::transport::TransportError;

/// The system's allocator, with a count of calls per thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Elements of the allreduces; none is larger than the first.
const LENGTHS: [usize; 8] = [2000, 2000, 1500, 900, 100, 7, 0, 1999];

/// Allocations of each rank in allreduces of some tensors after preparation.
fn allocations(
    choices: &[Choice],
    (tensors, packing): (usize, Packing),
    sizes: Sizes,
    op: ReduceOp,
) -> Vec<usize> {
    let dtype = DataType::F32;
    let bytes = |elements: usize| elements * dtype.size_bytes();
    let links = Links::new(choices[0].schedule.ranks(), Duration::from_secs(60));
    let counts = run_ranks(&[&links], |rank| {
        let endpoint = links.join(rank);
        let mut all_reduce = Fused::new(
            Scheduled::new(endpoint, choices, sizes.segment_bytes),
            packing,
            sizes.packing_bytes,
            Memory::default(),
        );
        all_reduce.prepare(bytes(LENGTHS[0].div_ceil(tensors)), bytes(LENGTHS[0]));
        let mut count = 0;
        for elements in LENGTHS {
            let parts = split(elements, tensors);
            let mut memories: Vec<_> =
                parts.iter().map(|part| Memory::new(bytes(part.len()))).collect();
            let mut buffer = Buffer::new(dtype);
            memories.iter_mut().for_each(|memory| buffer.push(memory));
            let before = ALLOCATIONS.get();
            all_reduce.all_reduce(&mut buffer, op.into())?;
            count += ALLOCATIONS.get() - before;
        }
        Ok::<_, TransportError>(count)
    });
    counts.unwrap()
}

#[test]
fn a_prepared_allreduce_allocates_nothing() {
    let worlds = [Topology::flat(2), Topology::flat(3), Topology::flat(4), Topology::uniform(2, 2)];
    let shapes = [(1, Packing::Packed), (9, Packing::Packed), (9, Packing::Scattered)];
    for name in ALL.iter().map(|entry| entry.name) {
        for world in &worlds {
            let Ok(choices) = find(name).unwrap().choices(world) else { continue };
            for shape in shapes {
                for (segment_bytes, packing_bytes) in [(0, 0), (500, 3000)] {
                    for op in [ReduceOp::Sum, ReduceOp::Average] {
                        let sizes = Sizes { segment_bytes, packing_bytes };
                        let counts = allocations(&choices, shape, sizes, op);
                        let what = format!("{name} {world} {shape:?} {sizes:?} {op:?}");
                        assert!(counts.iter().all(|&count| count == 0), "{what}: {counts:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_counter_counts_allocations() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}
