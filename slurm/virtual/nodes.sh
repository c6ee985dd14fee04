# Nodes: namespaces, the network between them, and what runs in them.
# shellcheck shell=bash disable=SC2154  # variables of virtual-cluster

# Names on the host begin with a tag made of the folder: interfaces have 15 characters at most.
name_after() {
    folder=$1
    tag=kv$(printf %04x $(($(cksum <<<"$folder" | cut -d ' ' -f 1) % 65536)))
    export SLURM_CONF=$folder/slurm.conf
}

spaces() {
    find /run/netns -maxdepth 1 -name "$tag-*" -printf '%f\n' 2>/dev/null || true
}

# The process that keeps a node's namespaces; empty if the node is dead.
holder() {
    local pid
    pid=$(cat "$folder/$1.pid" 2>/dev/null) || return 0
    # Process ids are used again: it must be in the node's network.
    [[ /proc/$pid/ns/net -ef /run/netns/$tag-$1 ]] && echo "$pid"
    return 0
}

enter() {
    local node=$1 pid
    shift
    pid=$(holder "$node")
    [[ -n $pid ]] || fail "node $node is dead: start it by $(command_line "revive $node")"
    nsenter --target "$pid" --net --mount --uts --ipc -- "$@"
}

# A daemon gets nothing of the caller's environment, and no open file.
daemon() {
    local node=$1
    shift
    enter "$node" env -i PATH="$PATH" SLURM_CONF="$folder/slurm.conf" "$@" \
        </dev/null >>"$folder/log/start.log" 2>&1
}

# Mounts of the host that come later reach the nodes; those of a node stay in it. A new /sys shows the
# node's own interfaces; slurmd looks for control groups in it.
hold() {
    local node=$1
    # shellcheck disable=SC2016  # expanded within
    setsid nsenter --net="/run/netns/$tag-$node" unshare --mount --uts --ipc --propagation slave bash -c '
        set -e
        hostname "$1"
        mount -t tmpfs -o mode=1777 kolo /dev/shm
        mount -t tmpfs -o mode=1777 kolo "$0/local"
        mkdir "$0/local/cgroup"
        mount --rbind /sys/fs/cgroup "$0/local/cgroup"
        mount -t sysfs kolo /sys
        mount --move "$0/local/cgroup" /sys/fs/cgroup
        rmdir "$0/local/cgroup"
        mount --bind "$0/hosts" /etc/hosts
        echo $$ >"$0/$1.pid.new"
        mv "$0/$1.pid.new" "$0/$1.pid"
        exec sleep infinity' "$folder" "$node" </dev/null >>"$folder/log/start.log" 2>&1 &
    local start=$!
    disown
    until [[ -n $(holder "$node") ]]; do
        kill -0 "$start" 2>/dev/null || fail "the namespaces of $node cannot be made: $(last_lines start.log)"
        sleep 0.01
    done
}

last_lines() {
    tail -n 3 "$folder/log/$1" 2>/dev/null | tr '\n' ' '
}

# Ends every process in a network namespace; a second round finds what was born in the first.
end_processes() {
    local pids
    for _ in {1..100}; do
        pids=$(ip netns pids "$1" 2>/dev/null) || return 0
        [[ -n $pids ]] || return 0
        # shellcheck disable=SC2086  # a list of numbers
        kill -KILL $pids 2>/dev/null || true
        sleep 0.02
    done
    fail "processes in $1 do not end: ${pids//$'\n'/ }"
}

make_head() {
    ip netns add "$tag-head"
    ip link add "$tag" type veth peer name host netns "$tag-head"
    ip address add "$subnet.254/24" dev "$tag"
    ip link set "$tag" up
    ip -n "$tag-head" -batch - <<END
link add bridge0 type bridge
address add $subnet.253/24 dev bridge0
link set host master bridge0
link set lo up
link set host up
link set bridge0 up
END
    hold head
}

make_node() {
    ip netns add "$tag-n$1"
    ip -n "$tag-head" link add "n$1" type veth peer name eth0 netns "$tag-n$1"
    ip -n "$tag-head" link set "n$1" master bridge0 up
    ip -n "$tag-n$1" -batch - <<END
address add $subnet.$1/24 dev eth0
link set lo up
link set eth0 up
END
    # Every kernel has reno. With bbr, messages that go to one partner after another do not fill the link.
    nsenter --net="/run/netns/$tag-n$1" bash -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control' ||
        echo "virtual-cluster: n$1 keeps the host's congestion control of TCP" >&2
    hold "n$1"
}

