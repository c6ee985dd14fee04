#!/usr/bin/env python3
"""Step times of real Horovod over NCCL, for a gradient list.

    mpirun -n 2 python3 hvd.py [--fusion-threshold-mib 128] [--cycle-time-ms 1] configs/workloads/resnet50.csv

It needs Horovod with PyTorch, NCCL and Open MPI. If there are fewer GPUs than ranks, they share them, with an NCCL that
allows it (2.30 or later, with NCCL_MULTI_RANK_GPU_ENABLE=1). The model is that of ddp.py: kernels that only take time
stand for its passes, and gradients become ready in the order and at the times of LIST.ready.csv beside the list. The
gradients of the first and of the last step are compared with their average over all ranks. Steps follow each other
without a barrier, as in training. Some more are run in torch's profiler, which counts the allreduces of NCCL in each
(null if it sees none), and one with Horovod's timeline; their times are not counted. With the timeline, Horovod's loop
waits for the data of a message on the host, and otherwise its stream waits, so both numbers of messages are given. Rank 0
prints one line of JSON; every rank ends with 1 if any gradient was wrong.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time

import torch
from ddp import add_model, cycles_per_ms, model_of


def messages(timeline):
    """Allreduces that a timeline holds: events of the tensors of one message follow each other."""
    with open(timeline) as file:
        text = file.read().strip().rstrip(",")
    count, before = 0, None
    for event in json.loads(text if text.endswith("]") else text + "]"):
        if event.get("ph") == "B" and event.get("name"):
            count += event["name"] == "NCCL_ALLREDUCE" != before
            before = event["name"]
    return count


def start_mpi():
    """Starts MPI; its barrier, and what ends it. Horovod's own would start each step at the same moment of its cycle."""
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    thread_multiple, provided = 3, ctypes.c_int()
    mpi.MPI_Init_thread(None, None, thread_multiple, ctypes.byref(provided))
    world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
    own = ctypes.c_void_p()
    mpi.MPI_Comm_dup(world, ctypes.byref(own))
    return lambda: mpi.MPI_Barrier(own), mpi.MPI_Finalize


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_model(parser)
    parser.add_argument("--fusion-threshold-mib", type=float, default=128)
    parser.add_argument("--cycle-time-ms", type=float, default=1)
    parser.add_argument("--warmup", type=int, default=8, help="steps that are not counted, at least 1")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--counted", type=int, default=4, help="steps whose messages are counted")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("hvd.py: torch finds no GPU; expected a build of torch with CUDA, and a driver for it")

    wait, finalize = start_mpi()
    # Horovod reads these when it starts.
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(int(options.fusion_threshold_mib * 2**20))
    os.environ["HOROVOD_CYCLE_TIME"] = str(options.cycle_time_ms)
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    import horovod.torch as hvd

    hvd.init()
    if not hvd.nccl_built():
        sys.exit("hvd.py: this Horovod was built without NCCL; expected one built with HOROVOD_GPU_OPERATIONS=NCCL")
    rank, ranks = hvd.rank(), hvd.size()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    # Processes that share a GPU calibrate one after the other.
    for turn in range(ranks):
        if turn == rank:
            rate = cycles_per_ms()
        wait()
    model = model_of(options, rank, rate)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), named_parameters=model.named_parameters(), op=hvd.Average
    )
    value = torch.ones((), device="cuda", requires_grad=True)

    def step():
        """Returns when it began, when the host had launched its forward pass and both, and when it ended."""
        model.zero_grad(set_to_none=True)
        times = [time.perf_counter()]
        loss = model(value)
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.synchronize()
        torch.cuda._sleep(int(options.optimizer_ms * rate))
        times.append(time.perf_counter())
        return times

    def wrong():
        average = (ranks + 1) / 2
        return sum(int((parameter.grad != average).sum()) for parameter in model.parameters())

    step()
    errors = wrong()
    for _ in range(max(options.warmup, 1)):
        ended = step()[-1]
    times, forward, passes = [], [], []
    for _ in range(options.steps):
        begun, launched, both, now = step()
        times.append(1e3 * (now - ended))
        forward.append(1e3 * (launched - begun))
        passes.append(1e3 * (both - begun))
        ended = now
    torch.cuda.synchronize()
    wait()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(options.counted):
            step()
        torch.cuda.synchronize()
    seen = sum("nccl" in event.name and "AllReduce" in event.name for event in profile.events())
    timeline = os.path.join(tempfile.mkdtemp(), "timeline.json")
    if rank == 0:
        hvd.start_timeline(timeline)
    time.sleep(0.3)
    wait()
    step()
    torch.cuda.synchronize()
    errors += wrong()
    slowest = hvd.allgather(torch.tensor(times, dtype=torch.float64)).view(ranks, -1).max(0).values.tolist()
    if rank == 0:
        hvd.stop_timeline()
        print(
            json.dumps(
                {
                    "workload": os.path.basename(options.workload),
                    "ranks": ranks,
                    "gpus": torch.cuda.device_count(),
                    "torch": torch.__version__,
                    "fusion_threshold_mib": options.fusion_threshold_mib,
                    "cycle_time_ms": options.cycle_time_ms,
                    "messages": round(seen / options.counted, 1) or None,
                    "messages_with_timeline": messages(timeline),
                    "steps": len(slowest),
                    "step_ms_min": round(min(slowest), 3),
                    "step_ms_p50": round(statistics.median(slowest), 3),
                    "step_ms_max": round(max(slowest), 3),
                    "host_forward_ms_p50": round(statistics.median(forward), 3),
                    "host_ms_p50": round(statistics.median(passes), 3),
                    "wrong": errors,
                }
            )
        )
    hvd.shutdown()
    finalize()
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
