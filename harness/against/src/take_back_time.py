"""Prints how long the framework's thread of one rank of Horovod is on a core to take back a result.

    python take_back_time.py GRADIENTS

All gradients have one element and are in one message, so results are taken back while the loop marks others as
done. Of all periods a tenth are shorter than the one that counts, so that nothing slows the thread down.
"""

import json
import os
import sys
import time

PERIODS = 60
WARMUP = 10
# Longer than it takes to hand over all gradients.
CYCLE_MS = 20


def at_best(times):
    return sorted(times)[len(times) // 10]


def main():
    gradients = int(sys.argv[1])
    os.environ["HOROVOD_CYCLE_TIME"] = str(CYCLE_MS)
    import torch
    import horovod.torch as hvd

    hvd.init()
    first, *others = [torch.ones(1) for _ in range(1 + gradients)]
    times_us = []
    for _ in range(WARMUP + PERIODS):
        # Once its result is there, the loop sleeps for the rest of a cycle.
        hvd.allreduce_(first, name="first", op=hvd.Average)
        handles = [hvd.allreduce_async_(tensor, name="gradient.%d" % index, op=hvd.Average)
                   for index, tensor in enumerate(others)]
        hvd.synchronize(handles[0])
        begin = time.thread_time()
        for handle in handles[1:]:
            hvd.synchronize(handle)
        times_us.append(1e6 * (time.thread_time() - begin) / (gradients - 1))
    print("KOLO-REPORT " + json.dumps({"take_back_us": at_best(times_us[WARMUP:])}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
