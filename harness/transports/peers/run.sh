#!/bin/bash
# Our algorithms on threads against MPI_Allreduce of Open MPI (default, and without CMA, which is faster
# on some machines) and MPICH, on this machine: interleaved rounds, medians, in place, f32, sum.
# Ranks of MPI are processes and copy between address spaces; ours are threads and do not: a different
# contract, which the table does not hide. Installs both MPIs if they are missing (Debian, as root).
#
# usage: run.sh OUT.csv [RANKS] [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=${1:?usage: run.sh OUT.csv [RANKS] [ROUNDS]}; ranks=${2:-2}; rounds=${3:-5}
sizes=(4 64 1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864)
algorithms=two-shot,ring,halving-doubling,tree,double-tree,recursive-doubling,one-shot
for program in mpirun.openmpi mpirun.mpich mpicc.openmpi mpicc.mpich; do
    command -v "$program" >/dev/null && continue
    apt-get install -y --no-install-recommends openmpi-bin libopenmpi-dev mpich libmpich-dev
    break
done
[ -e "$out" ] && { echo "$out exists; results are never overwritten" >&2; exit 2; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cargo build --release --locked -p kolo
for mpi in openmpi mpich; do "mpicc.$mpi" -O2 -o "$work/$mpi" harness/transports/peers/mpi_allreduce.c; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
openmpi=(mpirun.openmpi -n "$ranks")
if [ "$ranks" -le "$(nproc)" ]; then openmpi+=(--bind-to core); else openmpi+=(--oversubscribe); fi
{
    echo "library,ranks,size_bytes,round,time_us_p50,wrong"
    for ((round = 0; round < rounds; round++)); do
        for size in "${sizes[@]}"; do
            if [ "$size" -le 65536 ]; then n=400; elif [ "$size" -le 4194304 ]; then n=60; else n=12; fi
            mpi() { "${@:2}" 10 "$n" "$size" | awk -F, -v l="$1" -v r="$round" '{print l","$1","$2","r","$3","$4}'; }
            mpi openmpi "${openmpi[@]}" "$work/openmpi"
            mpi openmpi-without-cma "${openmpi[@]}" --mca btl_vader_single_copy_mechanism none "$work/openmpi"
            # MPICH spins and is of no use with more ranks than cores.
            [ "$ranks" -le "$(nproc)" ] && mpi mpich mpirun.mpich -n "$ranks" "$work/mpich"
            target/release/kolo bench --algorithm "$algorithms" --ranks "$ranks" --sizes "$size" -w 10 -n "$n" |
                awk -v n="$ranks" -v r="$round" '/algorithm/ {a = $NF} /float/ {print "kolo " a "," n "," $1 "," r "," $10 "," $13}'
        done
    done
} >"$out"
# Where it comes from, beside it.
cat >"${out%.csv}.provenance.json" <<END
{
  "commit": "$(git describe --always --abbrev=40 --dirty)",
  "ended": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
  "cpu": "$(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo)",
  "cores": $(nproc),
  "ranks": $ranks,
  "rounds": $rounds,
  "openmpi": "$(mpirun.openmpi --version | head -n 1)",
  "mpich": "$(mpirun.mpich --version | awk '/Version/ {print $2; exit}')"
}
END
# Median over rounds of each library; the best of ours against the best of theirs.
sort -t, -k3,3n -k1,1 -k5,5g "$out" | awk -F, '
    /^library/ { next }
    { key = $3 SUBSEP $1; value[key, ++count[key]] = $5; wrong += $6; size[$3] = 1 }
    END {
        for (key in count) {
            split(key, part, SUBSEP); s = part[1]; n = count[key]
            median = (value[key, int((n + 1) / 2)] + value[key, int(n / 2) + 1]) / 2
            if (part[2] ~ /^kolo/) { if (!(s in own) || median < own[s]) { own[s] = median; name[s] = part[2] } }
            else if (!(s in peer) || median < peer[s]) { peer[s] = median; other[s] = part[2] }
        }
        printf "%12s %12s %-24s %12s %-24s %8s\n", "size (B)", "ours (us)", "", "theirs (us)", "", "ratio"
        for (s in size) printf "%12d %12.2f %-24s %12.2f %-24s %8.2f\n", s, own[s], name[s], peer[s], other[s], peer[s] / own[s] | "sort -n"
        close("sort -n"); print "wrong elements: " wrong
    }' | tee "${out%.csv}.txt"
