#!/usr/bin/env python3
"""The engine beside real Horovod over NCCL, by turns, on the same GPUs.

    python3 beside_horovod.py KOLO OUT [--ranks 2] [--rounds 3] [--settings 0:1,4:1,128:1] configs/workloads/resnet50.csv

KOLO is a build of kolo with --features mpi, OUT a folder that does not exist yet. It needs what hvd.py needs. In every
round each setting (fusion threshold in MiB and cycle time in ms) runs in random order by Horovod (hvd.py), and then by
`kolo sweep` in these ways:

    computed-nonblocking   gradients are handed over when the GPU has computed them; NCCL's communicators are nonblocking
    computed               the same; NCCL_COMM_BLOCKING=1, as Horovod's are
    launched               the same; gradients are handed over when the host has launched their kernels, at the pace of
                           torch and Horovod in the same round (host.launch_gradient_us)

The pace is measured by a run of Horovod with short passes, in which the host never waits for the GPU.

OUT/runs.csv has a line for each run, OUT/medians.csv one for each setting and way: medians over rounds, and the
smallest and largest ratio of a round. Ends with 1 if a run failed or an element was wrong.
"""

import argparse
import csv
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WAYS = ["computed-nonblocking", "computed", "launched"]
COLUMNS = [
    "workload",
    "round",
    "program",
    "fusion_threshold_mib",
    "cycle_time_ms",
    "step_ms_p50",
    "step_ms_min",
    "step_ms_max",
    "steps",
    "messages",
    "messages_with_timeline",
    "host_forward_ms_p50",
    "host_ms_p50",
    "launch_gradient_us",
    "wrong",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kolo")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("workload", type=pathlib.Path, help="a gradient list, with its .ready.csv beside it")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settings", default="0:1,4:1,64:1,128:1,64:5,128:5", help="MIB:MS,...")
    parser.add_argument("--ways", default=",".join(WAYS), help="of kolo")
    parser.add_argument("--forward-ms", type=float, default=3)
    parser.add_argument("--backward-ms", type=float, default=20)
    parser.add_argument("--optimizer-ms", type=float, default=1)
    parser.add_argument("--steps", type=int, default=30, help="of each run, after warm-up steps")
    parser.add_argument("--seed", type=int, default=20211)
    options = parser.parse_args()
    settings = [tuple(float(part) for part in setting.split(":")) for setting in options.settings.split(",")]
    ways = options.ways.split(",")
    if set(ways) - set(WAYS) or any(len(setting) != 2 for setting in settings):
        sys.exit(f"beside_horovod.py: expected --ways of {', '.join(WAYS)}, and --settings such as 0:1,128:5")
    options.out.mkdir()
    order, rows, failed = random.Random(options.seed), [], False
    for turn in range(1, options.rounds + 1):
        short = horovod(argparse.Namespace(**{**vars(options), "forward_ms": 0.1, "backward_ms": 1}), 128, 1)
        if not short:
            sys.exit("beside_horovod.py: the run with short passes, for the host's pace, failed")
        found = [{**short, "program": "horovod-short-passes"}]
        for mib, ms in order.sample(settings, len(settings)):
            row = horovod(options, mib, ms)
            failed |= row is None
            found += [row] if row else []
        # Half as long in a forward pass, so both take 1.5 times as long as a backward pass.
        tensors = sum(1 for _ in open(options.workload)) - 1
        launch_us = 1e3 * short["host_ms_p50"] / (1.5 * tensors)
        for way in order.sample(ways, len(ways)):
            of_way = kolo(options, way, settings, launch_us, turn)
            failed |= len(of_way) < len(settings)
            found += of_way
        rows += [{**row, "workload": options.workload.stem, "round": turn} for row in found]
        print(f"round {turn}: torch and Horovod launch a gradient in {launch_us:.1f} us", flush=True)
        write(options.out / "runs.csv", COLUMNS, rows)
    compared = comparison(rows, settings)
    if not compared:
        sys.exit("beside_horovod.py: no run of kolo ended well")
    write(options.out / "medians.csv", list(compared[0]), compared)
    for line in compared:
        print(*(f"{key}={value}" for key, value in line.items()))
    sys.exit(1 if failed or any(row["wrong"] for row in rows) else 0)


