//! Tables of performance goals on this machine. Each table comes from one interleaved run and shows medians with
//! their baselines. `cargo bench -p measure --bench goals -- bound auto` prints some of them. Every reduction is
//! checked; a wrong element ends the run.

mod by_hand;
mod cases;
mod control;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use algorithms::combinators::Pipelined;
use algorithms::control::{DataType, ReduceOp};
use algorithms::program::Program;
use algorithms::registry;
use algorithms::topology::Topology;
use measure::bound::{best_kernel, hand_over};
use measure::calibrate;
use transports::allreduce;
use transports::allreduce::Sizes;
use transports::bench::{Bench, Start, run};
use transports::data_plane::DataPlane;
use transports::execute::execute;
use transports::kernel::{ElementOp, kernel};
use transports::memory::{Buffer, Memory};
use transports::threads::{Links, run_ranks};
use transports::transport::TransportError;
use workloads::workload::Workload;

/// Counts bytes.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        PEAK.fetch_max(live + layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZES: Sizes =
    Sizes { segment_bytes: allreduce::SEGMENT_BYTES, packing_bytes: allreduce::PACKING_BYTES };

const ROUNDS: usize = 5;

/// An allreduce of f32, in place.
#[derive(Clone)]
struct Case {
    algorithm: String,
    topology: Topology,
    tensors: Vec<usize>,
}

impl Case {
    fn new(algorithm: &str, topology: &Topology, size_bytes: usize) -> Case {
        Case {
            algorithm: algorithm.into(),
            topology: topology.clone(),
            tensors: vec![size_bytes / 4],
        }
    }

    /// Median time of a few repetitions, in microseconds, and context switches in each.
    fn measure(&self) -> (f64, f64) {
        self.with(|bench| {
            let timed = run(bench).unwrap();
            let wrong = timed.wrong.expect("it was checked");
            assert_eq!(wrong.count, 0, "{}: {:?}", self.algorithm, wrong.first);
            (micros(median(timed.times)), timed.context_switches.unwrap_or(f64::NAN))
        })
    }

