#!/usr/bin/env python3
"""Measures the reference runs again on this machine. `make reference` runs it.

    reference.py [RUN...] [--out DIR] [--kolo PROGRAM] [--accept]

paper/runs.toml says how each run is made (`remake`). Runs that are complete in DIR are kept, so that the same command
goes on after an interruption. In the end each run is compared with the one in results/reference: simulated rows byte
for byte, measured ones by `kolo compare`. With --accept the files that results/reference holds are then replaced.
"""

import argparse
import csv
import datetime
import os
import shlex
import shutil
import statistics
import string
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "results" / "reference"
# Lists the complete runs: name and commit.
DONE = "complete.txt"


def stop(message):
    sys.exit(f"reference: {message}")


def runs(chosen):
    """The runs that this machine can make alone, or those of them that are chosen."""
    everything = tomllib.loads((ROOT / "paper" / "runs.toml").read_text())
    made = {name: run for name, run in everything.items() if "remake" in run}
    for name in chosen:
        if name not in made:
            stop(f"`{name}` is no run that is made here; expected one of: {', '.join(made)}")
    return {name: run for name, run in made.items() if not chosen or name in chosen}


def commit():
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def complete(out):
    """The complete runs, with the commit that made each."""
    path = out / DONE
    return dict(line.split() for line in path.read_text().splitlines()) if path.is_file() else {}


def make(name, run, out, kolo):
    """Runs the commands of a run; its files are below `out`."""
    # Provenance keeps these variables.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KOLO")}
    names = {"KOLO": shlex.quote(str(kolo)), "OUT": shlex.quote(str(out.relative_to(ROOT) / name))}
    begun = datetime.datetime.now()
    for command in (string.Template(text).substitute(names) for text in run["remake"]):
        print(f"{name}: {command}", flush=True)
        with (out / "log.txt").open("a") as log:
            print(f"# {name}: {command}", file=log, flush=True)
            ended = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        # 1 and 3 are verdicts, such as a missed goal.
        if ended.returncode not in (0, 1, 3):
            stop(f"{name} ended with {ended.returncode}; {out / 'log.txt'} has the output; the same command goes on")
    print(f"{name}: {(datetime.datetime.now() - begun).total_seconds():.0f} s", flush=True)


def files(name, run, root):
    """The files of a run, which is a folder or the beginning of files' names, below `root`."""
    folder = root / name
    found = folder.rglob("*") if folder.is_dir() else root.glob(f"{name}*")
    own = [file.relative_to(root) for file in found if file.is_file()]
    # validation/threads is a run of its own.
    nested = [Path(other) for other in run.get("without", [])]
    return sorted(file for file in own if not any(file.is_relative_to(other) for other in nested))


