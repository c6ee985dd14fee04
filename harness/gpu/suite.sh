#!/bin/sh
# The GPU suite: the tests that need a real GPU, with a binary that was built elsewhere.
#   harness/gpu/suite.sh KOLO [OUT [SECONDS]]
# KOLO is the binary (any build of kolo; it needs no CUDA toolkit), OUT a folder that does not exist
# yet [gpu-results], SECONDS the time of each sweep [120]; tuning has half of it. Each part is appended to
# OUT/report.txt when it has ended; one table last. Ends with 0 if all was right, 1 if not, 3 without a GPU.
# Over NCCL, if it is found (KOLO_NCCL_LIB, LD_LIBRARY_PATH), by ranks.sh beside this; else those parts are not run.
# On a machine with one GPU, ranks share it: with NCCL 2.30 or later; they take turns there, unless WITH_MPS=1 starts
# NVIDIA's MPS for them. Training over NCCL takes a build with --features mpi, and mpirun; torch's DDP takes python3
# with torch, and Horovod one with Horovod as well, over NCCL.
set -u
[ $# -ge 1 ] || { sed -n '2,11p' "$0" >&2; exit 2; }
kolo=$1
out=${2:-gpu-results}
seconds=${3:-120}
here=$(dirname "$0")
configs=$here/../../configs
workloads=$(cd "$configs/workloads" && pwd)
ranks=$here/ranks.sh
[ ! -e "$out" ] || { echo "$out exists; results are never overwritten" >&2; exit 2; }
[ -z "${KOLO_CUDA_EMULATED:-}" ] || { echo "KOLO_CUDA_EMULATED is set: devices are emulated; unset it" >&2; exit 2; }

# Ranks that are streams of one process have two each, and streams share queues if there are too few.
connections="CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}"
# Open MPI as root, and more processes than it expects.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1

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

# NAME WHY: a part that cannot be run here, which is neither right nor wrong.
not_run() {
    line=$(printf '%-24s NOT RUN: %s' "$1" "$2")
    echo "$line"
    table="$table$line
"
}

# CONFIGURATION WORKLOAD KEY=VALUE...: a configuration of this project with other keys, on stdout.
changed() {
    config=$1
    workload=$workloads/$2.csv
    shift 2
    set -- "$@" "workload=\"$workload\""
    script=
    for pair; do script="$script;s|^${pair%%=*} = .*|${pair%%=*} = ${pair#*=}|"; done
    sed -e "${script#;}" "$configs/$config"
}

failed=0
short=0
cuda="env $connections $kolo bench --transport cuda"
# 1 to 8 ranks, as one node or as two.
for world in 1x1 1x2 1x3 2x2 1x5 2x3 1x7 2x4; do
    part "correct-$world" $cuda --algorithm all -d all -o all --topology "$world" -b 8 -e 64K -f 8192 -n 1 -w 1 \
        --out "$out/correct-$world.csv"
done
part "large-4" $cuda --algorithm ring,recursive-doubling,tree --topology 1x4 -b 1M -e 256M -f 4 --out "$out/large-4.csv"
# CUDA graphs: right in small worlds, and timed beside the same work put on the streams one by one.
for world in 1x1 1x3 2x2; do
    part "graph-correct-$world" $cuda --graph --algorithm all -d f32,bf16 -o sum,avg,max --topology "$world" \
        -b 8 -e 64K -f 8192 -n 1 -w 1 --out "$out/graph-correct-$world.csv"
done
for how in one-by-one graph; do
    graph=
    [ "$how" = one-by-one ] || graph=--graph
    part "launch-$how" $cuda $graph --algorithm ring,recursive-doubling,tree --topology 1x4 -b 256 -e 16M -f 16 -n 50 \
        --out "$out/launch-$how.csv"
done
part "launch-compared" compared "$out/launch-one-by-one.csv" "$out/launch-graph.csv"
# Groups of tensors that are packed, and that stay where they lie.
part "groups-4" $cuda --algorithm grouped,grouped-scattered --groups 161 --topology 1x4 -b 64K -e 64M -f 8 \
    --out "$out/groups-4.csv"
for model in resnet50 bert_large; do
    part "kernels-$model" $cuda --kernels "$workloads/$model.csv" -n 50 --out "$out/kernels-$model.csv"
done

# Training: surfaces of fusion threshold and cycle time, a recommendation, and a timeline of one setting.
sweep="env $connections $kolo sweep --budget ${seconds}s"
part "train-resnet50" $sweep "$configs/cuda.toml" --out "$out/train-resnet50"
changed cuda.toml bert_base 'topology=["1x2"]' 'control_plane=["bitvector"]' 'fusion_threshold_mib=[1, 16, 64, 128]' \
    'cycle_time_ms=[1, 5]' 'blocks_max=6' > "$out/bert.toml"
part "train-bert_base" $sweep "$out/bert.toml" --out "$out/train-bert_base"
changed cuda.toml resnet50 'control_plane=["bitvector"]' 'fusion_threshold_mib=[16]' 'cycle_time_ms=[1]' > "$out/timeline.toml"
part "train-timeline" $sweep "$out/timeline.toml" --timeline --no-figures --out "$out/train-timeline"
part "train-tune" recommended env "$connections" "$kolo" tune --workload "$workloads/resnet50.csv" --backward-ms 20 \
    --transport cuda --topology 1x2 --budget "$((seconds / 2))s" --out "$out/train-tune"

# Over NCCL: a process for each GPU; on a single GPU two that share it.
nccl=$(sed -n 's/^ *NCCL  *//p' "$out/info.txt")
gpus=$(grep -c '^ *GPU [0-9]* .*, compute capability ' "$out/info.txt")
own=nccl-allreduce,nccl-hierarchical
version=${nccl##*, }
minor=${version#*.}
shares=
case $nccl in
*"not available"*) ;;
*) { [ "${version%%.*}" -gt 2 ] || [ "${minor%%.*}" -ge 30 ]; } && shares=yes ;;
esac
# The kernels of ranks that share a GPU wait for each other: their blocks must fit beside each other.
sharing="env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0"
mps=
if [ "${WITH_MPS:-}" = 1 ] && [ -n "$shares" ]; then
    mps=$(mktemp -d)
    sharing="$sharing CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps"
    CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps nvidia-cuda-mps-control -d || failed=1
fi
case $nccl in
*"not available"*) not_run nccl "${nccl#not available: }" ;;
*)
    # Ranks, and how they start.
    world=$gpus
    with=env
    [ "$gpus" -gt 1 ] || [ -z "$shares" ] || { world=2 with="$sharing NCCL_MAX_CTAS=16"; }
    bench="$with sh $ranks $world $kolo bench --transport nccl --force"
    part "nccl-correct-$world" $bench --algorithm "ring,tree,two-shot,halving-doubling,hierarchical,grouped" -d all \
        -o all -b 8 -e 64K -f 8192 -n 1 -w 0 --out "$out/nccl-correct-$world.csv"
    part "nccl-algorithms-$world" $bench --algorithm all -d f32 -b 8 -e 64K -f 8192 -n 1 -w 0 \
        --out "$out/nccl-algorithms-$world.csv"
    part "nccl-own-$world" $bench --algorithm "$own" -d all -o all -b 8 -e 64K -f 8192 -n 1 -w 0 \
        --out "$out/nccl-own-$world.csv"
    part "nccl-held-$world" $bench --nccl-algo Ring,Tree --nccl-proto Simple,LL -b 1K -e 64M -f 256 -n 10 \
        --out "$out/nccl-held-$world.csv"
    part "nccl-large-$world" $bench -b 1M -e 1G -f 32 -n 5 --algorithm "ring,recursive-doubling,tree,$own" \
        --out "$out/nccl-large-$world.csv"
    part "nccl-blocking-$world" env NCCL_COMM_BLOCKING=1 $bench -b 1K -e 1M -f 32 --algorithm ring,nccl-allreduce \
        --out "$out/nccl-blocking-$world.csv"
    part "nccl-nonblocking-$world" $bench -b 1K -e 1M -f 32 --algorithm ring,nccl-allreduce \
        --out "$out/nccl-nonblocking-$world.csv"
    if [ -n "$shares" ]; then
        for both in $((4 * gpus)) $((8 * gpus)); do
            part "nccl-shared-$both" $sharing NCCL_MAX_CTAS=4 sh "$ranks" "$both" "$kolo" bench --transport nccl --force \
                --algorithm "ring,tree,$own" -d f32,bf16 -b 8 -e 64K -f 8192 -n 1 -w 0 --out "$out/nccl-shared-$both.csv"
        done
    else
        not_run nccl-shared "NCCL $version does not let ranks share GPUs; 2.30 or later does"
    fi
    if grep -q 'sweep and tune negotiate over MPI' "$out/info.txt" && command -v mpirun >/dev/null; then
        mpirun="$with mpirun -n $world"
        for model in resnet50 bert_base; do
            changed nccl.toml "$model" "topology=[\"1x$world\"]" 'control_plane=["bitvector"]' \
                'algorithm=["nccl-allreduce", "ring"]' 'fusion_threshold_mib=[4, 64]' 'cycle_time_ms=[1, 5]' 'blocks_max=6' \
                > "$out/nccl-$model.toml"
            part "nccl-train-$model" $mpirun "$kolo" sweep "$out/nccl-$model.toml" --force --budget "${seconds}s" \
                --out "$out/nccl-train-$model"
        done
        # Communicators that do not block, unlike Horovod's: what fusion seems to save then.
        changed nccl.toml resnet50 "topology=[\"1x$world\"]" 'control_plane=["bitvector"]' \
            'algorithm=["nccl-allreduce"]' 'fusion_threshold_mib=[0, 4, 128]' 'cycle_time_ms=[1]' 'blocks_max=6' \
            > "$out/nccl-nonblocking.toml"
        part "nccl-train-nonblocking" env NCCL_COMM_BLOCKING=0 $mpirun "$kolo" sweep "$out/nccl-nonblocking.toml" --force \
            --budget "${seconds}s" --out "$out/nccl-train-nonblocking"
        part "nccl-tune" recommended $mpirun "$kolo" tune --workload "$workloads/resnet50.csv" --backward-ms 20 \
            --transport nccl --force --budget "$((seconds / 2))s" --out "$out/nccl-tune"
        # Buckets as torch makes them: with our engine, and with torch itself.
        changed nccl.toml resnet50 "topology=[\"1x$world\"]" 'control_plane=["ddp"]' 'algorithm=["nccl-allreduce"]' \
            'fusion_threshold_mib=[25]' 'cycle_time_ms=[1]' > "$out/ddp.toml"
        part "ddp-kolo" $mpirun "$kolo" sweep "$out/ddp.toml" --force --no-figures --out "$out/ddp-kolo"
    else
        not_run nccl-train "training over NCCL takes a build with --features mpi, and mpirun"
    fi
    if python3 -c 'import torch' 2>/dev/null; then
        library=${KOLO_NCCL_LIB:-}
        part "ddp-torch" $with LD_PRELOAD="$library" python3 "$here/ddp.py" --ranks "$world" "$workloads/resnet50.csv"
    else
        not_run ddp-torch "python3 has no torch"
    fi
    if python3 -c 'import horovod.torch' 2>/dev/null && command -v mpirun >/dev/null; then
        part "beside-horovod" $with python3 "$here/beside_horovod.py" "$kolo" "$out/beside-horovod" \
            "$workloads/resnet50.csv" --ranks "$world" --rounds 1 --settings 0:1,4:1,128:1
    else
        not_run horovod "python3 has no Horovod, or there is no mpirun"
    fi
    ;;
esac
if [ -n "$mps" ]; then
    echo quit | CUDA_MPS_PIPE_DIRECTORY=$mps nvidia-cuda-mps-control >/dev/null
    cat "$mps"/*.log > "$out/mps.txt" 2>/dev/null
    rm -rf "$mps"
fi
part "faults" sh "$here/faults.sh" "$kolo"

{
    echo
    echo "$table"
    grep -h '^ *driver\|^ *GPU\|^ *NCCL \|^ *topology\|^ *bus ' "$out/info.txt"
    grep -h '^# warning: ' "$out"/*.txt | sort | uniq -c
    if [ "$failed" -eq 0 ]; then echo "RIGHT: every part ended well"; else echo "FAILED: see $out/report.txt"; fi
    [ "$short" -eq 0 ] || echo "TOO SLOW: some kernels miss their goals"
} | tee -a "$out/report.txt"
exit "$failed"
