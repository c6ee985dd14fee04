#!/bin/sh
# The GPU suite: the tests that need a real GPU, with a binary that was built elsewhere.
#   harness/gpu/suite.sh KOLO [OUT]
# KOLO is the binary (any build of kolo; it needs no CUDA toolkit), OUT a folder that does not exist
# yet [gpu-results]. Parts of under eight minutes, each appended to OUT/report.txt when it has ended;
# one table last. Ends with 0 if all was right, 1 if not, 3 without a GPU.
# Over NCCL, if it is found (KOLO_NCCL_LIB, LD_LIBRARY_PATH), by ranks.sh beside this; else that part is not run.
set -u
[ $# -ge 1 ] || { sed -n '2,7p' "$0" >&2; exit 2; }
kolo=$1
out=${2:-gpu-results}
configs=$(dirname "$0")/../../configs
workloads=$configs/workloads
ranks=$(dirname "$0")/ranks.sh
[ ! -e "$out" ] || { echo "$out exists; results are never overwritten" >&2; exit 2; }
[ -z "${KOLO_CUDA_EMULATED:-}" ] || { echo "KOLO_CUDA_EMULATED is set: devices are emulated; unset it" >&2; exit 2; }

# Ranks that share a GPU have two streams each, and streams share queues if there are too few.
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-32}"

[ -x "$kolo" ] || { echo "$kolo is not a program; expected the binary kolo" >&2; exit 2; }
said=$("$kolo" bench --transport cuda --ranks 1 -b 4 -e 4 -n 1 -w 0 2>&1)
status=$?
if [ "$status" -ne 0 ]; then
    case $said in
    *"was not found"* | *"finds no GPU"*) echo "NO GPU: nothing was run. Output of kolo:"; status=3 ;;
    *) echo "FAILED at the first allreduce, of one rank. Output of kolo:"; status=1 ;;
    esac
    echo "$said"
    exit "$status"
fi
mkdir -p "$out"
"$kolo" info > "$out/info.txt"
table=

# ONE-BY-ONE GRAPH: times of two files of rows beside each other, medians in microseconds.
compared() {
    awk -F, '
        FNR == 1 { for (at = 1; at <= NF; ++at) column[$at] = at; next }
        { name = $column["algorithm"] " " $column["size_bytes"] " " ($column["in_place"] == "true" ? "in-place" : "out-of-place") }
        FNR == NR { time[name] = $column["time_us_p50"]; host[name] = $column["enqueue_us_p50"]; next }
        FNR == 2 { printf "%-45s %10s %10s %10s %10s %8s\n", "algorithm, bytes", "time", "host", "graph", "host", "nodes" }
        name in time {
            printf "%-45s %10s %10s %10s %10s %8s\n", name, time[name], host[name], \
                $column["time_us_p50"], $column["enqueue_us_p50"], $column["graph_nodes"]
            ++lines
        }
        END { if (!lines) { print "nothing to compare"; exit 1 } }' "$1" "$2"
}

# COMMAND...: may also end with 3 (no conclusion).
recommended() {
    timeout 480 "$@" || { status=$?; [ "$status" -eq 3 ] || return "$status"; }
}

# NAME COMMAND...: a part of the report, and a line of the table.
part() {
    name=$1
    shift
    begun=$(date +%s)
    limit="timeout 480"
    case $1 in compared | recommended) limit= ;; esac
    $limit "$@" > "$out/$name.txt" 2>&1
    status=$?
    {
        echo "== $name: $*"
        cat "$out/$name.txt"
        echo "== $name ended with $status"
    } >> "$out/report.txt"
    wrong=$(awk '/^# Out of bounds values/ { n += $7; seen = 1 } END { print seen ? n : "-" }' "$out/$name.txt")
    missed=$(grep -c '  missed$' "$out/$name.txt")
    line=$(printf '%-24s status %3d  #wrong %6s  goals missed %3s  %4d s' \
        "$name" "$status" "$wrong" "$missed" "$(($(date +%s) - begun))")
    echo "$line"
    table="$table$line
"
    [ "$status" -eq 0 ] || failed=1
    [ "$missed" -eq 0 ] || short=1
}

failed=0
short=0
# 1 to 8 ranks, as one node or as two.
for world in 1x1 1x2 1x3 2x2 1x5 2x3 1x7 2x4; do
    part "correct-$world" "$kolo" bench --transport cuda --algorithm all -d all -o all --topology "$world" \
        -b 8 -e 1M -f 64 -n 2 -w 1 --out "$out/correct-$world.csv"
done
part "large-4" "$kolo" bench --transport cuda --algorithm ring,recursive-doubling,tree --topology 1x4 \
    -b 1M -e 256M -f 4 --out "$out/large-4.csv"
# CUDA graphs: right in small worlds, and timed beside the same work put on the streams one by one.
for world in 1x1 1x3 2x2; do
    part "graph-correct-$world" "$kolo" bench --transport cuda --graph --algorithm all -d f32,bf16 -o sum,avg,max \
        --topology "$world" -b 8 -e 1M -f 64 -n 2 -w 1 --out "$out/graph-correct-$world.csv"
