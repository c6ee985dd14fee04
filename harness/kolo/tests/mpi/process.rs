//! One process of a world: its current activity, for error messages, and what all processes share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::exit;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use algorithms::topology::{Rank, Topology};
use cluster::launch::Launched;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use transports::mpi::{Comm, ControlChannel, Endpoint, Meanwhile, Waiting, World, set_last_words};

static DOING: Mutex<(String, Option<Instant>)> = Mutex::new((String::new(), None));

/// Sets the current activity.
pub fn doing(what: impl Into<String>) {
    *DOING.lock().unwrap() = (what.into(), Some(Instant::now()));
}

/// The rank and its activity as text.
fn in_words(rank: usize, ranks: usize) -> String {
    let what = DOING.try_lock().map_or("something".into(), |doing| doing.0.clone());
    format!("rank {rank} of {ranks}, in {what}")
}

/// One process of a world.
pub struct Process {
    pub world: World,
    pub rank: Rank,
    pub ranks: usize,
    pub seed: u64,
    pub waiting: Waiting,
    start: Instant,
}

impl Process {
    /// Joins the world. From now on an error here ends the process with a message that names it, and with it the
    /// world; so does an operation that takes several times the timeout.
    pub fn join(seed: u64, timeout: Duration) -> Process {
        doing("joining");
        let world = World::join().expect("MPI can be joined");
        let (rank, ranks) = (world.rank(), world.comm().ranks());
        if let Some(problem) = Launched::here().and_then(|launched| launched.contradicts(ranks)) {
            panic!("{problem}");
        }
        std::panic::set_hook(Box::new(move |panic| {
            eprintln!("{}: {panic}", in_words(rank, ranks));
            exit(1);
        }));
        set_last_words(move |error| eprintln!("{}: {error}", in_words(rank, ranks)));
        let limit = 3 * timeout;
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let since = DOING.lock().unwrap().1;
                if since.is_some_and(|since| since.elapsed() > limit) {
                    eprintln!("{}: for more than {limit:?}", in_words(rank, ranks));
                    exit(1);
                }
            }
        });
        let waiting = Waiting { rank, timeout, meanwhile: Meanwhile::Yield };
        Process { world, rank, ranks, seed, waiting, start: Instant::now() }
    }

    /// A communicator of all ranks, whose messages are split into parts of `part_bytes`; 0: whole.
    pub fn comm(&self, part_bytes: usize) -> Rc<Comm> {
        let all: Vec<Rank> = (0..self.ranks).collect();
        let comm = self.world.comm().within(&all).unwrap();
        Rc::new(if part_bytes > 0 { comm.cut(part_bytes) } else { comm })
    }

    pub fn endpoint(&self, comm: &Rc<Comm>) -> Endpoint {
        Endpoint::new(comm.clone(), self.waiting)
    }

    pub fn control_channel(&self, comm: &Rc<Comm>) -> ControlChannel {
        ControlChannel::new(comm.clone(), self.waiting)
    }

    /// Each rank a node of its own; and two nodes, or one of two ranks.
    pub fn topologies(&self) -> [Topology; 2] {
        let nodes = match self.ranks {
            0..=2 => Topology::new(&[self.ranks]),
            ranks => Topology::new(&[ranks.div_ceil(2), ranks / 2]),
        };
        [Topology::flat(self.ranks), nodes]
    }

    /// Random numbers, the same on all ranks.
    pub fn random(&self, stream: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(stream);
        random
    }

    /// Gathers a digest of every rank on all ranks.
    pub fn digests(&self, of: impl Hash) -> Vec<u64> {
        let digest = digest(of);
        let all = self.world.comm().all_gather(digest.to_ne_bytes()).unwrap();
        all.into_iter().map(u64::from_ne_bytes).collect()
    }

    /// All ranks hold the same.
    pub fn assert_alike(&self, of: impl Hash) {
        let digests = self.digests(of);
        let other = digests.iter().position(|digest| *digest != digests[0]);
        assert_eq!(other, None, "that rank differs from rank 0");
    }

    /// All ranks have reached this point.
    pub fn leave(self) {
        doing("leaving");
        self.assert_alike(0);
        if self.rank == 0 {
            println!(
                "{} ranks agree after {:.1} s",
                self.ranks,
                self.start.elapsed().as_secs_f64()
            );
        }
    }
}

pub fn digest(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
