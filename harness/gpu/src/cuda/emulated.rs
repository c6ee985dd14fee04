//! An emulated device: host memory, and streams whose work is done in adversarial order.
//!
//! It guarantees what CUDA guarantees and no more: the order of a stream, and that work after a wait comes after
//! the work that the event stood for when the host enqueued the wait. It has no clock.

mod graphs;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;

use algorithms::control::DataType;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::CudaError;
use super::streams::{Event, Graph, Stream, Streams};
use super::work::{Address, Values, Work};
use graphs::{Capture, Captured, Run};
use results::provenance::memory_bytes;
use transports::cast::{compress, decompress};
use transports::for_dtype;
use transports::kernel::{ElementOp, kernel, scale};
use transports::memory::Memory;
use transports::pattern::Pattern;

/// Which stream continues next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Any, by lot, once the host waits.
    Lot,
    /// Any, by lot; some of the work is done as soon as it is there.
    Eager,
    /// This one only if no other can continue.
    Starving(usize),
    /// This one whenever it can.
    Hurrying(usize),
    /// Any, by lot, but no more than one task each time the host looks: work piles up.
    Slow,
}

/// Devices in memory of the host.
pub struct Emulated {
    devices: usize,
    /// Kernels read other devices' memory, too.
    reaches: bool,
    turns: Turns,
    random: ChaCha8Rng,
    memories: BTreeMap<Address, (usize, Memory)>,
    streams: Vec<(usize, VecDeque<Item>)>,
    events: Vec<Records>,
    spare: Vec<Event>,
    capture: Option<Capture>,
    graphs: Vec<Option<Captured>>,
    /// How often the host has waited for a stream.
    pub synchronized: usize,
    /// Bytes of each device, if not those of the host.
    pub free_bytes: Option<u64>,
    /// Blocks that can still be allocated, if they are limited.
    pub blocks_left: Option<usize>,
}

/// For one event: how often its recording was enqueued, and how often it was executed.
#[derive(Clone, Copy, Debug, Default)]
struct Records {
    asked: usize,
    done: usize,
    /// The last time was in a graph.
    captured: bool,
}

#[derive(Clone)]
enum Item {
    Copy(Address, Address, usize),
    Work(Work),
    Record(Event),
    /// Until the event has been recorded so often.
    Wait(Event, usize),
    Graph(Run),
}

/// A task that can run next.
#[derive(Clone, Copy)]
struct Able {
    /// The first item on that stream.
    on: usize,
    /// The node of a graph.
    node: Option<usize>,
    /// The stream of the task: for nodes the one from which they were captured.
    stream: usize,
}

impl Emulated {
    /// Creates `devices` devices; `seed` determines the order.
    pub fn new(devices: usize, reaches: bool, turns: Turns, seed: u64) -> Emulated {
        Emulated {
            devices,
            reaches,
            turns,
            random: ChaCha8Rng::seed_from_u64(seed),
            memories: BTreeMap::new(),
            streams: Vec::new(),
            events: Vec::new(),
            spare: Vec::new(),
            capture: None,
            graphs: Vec::new(),
            synchronized: 0,
            free_bytes: None,
            blocks_left: None,
        }
    }

    /// Whether nothing was written out of bounds.
    pub fn guards_are_whole(&self) -> bool {
        self.memories.values().all(|(_, memory)| memory.guards_are_whole())
    }

    /// Blocks of memory that have not been given back.
    pub fn allocated(&self) -> usize {
        self.memories.len()
    }

    fn put(&mut self, on: Stream, item: Item) -> Result<(), CudaError> {
        let (device, queue) = &mut self.streams[on.0];
        if let Some(capture) = self.capture.as_mut().filter(|capture| capture.takes(on)) {
            capture.put(on, *device, item);
            return Ok(());
        }
        queue.push_back(item);
        if self.turns == Turns::Eager && self.random.random_range(0..3) == 0 {
            self.advance()?;
        }
        Ok(())
    }

    /// The tasks of a stream that can run next.
    fn able(&self, on: usize) -> Vec<Able> {
        let this = Able { on, node: None, stream: on };
        match self.streams[on].1.front() {
            None => Vec::new(),
            Some(Item::Wait(Event(event), asked)) if self.events[*event].done < *asked => {
                Vec::new()
            }
            Some(Item::Graph(run)) => match (self.may_run(run), run.is_over()) {
                (false, _) => Vec::new(),
                (true, true) => vec![this],
                (true, false) => {
                    let able = run.able();
                    able.map(|(at, node)| Able { on, node: Some(at), stream: node.stream })
                        .collect()
                }
            },
            Some(_) => vec![this],
        }
    }

