#!/usr/bin/env python3
"""Measures how long a step of tf.distribute waits for messages that take a given time.

    python exposed.py [--pack-mb N] [--backward-ms 120] [--mb-ms 0.5] configs/workloads/resnet50.csv

Two workers on this machine reduce gradients of the list's shapes, which are ready at the times of LIST.ready.csv, one after
the other as in a backward pass. A wait stands for each collective in the graph of TensorFlow: a message takes --message-ms
and --mb-ms for each megabyte from when its gradients are ready and the message before it has ended, packing included. So the
times of messages are known, and what is left is which gradients a message waits for, and in which order TensorFlow sends
them. The exposed time is that from the end of the backward pass to the end of the last message.
"""

import argparse
import json
import os
import statistics
import sys
import time

from packs import WORKERS, ready_times, run_all, shapes

WARM_UP = 5


def wait_until(moment):
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


class Steps:
    """Times of the gradients and messages of a step, in s since the backward pass began."""

    def __init__(self, arguments):
        self.message_s, self.mb_s = arguments.message_ms / 1e3, arguments.mb_ms / 1e3
        self.begin = self.due = 0.0
        self.ready, self.ends = {}, []

    def start(self):
        self.ready.clear()
        self.ends.clear()
        self.due = 0.0
        self.begin = time.perf_counter()

    def gradient(self, at, after):
        wait_until(self.begin + after)
        self.ready[at] = time.perf_counter() - self.begin

    def message(self, gradients, size_bytes):
        begin = max([self.due] + [self.ready[at] for at in gradients])
        # Waking up late shall not make the next message late.
        self.due = begin + self.message_s + self.mb_s * size_bytes / 1e6
        wait_until(self.begin + self.due)
        self.ends.append(time.perf_counter() - self.begin)


def work(arguments):
    """One worker."""
    import numpy
    import tensorflow as tf
    from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher

    from packs import members_of

    # A waiting gradient and a waiting message have a thread each.
    tf.config.threading.set_inter_op_parallelism_threads(8)
    backward_s = arguments.backward_ms / 1e3
    steps, sizes = Steps(arguments), []

    def waits(function, after, *given):
        """A value that is there when the function has returned, which begins after others."""

        def call(_):
            function(*given)
            return numpy.float32(0)

        # Operations without state are ordered by their inputs alone.
        return tf.numpy_function(call, [after], tf.float32, stateful=False)

    def all_reduce(_, buffer, control_input=None, options=None):
        gradients, size_bytes = members_of(buffer), buffer.shape.num_elements() * buffer.dtype.size
        sizes.append(size_bytes)
        with tf.control_dependencies([] if control_input is None else [control_input]):
            done = waits(steps.message, tf.reshape(buffer, [-1])[0], gradients, size_bytes)
        # TensorFlow leaves out operations without state whose values are not used.
        return tf.reshape(buffer, [tf.size(buffer) + tf.cast(done, tf.int32)])

    CollectiveReplicaLauncher.all_reduce = all_reduce
    # The implementation whose messages have an order.
    communication = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=int(arguments.pack_mb * 2**20),
        implementation=tf.distribute.experimental.CommunicationImplementation.NCCL,
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    lengths, ready = shapes(arguments.workload), ready_times(arguments.workload, backward_s)

    def reduce(start):
        named = [None] * len(lengths)
        for at, after in ready:
            start = waits(steps.gradient, start, at, after)
            # Of a value that is not known before, so that TensorFlow does not compute it in advance.
            named[at] = tf.identity(tf.fill(lengths[at], start), name=f"gradient_{at}")
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, named, options=communication)

    step = tf.function(lambda start: strategy.run(reduce, (start,)))
    exposed_ms = []
    for _ in range(WARM_UP + arguments.steps):
        steps.start()
        step(tf.constant(0.0))
        exposed_ms.append(1e3 * (steps.ends[-1] - backward_s))
        assert len(steps.ends) == len(sizes), f"{len(steps.ends)} of {len(sizes)} messages"
    if strategy.cluster_resolver.task_id == 0:
        with open(arguments.result, "w") as file:
            json.dump({"tensorflow": tf.__version__, "exposed_ms": exposed_ms[WARM_UP:], "bytes": sizes}, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", help="a gradient list, with its order beside it")
    parser.add_argument("--pack-mb", type=float, default=0.0, help="bytes_per_pack in MiB (TensorFlow's default: 0, one pack)")
    parser.add_argument("--backward-ms", type=float, default=120.0, help="the backward pass (%(default)s)")
    parser.add_argument("--message-ms", type=float, default=0.2, help="each message (%(default)s)")
    parser.add_argument("--mb-ms", type=float, default=0.5, help="each megabyte (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="measured steps (%(default)s)")
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.result:
        return work(arguments)
    measured = run_all()
    exposed_ms = sorted(measured["exposed_ms"])
    print(json.dumps({
        "tensorflow": measured["tensorflow"], "workload": os.path.basename(arguments.workload)[: -len(".csv")],
        "ranks": WORKERS, "bytes_per_pack": int(arguments.pack_mb * 2**20), "backward_ms": arguments.backward_ms,
        "message_ms": arguments.message_ms, "mb_ms": arguments.mb_ms, "steps": len(exposed_ms), "bytes": measured["bytes"],
        "exposed_ms": round(statistics.median(exposed_ms), 3),
        "exposed_ms_min": round(exposed_ms[0], 3), "exposed_ms_max": round(exposed_ms[-1], 3),
    }))


if __name__ == "__main__":
    sys.exit(main())
