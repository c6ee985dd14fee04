#!/bin/sh
# What kolo does on a real GPU where something is wrong: each case ends with its message and status, and the GPU is
# free again.
#   harness/gpu/faults.sh KOLO
# With KOLO_NCCL_LIB, ranks that are processes, too (two share the GPU: NCCL 2.30 or later); with OTHER_NCCL_LIB, an
# NCCL of another version, ranks that do not have the same. One line for each case; ends with 1 if one is not as expected.
set -u
[ $# -eq 1 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
kolo=$1
ranks=$(dirname "$0")/ranks.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# NAME STATUS WORDS COMMAND...: it ends with that status, says those words, and the GPU works afterwards.
expect() {
    name=$1 wanted=$2 words=$3
    shift 3
    begun=$(date +%s)
    timeout 90 "$@" > "$folder/output" 2>&1
    status=$?
    verdict=right
    [ "$status" -eq "$wanted" ] || verdict="WRONG: expected status $wanted"
    grep -q -e "$words" "$folder/output" || verdict="WRONG: expected the words: $words"
    "$kolo" bench --transport cuda --ranks 2 -b 4 -e 4 -n 1 -w 0 > "$folder/after" 2>&1 || verdict="WRONG: the GPU is not free"
    printf '%-24s status %3d  %3d s  %s\n' "$name" "$status" "$(($(date +%s) - begun))" "$verdict"
    grep -e '^kolo: ' -e "$words" "$folder/output" | sort -u | sed 's/^/    /'
    [ "$verdict" = right ] || failed=1
}

cuda="bench --transport cuda -n 1 -w 0"
# shellcheck disable=SC2086
expect no-gpu 2 'finds no GPU among CUDA_VISIBLE_DEVICES=' env CUDA_VISIBLE_DEVICES= "$kolo" $cuda
# Kernels for a newer driver than there is: a binary that says so of its own.
sed 's/^\.version 8\.0$/.version 9.9/' "$kolo" > "$folder/newer"
if cmp -s "$kolo" "$folder/newer"; then
    printf '%-24s NOT RUN: %s is not the binary itself\n' old-driver "$kolo"
else
    chmod +x "$folder/newer"
    # shellcheck disable=SC2086
    expect old-driver 2 'kernels are in PTX 9.9, which it does not know; install a newer driver' "$folder/newer" $cuda
fi
# The first size fits, and the next one does not.
free_mb=$("$kolo" info | sed -n 's/^ *GPU 0 .*, \([0-9]*\) GB,.*/\1000/p')
size="$((free_mb / 8))M"
# shellcheck disable=SC2086
expect out-of-memory 1 'take .* MB; choose a smaller -e, or fewer ranks' "$kolo" $cuda --ranks 8 -b 1M -e "$size" -f "$((free_mb / 8))"

if [ -n "${KOLO_NCCL_LIB:-}" ]; then
    export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=2 NCCL_NVLS_ENABLE=0
    # Rank 1 is killed amid its collectives.
    cat > "$folder/victim" <<VICTIM
#!/bin/sh
[ "\$SLURM_PROCID" = 0 ] || echo \$\$ > "$folder/pid"
exec "$kolo" "\$@"
VICTIM
    cat > "$folder/kill" <<KILL
#!/bin/sh
sh "$ranks" 2 "$folder/victim" bench --transport nccl --force --algorithm ring -b 1M -e 1M -n 1000000 --timeout 20 &
both=\$!
for second in 1 2 3 4 5 6 7 8 9 10; do [ ! -s "$folder/pid" ] || break; sleep 1; done
sleep 5
kill -9 "\$(cat "$folder/pid")"
wait \$both
KILL
    chmod +x "$folder/victim" "$folder/kill"
    expect killed 137 'rank 0: rank 1 on .* is gone, its connection is closed' "$folder/kill"
    if [ -n "${OTHER_NCCL_LIB:-}" ]; then
        cat > "$folder/other" <<OTHER
#!/bin/sh
[ "\$SLURM_PROCID" = 0 ] || export KOLO_NCCL_LIB="$OTHER_NCCL_LIB"
exec "$kolo" "\$@"
OTHER
        chmod +x "$folder/other"
        expect two-nccls 2 'has NCCL .* and rank 1 on .* has .*, which are incompatible' sh "$ranks" 2 "$folder/other" \
            bench --transport nccl --force -b 4 -e 4 -n 1
    else
        printf '%-24s NOT RUN: OTHER_NCCL_LIB is not set\n' two-nccls
    fi
else
    printf '%-24s NOT RUN: KOLO_NCCL_LIB is not set\n' killed
fi
exit "$failed"