def unlike(before, after):
    """The first line in which two files differ; none if they are equal."""
    old, new = before.read_bytes().splitlines(), after.read_bytes().splitlines()
    if old == new:
        return None
    same = next((at for at, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    return same + 1


def simulated(name, run, out):
    """Compares rows byte for byte."""
    lines = []
    for row_file in run["simulated"]:
        before, after = REFERENCE / name / row_file, out / name / row_file
        line = unlike(before, after) if before.is_file() else 1
        lines.append(f"{name}/{row_file}: " + ("the same bytes" if line is None else f"differs from line {line}"))
    return lines


def by_kolo(name, row_file, out, kolo):
    """The verdict of `kolo compare`."""
    pair = [REFERENCE / row_file, out / row_file]
    said = subprocess.run([kolo, "compare", *pair], cwd=ROOT, capture_output=True, text=True)
    if said.returncode not in (0, 1, 3):
        return [f"{name}: not compared: {said.stderr.strip()}"]
    lines = [f"{name}: kolo compare {pair[0].relative_to(ROOT)} {pair[1].relative_to(ROOT)}", said.stdout]
    return lines + [f"{row_file}: {within(*pair)}"]


def within(before, after):
    """How many medians of a second run are within the intervals of the first."""
    key = ("kind", "case", "size_bytes", "in_place")
    rows = []
    for path in (before, after):
        with (path / "rows.csv" if path.is_dir() else path).open() as file:
            rows.append({tuple(row.get(name) for name in key): row for row in csv.DictReader(file) if row["status"] == "ok"})
    first, second = rows
    both = [(first[at], second[at]) for at in first if at in second and first[at]["time_us_p50_low"]]
    if not both:
        return "no median with an interval in results/reference is in both runs"

    def is_within(old, new):
        return float(old["time_us_p50_low"]) <= float(new["time_us_p50"]) <= float(old["time_us_p50_high"])

    count = sum(is_within(*pair) for pair in both)
    return (
        f"{count} of {len(both)} medians ({100 * count / len(both):.0f} %) are within the 95 % intervals of the run in "
        "results/reference; 83 % are if runs differ by noise alone"
    )


def times_by(path, key, time):
    """The median time of each key in a CSV file."""
    times = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            times.setdefault(tuple(row[column] for column in key), []).append(float(row[time]))
    return {key: statistics.median(values) for key, values in times.items()}


def by_medians(name, table, out):
    """The median ratio of a table that is not kolo's."""
    row_file = table["file"]
    before, after = (times_by(root / row_file, table["key"], table["time"]) for root in (REFERENCE, out))
    ratios = [after[key] / before[key] for key in before if key in after]
    if not ratios:
        return [f"{name}: nothing to compare"]
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    return [f"{row_file}: {table['time']} now over before: median {middle:.2f}, {low:.2f} to {high:.2f}"]


def changes(name, run, out, kolo):
    """What differs from the run in results/reference."""
    if not files(name, run, REFERENCE):
        return [f"{name}: results/reference has no such run"]
    lines = simulated(name, run, out) if "simulated" in run else []
    for row_file in run.get("compare", []):
        lines += by_kolo(name, row_file, out, kolo)
    if "medians" in run:
        lines += by_medians(name, run["medians"], out)
    return lines


def accept(name, run, out):
    """Replaces the files that results/reference holds, and names those that the new run lacks."""
    kept = files(name, run, REFERENCE) or files(name, run, out)
    for file in kept:
        if (out / file).is_file():
            (REFERENCE / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(out / file, REFERENCE / file)
        else:
            print(f"{name}: {file} was not made again; the former one stays")
    # A run that gained its provenance keeps it.
    for file in files(name, run, out):
        if file.name.endswith("provenance.json"):
            shutil.copyfile(out / file, REFERENCE / file)


def main():
    parser = argparse.ArgumentParser(description="Measures the reference runs again on this machine.")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="names in paper/runs.toml [all that are made here]")
    parser.add_argument("--out", default="results/reference-here", help="folder of the new runs [results/reference-here]")
    parser.add_argument("--kolo", default="target/release/kolo", help="program [target/release/kolo]")
    parser.add_argument("--accept", action="store_true", help="replace the runs in results/reference")
    arguments = parser.parse_args()
    out = (ROOT / arguments.out).resolve()
    if not out.is_relative_to(ROOT):
        stop(f"{out} lies outside the repository; provenance holds paths below it: choose a folder in results/")
    kolo = (ROOT / arguments.kolo).resolve()
    if not kolo.is_file():
        stop(f"{arguments.kolo} is missing; `cargo build --release --locked -p kolo` makes it")
    # Provenance holds the program's path.
    kolo = kolo.relative_to(ROOT) if kolo.is_relative_to(ROOT) else kolo
    chosen = runs(arguments.runs)
    out.mkdir(parents=True, exist_ok=True)
    made = complete(out)
    for name, run in chosen.items():
        if name in made:
            print(f"{name}: complete, of commit {made[name][:10]}")
            continue
        # What an interruption has left is not a run.
        for file in files(name, run, out):
            (out / file).unlink()
        if (out / name).is_dir() and not run.get("without"):
            shutil.rmtree(out / name)
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        make(name, run, out, kolo)
        with (out / DONE).open("a") as done:
            print(name, commit(), file=done)
    lines = [line for name, run in chosen.items() for line in changes(name, run, out, ROOT / kolo)]
    (out / "changes.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"the runs: {out.relative_to(ROOT)}; their paper: make paper RESULTS={out.relative_to(ROOT)}")
    if arguments.accept:
        for name, run in chosen.items():
            accept(name, run, out)
        print("results/reference has the new runs; `git diff --stat results/reference` shows what changed")


if __name__ == "__main__":
    main()
