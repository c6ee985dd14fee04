//! Ranks that are processes, each with a GPU, over NCCL; rank 0 prints.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::time::Duration;

use algorithms::topology::Topology;
use anyhow::Result;

use super::arguments::Arguments;
use super::line::Line;
use super::lines::tables;
use super::request::{Asked, Process, Request, request, topology};
use super::turns::{Measured, blocks, measure};
use crate::cli::{Exit, usage};
use cluster::nodes::Node;
use cluster::preflight::{Preflight, ProcessFacts, Severity, process_facts};
use gpu::cuda::devices::{self, Found};
use gpu::cuda::driver::Driver;
use gpu::cuda::inventory;
use gpu::nccl::NcclError;
use gpu::nccl::allreduce::{DeviceAllReduce, NcclPlane};
use gpu::nccl::assignment::{Assignment, assign, in_provenance};
use gpu::nccl::bench::BenchRank;
use gpu::nccl::comm::Communicator;
use gpu::nccl::facts::Facts;
use gpu::nccl::findings::findings;
use gpu::nccl::library::{Nccl, UniqueId};
use gpu::nccl::rendezvous::{Control, meet};
use gpu::nccl::started::Started;
use measure::plan::Placement;
use results::provenance::Launch;
use transports::data_plane::nccl::Tuning;
use transports::data_plane::{DataPlane, DataPlaneError};

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let nccl = Nccl::open().map_err(usage)?;
    let found = devices::find().map_err(usage)?;
    let started = Started::here().map_err(usage)?;
    let launch = Launch::now();
    let facts = Facts::here(&launch, &nccl, &found)?;
    let mut control = meet(&started, facts, Duration::from_secs(arguments.timeout))?;
    let job = Job { arguments, nccl, found, launch };
    match job.run(&mut control) {
        Ok(exit) => {
            control.finish();
            Ok(exit)
        }
        Err(error) => Err(match error.downcast() {
            Ok(error) => control.give_up(error).into(),
            Err(other) => other,
        }),
    }
}

/// What this process brings along.
struct Job<'a> {
    arguments: &'a Arguments,
    nccl: Rc<Nccl>,
    found: Found,
    launch: Launch,
}

