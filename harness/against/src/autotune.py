"""Replays training steps until Horovod's autotune has finished, and prints what it has chosen.

    python autotune.py SCRIPT LOG MOST_STEPS DTYPE

SCRIPT is one that `kolo tune --confirm-script` writes; LOG is where Horovod logs the settings it tries.
"""

import importlib.util
import os
import sys
import time
import traceback

# Horovod measures a setting for 50 steps.
STEPS_PER_SETTING = 50
# No line in the log for so many steps: it has finished.
QUIET_STEPS = 4 * STEPS_PER_SETTING


def lines(log):
    try:
        with open(log) as file:
            return [line.strip().split(",") for line in file if line.strip()]
    except OSError:
        return []


def main():
    script, log, most, dtype = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    spec = importlib.util.spec_from_file_location("steps", script)
    steps = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(steps)
    # Variables of settings would fix what autotune is to choose. All have the same options of the optimizer.
    for _, variables, _ in steps.SETTINGS:
        for name in variables:
            os.environ.pop(name, None)
    os.environ["HOROVOD_AUTOTUNE"] = "1"
    os.environ["HOROVOD_AUTOTUNE_LOG"] = log
    torch, hvd = steps.modules()
    step = steps.Steps(torch, hvd, steps.SETTINGS[0][2], "cpu", dtype)
    step.gradients.is_timed = False
    begin = time.perf_counter()
    done, seen, last_line_step, last_line_s = 0, 0, 0, 0.0
    while done < most and (seen < 2 or done < last_line_step + QUIET_STEPS):
        for _ in range(STEPS_PER_SETTING):
            step()
        done += STEPS_PER_SETTING
        # All ranks stop at the same step.
        count = hvd.broadcast_object(len(lines(log)) if hvd.rank() == 0 else None, name="lines")
        if count > seen:
            seen, last_line_step, last_line_s = count, done, time.perf_counter() - begin
    if hvd.rank() == 0:
        found = lines(log)
        names, tried = found[0], found[1:]
        best = dict(zip((name.strip() for name in names), tried[-1]))
        is_over = done >= last_line_step + QUIET_STEPS
        steps.report_line({
            "finished": is_over, "steps": last_line_step, "seconds": last_line_s,
            "settings": len(tried) - is_over, "ranks": hvd.size(),
            "fusion_threshold_mib": float(best["tensor_fusion_threshold"]),
            "cycle_time_ms": float(best["cycle_time_ms"]),
            "is_cached": best["cache_enabled"].strip() == "1",
        })
    hvd.shutdown()


if __name__ == "__main__":
    try:
        main()
    except Exception:
        # Horovod waits for the other ranks when a program ends, and these wait for a rank that has failed.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
