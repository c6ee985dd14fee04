#!/bin/bash
# A sweep as a job: sbatch slurm/sweep.sh [CONFIG] [OPTIONS OF kolo sweep]. CONFIG is configs/cluster.toml by default,
# which measures on 1, 2, 4, ... nodes, up to those of the job. The requests below are defaults; `kolo sweep --slurm
# CONFIG` requests what the configuration and the site need. On a login node, slurm/sweep.sh --array [CONFIG] [OPTIONS]
# submits one job for each number of nodes, one after the other. To run another command of kolo on all ranks of a job:
# KOLO_SITE=SITE sbatch -N4 slurm/sweep.sh tune OPTIONS, or bench, calibrate, validate.
#SBATCH --job-name=kolo
#SBATCH --nodes=1-8
#SBATCH --time=01:00:00
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --output=kolo-%j.out
set -eu
trap '' USR1    # the program listens to it; until then it must not end the job

if [ -n "${SLURM_JOB_ID:-}" ]; then
    # Slurm runs a copy of this file, so Slurm is queried for the path of the original.
    script=$(scontrol show job "$SLURM_JOB_ID" 2>/dev/null |
        sed -n 's|^ *Command=\(.*/slurm/sweep\.sh\).*|\1|p') || script=
elif [ "${1:-}" = --array ]; then
    script=$(realpath "$0")
else
    echo "sweep.sh: this is a batch script; submit it: sbatch slurm/sweep.sh configs/quick.toml" >&2
    exit 2
fi
root=
for folder in ${script:+"${script%/slurm/sweep.sh}"} "${SLURM_SUBMIT_DIR:-.}" "${SLURM_SUBMIT_DIR:-.}/.."; do
    if [ -e "$folder/slurm/site.sh" ]; then root=$folder && break; fi
done
if [ -z "$root" ]; then
    echo "sweep.sh: the repository is not found from ${SLURM_SUBMIT_DIR:-.}; submit from within it" >&2
    exit 2
fi
. "$root/slurm/site.sh"

site=${KOLO_SITE:-generic} before=
for word in "$@"; do
    case $before$word in
    --site=*) site=${word#--site=} ;;
    --site?*) site=$word ;;
    esac
    before=; [ "$word" != --site ] || before=--site
done
load_modules "$(site_file "$site")"

kolo=$root/kolo     # a link, if `kolo sweep --slurm` wrote this script
[ -x "$kolo" ] || kolo=${CARGO_TARGET_DIR:-$root/target}/release/kolo
kolo=${KOLO:-$kolo} # KOLO: another program
[ -x "$kolo" ] || fail "$kolo is not there; build it on a login node: slurm/build.sh $site"
variables=$("$kolo" site shell-env "$site") ||
    fail "$kolo does not start; build it anew on a login node: slurm/build.sh $site"
eval "$variables"
unset "${!SBATCH_@}"    # options of the submission, which srun and requeues have no use for

array=
if [ -z "${SLURM_JOB_ID:-}" ]; then array=--array && shift; fi
case ${1:-} in
'' | -*) set -- "$root/configs/cluster.toml" "$@" ;;
esac
case $1 in
bench | calibrate | tune | validate)
    step=$("$kolo" site step "$site") || fail "ranks cannot be started"
    eval "exec $step \"\$kolo\" \"\$@\"" ;;
*) exec "$kolo" sweep --slurm $array "$@" ;;
esac