def write(path, columns, rows):
    """Writes the file as a whole."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def run(words, variables):
    """What the command prints; None if it fails, and then why on stderr."""
    started = ["mpirun", "-n", variables.pop("RANKS"), *words]
    ended = subprocess.run(started, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
    if ended.returncode == 0:
        return ended.stdout
    print(*started, f"ended with {ended.returncode}:", ended.stdout[-2000:], ended.stderr[-2000:], file=sys.stderr)
    return None


def horovod(options, mib, ms):
    """A run of hvd.py, as a row."""
    words = [sys.executable, str(HERE / "hvd.py"), "--steps", str(options.steps)]
    words += ["--fusion-threshold-mib", str(mib), "--cycle-time-ms", str(ms)]
    words += ["--forward-ms", str(options.forward_ms), "--backward-ms", str(options.backward_ms)]
    words += ["--optimizer-ms", str(options.optimizer_ms), str(options.workload)]
    # kolo loads KOLO_NCCL_LIB, and torch the library beside it.
    library = os.environ.get("KOLO_NCCL_LIB")
    preloaded = ["env", f"LD_PRELOAD={library}"] if library else []
    printed = run(preloaded + words, {"RANKS": str(options.ranks)})
    lines = [line for line in (printed or "").splitlines() if line.startswith("{")]
    return {"program": "horovod", **json.loads(lines[-1])} if lines else None


def kolo(options, way, settings, launch_us, turn):
    """Runs of all settings in one of the ways, as rows."""
    list_of = lambda values: json.dumps(sorted(set(values)))
    pace = f"[host]\nlaunch_gradient_us = {launch_us:.1f}\n" if way == "launched" else ""
    config = options.out / f"{way}-{turn}.toml"
    config.write_text(f"""workload = "{options.workload.resolve()}"
step = {{ forward_ms = {options.forward_ms}, backward_ms = {options.backward_ms}, optimizer_ms = {options.optimizer_ms} }}
{pace}[sweep]
transport = ["nccl"]
topology = ["1x{options.ranks}"]
control_plane = ["bitvector"]
algorithm = ["nccl-allreduce"]
fusion_threshold_mib = {list_of(mib for mib, _ in settings)}
cycle_time_ms = {list_of(ms for _, ms in settings)}
[measure]
warmup_steps = 8
steps_per_block = {options.steps // 2}
blocks_min = 2
blocks_max = 2
timelines = "none"
seed = {options.seed + turn}
""")
    out = options.out / f"{way}-{turn}"
    words = [options.kolo, "sweep", str(config), "--force", "--no-figures", "--out", str(out)]
    blocking = "0" if way == "computed-nonblocking" else "1"
    if run(words, {"RANKS": str(options.ranks), "NCCL_COMM_BLOCKING": blocking}) is None or not (out / "rows.csv").exists():
        return []
    rows = []
    with open(out / "rows.csv") as file:
        for row in csv.DictReader(file):
            setting = int(row["fusion_threshold_bytes"]) / 2**20, float(row["cycle_time_ms"])
            if setting not in settings or row["status"] != "ok":
                continue
            ms = lambda name: round(float(row[name]) / 1e3, 3)
            rows.append(
                {
                    "program": f"kolo-{way}",
                    "fusion_threshold_mib": setting[0],
                    "cycle_time_ms": setting[1],
                    "step_ms_p50": ms("time_us_p50"),
                    "step_ms_min": ms("time_us_min"),
                    "step_ms_max": ms("time_us_max"),
                    "steps": row["samples"],
                    "messages": row["messages_p50"],
                    "launch_gradient_us": round(launch_us, 1) if way == "launched" else "",
                    "wrong": int(row["wrong"]),
                }
            )
    return rows


def comparison(rows, settings):
    """Each setting and way beside Horovod."""
    lines = []
    for mib, ms in settings:
        of = lambda program: {
            row["round"]: row
            for row in rows
            if row["program"] == program and (row["fusion_threshold_mib"], row["cycle_time_ms"]) == (mib, ms)
        }
        real = of("horovod")
        for program in sorted({row["program"] for row in rows if row["program"].startswith("kolo-")}):
            engine = of(program)
            both = sorted(real.keys() & engine.keys())
            if not both:
                continue
            ratios = [engine[turn]["step_ms_p50"] / real[turn]["step_ms_p50"] for turn in both]
            median = lambda of, name: statistics.median(float(of[turn][name] or "nan") for turn in both)
            lines.append(
                {
                    "workload": rows[0]["workload"],
                    "program": program,
                    "fusion_threshold_mib": mib,
                    "cycle_time_ms": ms,
                    "horovod_step_ms": round(median(real, "step_ms_p50"), 3),
                    "kolo_step_ms": round(median(engine, "step_ms_p50"), 3),
                    "ratio": round(statistics.median(ratios), 3),
                    "ratio_min": round(min(ratios), 3),
                    "ratio_max": round(max(ratios), 3),
                    "horovod_messages": median(real, "messages"),
                    "kolo_messages": median(engine, "messages"),
                }
            )
    return lines


if __name__ == "__main__":
    main()