    fn with<T>(&self, measure: impl FnOnce(&Bench) -> T) -> T {
        let algorithm = registry::find(&self.algorithm).unwrap();
        let data_plane = DataPlane::ours(algorithm, &self.topology).unwrap();
        let bytes = self.tensors.iter().sum::<usize>() * 4;
        let repetitions = ((64 << 20) / bytes.max(1)).clamp(5, 300);
        measure(&Bench {
            data_plane: &data_plane,
            topology: &self.topology,
            dtype: DataType::F32,
            op: ReduceOp::Sum,
            sizes: SIZES,
            tensors: &self.tensors,
            in_place: true,
            warmup: repetitions.min(20),
            repetitions,
            start: Start::Barrier,
            check: true,
            seed: 1,
        })
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    values[values.len() / 2]
}

/// Measures all in turn, several times round; the median of each.
fn interleaved<const N: usize>(measures: [&dyn Fn() -> f64; N]) -> [f64; N] {
    let rounds: Vec<[f64; N]> = (0..ROUNDS).map(|_| measures.map(|measure| measure())).collect();
    std::array::from_fn(|at| median(rounds.iter().map(|round| round[at]).collect()))
}

/// As [`interleaved`], of any number of cases.
fn medians(cases: &[Case]) -> Vec<f64> {
    let rounds: Vec<Vec<f64>> =
        (0..ROUNDS).map(|_| cases.iter().map(|case| case.measure().0).collect()).collect();
    (0..cases.len()).map(|at| median(rounds.iter().map(|round| round[at]).collect())).collect()
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// The cost of executing a schedule per send or receive, compared with the same algorithm written by hand.
fn executor() {
    println!("\n## Executor: ring on 2 ranks, maximum of f32, against a ring written by hand\n");
    println!("| chunk | segments | by hand (us) | executed (us) | per transfer (ns), goal <= 15 |");
    println!("|---|---|---|---|---|");
    let world = Topology::flat(2);
    let ring = registry::find("ring").unwrap().schedule(&world).unwrap();
    for (chunk_elements, segments) in [(8, 1), (256, 1), (256, 16), (1024, 16), (256, 64)] {
        let elements = chunk_elements * 2 * segments;
        let repetitions = 200_000 / segments / (1 + chunk_elements / 64);
        let programs = Program::compile_world(&Pipelined::new(&*ring, segments));
        let each = |collective: &(dyn Fn(usize) -> Duration + Sync)| {
            let links = Links::new(2, Duration::from_secs(60));
            let times = run_ranks(&[&links], |rank| {
                links.join(rank);
                Ok::<_, TransportError>(collective(rank))
            });
            micros(times.unwrap().into_iter().max().unwrap()) / repetitions as f64
        };
        let by_hand = || {
            let places = [by_hand::Place::default(), by_hand::Place::default()];
            let started = std::sync::Barrier::new(2);
            each(&|rank| {
                let mut memory = Memory::new(elements * 4);
                let buffer = memory.elements_mut::<u8>().as_mut_ptr();
                let mut ring = by_hand::Ring::new(&places, rank, buffer);
                started.wait();
                let start = Instant::now();
                for _ in 0..repetitions {
                    for segment in 0..segments {
                        let first = segment * chunk_elements * 2;
                        // SAFETY: the buffers are there since the barrier, until the next one.
                        unsafe { ring.all_reduce(first, chunk_elements * 2) };
                    }
                }
                let time = start.elapsed();
                started.wait();
                time
            })
        };
        let executed = || {
            let links = Links::new(2, Duration::from_secs(60));
            let started = std::sync::Barrier::new(2);
            each(&|rank| {
                let mut endpoint = links.join(rank);
                let mut memory = Memory::new(elements * 4);
                let mut buffer = Buffer::of(DataType::F32, &mut memory);
                started.wait();
                let start = Instant::now();
                for _ in 0..repetitions {
                    execute(&mut endpoint, &programs[rank], &mut buffer, ElementOp::Max).unwrap();
                }
                start.elapsed()
            })
        };
        let [hand, ours] = interleaved([&by_hand, &executed]);
        let transfers = programs[0].ops.len() as f64;
        println!(
            "| {} | {segments} | {hand:.3} | {ours:.3} | {:.1} |",
            size(chunk_elements * 4),
            (ours - hand) * 1e3 / transfers
        );
    }
}

/// Speed of the reductions in a near cache, compared with copying.
fn kernels() {
    println!("\n## Kernels: 4096 elements in the second-level cache, GB/s read and written\n");
    println!("| type | copy | sum of 2 | sum of 4 |");
    println!("|---|---|---|---|");
    for dtype in DataType::ALL {
        let bytes = 4096 * dtype.size_bytes();
        let mut memories: Vec<Memory> = (0..4).map(|_| Memory::new(bytes)).collect();
        memories.iter_mut().for_each(|memory| memory.elements_mut::<u8>().fill(1));
        let at: Vec<*mut u8> =
            memories.iter_mut().map(|memory| memory.elements_mut::<u8>().as_mut_ptr()).collect();
        let others: Vec<*const u8> = at[1..].iter().map(|at| at.cast_const()).collect();
        let combine = kernel(dtype, ElementOp::Sum);
        let rate = |vectors: usize, work: &dyn Fn()| {
            let repetitions = 2000;
            let start = Instant::now();
            (0..repetitions).for_each(|_| work());
            (vectors * bytes * repetitions) as f64 / start.elapsed().as_nanos() as f64
        };
        // SAFETY: vectors of 4096 elements each, apart from each other.
        let [copy, two, four] = interleaved([
            &|| rate(2, &|| unsafe { at[0].copy_from_nonoverlapping(at[1], bytes) }),
            &|| rate(3, &|| unsafe { combine(at[0], &others[..1], 4096) }),
            &|| rate(5, &|| unsafe { combine(at[0], &others, 4096) }),
        ]);
        println!("| {} | {copy:.0} | {two:.0} | {four:.0} |", dtype.name());
    }
}

/// Small allreduces, compared with the time in which cores hand each other a cache line.
fn small() {
    println!("\n## Small: 2 ranks, us, beside handing over a cache line, timed alike\n");
    println!("| size | hand-over | best | algorithm |");
    println!("|---|---|---|---|");
    let world = Topology::flat(2);
    let names = ["recursive-doubling", "one-shot", "tree", "two-shot"];
    for size_bytes in [4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14] {
        let case = |name: &&str| Case::new(name, &world, size_bytes);
        let cases: Vec<Case> = names.iter().map(case).collect();
        let floor = || cases[0].with(|bench| micros(hand_over(bench).unwrap()));
        let floor = median((0..ROUNDS).map(|_| floor()).collect());
        let times = medians(&cases);
        let best = (0..names.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap();
        println!("| {} | {floor:.2} | {:.2} | {} |", size(size_bytes), times[best], names[best]);
    }
}

/// Large allreduces, compared with the reference kernel.
fn bound() {
    println!("\n## Reference kernel: in place; goal: two-shot >= 0.95, ring >= 0.75 of it\n");
    println!("| ranks | size | reference (us) | two-shot (us) | ring (us) | two-shot | ring |");
    println!("|---|---|---|---|---|---|---|");
    for ranks in [2, 4] {
        for size_bytes in [16 << 20, 64 << 20] {
            let world = Topology::flat(ranks);
            let case = |name| Case::new(name, &world, size_bytes);
            let (two_shot, ring) = (case("two-shot"), case("ring"));
            let kernel = || ring.with(|bench| micros(best_kernel(bench).unwrap().0));
            let [bound, two_shot, ring] =
                interleaved([&kernel, &|| two_shot.measure().0, &|| ring.measure().0]);
            println!(
                "| {ranks} | {} | {bound:.0} | {two_shot:.0} | {ring:.0} | {:.2} | {:.2} |",
                size(size_bytes),
                bound / two_shot,
                bound / ring
            );
        }
    }
}

/// More ranks than cores.
fn crowded() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\n## Crowded: time per rank and byte over that of {cores} ranks; goal <= 4\n");
    println!("| size | algorithm | 8 ranks | 16 ranks | 32 ranks |");
    println!("|---|---|---|---|---|");
    for size_bytes in [1 << 20, 16 << 20] {
        for name in ["two-shot", "ring", "halving-doubling"] {
            let worlds = [cores, 8, 16, 32].map(Topology::flat);
            let times = medians(&worlds.clone().map(|world| Case::new(name, &world, size_bytes)));
            let per_rank = |at: usize| times[at] / worlds[at].ranks() as f64;
            let ratio = |at| per_rank(at) / per_rank(0);
            let size = size(size_bytes);
            println!("| {size} | {name} | {:.2} | {:.2} | {:.2} |", ratio(1), ratio(2), ratio(3));
        }
    }
    println!("\nContext switches of all ranks per allreduce (and time, us):\n");
    println!("| size | algorithm | 8 ranks | 16 ranks | 32 ranks |");
    println!("|---|---|---|---|---|");
    for size_bytes in [4, 4 << 10, 256 << 10] {
        for name in ["tree", "two-shot", "ring"] {
            let cells = [8, 16, 32].map(|ranks| {
                let (time, switches) =
                    Case::new(name, &Topology::flat(ranks), size_bytes).measure();
                format!("{switches:.0} ({time:.0})")
            });
            println!("| {} | {name} | {} |", size(size_bytes), cells.join(" | "));
        }
    }
}

/// Many tensors at once, against one of the same size.
fn groups() {
    println!("\n## Groups: over one allreduce of the same bytes\n");
    println!("| tensors | ranks | one (us) | scattered | goal | packed | goal |");
    println!("|---|---|---|---|---|---|---|");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/workloads/resnet50.csv");
    let resnet: Vec<usize> = Workload::read(&path)
        .unwrap()
        .gradients
        .iter()
        .map(|gradient| gradient.elements())
        .collect();
    for (what, tensors, most, most_packed) in [
        ("ResNet-50's 161", resnet, "<= 1.05", "<= 2.5"),
        ("1000 x 4 KiB", vec![1024; 1000], "<= 1.3", "-"),
    ] {
        for ranks in [2, 4] {
            let case = |name: &str, tensors: &[usize]| Case {
                algorithm: name.into(),
                topology: Topology::flat(ranks),
                tensors: tensors.to_vec(),
            };
            let one = case("two-shot", &[tensors.iter().sum()]);
            let scattered = case("grouped-scattered:two-shot", &tensors);
            let packed = case("grouped:two-shot", &tensors);
            let [one, scattered, packed] =
                interleaved([&|| one.measure().0, &|| scattered.measure().0, &|| {
                    packed.measure().0
                }]);
            let (scattered, packed) = (scattered / one, packed / one);
            println!(
                "| {what} | {ranks} | {one:.0} | {scattered:.2} | {most} | {packed:.2} | {most_packed} |"
            );
        }
    }
}

/// The choice of `auto` against the best algorithm. One set of rounds selects the best, and another measures it,
/// because the best of many similar ones is partly luck.
fn auto() {
    println!("\n## Auto: time over that of the best single algorithm; goal <= 1.05\n");
    println!("| ranks | size | auto | best | auto (us) | best (us) | ratio |");
    println!("|---|---|---|---|---|---|---|");
    for ranks in [2, 4] {
        let world = Topology::flat(ranks);
        let table = calibrate::table(&world, SIZES, usize::MAX).unwrap();
        let single = registry::ALL.iter().filter(|entry| {
            let grouping = registry::find(entry.name).unwrap().grouping();
            !entry.chooses() && !entry.takes_inner() && grouping.is_none()
        });
        let names: Vec<&str> = single.map(|entry| entry.name).collect();
        for size_bytes in (1..14).map(|power| 1_usize << (2 * power)) {
            let chosen = table.iter().rfind(|(from_bytes, _)| *from_bytes <= size_bytes).unwrap();
            let cases: Vec<Case> =
                names.iter().map(|name| Case::new(name, &world, size_bytes)).collect();
            let first = medians(&cases);
            let best = (0..names.len()).min_by(|&a, &b| first[a].total_cmp(&first[b])).unwrap();
            let times = medians(&cases);
            let auto = times[names.iter().position(|name| *name == chosen.1).unwrap()];
            println!(
                "| {ranks} | {} | {} | {} | {auto:.2} | {:.2} | {:.2} |",
                size(size_bytes),
                chosen.1,
                names[best],
                times[best],
                auto / times[best]
            );
        }
    }
}

/// How time and memory grow.
fn growth() {
    /// The exponent b of the power law a x^b that fits best.
    fn exponent(points: &[(f64, f64)]) -> f64 {
        let n = points.len() as f64;
        let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let both: f64 = logs.iter().map(|(a, b)| (a - x) * (b - y)).sum();
        both / logs.iter().map(|(a, _)| (a - x) * (a - x)).sum::<f64>()
    }
    let row = |what: &str, measured: &[(f64, f64, f64)], expected: &str| {
        let (first, last) = (measured[0], measured[measured.len() - 1]);
        let of = |value: fn(&(f64, f64, f64)) -> f64| {
            exponent(&measured.iter().map(|m| (m.0, value(m))).collect::<Vec<_>>())
        };
        println!(
            "| {what} | {:.0} .. {:.0} us | {:.2} | {expected} | {:.2} .. {:.2} MB | {:.2} |",
            first.1,
            last.1,
            of(|m| m.1),
            first.2 / 1e6,
            last.2 / 1e6,
            of(|m| m.2),
        );
    };
    let measured = |x: usize, case: &Case| {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let time = median((0..3).map(|_| case.measure().0).collect());
        let data = case.tensors.iter().sum::<usize>() * 4 * case.topology.ranks();
        let peak = PEAK.load(Ordering::Relaxed) - before;
        (x as f64, time, (peak as f64 - data as f64).max(1.0))
    };
    println!("\n## Growth: fitted exponents; memory is the peak beyond the data themselves\n");
    println!("| what grows | time | exponent | the algorithm's own | memory | exponent |");
    println!("|---|---|---|---|---|---|");
    for (name, bytes, expected) in [
        ("ring", 1 << 20, "1 in bytes, 2 in messages"),
        ("two-shot", 1 << 20, "1 in bytes, 2 in messages"),
        ("tree", 4, "1"),
        ("recursive-doubling", 4, "1.2: n log n"),
    ] {
        let worlds = [4, 8, 16, 32, 64].map(Topology::flat);
        let points = worlds.map(|world| measured(world.ranks(), &Case::new(name, &world, bytes)));
        row(&format!("ranks 4 .. 64, {name}, {}", size(bytes)), &points, expected);
    }
    for name in ["grouped-scattered:two-shot", "grouped:two-shot"] {
        let points = [10, 100, 1000, 10_000].map(|tensors| {
            let case = Case {
                algorithm: name.into(),
                topology: Topology::flat(2),
                tensors: vec![1024; tensors],
            };
            measured(tensors, &case)
        });
        row(&format!("tensors of 4 KiB, 10 .. 10,000, {name}"), &points, "1");
    }
}

fn main() {
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let tables: [(&str, fn()); 11] = [
        ("executor", executor),
        ("kernels", kernels),
        ("small", small),
        ("bound", bound),
        ("crowded", crowded),
        ("groups", groups),
        ("auto", auto),
        ("growth", growth),
        ("control", control::control),
        ("cases", cases::cases),
        ("rounds", cases::rounds),
    ];
    if let Some(unknown) = asked.iter().find(|name| tables.iter().all(|(table, _)| name != table)) {
        let names = tables.map(|(name, _)| name).join(", ");
        eprintln!("there is no table \"{unknown}\"; choose from {names}");
        std::process::exit(2);
    }
    for (name, table) in tables {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            table();
        }
    }
}
