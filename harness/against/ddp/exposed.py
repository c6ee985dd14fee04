#!/usr/bin/env python3
"""Measures how long a step of torch DistributedDataParallel waits for messages that take a given time.

    python exposed.py [--cap-mb N] [--backward-ms 120] [--mb-ms 0.5] configs/workloads/resnet50.csv

Two ranks on this machine run a model with parameters of the list's shapes. Its backward pass computes gradients at the
times of LIST.ready.csv. A communication hook stands for the allreduce: each message takes --message-ms and --mb-ms for
each megabyte, one after the other. So the times of messages are known, and what is left is when DistributedDataParallel
sends them. The exposed time is that from the end of the backward pass to the end of the last message.
"""

import argparse
import csv
import json
import os
import queue
import statistics
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

from buckets import RANKS, caps

WARM_UP = 5


def wait_until(moment):
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


class Gradient(torch.autograd.Function):
    """Passes a value through; its backward pass computes the gradient of one parameter at its time."""

    @staticmethod
    def forward(context, value, parameter, gradient, clock, after):
        context.of_parameter, context.clock, context.after = gradient, clock, after
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        wait_until(context.clock.begin + context.after)
        return gradient, context.of_parameter, None, None, None


class Clock:
    """When the backward pass began."""

    begin = 0.0


class Model(torch.nn.Module):
    def __init__(self, shapes, ready, clock):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.zeros(shape) for shape in shapes])
        self.gradients = [torch.ones(shape) for shape in shapes]
        self.ready, self.clock = ready, clock

    def forward(self, value):
        # What is used last is computed first in the backward pass.
        for index, after in reversed(self.ready):
            value = Gradient.apply(value, self.all[index], self.gradients[index], self.clock, after)
        return value


class Messages:
    """Messages that take a given time each, one after the other."""

    def __init__(self, arguments):
        self.message_s, self.mb_s = arguments.message_ms / 1e3, arguments.mb_ms / 1e3
        self.queue = queue.SimpleQueue()
        self.sizes = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        end = 0.0
        while True:
            begin, buffer, future = self.queue.get()
            end = max(begin, end) + self.message_s + self.mb_s * buffer.numel() * buffer.element_size() / 1e6
            wait_until(end)
            future.set_result(buffer)

    def hook(self, _, bucket):
        future = torch.futures.Future()
        self.sizes.append(bucket.buffer().numel() * bucket.buffer().element_size())
        self.queue.put((time.perf_counter(), bucket.buffer(), future))
        return future


def read(path, backward_s):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    shapes = [[int(part) for part in row["shape"].split("x") if part] for row in rows]
    with open(path[: -len(".csv")] + ".ready.csv") as file:
        rows = list(csv.DictReader(file))
    return shapes, [(int(row["index"]), backward_s * float(row["bwd_flop_frac"])) for row in rows]


def run(rank, arguments, rendezvous, result):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=RANKS)
    backward_s = arguments.backward_ms / 1e3
    clock, messages = Clock(), Messages(arguments)
    shapes, ready = read(arguments.workload, backward_s)
    model = Model(shapes, ready, clock)
    # Gradients are views of the messages, so that none is copied back after the last message.
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True, **caps(arguments.cap_mb))
    parallel.register_comm_hook(None, messages.hook)
    exposed_ms = []
    for _ in range(WARM_UP + arguments.steps):
        dist.barrier()
        messages.sizes.clear()
        loss = parallel(torch.zeros(1, requires_grad=True)).sum()
        clock.begin = time.perf_counter()
        loss.backward()
        exposed_ms.append(1e3 * (time.perf_counter() - clock.begin - backward_s))
    if rank == 0:
        with open(result, "w") as file:
            json.dump({"exposed_ms": exposed_ms[WARM_UP:], "bytes": messages.sizes}, file)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", help="a gradient list, with its order beside it")
    parser.add_argument("--cap-mb", type=float, help="bucket_cap_mb (torch's default: 25)")
    parser.add_argument("--backward-ms", type=float, default=120.0, help="the backward pass (%(default)s)")
    parser.add_argument("--message-ms", type=float, default=0.2, help="each message (%(default)s)")
    parser.add_argument("--mb-ms", type=float, default=0.5, help="each megabyte (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="measured steps (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rendezvous, result = os.path.join(folder, "rendezvous"), os.path.join(folder, "steps")
        multiprocessing.spawn(run, (arguments, rendezvous, result), nprocs=RANKS)
        with open(result) as file:
            measured = json.load(file)
    exposed_ms = sorted(measured["exposed_ms"])
    print(json.dumps({
        "torch": torch.__version__, "workload": os.path.basename(arguments.workload)[: -len(".csv")], "ranks": RANKS,
        "bucket_cap_mb": arguments.cap_mb, "backward_ms": arguments.backward_ms, "message_ms": arguments.message_ms,
        "mb_ms": arguments.mb_ms, "steps": len(exposed_ms), "bytes": measured["bytes"],
        "exposed_ms": round(statistics.median(exposed_ms), 3),
        "exposed_ms_min": round(exposed_ms[0], 3), "exposed_ms_max": round(exposed_ms[-1], 3),
    }))


if __name__ == "__main__":
    sys.exit(main())
