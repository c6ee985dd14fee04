#!/usr/bin/env python3
"""Records the messages of tf.distribute's MultiWorkerMirroredStrategy for a gradient list.

    python packs.py [--pack-mb N] [--implementation RING] [--steps 2] configs/workloads/resnet50.csv

Two workers on this machine, each a process with a TF_CONFIG, reduce gradients of the list's shapes as an optimizer's
`apply_gradients` does: all at once, in the order of their definition. The graph that both ran tells the gradients of each
collective, by their positions in the list; every step's sums are checked.
"""

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile

WORKERS = 2


def shapes(path):
    with open(path) as file:
        return [[int(part) for part in row["shape"].split("x") if part] for row in csv.DictReader(file)]


def ready_times(path, backward_s):
    """For each gradient, in the order of the backward pass: its position in the list, and when it is ready."""
    with open(path[: -len(".csv")] + ".ready.csv") as file:
        return [(int(row["index"]), backward_s * float(row["bwd_flop_frac"])) for row in csv.DictReader(file)]


def gradient_of(tensor):
    """The position of a gradient that reaches a collective through reshapes."""
    while not tensor.op.name.split("/")[-1].startswith("gradient_"):
        tensor = tensor.op.inputs[0]
    return int(tensor.op.name.split("gradient_")[1].split("_")[0])


def members(collective):
    """The gradients that one collective reduces, in their order in its buffer."""
    (buffer,) = [tensor for tensor in collective.inputs if tensor.dtype.is_floating][:1]
    return members_of(buffer)


def members_of(buffer):
    """The gradients of a buffer, in their order."""
    packed = buffer.op
    # The last input of a concatenation is its axis.
    parts = list(packed.inputs)[:-1] if packed.type == "ConcatV2" else [buffer]
    return [gradient_of(part) for part in parts]


def work(arguments):
    """One worker."""
    import tensorflow as tf

    communication = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=int(arguments.pack_mb * 2**20),
        implementation=getattr(tf.distribute.experimental.CommunicationImplementation, arguments.implementation),
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    lengths = shapes(arguments.workload)

    def reduce():
        gradients = [tf.fill(shape, 1.0) for shape in lengths]
        named = [tf.identity(gradient, name=f"gradient_{at}") for at, gradient in enumerate(gradients)]
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, named, options=communication)

    step = tf.function(lambda: strategy.run(reduce))
    for _ in range(arguments.steps):
        for at, total in enumerate(step()):
            values = total.numpy()
            assert list(values.shape) == lengths[at] and (values == WORKERS).all(), f"gradient {at} is wrong"
    operations = step.get_concrete_function().graph.get_operations()
    collectives = [operation for operation in operations if operation.type.startswith("CollectiveReduce")]
    assert collectives, "no collective in the graph"
    if strategy.cluster_resolver.task_id == 0:
        with open(arguments.result, "w") as file:
            json.dump({"tensorflow": tf.__version__, "packs": [members(one) for one in collectives]}, file)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_all():
    """Runs this program's workers; returns what the first has written."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result")
        start_all(result)
        with open(result) as file:
            return json.load(file)


def start_all(result):
    """Starts the workers, and waits for them."""
    cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(WORKERS)]}
    workers = []
    for index in range(WORKERS):
        task = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        environment = {**os.environ, "TF_CONFIG": task, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        command = [sys.executable, *sys.argv, "--result", result]
        workers.append(subprocess.Popen(command, env=environment))
    statuses = [worker.wait(timeout=600) for worker in workers]
    if any(statuses):
        sys.exit(f"packs.py: workers ended with {statuses}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", help="a gradient list")
    parser.add_argument("--pack-mb", type=float, default=0.0, help="bytes_per_pack in MiB (TensorFlow's default: 0, one pack)")
    parser.add_argument("--implementation", default="RING", choices=["AUTO", "RING"])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.result:
        return work(arguments)
    recorded = run_all()
    workload = os.path.basename(arguments.workload)[: -len(".csv")]
    print(json.dumps({
        **recorded, "workload": workload, "workers": WORKERS, "bytes_per_pack": int(arguments.pack_mb * 2**20),
    }))


if __name__ == "__main__":
    sys.exit(main())
