//! The cost of control planes on threads: a cached cycle compared with a barrier, and idle cycles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use algorithms::control::{self, DataType, ReduceOp, Settings, Tensor, Tensors};
use algorithms::program::Program;
use algorithms::registry;
use algorithms::topology::Topology;
use results::usage::cpu_time;
use training::negotiate::{NegotiateError, Negotiator};
use training::pace::Pace;
use transports::execute::execute;
use transports::memory::{Buffer, Memory};
use transports::threads::{BITS, ControlChannel, Endpoint, Links, run_ranks};
use transports::transport::TransportError;

use super::{interleaved, micros};

const TIMEOUT: Duration = Duration::from_secs(60);
const TENSORS: usize = 161;

/// Runs this on every rank, with a plane of its own; the largest value of any rank.
fn on_ranks(
    plane: &str,
    ranks: usize,
    run: impl Fn(&mut Negotiator<Endpoint, ControlChannel>) -> Result<f64, NegotiateError> + Sync,
) -> f64 {
    let tensor = |id: usize| {
        let name = format!("layer{}.{}.conv{}.weight", id / 40, id / 4, id % 4);
        Tensor::new(name, DataType::F32, ReduceOp::Average, &[64, 64, 3, 3])
    };
    let tensors = Arc::new(Tensors::new((0..TENSORS).map(tensor).collect()).unwrap());
    let bits = Links::new(ranks, TIMEOUT).beside();
    let control = bits.beside();
    let values = run_ranks(&[&bits, &control], |rank| {
        let settings = Settings::new(rank, ranks);
        let plane = control::find(plane, tensors.clone(), &settings).expect("a known plane");
        let mut negotiator =
            Negotiator::new(plane, ControlChannel::new(control.join(rank)), bits.join(rank));
        let value = run(&mut negotiator).map_err(|error| match error {
            NegotiateError::Transport(error) => error,
            other => TransportError::Aborted { by: rank, reason: other.to_string() },
        })?;
        negotiator.flush().expect("all ranks end alike");
        Ok::<_, TransportError>(value)
    });
    values.unwrap().into_iter().fold(0.0, f64::max)
}

/// Mean time of a cycle in which all tensors are ready and cached, in microseconds.
fn cached_cycle(plane: &str, ranks: usize) -> f64 {
    const CYCLES: usize = 3000;
    on_ranks(plane, ranks, |negotiator| {
        let all: Vec<usize> = (0..TENSORS).collect();
        let mut responses = Vec::new();
        let mut cycles = |count: usize| {
            for _ in 0..count {
                responses.clear();
                negotiator.cycle(&all, &mut responses)?;
                assert_eq!(responses.len(), 1, "all fit into one message");
            }
            Ok::<_, NegotiateError>(())
        };
        cycles(100)?;
        let start = Instant::now();
        cycles(CYCLES)?;
        Ok(micros(start.elapsed()) / CYCLES as f64)
    })
}

/// Mean time of an AND of one word over all ranks, in microseconds.
fn barrier(ranks: usize) -> f64 {
    const TIMES: usize = 10_000;
    let tree = registry::find("tree").unwrap().schedule(&Topology::flat(ranks)).unwrap();
    let links = Links::new(ranks, TIMEOUT);
    let times = run_ranks(&[&links], |rank| {
        let program = Program::compile(&*tree, rank);
        let mut endpoint = links.join(rank);
        let (dtype, and) = BITS;
        let mut word = Memory::new(8);
        let mut start = Instant::now();
        for time in 0..TIMES + 100 {
            if time == 100 {
                start = Instant::now();
            }
            execute(&mut endpoint, &program, &mut Buffer::of(dtype, &mut word), and)?;
        }
        Ok::<_, TransportError>(micros(start.elapsed()) / TIMES as f64)
    });
    times.unwrap().into_iter().fold(0.0, f64::max)
}

/// Share of a core that a rank needs in idle cycles of 1 ms.
fn idle(plane: &str, ranks: usize) -> f64 {
    const TIME: Duration = Duration::from_secs(1);
    let cpu = || cpu_time().expect("a system that tells it");
    on_ranks(plane, ranks, |negotiator| {
        let (start, before) = (Instant::now(), cpu());
        let mut pace = Pace::new(Duration::from_millis(1), start);
        for _ in 0..TIME.as_millis() {
            if let Some(wait) = pace.until_next(Instant::now()) {
                std::thread::sleep(wait);
            }
            pace.begin(Instant::now());
            negotiator.cycle(&[], &mut Vec::new())?;
        }
        Ok((cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64())
    })
}

pub fn control() {
    println!(
        "\n## Control planes on threads: a cycle of {TENSORS} tensors, all ready everywhere\n"
    );
    println!("| plane | ranks | cycle (us) | barrier (us) | ratio | goal |");
    println!("|---|---|---|---|---|---|");
    for plane in ["bitvector", "coordinator", "tree:2"] {
        for ranks in [2, 4] {
            let [cycle, barrier] =
                interleaved([&|| cached_cycle(plane, ranks), &|| barrier(ranks)]);
            let goal = match (plane, ranks) {
                ("bitvector", 2) => "<= 2 us",
                ("bitvector", 4) => "<= 3x",
                _ => "-",
            };
            let ratio = cycle / barrier;
            println!("| {plane} | {ranks} | {cycle:.2} | {barrier:.2} | {ratio:.1} | {goal} |");
        }
    }
    println!("\n## Idle: share of a core, the largest of any rank, cycles of 1 ms; goal < 0.02\n");
    println!("| plane | 2 ranks | 4 ranks | 8 ranks | sleeping alone |");
    println!("|---|---|---|---|---|");
    for plane in ["bitvector", "coordinator"] {
        let [two, four, eight, alone] =
            interleaved([&|| idle(plane, 2), &|| idle(plane, 4), &|| idle(plane, 8), &|| {
                idle("ddp", 2)
            }]);
        println!("| {plane} | {two:.3} | {four:.3} | {eight:.3} | {alone:.3} |");
    }
}
