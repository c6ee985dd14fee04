#!/usr/bin/env python3
"""Changes result files, and looks at what the paper does. `make test-paper` runs it.

Results are copied into target/paper/test, because Typst reads only files inside the repository.
"""

import csv
import json
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / "target" / "paper" / "test"
RESULTS = SCRATCH / "results"
COORDINATOR = "lockstep/6000/coordinator/resnet50/same/cache-1024/miss-0/invalid-0"
ROW = COORDINATOR + ","


def build(*more, results=RESULTS, strict=True, form="html"):
    """Builds the paper; its text, or the reason why there is none."""
    out = SCRATCH / "out"
    command = [sys.executable, ROOT / "paper/build.py", "--results", results, "--out", out, "--format", form]
    command += ["--kolo", "none", *(["--strict"] if strict else []), *more]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode != 0:
        return None, said.stderr
    return (out / f"kolo.{form}").read_bytes(), said.stderr


def text(html):
    """The words of a page, without tags and pictures."""
    words = re.sub(r"<[^>]*>", "", html.decode())
    return re.sub(r"\s+", " ", words.replace("\u00a0", " "))


class Paper(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        shutil.copytree(ROOT / "results/reference", RESULTS)

    def tearDown(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)

    def change(self, file, change):
        """Changes the lines of a file."""
        path = RESULTS / file
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(change(lines)))

    def cell(self, file, row, column, value):
        """Puts another value into the cell of the line that contains `row`."""

        def change(lines):
            at = lines[0].rstrip("\n").split(",").index(column)
            found = [index for index, line in enumerate(lines) if row in line]
            self.assertEqual(len(found), 1, row)
            cells = lines[found[0]].rstrip("\n").split(",")
            cells[at] = value
            lines[found[0]] = ",".join(cells) + "\n"
            return lines

        self.change(file, change)

    def refused(self, *words):
        page, reason = build()
        self.assertIsNone(page, "the paper was built")
        for word in words:
            self.assertIn(word, reason)
        self.assertEqual(len(reason.strip().splitlines()), 1, reason)

    def test_one_digit_changes_the_text(self):
        before = text(build()[0])
        self.assertIn("coordinator takes 11.2 ms of rank 0’s processor per step", before)
        self.cell("control-planes/rows.csv", ROW, "rank0_us_p50", "11961.834")
        after = text(build()[0])
        self.assertIn("coordinator takes 12.0 ms of rank 0’s processor per step", after)

    def test_a_missing_row_is_named(self):
        self.change("control-planes/rows.csv", lambda lines: [line for line in lines if ROW not in line])
        self.refused("control-planes/rows.csv: 0 rows with control_plane coordinator, ranks 6000", "exactly one")

    def test_a_row_that_is_there_twice_is_refused(self):
        def twice(lines):
            return lines + [line for line in lines if ROW in line]

        self.change("control-planes/rows.csv", twice)
        self.refused("control-planes/rows.csv: 2 rows with", "exactly one")

    def test_a_claim_must_hold(self):
        self.cell("control-planes/rows.csv", ROW, "rank0_us_p50", "7000.0")
        self.refused('the text says "more than 1,000 times", but the number is 898', "control-planes/rows.csv")

    def test_a_simulated_row_cannot_be_called_measured(self):
        self.cell("control-planes/rows.csv", ROW, "source", "simulated")
        self.refused("the text says measured, but this is simulated", COORDINATOR)

    def test_wrong_data_cannot_be_quoted(self):
        self.cell("control-planes/rows.csv", ROW, "wrong", "3")
        self.refused("cannot be quoted: 3 elements were wrong")

    def test_unchecked_data_cannot_be_quoted(self):
        self.cell("control-planes/rows.csv", ROW, "checked", "0")
        self.refused("cannot be quoted: its data were not checked")

    def test_a_failed_case_cannot_be_quoted(self):
        self.cell("control-planes/rows.csv", ROW, "status", "failed")
        self.refused("cannot be quoted: its status is failed")

    def test_a_missing_column_is_named(self):
        def rename(lines):
            return [lines[0].replace("rank0_us_p50,", "rank0_us,")] + lines[1:]

        self.change("control-planes/rows.csv", rename)
        self.refused("control-planes/rows.csv has no column rank0_us_p50")

    def test_a_missing_file_names_the_command_that_makes_it(self):
        (RESULTS / "paper-claims/claims.csv").unlink()
        self.refused("paper-claims/claims.csv is missing; this makes it: kolo sweep configs/paper-claims.toml")

    def test_a_missing_figure_names_the_command_that_makes_it(self):
        (RESULTS / "control-planes/figures/control_planes.png").unlink()
        self.refused("figure control_planes of control-planes is missing", "kolo plot")

    def test_emulated_ranks_are_marked(self):
        pattern = r'<span class="number" title="quick/rows.csv[^"]*">[^<]*<sup>(?:<[^>]*>)*([a-z]+)'
        self.assertEqual(set(re.findall(pattern, build()[0].decode())), {"eo"})

    def test_two_builds_give_the_same_bytes(self):
        for form in ("html", "pdf"):
            first, second = build(form=form)[0], build(form=form)[0]
            self.assertIsNotNone(first)
            self.assertTrue(first == second, f"two builds of {form} differ")

    def test_other_results_mark_what_they_lack(self):
        for name in ("paper-claims", "validation", "peers-2-ranks.csv"):
            path = RESULTS / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.cell("control-planes/rows.csv", ROW, "rank0_us_p50", "7000.0")
        page, reason = build(strict=False)
        self.assertIsNotNone(page, reason)
        words = text(page)
        self.assertIn("Made from target/paper/test/results.", words)
        self.assertIn("[not measured]", words)
        self.assertIn("more than 1,000 times (here 898)", words)

    def test_a_single_run_finds_its_place(self):
        page, reason = build(results=RESULTS / "quick", strict=False)
        self.assertIsNotNone(page, reason)
        words = text(page)
        provenance = json.loads((RESULTS / "quick/provenance.json").read_text())
        machine = provenance["launches"][0]["machine"]
        self.assertIn(f"quick: {machine['cpu']}, {machine['cores']} cores.", words)
        with (RESULTS / "quick/rows.csv").open() as rows:
            medians_us = [float(row["time_us_p50"]) for row in csv.DictReader(rows)]
        self.assertIn(f"Medians range from {min(medians_us) / 1e3:.1f} ms", words)
        self.assertIn("coordinator takes [not measured] of rank 0’s processor per step", words)

    def test_a_run_that_is_not_quoted_is_refused(self):
        page, reason = build(results=RESULTS / "tune/mpi", strict=False)
        self.assertIsNone(page)
        self.assertIn("the paper has no place for `kolo tune --workload resnet50", reason)

    def test_results_outside_the_repository_are_refused(self):
        page, reason = build(results="/")
        self.assertIsNone(page)
        self.assertIn("lies outside the repository", reason)

    def test_a_folder_that_is_not_there_is_refused(self):
        page, reason = build(results=SCRATCH / "nothing")
        self.assertIsNone(page)
        self.assertIn("nothing is no folder of results", reason)


if __name__ == "__main__":
    unittest.main(verbosity=1)
