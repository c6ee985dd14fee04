#!/usr/bin/env python3
"""Records the messages of torch DistributedDataParallel for a gradient list.

    python buckets.py [--cap-mb N] [--steps 3] configs/workloads/resnet50.csv > buckets.json

Two ranks on this machine, connected by Gloo over loopback, run a model with parameters of the list's shapes. Its
backward pass computes gradients in the order of LIST.ready.csv beside the list. Each step's allreduces are written down
as they begin: the gradients of each, by their positions in the list.
"""

import argparse
import csv
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

RANKS = 2


class Gradient(torch.autograd.Function):
    """Passes a value through; its backward pass computes the gradient of one parameter."""

    @staticmethod
    def forward(context, value, parameter):
        context.shape = parameter.shape
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient, torch.ones(context.shape)


class Model(torch.nn.Module):
    def __init__(self, shapes, order):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.zeros(shape) for shape in shapes])
        self.order = order

    def forward(self, value):
        # What is used last is computed first in the backward pass.
        for index in reversed(self.order):
            value = Gradient.apply(value, self.all[index])
        return value


def read(path):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    shapes = [[int(part) for part in row["shape"].split("x") if part] for row in rows]
    with open(path[: -len(".csv")] + ".ready.csv") as file:
        order = [int(row["index"]) for row in csv.DictReader(file)]
    return shapes, order


def caps(cap_mb):
    """Options of DistributedDataParallel for buckets of that size; none: torch's own."""
    if cap_mb is None:
        return {}
    # Newer versions use a given cap for the first bucket, too; older ones keep 1 MiB.
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(cap_mb * 2**20)
    return {"bucket_cap_mb": cap_mb}


def run(rank, arguments, rendezvous, result):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=RANKS)
    shapes, order = read(arguments.workload)
    model = Model(shapes, order)
    parallel = DistributedDataParallel(model, **caps(arguments.cap_mb))
    index = {id(parameter): at for at, parameter in enumerate(model.all)}
    steps = []

    def hook(_, bucket):
        steps[-1].append([index[id(parameter)] for parameter in bucket.parameters()])
        work = dist.all_reduce(bucket.buffer().div_(RANKS), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    parallel.register_comm_hook(None, hook)
    for _ in range(arguments.steps):
        steps.append([])
        parallel(torch.zeros(1, requires_grad=True)).sum().backward()
        for parameter in model.all:
            assert bool((parameter.grad == 1).all()), "a wrong gradient"
            parameter.grad = None
    if rank == 0:
        with open(result, "w") as file:
            json.dump(steps, file)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", help="a gradient list, with its order beside it")
    parser.add_argument("--cap-mb", type=float, help="bucket_cap_mb (torch's default: 25)")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rendezvous, result = os.path.join(folder, "rendezvous"), os.path.join(folder, "steps")
        multiprocessing.spawn(run, (arguments, rendezvous, result), nprocs=RANKS)
        with open(result) as file:
            steps = json.load(file)
    workload = os.path.basename(arguments.workload)[: -len(".csv")]
    print(json.dumps({
        "torch": torch.__version__, "workload": workload, "ranks": RANKS,
        "bucket_cap_mb": arguments.cap_mb, "steps": steps,
    }))


if __name__ == "__main__":
    sys.exit(main())