done
for how in one-by-one graph; do
    graph=
    [ "$how" = one-by-one ] || graph=--graph
    part "launch-$how" "$kolo" bench --transport cuda $graph --algorithm ring,recursive-doubling,tree --topology 1x4 \
        -b 256 -e 16M -f 16 -n 50 --out "$out/launch-$how.csv"
done
part "launch-compared" compared "$out/launch-one-by-one.csv" "$out/launch-graph.csv"
# Groups of tensors that are packed, and that stay where they lie.
part "groups-4" "$kolo" bench --transport cuda --algorithm grouped,grouped-scattered --groups 161 --topology 1x4 \
    -b 64K -e 64M -f 8 --out "$out/groups-4.csv"
for model in resnet50 bert_large; do
    part "kernels-$model" "$kolo" bench --transport cuda --kernels "$workloads/$model.csv" -n 50
done

# Training: the surface of fusion threshold and cycle time, and a recommendation from it.
part "train-surface" "$kolo" sweep "$configs/cuda.toml" --out "$out/train-surface"
part "train-timeline" "$kolo" sweep "$configs/quick.toml" --transport cuda --timeline --no-figures \
    --out "$out/train-timeline"
part "train-tune" recommended "$kolo" tune --workload "$workloads/bert_large.csv" --backward-ms 60 --transport cuda \
    --topology 1x2 --budget 120s --out "$out/train-tune"

# NAME WHY: a part that cannot be run here, which is neither right nor wrong.
not_run() {
    line=$(printf '%-24s NOT RUN: %s' "$1" "$2")
    echo "$line"
    table="$table$line
"
}

# Over NCCL: a process for each GPU, and where NCCL lets them share, two. GPUs that do not reach each other are warned
# of below.
nccl=$(sed -n 's/^ *NCCL  *//p' "$out/info.txt")
gpus=$(grep -c '^ *GPU [0-9]* .*, compute capability ' "$out/info.txt")
own=nccl-allreduce,nccl-hierarchical
case $nccl in
*"not available"*) not_run nccl "${nccl#not available: }" ;;
*)
    part "nccl-correct-$gpus" sh "$ranks" "$gpus" "$kolo" bench --transport nccl --force --algorithm all -d all -o all \
        -b 8 -e 1M -f 64 -n 2 -w 1 --out "$out/nccl-correct-$gpus.csv"
    part "nccl-own-$gpus" sh "$ranks" "$gpus" "$kolo" bench --transport nccl --force --algorithm "$own" -d all -o all \
        -b 8 -e 1M -f 64 -n 2 -w 1 --out "$out/nccl-own-$gpus.csv"
    part "nccl-held-$gpus" sh "$ranks" "$gpus" "$kolo" bench --transport nccl --force --nccl-algo Ring,Tree \
        --nccl-proto Simple,LL -b 1K -e 64M -f 16 --out "$out/nccl-held-$gpus.csv"
    part "nccl-large-$gpus" sh "$ranks" "$gpus" "$kolo" bench --transport nccl --force -b 1M -e 256M -f 4 \
        --algorithm "ring,recursive-doubling,tree,$own" --out "$out/nccl-large-$gpus.csv"
    version=${nccl##*, }
    minor=${version#*.}
    if [ "${version%%.*}" -gt 2 ] || [ "${minor%%.*}" -ge 30 ]; then
        both=$((2 * gpus))
        part "nccl-shared-$both" env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=2 NCCL_NVLS_ENABLE=0 sh "$ranks" \
            "$both" "$kolo" bench --transport nccl --force --algorithm "ring,tree,two-shot,$own" -d all -b 8 -e 1M -f 64 \
            -n 2 -w 1 --out "$out/nccl-shared-$both.csv"
    else
        not_run nccl-shared "NCCL $version does not let ranks share GPUs; 2.30 or later does"
    fi
    if grep -q 'sweep and tune negotiate over MPI' "$out/info.txt" && command -v mpirun >/dev/null; then
        sed -e "s|^topology = .*|topology = [\"1x$gpus\"]|" -e "s|\"resnet50\"|\"$(cd "$workloads" && pwd)/resnet50.csv\"|" \
            "$configs/nccl.toml" > "$out/nccl.toml"
        part "nccl-train-$gpus" mpirun -n "$gpus" "$kolo" sweep "$out/nccl.toml" --out "$out/nccl-train"
    else
        not_run nccl-train "training over NCCL takes a build with --features mpi, and mpirun"
    fi
    ;;
esac

{
    echo
    echo "$table"
    grep -h '^ *driver\|^ *GPU\|^ *NCCL \|^ *topology\|^ *bus ' "$out/info.txt"
    grep -h '^# warning: ' "$out"/*.txt | sort | uniq -c
    if [ "$failed" -eq 0 ]; then echo "RIGHT: every part ended well"; else echo "FAILED: see $out/report.txt"; fi
    [ "$short" -eq 0 ] || echo "TOO SLOW: some kernels miss their goals"
} | tee -a "$out/report.txt"
exit "$failed"