    /// Lets a stream do the first thing on it; false if none can.
    fn advance(&mut self) -> Result<bool, CudaError> {
        let mut able: Vec<Able> = (0..self.streams.len()).flat_map(|on| self.able(on)).collect();
        let is = |stream: usize| move |able: &Able| able.stream == stream;
        match self.turns {
            Turns::Starving(starving) if able.iter().any(|able| !is(starving)(able)) => {
                able.retain(|able| !is(starving)(able));
            }
            Turns::Hurrying(first) if able.iter().any(is(first)) => able.retain(is(first)),
            _ => (),
        }
        if able.is_empty() {
            return Ok(false);
        }
        let Able { on, node, .. } = able[self.random.random_range(0..able.len())];
        let (device, queue) = &mut self.streams[on];
        let (device, item) = match (queue.front_mut(), node) {
            (Some(Item::Graph(run)), Some(node)) => run.take(node),
            _ => (*device, queue.pop_front().expect("it can")),
        };
        match item {
            Item::Copy(from, into, size_bytes) => {
                let bytes = self.bytes(None, from, size_bytes)?.to_vec();
                self.bytes(None, into, size_bytes)?.copy_from_slice(&bytes);
            }
            Item::Work(work) => self.work(device, &work)?,
            Item::Record(Event(event)) => self.events[event].done += 1,
            Item::Wait(..) => (),
            Item::Graph(run) => self.ran(&run),
        }
        Ok(true)
    }

    /// Allocated bytes; by a kernel on a device, or by a copy.
    fn bytes(
        &mut self,
        by: Option<usize>,
        address: Address,
        size_bytes: usize,
    ) -> Result<&mut [u8], CudaError> {
        let reaches = self.reaches;
        let before = self.memories.range_mut(..=address).next_back();
        let within = before.filter(|(base, (device, memory))| {
            let end = **base + memory.size_bytes() as u64;
            address + size_bytes as u64 <= end && by.is_none_or(|by| reaches || by == *device)
        });
        let Some((base, (_, memory))) = within else {
            return Err(CudaError::Failed {
                call: "work on a stream".into(),
                why: format!("{size_bytes} bytes at {address:#x} are not its"),
            });
        };
        let start = (address - base) as usize;
        Ok(&mut memory.elements_mut::<u8>()[start..start + size_bytes])
    }

    /// A vector, copied.
    fn vector(
        &mut self,
        device: usize,
        address: Address,
        size_bytes: usize,
    ) -> Result<Memory, CudaError> {
        let mut memory = Memory::new(size_bytes);
        let bytes = self.bytes(Some(device), address, size_bytes)?;
        memory.elements_mut().copy_from_slice(bytes);
        Ok(memory)
    }

