//! Every variable of Horovod 0.28: name, unit, default, meaning, and use in kolo.

/// One of Horovod's environment variables.
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Unit of its value; empty for switches, counts and names.
    pub unit: &'static str,
    /// The default; empty if there is none.
    pub default: &'static str,
    /// The meaning in Horovod.
    pub about: &'static str,
    /// The use in kolo.
    pub usage: Usage,
}

/// How kolo uses a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A sweep reads it.
    Used,
    /// Known and not read, for this reason.
    Unused(&'static str),
}

const fn used(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    about: &'static str,
) -> Variable {
    Variable { name, unit, default, about, usage: Usage::Used }
}

const fn unused(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    about: &'static str,
    why: &'static str,
) -> Variable {
    Variable { name, unit, default, about, usage: Usage::Unused(why) }
}

const NO_GLOO: &str = "kolo does not use Gloo";
const NO_TUNER: &str = "a sweep measures every setting";
const NO_LOG: &str = "there is no log; progress goes to stderr";
const NO_ELASTIC: &str = "the number of ranks is fixed";
const LAUNCHED: &str = "sweep.topology, mpirun or srun determines ranks";

/// Variables that are read while Horovod runs.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    used("HOROVOD_FUSION_THRESHOLD", "B", "134217728", "size up to which tensors are fused; 0: not at all"),
    used("HOROVOD_CYCLE_TIME", "ms", "1", "from one cycle to the next; 0: no sleep"),
    used("HOROVOD_CACHE_CAPACITY", "", "1024", "responses remembered; 0: coordinator always"),
    used("HOROVOD_HIERARCHICAL_ALLREDUCE", "", "0", "inside nodes, then across them"),
    used("HOROVOD_TORUS_ALLREDUCE", "", "0", "rings along rows and columns"),
    used("HOROVOD_DISABLE_GROUP_FUSION", "", "0", "groups are fused alone"),
    used("HOROVOD_TIMELINE", "", "", "timelines are written; here beside the other results"),
    unused("HOROVOD_TIMELINE_MARK_CYCLES", "", "0", "mark cycles in the timeline", "cycles are always marked"),
    used("HOROVOD_STALL_CHECK_DISABLE", "", "0", "no warning of stalled tensors"),
    used("HOROVOD_STALL_CHECK_TIME_SECONDS", "s", "60", "warning of stalled tensors after"),
    used("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "s", "0", "shutdown after; 0: never"),
    unused("HOROVOD_HIERARCHICAL_ALLGATHER", "", "0", "allgather inside nodes first", "kolo has no allgather of tensors"),
    unused("HOROVOD_BATCH_D2D_MEMCOPIES", "", "1", "copies on the GPU in batches", "copies on GPUs are always made in batches"),
    unused("HOROVOD_ENABLE_ASYNC_COMPLETION", "", "0", "continue before the GPU has finished", "the loop always runs asynchronously"),
    unused("HOROVOD_NUM_NCCL_STREAMS", "", "1", "NCCL streams", "messages have one stream"),
    unused("HOROVOD_DISABLE_NVTX_RANGES", "", "0", "no marks for NVIDIA's profilers", "kolo makes no such marks"),
    unused("HOROVOD_AUTOTUNE", "", "0", "search for good settings", NO_TUNER),
    unused("HOROVOD_AUTOTUNE_LOG", "", "", "file of the search", NO_TUNER),
    unused("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "", "3", "samples dropped at first", NO_TUNER),
    unused("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "", "10", "steps of a sample", NO_TUNER),
    unused("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "", "20", "samples at most", NO_TUNER),
    unused("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "", "0.8", "noise of the model", NO_TUNER),
    unused("HOROVOD_CONTROLLER", "", "MPI", "transport of negotiation", "sweep.control_plane and sweep.transport choose"),
    unused("HOROVOD_CPU_OPERATIONS", "", "MPI", "transport of data in host memory", "sweep.transport and sweep.algorithm choose"),
    unused("HOROVOD_MPI_THREADS_DISABLE", "", "0", "no threads inside MPI", "MPI is called by one thread of a process"),
    unused("HOROVOD_ADASUM_MPI_CHUNK_SIZE", "B", "1073741824", "pieces of Adasum", "kolo has no Adasum"),
    unused("HOROVOD_CCL_CACHE", "", "0", "oneCCL remembers operations", "kolo does not use oneCCL"),
    unused("HOROVOD_THREAD_AFFINITY", "", "", "cores of background threads", "ranks are bound to cores in order"),
    unused("HOROVOD_GLOO_TIMEOUT_SECONDS", "s", "30", "timeout of Gloo", NO_GLOO),
    unused("HOROVOD_GLOO_IFACE", "", "", "network interface of Gloo", NO_GLOO),
    unused("HOROVOD_GLOO_RENDEZVOUS_ADDR", "", "", "rendezvous", NO_GLOO),
    unused("HOROVOD_GLOO_RENDEZVOUS_PORT", "", "", "rendezvous", NO_GLOO),
    unused("HOROVOD_DYNAMIC_PROCESS_SETS", "", "0", "process sets come and go", "all ranks are one set"),
    unused("HOROVOD_ELASTIC", "", "0", "ranks come and go", NO_ELASTIC),
    unused("HOROVOD_ELASTIC_TIMEOUT", "s", "600", "wait for enough ranks", NO_ELASTIC),
    unused("HOROVOD_ENABLE_XLA_OPS", "", "0", "operations for XLA, with a cycle time of 0", "kolo does not use XLA; HOROVOD_CYCLE_TIME=0 has its cycle time"),
    unused("HOROVOD_LOG_LEVEL", "", "WARNING", "what is logged", NO_LOG),
    unused("HOROVOD_LOG_HIDE_TIME", "", "0", "log without times", NO_LOG),
    unused("HOROVOD_START_TIMEOUT", "s", "30", "wait for all ranks to start", "threads start at once; mpirun or srun starts processes"),
    unused("HOROVOD_RANK", "", "", "set by horovodrun", LAUNCHED),
    unused("HOROVOD_SIZE", "", "", "set by horovodrun", LAUNCHED),
    unused("HOROVOD_LOCAL_RANK", "", "", "set by horovodrun", LAUNCHED),
    unused("HOROVOD_LOCAL_SIZE", "", "", "set by horovodrun", LAUNCHED),
    unused("HOROVOD_CROSS_RANK", "", "", "set by horovodrun", LAUNCHED),
    unused("HOROVOD_CROSS_SIZE", "", "", "set by horovodrun", LAUNCHED),
    unused("HOROVOD_HOSTNAME", "", "", "set by horovodrun", LAUNCHED),
];

/// Variables that are read only while Horovod is built or installed.
#[rustfmt::skip]
pub const OF_THE_BUILD: &[&str] = &[
    "HOROVOD_ALLOW_MIXED_GPU_IMPL", "HOROVOD_BUILD_ARCH_FLAGS", "HOROVOD_BUILD_CUDA_CC_LIST",
    "HOROVOD_CMAKE", "HOROVOD_CUDA_HOME", "HOROVOD_DEBUG", "HOROVOD_GPU", "HOROVOD_GPU_ALLGATHER",
    "HOROVOD_GPU_ALLREDUCE", "HOROVOD_GPU_ALLTOALL", "HOROVOD_GPU_BROADCAST",
    "HOROVOD_GPU_OPERATIONS", "HOROVOD_GPU_REDUCESCATTER", "HOROVOD_NCCL_HOME",
    "HOROVOD_NCCL_INCLUDE", "HOROVOD_NCCL_LIB", "HOROVOD_NCCL_LINK", "HOROVOD_ROCM_HOME",
    "HOROVOD_WITHOUT_GLOO", "HOROVOD_WITHOUT_MPI", "HOROVOD_WITHOUT_MXNET",
    "HOROVOD_WITHOUT_PYTORCH", "HOROVOD_WITHOUT_TENSORFLOW", "HOROVOD_WITH_GLOO",
    "HOROVOD_WITH_MPI", "HOROVOD_WITH_MXNET", "HOROVOD_WITH_PYTORCH", "HOROVOD_WITH_TENSORFLOW",
];
