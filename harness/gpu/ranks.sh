#!/bin/sh
# Starts a command as several ranks on this machine, as a launcher would:
#   harness/gpu/ranks.sh RANKS COMMAND...
# This script's process becomes rank 0; it ends with the worst status of all ranks.
set -u
[ $# -ge 2 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
ranks=$1
shift
# kolo reads these variables before Slurm's to find its rank.
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE
export KOLO_RENDEZVOUS="${KOLO_RENDEZVOUS:-127.0.0.1:$((20000 + $$ % 10000))}" SLURM_STEP_NUM_TASKS="$ranks"
others=
rank=1
while [ "$rank" -lt "$ranks" ]; do
    SLURM_PROCID=$rank "$@" &
    others="$others $!"
    rank=$((rank + 1))
done
SLURM_PROCID=0 "$@"
worst=$?
for other in $others; do
    wait "$other"
    status=$?
    [ "$status" -le "$worst" ] || worst=$status
done
exit "$worst"