    fn overwrite(
        &mut self,
        device: usize,
        address: Address,
        memory: &Memory,
    ) -> Result<(), CudaError> {
        let bytes = memory.elements::<u8>();
        self.bytes(Some(device), address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Executes a kernel.
    fn work(&mut self, device: usize, work: &Work) -> Result<(), CudaError> {
        match work {
            Work::Reduce { dtype, combine, into, from, elements } => {
                let size_bytes = elements * dtype.size_bytes();
                let vectors: Vec<_> = from
                    .iter()
                    .map(|&from| self.vector(device, from, size_bytes))
                    .collect::<Result<_, _>>()?;
                let sum = combined(*dtype, *combine, vectors);
                self.overwrite(device, *into, &sum)
            }
            &Work::Pack { from, into, pieces, count, factor } => {
                let table = self.vector(device, pieces, count * 24)?;
                for piece in table.elements::<u64>().chunks_exact(3) {
                    let elements = piece[2] as usize;
                    let read = self.vector(device, piece[0], elements * from.size_bytes())?;
                    let packed = packed(read, from, into, factor);
                    self.overwrite(device, piece[1], &packed)?;
                }
                Ok(())
            }
            &Work::Busy { from, into, length_ns, .. } => {
                let mut clock = Memory::new(8);
                if from > 0 {
                    clock = self.vector(device, from, 8)?;
                }
                clock.elements_mut::<u64>()[0] += length_ns;
                self.overwrite(device, into, &clock)
            }
            Work::Fill { dtype, into, values, rank } => {
                let filled = filled(*dtype, values, *rank);
                self.overwrite(device, *into, &filled)
            }
            Work::Check { dtype, got, wrong, values, factor } => {
                let inputs = (0..values.ranks).map(|rank| filled(*dtype, values, rank)).collect();
                let mut expected = combined(*dtype, ElementOp::of(values.op), inputs);
                scaled(&mut expected, *dtype, *factor);
                let got = self.vector(device, *got, expected.size_bytes())?;
                let differing = for_dtype!(*dtype, T => {
                    let pairs = got.elements::<T>().iter().zip(expected.elements::<T>()).enumerate();
                    // A NaN differs from everything.
                    pairs.filter(|(_, (got, want))| got != want).map(|(at, _)| at as u64).collect::<Vec<_>>()
                });
                let mut verdict = self.vector(device, *wrong, 16)?;
                let words = verdict.elements_mut::<u64>();
                words[0] += differing.len() as u64;
                words[1] = differing.first().copied().unwrap_or(u64::MAX).min(words[1]);
                self.overwrite(device, *wrong, &verdict)
            }
        }
    }
}

fn combined(dtype: DataType, combine: ElementOp, mut vectors: Vec<Memory>) -> Memory {
    let mut sum = vectors.remove(0);
    let others: Vec<_> = vectors.iter().map(|vector| vector.elements::<u8>().as_ptr()).collect();
    let elements = sum.size_bytes() / dtype.size_bytes();
    // SAFETY: vectors of that type, each with memory of its own.
    unsafe { kernel(dtype, combine)(sum.elements_mut::<u8>().as_mut_ptr(), &others, elements) };
    sum
}

fn scaled(memory: &mut Memory, dtype: DataType, factor: f64) {
    if factor != 1.0 {
        for_dtype!(dtype, T => scale(memory.elements_mut::<T>(), factor));
    }
}

fn packed(mut read: Memory, from: DataType, into: DataType, factor: f64) -> Memory {
    let elements = read.size_bytes() / from.size_bytes();
    if from == into {
        scaled(&mut read, into, factor);
        return read;
    }
    let mut written = Memory::new(elements * into.size_bytes());
    if from.size_bytes() > into.size_bytes() {
        compress(&read, from, &mut written, into);
        scaled(&mut written, into, factor);
    } else {
        scaled(&mut read, from, factor);
        decompress(&read, from, &mut written, into);
    }
    written
}

fn filled(dtype: DataType, values: &Values, rank: usize) -> Memory {
    let pattern = Pattern::of(values.ranks, values.op, values.seed);
    let mut memory = Memory::new(values.elements * dtype.size_bytes());
    for_dtype!(dtype, T => pattern.fill::<T>(rank, values.first, &mut memory));
    memory
}

impl Streams for Emulated {
    fn devices(&self) -> Vec<String> {
        vec!["emulated in memory of the host".into(); self.devices]
    }

    fn reaches(&self, device: usize, other: usize) -> bool {
        self.reaches || device == other
    }

    fn free_bytes(&mut self, _: usize) -> Result<u64, CudaError> {
        Ok(self.free_bytes.or_else(|| memory_bytes("MemAvailable")).unwrap_or(u64::MAX))
    }

    fn allocate(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError> {
        self.check_no_capture("cuMemAlloc", None)?;
        match &mut self.blocks_left {
            Some(0) => {
                let (call, why) = (format!("allocating {size_bytes} bytes"), "none left".into());
                return Err(CudaError::Failed { call, why });
            }
            Some(left) => *left -= 1,
            None => (),
        }
        let mut memory = Memory::new(size_bytes.max(1));
        memory.poison();
        let address = memory.elements::<u8>().as_ptr().addr() as Address;
        self.memories.insert(address, (device, memory));
        Ok(address)
    }

    fn release(&mut self, address: Address) -> Result<(), CudaError> {
        self.check_no_capture("cuMemFree", None)?;
        // As the driver's, it waits for all work.
        while self.advance()? {}
        self.memories.remove(&address).expect("released once");
        Ok(())
    }

    fn stream(&mut self, device: usize) -> Result<Stream, CudaError> {
        self.streams.push((device, VecDeque::new()));
        Ok(Stream(self.streams.len() - 1))
    }

    fn event(&mut self, _: usize, _: bool) -> Result<Event, CudaError> {
        if let Some(spare) = self.spare.pop() {
            return Ok(spare);
        }
        self.events.push(Records::default());
        Ok(Event(self.events.len() - 1))
    }

    fn give_back(&mut self, event: Event) {
        self.spare.push(event);
    }

    fn copy(
        &mut self,
        on: Stream,
        from: Address,
        into: Address,
        size_bytes: usize,
    ) -> Result<(), CudaError> {
        self.put(on, Item::Copy(from, into, size_bytes))
    }

    fn launch(&mut self, on: Stream, work: &Work) -> Result<(), CudaError> {
        match work.launch(1)? {
            Some(_) => self.put(on, Item::Work(work.clone())),
            None => Ok(()),
        }
    }

    fn record(&mut self, on: Stream, event: Event) -> Result<(), CudaError> {
        let capture = self.capture.as_mut().filter(|capture| capture.takes(on));
        self.events[event.0].captured = capture.is_some();
        if let Some(capture) = capture {
            capture.record(on, event);
            return Ok(());
        }
        self.events[event.0].asked += 1;
        self.put(on, Item::Record(event))
    }

    fn wait(&mut self, on: Stream, event: Event) -> Result<(), CudaError> {
        if self.wait_in_capture(on, event)? {
            return Ok(());
        }
        let asked = self.events[event.0].asked;
        self.put(on, Item::Wait(event, asked))
    }

    fn synchronize(&mut self, on: Stream) -> Result<(), CudaError> {
        self.check_no_capture("cuStreamSynchronize", Some(on))?;
        self.synchronized += 1;
        while !self.streams[on.0].1.is_empty() {
            if !self.advance()? {
                return Err(CudaError::Failed {
                    call: "work on a stream".into(),
                    why: "streams wait for each other".into(),
                });
            }
        }
        Ok(())
    }

    fn elapsed_us(&mut self, _: Event, _: Event) -> Result<Option<f64>, CudaError> {
        Ok(None)
    }

    fn write(&mut self, into: Address, bytes: &[u8]) -> Result<(), CudaError> {
        self.check_no_capture("cuMemcpyHtoD", None)?;
        self.bytes(None, into, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.check_no_capture("cuMemcpyDtoH", None)?;
        let size_bytes = bytes.len();
        bytes.copy_from_slice(self.bytes(None, from, size_bytes)?);
        Ok(())
    }

    fn urgent_stream(&mut self, device: usize) -> Result<Stream, CudaError> {
        self.stream(device)
    }

    /// Each poll lets some work progress.
    fn happened(&mut self, Event(event): Event) -> Result<bool, CudaError> {
        let most = if self.turns == Turns::Slow { 1 } else { 31 };
        for _ in 0..self.random.random_range(0..=most) {
            self.advance()?;
        }
        Ok(self.events[event].done == self.events[event].asked)
    }

    fn mapped(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError> {
        self.allocate(device, size_bytes)
    }

    fn write_mapped(&mut self, into: Address, words: &[u64]) -> Result<(), CudaError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.write(into, &bytes)
    }

    fn multiprocessors(&self, _: usize) -> usize {
        1
    }

    fn begin_capture(&mut self, on: Stream) -> Result<(), CudaError> {
        self.begin(on)
    }

    fn end_capture(&mut self, on: Stream) -> Result<Graph, CudaError> {
        self.end(on)
    }

    fn nodes(&self, graph: Graph) -> usize {
        self.captured(graph).len()
    }

    fn launch_graph(&mut self, on: Stream, graph: Graph) -> Result<(), CudaError> {
        self.check_no_capture("cuGraphLaunch", Some(on))?;
        let run = self.run(graph);
        self.put(on, Item::Graph(run))
    }

    fn drop_graph(&mut self, Graph(graph): Graph) -> Result<(), CudaError> {
        while self.advance()? {}
        self.graphs[graph].take().expect("a graph is dropped once");
        Ok(())
    }

    fn raw(&mut self, _: Stream) -> Result<*mut c_void, CudaError> {
        Ok(std::ptr::null_mut())
    }
}
