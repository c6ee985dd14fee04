#!/usr/bin/env python3
"""Step times of torch's DistributedDataParallel on GPUs, for a gradient list.

    python3 ddp.py [--backend nccl] [--ranks 2] [--backward-ms 20] configs/workloads/resnet50.csv

Ranks are processes; if there are fewer GPUs than ranks, they share them, over Gloo or with an NCCL that allows it (2.30
or later, with NCCL_MULTI_RANK_GPU_ENABLE=1). The model has parameters of the list's shapes. Kernels that only take time
stand for its passes, as in `kolo sweep`, and gradients become ready in the order and at the times of LIST.ready.csv
beside the list. The gradients of every step are compared with their average over all ranks. Prints one line of JSON;
ends with 1 if any gradient was wrong.
"""

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel


class Gradient(torch.autograd.Function):
    """Passes a value through; its backward pass keeps the GPU busy, and returns one parameter's gradient."""

    @staticmethod
    def forward(context, value, parameter, cycles, contribution):
        context.cycles, context.contribution = cycles, contribution
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        torch.cuda._sleep(context.cycles)
        return gradient, context.contribution, None, None


class Model(torch.nn.Module):
    def __init__(self, shapes, order, forward, backward, contribution):
        super().__init__()
        parameters = [torch.zeros(shape, device="cuda") for shape in shapes]
        self.all = torch.nn.ParameterList(parameters)
        self.order, self.forward_cycles = order, forward
        self.cycles = backward
        self.contributions = [torch.full_like(parameter, contribution) for parameter in parameters]

    def forward(self, value):
        torch.cuda._sleep(self.forward_cycles)
        # What is used last is computed first in the backward pass.
        for place in reversed(range(len(self.order))):
            at = self.order[place]
            value = Gradient.apply(value, self.all[at], self.cycles[place], self.contributions[at])
        return value


def read(path):
    """Shapes, the order of gradients, and the fraction of the backward pass after which each is ready."""
    with open(path) as file:
        rows = list(csv.DictReader(file))
    shapes = [[int(part) for part in row["shape"].split("x") if part] for row in rows]
    with open(path[: -len(".csv")] + ".ready.csv") as file:
        ready = [(int(row["index"]), float(row["bwd_flop_frac"])) for row in csv.DictReader(file)]
    return shapes, [index for index, _ in ready], [fraction for _, fraction in ready]


def cycles_per_ms():
    """Of the kernel that sleeps, at the clock that it runs at."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    rates = []
    for _ in range(5):
        begin.record()
        torch.cuda._sleep(50_000_000)
        end.record()
        torch.cuda.synchronize()
        rates.append(50_000_000 / begin.elapsed_time(end))
    return statistics.median(rates)


def add_model(parser):
    """Arguments that describe a training step."""
    parser.add_argument("workload", help="a gradient list, with its .ready.csv beside it")
    parser.add_argument("--forward-ms", type=float, default=3)
    parser.add_argument("--backward-ms", type=float, default=20)
    parser.add_argument("--optimizer-ms", type=float, default=1)


def model_of(options, rank, rate):
    """The model of a rank, whose kernels sleep at that rate of cycles."""
    shapes, order, fractions = read(options.workload)
    parts = [now - before for before, now in zip([0.0] + fractions, fractions)]
    backward = [int(part * options.backward_ms * rate) for part in parts]
    return Model(shapes, order, int(options.forward_ms * rate), backward, float(rank + 1))


def run(rank, options, meeting, results):
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(options.backend, init_method=f"file://{meeting}", rank=rank, world_size=options.ranks)
    # Processes that share a GPU calibrate one after the other.
    for turn in range(options.ranks):
        if turn == rank:
            rate = cycles_per_ms()
        dist.barrier()
    model = model_of(options, rank, rate)
    model = DistributedDataParallel(model, bucket_cap_mb=options.bucket_mib, device_ids=[torch.cuda.current_device()])
    value = torch.ones((), device="cuda", requires_grad=True)
    average, wrong, times = (options.ranks + 1) / 2, 0, []
    for step in range(options.warmup + options.steps):
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        dist.barrier()
        begun = time.perf_counter()
        model(value).backward()
        torch.cuda._sleep(int(options.optimizer_ms * rate))
        torch.cuda.synchronize()
        if step >= options.warmup:
            times.append(1e3 * (time.perf_counter() - begun))
        wrong += sum(int((parameter.grad != average).sum()) for parameter in model.parameters())
    worst = torch.tensor(times, dtype=torch.float64, device="cuda")
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    if rank == 0:
        results.put((worst.tolist(), wrong))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_model(parser)
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bucket-mib", type=float, default=25)
    parser.add_argument("--warmup", type=int, default=4, help="steps that are not counted")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("ddp.py: torch finds no GPU; expected a build of torch with CUDA, and a driver for it")
    multiprocessing.set_start_method("spawn")
    results = multiprocessing.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, (options, os.path.join(folder, "meeting"), results), nprocs=options.ranks)
    times, wrong = results.get()
    print(
        json.dumps(
            {
                "workload": os.path.basename(options.workload),
                "backend": options.backend,
                "ranks": options.ranks,
                "gpus": torch.cuda.device_count(),
                "torch": torch.__version__,
                "nccl": ".".join(map(str, torch.cuda.nccl.version())),
                "forward_ms": options.forward_ms,
                "backward_ms": options.backward_ms,
                "optimizer_ms": options.optimizer_ms,
                "bucket_mib": options.bucket_mib,
                "steps": len(times),
                "step_ms_min": round(min(times), 3),
                "step_ms_p50": round(statistics.median(times), 3),
                "step_ms_max": round(max(times), 3),
                "wrong": wrong,
            }
        )
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
