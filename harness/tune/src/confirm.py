#!/usr/bin/env python3
"""Compares settings of Horovod on this cluster.

    python confirm.py -np 8 -H node1:4,node2:4 > confirm.csv
    python confirm.py --launcher "srun --ntasks=8 --mpi=pmix" > confirm.csv
    python confirm.py -np 8 --dry-run

Each block starts a process group of its own for every setting, in random order. Its ranks replay
training steps: forward, backward and optimizer pass as time, and each of the model's gradients is
reduced once it is ready. A row is the median over steps of the slowest rank's step time.

It needs Horovod with PyTorch, and must lie where all nodes see it under the same path.
"""

import argparse
import csv
import json
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

# PLAN

REPORT = "KOLO-REPORT "
COLUMNS = ["block", "order", "setting", "step_ms", "min_ms", "max_ms", "steps", "ranks", "device"]
# Variables that would change or slow down settings are removed.
DISTURBING = ["HOROVOD_AUTOTUNE", "HOROVOD_AUTOTUNE_LOG", "HOROVOD_TIMELINE"]


class Failed(Exception):
    """A block has no result; the text says why."""


class Hopeless(Failed):
    """No block will have one."""


def at_least(least):
    def number(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError("%d, expected %d or more" % (value, least))
        return value

    return number


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-np", type=at_least(1), dest="ranks", help="ranks, started by horovodrun")
    add("-H", dest="hosts", help="hosts with slots for horovodrun: node1:4,node2:4")
    add("--launcher", help="starts the ranks instead of horovodrun: 'srun --ntasks=8 --mpi=pmix'")
    add("--blocks", type=at_least(1), default=BLOCKS, help="default: %(default)s; a verdict needs 4")
    add("--warmup", type=at_least(0), default=10, help="warm-up steps per block (%(default)s)")
    add("--steps", type=at_least(1), default=30, help="measured steps per block (%(default)s)")
    add("--seed", type=int, default=1, help="seed of the order (%(default)s)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto",
        help="device of the gradients; auto: GPUs if there are any")
    add("--dtype", choices=["float16", "float32", "float64"], default="float32")
    add("--timeout", type=at_least(1), default=600, help="seconds for a block (%(default)s)")
    add("--dry-run", action="store_true", help="print commands in their order, and run none")
    add("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is None and (arguments.ranks is None) == (arguments.launcher is None):
        parser.error("give either -np, for horovodrun, or --launcher")
    if arguments.hosts and arguments.launcher:
        parser.error("-H is for horovodrun; name the hosts in --launcher")
    return arguments


def apply(setting, variables):
    """Sets the variables of the setting, and removes those of other settings and of the shell."""
    for name in DISTURBING + [name for _, others in SETTINGS for name in others]:
        variables.pop(name, None)
    variables.update(SETTINGS[setting][1])


def command(arguments, setting):
    if arguments.launcher:
        launch = shlex.split(arguments.launcher)
    else:
        launch = ["horovodrun", "-np", str(arguments.ranks)]
        launch += ["-H", arguments.hosts] if arguments.hosts else []
    worker = [sys.executable, os.path.abspath(__file__), "--worker", str(setting)]
    for option in ["warmup", "steps", "device", "dtype"]:
        worker += ["--" + option, str(getattr(arguments, option))]
    return launch + worker


def orders(arguments):
    """The settings of each block in random order."""
    shuffle = random.Random(arguments.seed).shuffle
    for _ in range(arguments.blocks):
        order = list(range(len(SETTINGS)))
        shuffle(order)
        yield order


def line(text):
    return " ".join(str(text).split())


def quoted(words):
    return " ".join(shlex.quote(word) for word in words)


def dry_run(arguments):
    for block, order in enumerate(orders(arguments)):
        for place, setting in enumerate(order):
            label, variables = SETTINGS[setting]
            print("# block %d, order %d: %s" % (block, place, line(label)))
            words = ["%s=%s" % pair for pair in sorted(variables.items())]
            print(quoted((["env"] + words if words else []) + command(arguments, setting)))


def stop(process):
    for number in [signal.SIGTERM, signal.SIGKILL]:
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=10)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            pass


def measure(arguments, setting):
    """What rank 0 of a new process group reports."""
    variables = dict(os.environ)
    apply(setting, variables)
    process = subprocess.Popen(
        command(arguments, setting), env=variables, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        start_new_session=True)
    try:
        output = process.communicate(timeout=arguments.timeout)[0]
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failed("no result after %d s (--timeout)" % arguments.timeout)
    except BaseException:
        stop(process)
        raise
    return judge(arguments, process.returncode, output)


def judge(arguments, status, output):
    reports = []
    for part in output.split(REPORT)[1:]:
        try:
            reports.append(json.JSONDecoder().raw_decode(part)[0])
        except ValueError:
            raise Failed("its report is garbled: %s" % line(part[:200]))
    for report in reports:
        if "error" in report:
            raise (Hopeless if report["hopeless"] else Failed)(report["error"])
    if status != 0 or not reports:
        last = ([text for text in output.splitlines() if text.strip()] or ["no output"])[-1]
        raise Failed("exit status %d and %s report; its last line: %s"
                     % (status, "a" if reports else "no", line(last)[:300]))
    if len(reports) > 1:
        raise Hopeless("%d processes ran alone; the launcher must start them as one group that"
                       " Horovod's controller (MPI or Gloo) knows" % len(reports))
    if arguments.ranks not in (None, reports[0]["ranks"]):
        raise Failed("%d ranks, expected %d" % (reports[0]["ranks"], arguments.ranks))
    return reports[0]


def lead(arguments):
    launcher = command(arguments, 0)[0]
    if shutil.which(launcher) is None:
        sys.exit("%s is not on this machine's PATH; activate the environment that has Horovod with"
                 " PyTorch (HOROVOD_WITH_PYTORCH=1 pip install 'horovod[pytorch]'), or give"
                 " --launcher" % launcher)
    say = lambda text: print(text, file=sys.stderr, flush=True)
    if arguments.blocks < 4:
        say("%d blocks measure, but a verdict needs 4" % arguments.blocks)
    print("# workload %s, %d gradients; seed %d, %d + %d steps a block"
          % (line(WORKLOAD), len(GRADIENTS), arguments.seed, arguments.warmup, arguments.steps))
    for label, variables in SETTINGS:
        print("# %s: %s" % (line(label), line(" ".join("%s=%s" % pair for pair in variables.items()))))
    print("# " + line(quoted(command(arguments, 0))))
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(COLUMNS)
    measured = 0
    for block, order in enumerate(orders(arguments)):
        for place, setting in enumerate(order):
            label = SETTINGS[setting][0]
            where = "block %d of %d, %s" % (block, arguments.blocks, line(label))
            try:
                report = measure(arguments, setting)
            except Hopeless as problem:
                sys.stdout.flush()
                sys.exit("%s: %s" % (where, line(problem)))
            except (Failed, OSError) as problem:
                print("# %s: %s" % (where, line(problem)), flush=True)
                say("%s: %s" % (where, line(problem)))
                continue
            measured += 1
            times = ["%.6f" % report[column] for column in COLUMNS[3:6]]
            rows.writerow([block, place, label] + times + [report[name] for name in COLUMNS[6:]])
            sys.stdout.flush()
            say("%s: %.3f ms" % (where, report["step_ms"]))
    if measured == 0:
        sys.exit("no block has a result")


def tell(report):
    sys.stdout.write("\n" + REPORT + json.dumps(report) + "\n")
    sys.stdout.flush()


def wait_until(moment):
    """Sleeps, as a thread does that waits for a GPU. Spinning would take the core from Horovod's thread."""
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


def work(arguments):
    """One rank of a block."""
    apply(arguments.worker, os.environ)
    try:
        import torch
        import horovod.torch as hvd
    except ImportError as problem:
        text = "Horovod with PyTorch cannot be used by %s: %s" % (sys.executable, problem)
        tell({"error": text, "hopeless": True})
        sys.exit(1)
    hvd.init()
    cuda = torch.cuda.is_available() if arguments.device == "auto" else arguments.device == "cuda"
    device = torch.device("cuda", hvd.local_rank()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dtype = getattr(torch, arguments.dtype)
    value = lambda rank: 1.0 + rank % 2
    tensors = [torch.full(shape, value(hvd.rank()), dtype=dtype, device=device)
               for _, shape, _ in GRADIENTS]
    forward, backward, optimizer = FORWARD_MS / 1e3, BACKWARD_MS / 1e3, OPTIMIZER_MS / 1e3

    def step():
        begin = time.perf_counter()
        handles = []
        for (name, _, share), tensor in zip(GRADIENTS, tensors):
            wait_until(begin + forward + share * backward)
            handles.append(hvd.allreduce_async_(tensor, name=name, op=hvd.Average))
        wait_until(begin + forward + backward)
        for handle in handles:
            hvd.synchronize(handle)
        if cuda:
            torch.cuda.synchronize()
        wait_until(time.perf_counter() + optimizer)
        return 1e3 * (time.perf_counter() - begin)

    for _ in range(arguments.warmup):
        step()
    times = [step() for _ in range(arguments.steps)]
    for tensor in tensors:
        tensor.fill_(value(hvd.rank()))
    step()
    mean = statistics.mean(value(rank) for rank in range(hvd.size()))
    for (name, _, _), tensor in zip(GRADIENTS, tensors):
        if tensor.numel() and float((tensor - mean).abs().max()) > 0.01:
            text = "rank %d has a wrong result in %s, expected %g" % (hvd.rank(), name, mean)
            tell({"error": text, "hopeless": False})
            sys.exit(1)
    of_ranks = hvd.allgather(torch.tensor([times], dtype=torch.float64), name="kolo.times").tolist()
    if hvd.rank() == 0:
        slowest = [max(of_step) for of_step in zip(*of_ranks)]
        tell({
            "step_ms": statistics.median(slowest), "min_ms": min(slowest), "max_ms": max(slowest),
            "steps": len(slowest), "ranks": hvd.size(), "device": device.type, "steps_ms": slowest,
        })
    hvd.shutdown()


def main():
    arguments = parse()
    if arguments.worker is not None:
        work(arguments)
    elif arguments.dry_run:
        dry_run(arguments)
    else:
        try:
            lead(arguments)
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
