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
import traceback

# PLAN

REPORT = "KOLO-REPORT "
COLUMNS = ["block", "order", "setting", "step_ms", "min_ms", "max_ms", "steps", "ranks", "device"]
# Variables that would change or slow down settings are removed.
DISTURBING = ["HOROVOD_AUTOTUNE", "HOROVOD_AUTOTUNE_LOG", "HOROVOD_TIMELINE"]
# Steps that warm up a block of ranks that have stayed.
WARMUP_AGAIN = 2


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
    # Steps in which all gradients are ready at once, after the measured ones: for the times of the thread.
    add("--at-once", type=int, default=0, help=argparse.SUPPRESS)
    # Ranks on one node stop themselves (SIGSTOP) after each block, and run the next one when they are continued.
    add("--stay", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is None and (arguments.ranks is None) == (arguments.launcher is None):
        parser.error("give either -np, for horovodrun, or --launcher")
    if arguments.hosts and arguments.launcher:
        parser.error("-H is for horovodrun; name the hosts in --launcher")
    return arguments


def apply(setting, variables):
    """Sets the variables of the setting, and removes those of other settings and of the shell."""
    for name in DISTURBING + [name for _, others, _ in SETTINGS for name in others]:
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
            label, variables, _ = SETTINGS[setting]
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
    for label, variables, options in SETTINGS:
        words = ["%s=%s" % pair for pair in variables.items()]
        words += ["%s: %s" % (name, len(value) if name == "groups" else value)
                  for name, value in options.items()]
        print("# %s: %s" % (line(label), line(" ".join(words))))
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


def report_line(report):
    sys.stdout.write("\n" + REPORT + json.dumps(report) + "\n")
    sys.stdout.flush()


def wait_until(moment):
    """Sleeps, as a thread does that waits for a GPU. Spinning would take the core from Horovod's thread.
    Returns whether it had to."""
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
    return left > 0


def at_best(times):
    """A tenth of them are shorter. Work takes longer while others use the core's caches."""
    return sorted(times)[len(times) // 10] if times else 0.0


class Gradients:
    """One rank's gradients, with what Horovod's _DistributedOptimizer does with them."""

    def __init__(self, hvd, options, new):
        self.hvd, self.new, self.options = hvd, new, options
        self.passes = options.get("passes", 1)
        self.groups = options.get("groups", [[index] for index in range(len(GRADIENTS))])
        self.group_of = {index: at for at, group in enumerate(self.groups) for index in group}
        self.compression = getattr(hvd.Compression, options.get("compression", "none"))
        self.reduction = {"op": hvd.Average}
        for key in ["prescale_factor", "postscale_factor"]:
            if key in options:
                self.reduction[key] = options[key]
        # In warm-up steps: for each step, time on a core for work on gradients.
        self.is_timed = True
        self.work_s = {"add": [], "cast": [], "cast_back": []}
        self.fill()
        # What each later backward pass adds.
        self.addends = [tensor.clone() for tensor in self.tensors] if self.passes > 1 else []
        self.begin()

    def begin(self):
        self.handles = []
        self.waiting = [len(group) for group in self.groups]
        if self.is_timed:
            for of_steps in self.work_s.values():
                of_steps.append(0.0)

    def fill(self):
        self.tensors = [self.new(shape, 1.0 + self.hvd.rank() % 2) for _, shape, _ in GRADIENTS]

    def work(self, kind, function, *given):
        """Works on gradients; returns the result and how long it took."""
        begin, on_core = time.perf_counter(), time.thread_time() if self.is_timed else None
        result = function(*given)
        if on_core is not None:
            self.work_s[kind][-1] += time.thread_time() - on_core
        return result, time.perf_counter() - begin

    def work_mb_us(self, kind):
        """Time on a core for a megabyte of gradients."""
        passes = self.passes - 1 if kind == "add" else 1
        megabytes = passes * sum(tensor.numel() * tensor.element_size() for tensor in self.tensors) / 1e6
        # The last step has not begun.
        of_steps = self.work_s[kind][:-1]
        return 1e6 * statistics.median(of_steps) / megabytes if megabytes and of_steps else 0.0

    def ready(self, index, one_pass):
        """A backward pass has computed a gradient; returns how long adding and casting took."""
        worked = 0.0
        if one_pass > 0:
            _, worked = self.work("add", self.tensors[index].add_, self.addends[index])
        if one_pass + 1 < self.passes:
            return worked
        at = self.group_of[index]
        self.waiting[at] -= 1
        if self.waiting[at] > 0:
            return worked
        group = self.groups[at]
        cast, casting = self.work("cast", lambda: [self.compression.compress(self.tensors[member]) for member in group])
        worked += casting
        tensors, name = [tensor for tensor, _ in cast], GRADIENTS[group[0]][0]
        if "groups" in self.options:
            handle = self.hvd.grouped_allreduce_async_(tensors, name=name, **self.reduction)
        else:
            handle = self.hvd.allreduce_async_(tensors[0], name=name, **self.reduction)
        self.handles.append((handle, group, [context for _, context in cast]))
        return worked

    def synchronize(self):
        for handle, group, contexts in self.handles:
            results = self.hvd.synchronize(handle)
            if self.compression is not self.hvd.Compression.none:
                results = results if "groups" in self.options else [results]
                self.work("cast_back", self.cast_back, group, results, contexts)
        self.begin()

    def await_last_result(self):
        """Offers the core to others until the last result is there. Caches are then as cold as in a step that waits for it."""
        last, _, _ = self.handles[-1]
        while not self.hvd.poll(last):
            os.sched_yield()

    def cast_back(self, group, results, contexts):
        for member, result, context in zip(group, results, contexts):
            self.tensors[member].set_(self.compression.decompress(result, context))

    def wrong(self):
        """The name of a gradient that is not what it should be after a step, and what that is."""
        mean = statistics.mean(1.0 + rank % 2 for rank in range(self.hvd.size()))
        expected = mean * self.passes
        for key in ["prescale_factor", "postscale_factor"]:
            expected *= self.options.get(key, 1.0)
        for (name, _, _), tensor in zip(GRADIENTS, self.tensors):
            if tensor.numel() and float((tensor - expected).abs().max()) > 0.01 * expected:
                return name, expected
        return None


class Steps:
    """One rank's training steps. Calling it runs one, and returns its time in ms."""

    def __init__(self, torch, hvd, options, device, dtype, is_timed=False):
        cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
        self.device = torch.device("cuda", hvd.local_rank()) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        self.finish = torch.cuda.synchronize if cuda else lambda: None
        dtype = getattr(torch, dtype)
        new = lambda shape, value: torch.full(shape, value, dtype=dtype, device=self.device)
        self.gradients = Gradients(hvd, options, new)
        # What `compute` returned, step by step.
        self.is_timed, self.waits = is_timed, []

    def __call__(self):
        begin = time.perf_counter()
        self.waits.append(self.compute(FORWARD_MS / 1e3, BACKWARD_MS / 1e3))
        self.gradients.synchronize()
        self.finish()
        wait_until(time.perf_counter() + OPTIMIZER_MS / 1e3)
        return 1e3 * (time.perf_counter() - begin)

    def compute(self, forward, backward):
        """Forward and backward passes of so many seconds. Returns pairs of this thread's time on a core, in seconds, and how
        many gradients were ready: a pair at the beginning and, if the thread is timed, one at the end of each wait."""
        now, waits = time.perf_counter(), [(time.thread_time(), 0)]
        for one_pass in range(self.gradients.passes):
            now += forward
            for index, (_, _, share) in enumerate(GRADIENTS):
                if wait_until(now + share * backward) and self.is_timed:
                    waits.append((time.thread_time(), index))
                # Work on gradients makes the backward pass longer.
                now += self.gradients.ready(index, one_pass)
            now += backward
            if wait_until(now) and self.is_timed:
                waits.append((time.thread_time(), len(GRADIENTS)))
        return waits

    def thread_us(self, steps, at_once):
        """This thread's time on a core: to wake up from a wait, to hand over a gradient, and to take back a result that is
        there. The last two are those where nothing slows it down, of further steps in which all gradients are ready at once,
        and results are taken back when the last one is there. Waking up is what it took from one wait to the next besides, in
        the last steps. It is a median, since Linux also counts some of the time in which another thread has the core."""
        if at_once == 0:
            return 0.0, 0.0, 0.0
        handing_over_s, taking_back_s = [], []
        for _ in range(at_once):
            begin = time.thread_time()
            self.compute(0.0, 0.0)
            handing_over_s.append((time.thread_time() - begin) / len(GRADIENTS))
            self.gradients.await_last_result()
            begin = time.thread_time()
            self.gradients.synchronize()
            taking_back_s.append((time.thread_time() - begin) / len(GRADIENTS))
        hand_over_s = statistics.median(handing_over_s)
        wake_s = [
            later - earlier - (ready - before) * hand_over_s
            for waits in self.waits[-steps:] for (earlier, before), (later, ready) in zip(waits, waits[1:])
        ]
        wake_us = 1e6 * statistics.median(wake_s or [0.0])
        return wake_us, 1e6 * at_best(handing_over_s), 1e6 * at_best(taking_back_s)


def modules():
    """PyTorch and Horovod, initialised."""
    try:
        import torch
        import horovod.torch as hvd
    except ImportError as problem:
        text = "Horovod with PyTorch cannot be used by %s: %s" % (sys.executable, problem)
        report_line({"error": text, "hopeless": True})
        sys.exit(1)
    hvd.init()
    return torch, hvd


def anonymous_mib():
    """This process's memory besides files, where the system tells it."""
    try:
        with open("/proc/self/status") as status:
            for text in status:
                if text.startswith("RssAnon:"):
                    return int(text.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def work(arguments):
    """One rank of a block, or of many."""
    apply(arguments.worker, os.environ)
    torch, hvd = modules()
    framework_mib = anonymous_mib()
    options = SETTINGS[arguments.worker][2]
    compression = options.get("compression", "none")
    if not hasattr(hvd.Compression, compression):
        report_line({"error": "Horovod has no compression %s" % compression, "hopeless": True})
        sys.exit(1)
    step = Steps(torch, hvd, options, arguments.device, arguments.dtype, arguments.at_once > 0)
    pids = []
    if arguments.stay and hvd.local_size() == hvd.size():
        pids = hvd.allgather(torch.tensor([os.getpid()]), name="kolo.pids").tolist()
    warmup = arguments.warmup
    while True:
        block(arguments, torch, hvd, step, warmup, {"framework_mib": framework_mib, "pids": pids})
        if not pids:
            break
        os.kill(os.getpid(), signal.SIGSTOP)
        warmup = min(warmup, WARMUP_AGAIN)
    hvd.shutdown()


def block(arguments, torch, hvd, step, warmup, more):
    """Steps of this rank. Rank 0 reports them, and what is `more`."""
    gradients = step.gradients
    began_s = time.time()
    for _ in range(warmup):
        step()
    gradients.is_timed = False
    times, ends_s = [], [time.time()]
    for _ in range(arguments.steps):
        times.append(step())
        ends_s.append(time.time())
    wake_us, hand_over_us, take_back_us = step.thread_us(arguments.steps, arguments.at_once)
    gradients.fill()
    step()
    wrong = gradients.wrong()
    if wrong:
        text = "rank %d has a wrong result in %s, expected %g" % (hvd.rank(), *wrong)
        report_line({"error": text, "hopeless": False})
        sys.exit(1)
    of_ranks = hvd.allgather(torch.tensor([times], dtype=torch.float64), name="kolo.times").tolist()
    if hvd.rank() == 0:
        slowest = [max(of_step) for of_step in zip(*of_ranks)]
        report_line({
            "step_ms": statistics.median(slowest), "min_ms": min(slowest), "max_ms": max(slowest),
            "steps": len(slowest), "ranks": hvd.size(), "device": step.device.type,
            # When the first step that warms up began, and the last one ended; when the first measured step began, and each
            # one ended.
            "steps_ms": slowest, "moments_s": [began_s, ends_s[-1]], "ends_s": ends_s,
            # Of the thread that hands gradients over, if it was asked for them: its time on a core to wake up from a wait, to
            # hand over a gradient, and to take back a result. The last two where nothing slows it down.
            "wake_us": wake_us, "hand_over_us": hand_over_us, "take_back_us": take_back_us,
            # For a megabyte of gradients, its time on a core for adding and casting them.
            "add_mb_us": gradients.work_mb_us("add"), "cast_mb_us": gradients.work_mb_us("cast"),
            "cast_back_mb_us": gradients.work_mb_us("cast_back"),
            # Memory of the process before that of gradients, and processes of ranks that stay.
            **more,
        })


def main():
    arguments = parse()
    if arguments.worker is not None:
        try:
            work(arguments)
        except Exception:
            # Horovod waits for the other ranks when a program ends, and these wait for a rank that has failed.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    elif arguments.dry_run:
        dry_run(arguments)
    else:
        try:
            lead(arguments)
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
