"""Prints how long the background loop of one rank of Horovod is on a core for each gradient.

    python loop_times.py GRADIENTS FUSION_THRESHOLD

All gradients have one element and are handed over at once, so neither the backward pass nor copies and
reductions count. A period without gradients is subtracted: it has the loop's cycles alone. Of all periods a
tenth are shorter than the one that counts, so that nothing slows the loop down.
"""

import json
import os
import sys
import time

PERIODS = 60
WARMUP = 10
# Longer than the loop is busy with all gradients.
LEAST_PERIOD_S = 0.02
PERIOD_S_PER_GRADIENT = 150e-6


def threads():
    return {int(name) for name in os.listdir("/proc/self/task")}


def on_core_us(thread):
    with open("/proc/self/task/%d/schedstat" % thread) as times:
        return int(times.read().split()[0]) / 1e3


def at_best(times):
    return sorted(times)[len(times) // 10]


def main():
    gradients, threshold = int(sys.argv[1]), sys.argv[2]
    os.environ["HOROVOD_FUSION_THRESHOLD"] = threshold
    import torch
    import horovod.torch as hvd

    before = threads()
    hvd.init()
    tensors = [torch.ones(1) for _ in range(gradients)]
    period_s = max(LEAST_PERIOD_S, gradients * PERIOD_S_PER_GRADIENT)

    def period(tensors):
        end = time.perf_counter() + period_s
        handles = [hvd.allreduce_async_(tensor, name="gradient.%d" % index, op=hvd.Average)
                   for index, tensor in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)
        time.sleep(max(0.0, end - time.perf_counter()))

    for _ in range(WARMUP):
        period(tensors)
    # MPI and Horovod have threads besides; the loop's is the busy one.
    own = sorted(threads() - before)
    loop = max(own, key=on_core_us)
    busy_us, idle_us = [], []
    for _ in range(PERIODS):
        for times, some in [(busy_us, tensors), (idle_us, [])]:
            begin = on_core_us(loop)
            period(some)
            times.append(on_core_us(loop) - begin)
    each_us = (at_best(busy_us) - at_best(idle_us)) / gradients
    print("KOLO-REPORT " + json.dumps({"gradient_us": each_us}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
