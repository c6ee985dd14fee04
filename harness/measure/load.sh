#!/bin/sh
# Sweeps and tuning while stress-ng takes all processors for a part of the time; results/reference/load is from it.
#
#     cargo build --release && harness/measure/load.sh FOLDER
set -eu

out=${1:?usage: harness/measure/load.sh FOLDER}
kolo=${KOLO:-target/release/kolo}
command -v stress-ng >/dev/null || {
    echo "load.sh: stress-ng is missing: apt-get install stress-ng" >&2
    exit 2
}

# loaded NAME SECONDS-BEFORE SECONDS COMMAND...: no load where it lasts 0 seconds.
loaded() {
    name=$1 before=$2 lasts=$3
    shift 3
    load=
    if [ "$lasts" -gt 0 ]; then
        (sleep "$before" && exec stress-ng --quiet --cpu "$(nproc)" --timeout "$lasts") &
        load=$!
    fi
    status=0
    "$@" --out "$out/$name" >/dev/null 2>&1 || status=$?
    if [ -n "$load" ]; then
        kill "$load" 2>/dev/null || :
        wait "$load" || :
    fi
    echo "$name: status $status"
    sed 's/^/    /' "$out/$name/summary.txt"
}

sweep="$kolo sweep configs/quick.toml --no-figures"
tune="$kolo tune --workload resnet50 --backward-ms 50 --topology 1x2 --budget 60s"
loaded sweep-middle 18 14 $sweep
loaded sweep-end 30 300 $sweep
loaded tune-none 0 0 $tune
loaded tune-middle 20 15 $tune
loaded tune-end 35 300 $tune
