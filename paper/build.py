#!/usr/bin/env python3
"""Builds the paper from result files: kolo.pdf and kolo.html. `make paper` runs it.

    build.py [--results DIR] [--out DIR] [--kolo PROGRAM] [--format pdf|html]
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = "results/reference"
FIGURES = ROOT / "target" / "paper" / "figures"


def stop(message):
    sys.exit(f"paper: {message}")


def runs():
    """What the paper needs of each run."""
    return tomllib.loads((ROOT / "paper" / "runs.toml").read_text())


def timestamp():
    """Seconds since 1970 of the commit, so that the same inputs give the same bytes."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    git = subprocess.run(
        ["git", "show", "-s", "--format=%ct", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return int(git.stdout) if git.returncode == 0 else 0


def draws_for_papers(kolo):
    """Whether this kolo can draw figures for columns of a paper."""
    if not kolo or not Path(kolo).is_file():
        return False
    said = subprocess.run([kolo, "plot", "--help"], capture_output=True, text=True)
    return "--paper" in said.stdout


def picture(file):
    """A picture's path below the repository, and its height over its width."""
    if file.suffix == ".svg":
        width, height = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', file.read_text()).groups()
    else:
        width, height = struct.unpack(">II", file.read_bytes()[16:24])
    return {"path": str(file.relative_to(ROOT)), "ratio": float(height) / float(width)}


def drawn(kolo, results, run, sources):
    """Figures of a run by `kolo plot --paper`, as views by name."""
    out = FIGURES / run
    shutil.rmtree(out, ignore_errors=True)
    folders = [str(results / source) for source in sources if (results / source).is_dir()]
    command = [kolo, "plot", *folders, "--paper", "--out", str(out)]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode != 0:
        stop(f"{' '.join(command)}: {said.stderr.strip()}")
    views = {}
    for view in ("single", "double"):
        for file in sorted(out.glob(f"*_{view}.svg")):
            name = file.name.removesuffix(f"_{view}.svg")
            views.setdefault(name, {})[view] = picture(file)
    return views


def drawn_before(results, run, sources):
    """Figures that the run holds, drawn for a screen."""
    views = {}
    for source in sources:
        for folder in (results / source, results / source / "figures"):
            for file in sorted(folder.glob("*.png")):
                views[file.stem] = {"screen": picture(file)}
    return views


def figures(kolo, results, is_reference):
    """The views of every figure of the paper, by RUN/NAME."""
    by_kolo = draws_for_papers(kolo)
    found = {}
    for run, needs in runs().items():
        names = needs.get("figures", [])
        sources = needs.get("draw", [run])
        if not names or not any((results / source).is_dir() for source in sources):
            continue
        views = drawn(kolo, results, run, sources) if by_kolo else drawn_before(results, run, sources)
        for name in names:
            if name in views:
                found[f"{run}/{name}"] = views[name]
            elif is_reference:
                made = " ".join(str((results / source).relative_to(ROOT)) for source in sources)
                stop(f"figure {name} of {run} is missing; this makes it: kolo plot {made}")
    return found


def is_run_of(command, needs):
    """Whether a launch has every word of a run's command, paths and programs by their names."""
    stems = [Path(word).stem for word in command]
    return all(Path(word).stem in stems for word in needs.split(",")[0].split())


def name_of(run):
    """What runs.toml calls a run, by the command in its provenance."""
    provenance = json.loads((run / "provenance.json").read_text())
    command = provenance.get("launches", [provenance])[0].get("command") or []
    command = command.split() if isinstance(command, str) else command
    for name, needs in runs().items():
        if is_run_of(command, needs["command"]):
            return needs.get("draw", [name])[0]
    command = " ".join(command)
    stop(f"{run}: the paper has no place for `{command}`; paper/runs.toml lists the runs that it quotes")


def as_folder_of_runs(path):
    """The folder itself, or a folder with a copy of the one run that it is."""
    if not (path / "provenance.json").is_file():
        return path
    copies = ROOT / "target" / "paper" / "runs"
    shutil.rmtree(copies, ignore_errors=True)
    shutil.copytree(path, copies / name_of(path))
    return copies


def folder(text):
    """A folder of results as a path below the repository."""
    path = Path(text).resolve()
    if not path.is_dir():
        stop(f"{text} is no folder of results")
    if not path.is_relative_to(ROOT):
        stop(f"{text} lies outside the repository; Typst reads only files inside it: copy it into results/")
    return as_folder_of_runs(path)


def main():
    parser = argparse.ArgumentParser(description="Builds the paper from result files.")
    parser.add_argument("--results", default=str(ROOT / REFERENCE), help="folder of runs [results/reference]")
    parser.add_argument("--out", default=str(ROOT / "paper"), help="where kolo.pdf and kolo.html go [paper]")
    parser.add_argument("--kolo", default=str(ROOT / "target/release/kolo"), help="program that draws figures")
    parser.add_argument("--format", choices=["pdf", "html", "png"], action="append", help="[pdf and html]")
    parser.add_argument("--strict", action="store_true", help="treat other results as the reference runs")
    arguments = parser.parse_args()
    try:
        import typst
    except ImportError:
        stop("Typst is missing; `make paper` installs it into target/ (pip install typst==0.15.2)")
    results = folder(arguments.results)
    is_reference = arguments.strict or results == ROOT / REFERENCE
    relative = str(results.relative_to(ROOT))
    files = sorted(str(file.relative_to(results)) for file in results.rglob("*") if file.is_file())
    inputs = {
        "results": relative,
        "is_other": "no" if is_reference else "yes",
        "files": json.dumps(files),
        "figures": json.dumps(figures(arguments.kolo, results, is_reference)),
    }
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for kind in arguments.format or ["pdf", "html"]:
        target = out / ("kolo.pdf" if kind == "pdf" else "kolo.html" if kind == "html" else "page-{0p}.png")
        try:
            compiler = typst.Compiler(
                str(ROOT / "paper" / "kolo.typ"),
                root=str(ROOT),
                font_paths=[str(ROOT / "plots" / "fonts")],
                ignore_system_fonts=True,
                sys_inputs={**inputs, "format": kind},
            )
            ppi = 100 if kind == "png" else None
            compiler.compile(output=str(target), format=kind, ppi=ppi, timestamp=timestamp())
            overfull = [] if kind == "html" else json.loads(compiler.query("<overfull>", field="value"))[0]
        except typst.TypstError as error:
            stop(error)
        if overfull and is_reference:
            stop(f"a figure runs off page {overfull[0]}: move it to another place in paper/kolo.typ")
        print(target)


if __name__ == "__main__":
    main()
