# Slurm: its configuration and its daemons.
# shellcheck shell=bash disable=SC2154  # variables of virtual-cluster

write_configuration() {
    local i
    {
        echo "127.0.0.1 localhost"
        echo "$subnet.253 head"
        for ((i = 1; i <= nodes; i++)); do echo "$subnet.$i n$i"; done
    } >"$folder/hosts"
    slurm_conf >"$folder/slurm.conf"
    # Nodes share the file system: what is private to a node is mounted at local/. With the other kinds of
    # fence, a rank of Open MPI 4.1 now and then leaves MPI_Init and sends before the receiver is ready.
    printf '%s\n' "PMIxCliTmpDirBase=$folder/local" PMIxCollFence=ring >"$folder/mpi.conf"
    : >"$folder/plugstack.conf"
    (umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
    printf '#!/bin/sh\nexec cat "%s/job-environment"\n' "$folder" >"$folder/task-prolog"
    chmod +x "$folder/task-prolog"
}

slurm_conf() {
    local memory_mb
    memory_mb=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
    cat <<END
ClusterName=kolo
SlurmctldHost=head($subnet.253)
SlurmctldPort=7817
SlurmdPort=7818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that is queued again waits until its old credential has ended.
AuthInfo=socket=$folder/munge.socket,cred_expire=5
PlugStackConfig=$folder/plugstack.conf
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/jobcomp.log
MailProg=/bin/true
TaskProlog=$folder/task-prolog
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PropagateResourceLimitsExcept=MEMLOCK
ReturnToService=2
# Faults are found, and jobs started, with shorter timeouts than a large machine needs.
SlurmdTimeout=6
MessageTimeout=5
KillWait=2
InactiveLimit=0
MinJobAge=3600
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-$nodes] NodeHostname=n[1-$nodes] NodeAddr=$subnet.[1-$nodes] CPUs=$cpus RealMemory=$((memory_mb / nodes)) State=UNKNOWN
PartitionName=DEFAULT Nodes=n[1-$nodes] MaxTime=INFINITE State=UP
PartitionName=all Default=YES PriorityTier=1 GraceTime=5
PartitionName=urgent PriorityTier=10 PreemptMode=OFF
END
}

start_controller() {
    daemon head munged --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
        --pid-file="$folder/munged.pid" --log-file="$folder/log/munged.log" \
        --seed-file="$folder/munged.seed" || fail "munged does not start: $(last_lines munged.log)$(last_lines start.log)"
    daemon head slurmctld -f "$folder/slurm.conf" ||
        fail "slurmctld does not start: $(last_lines slurmctld.log)$(last_lines start.log)"
}

start_slurmd() {
    mkdir -p "$folder/spool/$1"
    daemon "$1" slurmd -f "$folder/slurm.conf" ||
        fail "slurmd of $1 does not start: $(last_lines "slurmd.$1.log")$(last_lines start.log)"
}

await_idle() {
    local end=$((SECONDS + 30))
    until [[ $(timeout 5 sinfo --noheader --states=idle --partition=all --format=%D 2>/dev/null) == "$nodes" ]]; do
        ((SECONDS < end)) || fail "the nodes are not idle after 30 s: $(last_lines slurmctld.log)"
        sleep 0.05
    done
}
