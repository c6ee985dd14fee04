#!/usr/bin/env python3
"""Makes reference runs with a program in place of kolo, and looks at what `reference.py` keeps and says. `make
test-reference` runs it; kolo itself is not needed.
"""

import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import reference

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / "target" / "paper" / "test-reference"
OUT = SCRATCH / "out"
ROWS = "losses/rows.csv"

# Writes rows of the reference, changed by the file `edit`; notes each call; ends with the status in `status`.
PROGRAM = """#!/bin/bash
here=$(dirname "$0")
echo "$*" >>"$here/calls"
if [[ $1 == compare ]]; then echo "all cases: the same"; exit 3; fi
out=${*: -1}
mkdir -p "$out" && sed -f "$here/edit" results/reference/losses/rows.csv >"$out/rows.csv"
echo '{"commit": "none"}' >"$out/provenance.json"
exit "$(<"$here/status")"
"""


class Reference(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        self.program = SCRATCH / "kolo"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)
        self.behave()

    def tearDown(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)

    def behave(self, edit="", status=0):
        (SCRATCH / "edit").write_text(edit)
        (SCRATCH / "status").write_text(str(status))

    def calls(self):
        return (SCRATCH / "calls").read_text().splitlines()

    def make(self, *words):
        command = [sys.executable, ROOT / "paper/reference.py", "--out", OUT, "--kolo", self.program, *words]
        return subprocess.run(command, capture_output=True, text=True)

    def test_equal_rows_are_called_equal(self):
        said = self.make("losses")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(f"{ROWS}: the same bytes", said.stdout)
        self.assertIn(f"{ROWS}: the same bytes", (OUT / "changes.txt").read_text())
        self.assertIn("predict --workload resnet50", self.calls()[0])

    def test_a_changed_row_is_named(self):
        self.behave("3s/1/7/")
        self.assertIn(f"{ROWS}: differs from line 3", self.make("losses").stdout)

    def test_a_lost_row_is_named(self):
        self.behave("4,$d")
        self.assertIn(f"{ROWS}: differs from line 4", self.make("losses").stdout)

    def test_measured_rows_are_compared_by_kolo(self):
        said = self.make("quick")
        self.assertIn("all cases: the same", said.stdout)
        self.assertIn("quick: no median with an interval in results/reference is in both runs", said.stdout)
        self.assertEqual(self.calls()[-1], f"compare {ROOT}/results/reference/quick {OUT}/quick")

    def test_medians_within_earlier_intervals_are_counted(self):
        head = "kind,case,size_bytes,in_place,status,time_us_p50,time_us_p50_low,time_us_p50_high\n"
        before, after = SCRATCH / "before.csv", SCRATCH / "after.csv"
        rows = "step,a,8,true,ok,5,4,6\nstep,b,8,true,ok,5,4,6\nstep,c,8,true,ok,5,,\nstep,d,8,true,failed,,,\n"
        before.write_text(head + rows)
        after.write_text(head + rows.replace("b,8,true,ok,5,4,6", "b,8,true,ok,7,6,8"))
        self.assertIn("1 of 2 medians (50 %) are within", reference.within(before, after))

    def test_a_complete_run_is_kept_and_a_broken_one_is_made_again(self):
        self.behave(status=2)
        broken = self.make("losses")
        self.assertEqual(broken.returncode, 1)
        self.assertIn("losses ended with 2", broken.stderr)
        (OUT / "losses/left").write_text("by the broken run")
        self.behave()
        self.assertEqual(self.make("losses").returncode, 0)
        self.assertFalse((OUT / "losses/left").exists())
        calls = len(self.calls())
        self.assertIn("losses: complete, of commit", self.make("losses").stdout)
        self.assertEqual(len(self.calls()), calls)

    def test_a_missed_goal_is_a_result(self):
        self.behave(status=1)
        self.assertEqual(self.make("losses").returncode, 0)

    def test_nothing_is_accepted_unasked(self):
        before = (ROOT / "results/reference" / ROWS).read_bytes()
        self.behave("3s/1/7/")
        self.make("losses")
        self.assertEqual((ROOT / "results/reference" / ROWS).read_bytes(), before)

    def test_wrong_words_are_refused(self):
        self.assertIn("`horovod/one-node` is no run that is made here", self.make("horovod/one-node").stderr)
        self.assertIn("lies outside the repository", self.make("losses", "--out", "/tmp").stderr)
        self.assertIn("is missing; `cargo build", self.make("losses", "--kolo", "target/none").stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