impl Job<'_> {
    fn run(mut self, control: &mut Control) -> Result<Exit> {
        let arguments = self.arguments;
        let assignments = assign(&control.facts).map_err(usage)?;
        // All know the same, and come to the same end.
        let preflight = self.preflight(control, &assignments)?;
        self.launch.forced = preflight.decide(arguments.force).map_err(usage)?;
        let request = self.request(control, &assignments)?;
        let plane = |name: &String| request.back_end.data_plane(name, &request.topology);
        let planes: Vec<_> = request.names.iter().map(plane).collect();
        self.launch.gpus = in_provenance(&self.nccl, &self.found, &control.facts, &assignments);
        self.launch.inventory = (control.rank == 0).then(inventory::before);
        let ordinal = assignments[control.rank].ordinal;
        let driving = Driver::take(self.found.clone(), &[ordinal]).map_err(NcclError::from)?;
        let mut measured = self.measure((driving, ordinal), &request, &planes, control)?;
        if control.rank > 0 {
            return Ok(Exit::Right);
        }
        let warnings = self.launch.end(inventory::after);
        arguments.remark(&self.nccl.about());
        arguments.remark(&self.found.about());
        let ended = tables(
            arguments,
            &request,
            &planes,
            self.launch,
            blocks(arguments),
            &mut |index, _, line| Ok(measured.remove(&(index, line)).expect("it was measured")),
        );
        if ended.is_ok() {
            warnings.iter().for_each(|line| arguments.remark(line));
        }
        ended
    }

    /// What is found on all processes, their nodes and their GPUs.
    fn preflight(
        &self,
        control: &mut Control,
        assignments: &[Assignment],
    ) -> Result<Preflight, NcclError> {
        let own = ProcessFacts::here(self.launch.machine.clone(), String::new(), Vec::new());
        let facts = control.share(own)?;
        let mut preflight = Preflight::default();
        let nodes = nodes(&control.facts);
        preflight.add(process_facts::findings(&nodes, &facts, Severity::Warning));
        preflight.add(findings(&control.facts, assignments));
        Ok(preflight)
    }

    /// What is measured, on which GPUs.
    fn request(&self, control: &Control, assignments: &[Assignment]) -> Result<Request> {
        let nodes = nodes(&control.facts);
        let sizes: Vec<usize> = nodes.iter().map(|node| node.ranks.len()).collect();
        let topology = topology(self.arguments, || Topology::new(&sizes))?;
        if topology.ranks() != control.ranks() {
            let (expected, started) = (topology.ranks(), control.ranks());
            let (option, asked) = match &self.arguments.topology {
                Some(text) => ("--topology", format!("--topology {text} has {expected} ranks")),
                None => ("--ranks", format!("--ranks asks for {expected} ranks")),
            };
            return Err(usage(format!(
                "{asked}, but {started} processes were started; start {expected} or omit {option}"
            )));
        }
        let placement = Placement::among(&nodes, &topology).map_err(usage)?;
        let oversubscribed = assignments.iter().any(|assignment| assignment.is_shared);
        let process = |(facts, assignment): (&Facts, &Assignment)| {
            let device = Some(facts.about(assignment.ordinal));
            Process { pid: facts.pid, host: facts.host.clone(), device }
        };
        let processes = control.facts.iter().zip(assignments).map(process).collect();
        let placement = Placement { oversubscribed, ..placement };
        // The host's memory holds none of the buffers.
        request(self.arguments, topology, placement, (0, processes))
    }

    /// Every line of every data plane, as rank 0 learns of it.
    fn measure(
        &self,
        (driver, ordinal): (Driver, usize),
        request: &Request,
        planes: &[Result<DataPlane, DataPlaneError>],
        control: &mut Control,
    ) -> Result<Measured> {
        // If anything goes wrong it is left as it is: whoever frees memory of a GPU waits for what is on it.
        let mut driver = ManuallyDrop::new(driver);
        let shared = Rc::new(self.join(Tuning::default(), control)?);
        let mut communicators = vec![shared.clone()];
        let mut all = BTreeMap::new();
        for (at, plane) in planes.iter().enumerate() {
            let Ok(plane) = plane else { continue };
            let plane = NcclPlane::of(plane)?;
            let own = if plane.tuning() == Tuning::default() {
                shared.clone()
            } else {
                communicators.push(Rc::new(self.join(plane.tuning(), control)?));
                communicators[communicators.len() - 1].clone()
            };
            let (topology, cut) = (&request.topology, self.arguments.cut());
            all.insert(at, DeviceAllReduce::new(own, plane, topology, cut.segment_bytes, control)?);
        }
        let bench_rank = BenchRank::new(&mut *driver, ordinal, shared, control);
        let mut bench_rank = bench_rank.map_err(NcclError::from)?;
        self.check_room(request, planes, &mut bench_rank, &mut all)?;
        let measured = measure(self.arguments, request, planes, &mut |at, bench| {
            Ok(bench_rank.run(bench, all.get_mut(&at).expect("it is there"))?)
        })?;
        drop(bench_rank);
        for all_reduce in all.into_values() {
            all_reduce.finish(&mut *driver, control)?;
        }
        for communicator in communicators.into_iter().rev().filter_map(Rc::into_inner) {
            communicator.finish(control)?;
        }
        drop(ManuallyDrop::into_inner(driver));
        // Nobody leaves before all are through.
        control.barrier()?;
        Ok(measured)
    }

    /// Whether the largest line of every plane fits, before any is measured.
    fn check_room(
        &self,
        request: &Request,
        planes: &[Result<DataPlane, DataPlaneError>],
        bench_rank: &mut BenchRank<Driver>,
        all: &mut BTreeMap<usize, DeviceAllReduce>,
    ) -> Result<(), NcclError> {
        let Some(Asked { dtype, op, elements, .. }) =
            request.lines().max_by_key(|line| line.elements * line.dtype.size_bytes())
        else {
            return Ok(());
        };
        let line = Line { dtype, op, elements, in_place: false, cycle: 0 };
        for (at, all_reduce) in all {
            let Ok(plane) = &planes[*at] else { continue };
            let tensors = line.tensors(self.arguments, plane);
            bench_rank.room(&line.bench(self.arguments, request, plane, &tensors), all_reduce)?;
        }
        Ok(())
    }

    /// A communicator of all ranks that is held to what is asked.
    fn join(&self, tuning: Tuning, control: &mut Control) -> Result<Communicator, NcclError> {
        let own = match control.rank {
            0 => self.nccl.unique_id()?.0.to_vec(),
            _ => Vec::new(),
        };
        let id = control.broadcast(own)?;
        let id = UniqueId(id.try_into().expect("all run the same program"));
        let place = (control.rank, control.ranks());
        let timeout = Duration::from_secs(self.arguments.timeout);
        tuning.during(|| Communicator::init(&self.nccl, id, place, timeout, control))
    }
}

/// The nodes, from the first on; what they have of cores means nothing to GPUs.
fn nodes(facts: &[Facts]) -> Vec<Node> {
    let mut all: Vec<Node> = Vec::new();
    for (rank, own) in facts.iter().enumerate() {
        match all.last_mut() {
            Some(node) if facts[rank - 1].host == own.host => node.ranks.push(rank),
            _ => all.push(Node { ranks: vec![rank], cores: usize::MAX }),
        }
    }
    all
}
