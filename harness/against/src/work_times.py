"""Prints how long PyTorch has the framework's thread on a core for a megabyte of gradients.

    python work_times.py ELEMENTS,ELEMENTS,... DTYPE

Adding one to another, as in later backward passes; casting to fp16, and back. All ranks work at the same time, as in a
backward pass, and nothing is reduced meanwhile. Time on a core counts: Horovod's loops poll beside the framework, and share
its cores where there are few. Where PyTorch uses several threads, the framework's does its part, and waits for the others.
"""

import json
import statistics
import sys
import time

REPEATS = 12


def main():
    import torch
    import horovod.torch as hvd

    hvd.init()
    elements = [int(word) for word in sys.argv[1].split(",")]
    dtype = getattr(torch, sys.argv[2])
    compression = hvd.Compression.fp16
    tensors, addends = ([torch.ones(count, dtype=dtype) for count in elements] for _ in range(2))
    megabytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 1e6
    times = {"add": [], "cast": [], "cast_back": []}

    def timed(name, work):
        hvd.allreduce(torch.ones(1), name=name)
        begin = time.thread_time()
        done = work()
        times[name].append(1e6 * (time.thread_time() - begin) / megabytes)
        return done

    def add():
        for tensor, addend in zip(tensors, addends):
            tensor.add_(addend)

    def cast_back(cast):
        for tensor, (result, context) in zip(tensors, cast):
            tensor.set_(compression.decompress(result, context))

    for _ in range(REPEATS):
        timed("add", add)
        cast = timed("cast", lambda: [compression.compress(tensor) for tensor in tensors])
        timed("cast_back", lambda: cast_back(cast))
    if hvd.rank() == 0:
        report = {name + "_us": statistics.median(some) for name, some in times.items()}
        print("KOLO-REPORT " + json.dumps(report))
    hvd.shutdown()


if __name__ == "__main__":
    main()
