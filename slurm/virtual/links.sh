# Links: their rate, and the delay of packets.
#
# A rate alone is kept by the kernel, on the links to the bridge. The kernel's netem could delay packets,
# but is often missing: with a delay, packets between nodes take another way, through the
# switch of `slurm/switch`,
# while addresses and programs' settings stay the same.
#
# shellcheck shell=bash disable=SC2154  # variables of virtual-cluster

shape() {
    (($# >= 1 && $# <= 3)) || misuse "shape: RATE [DELAY [CROSS_RACK_DELAY]] or off was expected"
    local rate=$1 bits="" delay i switch=""
    if [[ $rate == off ]]; then
        (($# == 1)) || misuse "shape off: $2 was not expected"
    else
        bits=$(bits_per_s "$rate")
    fi
    for delay in "${@:2}"; do
        [[ $delay =~ ^[0-9]{1,4}(us|ms)$ ]] || misuse "shape: $delay is no delay; write 50us or 1ms"
    done
    if (($# >= 2)); then switch=$(find_switch); fi
    free_links
    describe_to_jobs
    if (($# >= 2)); then
        start_switch "$switch" "$@"
        for ((i = 1; i <= nodes; i++)); do join_switch "$i"; done
    elif [[ -n $bits ]]; then
        for ((i = 1; i <= nodes; i++)); do limit_link "n$i" "$bits"; done
    fi
    [[ -z $bits ]] || echo "$*" >"$folder/shape"
    describe_to_jobs
}

# A rate in bit/s.
bits_per_s() {
    [[ $1 =~ ^([1-9][0-9]{0,4})(kbit|mbit|gbit)$ ]] ||
        misuse "shape: $1 is no rate; write 100mbit, 1gbit or 10gbit"
    case ${BASH_REMATCH[2]} in
        kbit) echo "${BASH_REMATCH[1]}000" ;;
        mbit) echo "${BASH_REMATCH[1]}000000" ;;
        gbit) echo "${BASH_REMATCH[1]}000000000" ;;
    esac
}

free_links() {
    local i
    rm -f "$folder/shape"
    stop_switch
    for ((i = 1; i <= nodes; i++)); do
        tc -n "$tag-head" qdisc delete dev "n$i" root 2>/dev/null || true
        tc -n "$tag-n$i" qdisc delete dev eth0 root 2>/dev/null || true
        ip -n "$tag-n$i" link set eth0 gso_max_size 65536
        ip -n "$tag-n$i" route flush type unreachable
    done
}

# -- rate alone

# Both directions of a node's link: a token bucket of 0.16 ms, and a queue of 50 ms. A packet that is
# larger than the bucket would be cut up, slowly, so that the rate is not reached.
limit_link() {
    local node=$1 bits=$2 burst_bytes packet_bytes queue_bytes end
    burst_bytes=$((bits / 50000 > 20000 ? bits / 50000 : 20000))
    packet_bytes=$((burst_bytes * 4 / 5 < 65536 ? burst_bytes * 4 / 5 : 65536))
    queue_bytes=$((bits / 160 > 1000000 ? bits / 160 : 1000000))
    ip -n "$tag-$node" link set eth0 gso_max_size "$packet_bytes"
    for end in "$tag-head $node" "$tag-$node eth0"; do
        tc -n "${end% *}" qdisc replace dev "${end#* }" root tbf \
            rate "${bits}bit" burst "$burst_bytes" limit "$queue_bytes"
    done
}

# -- rate and delay

find_switch() {
    local program beside
    beside=$(dirname "${KOLO:-$(command -v kolo || true)}")/kolo-switch
    for program in "${KOLO_SWITCH:-}" "$beside" "$here/../target/release/kolo-switch"; do
        [[ ! -x $program || -d $program ]] || { readlink -f "$program"; return; }
    done
    fail "delays need the switch: cargo build --release -p switch, or set KOLO_SWITCH to where it is"
}

switch_process() {
    local pid
    pid=$(cat "$folder/switch.pid" 2>/dev/null) || return 0
    [[ /proc/$pid/ns/net -ef /run/netns/$tag-head ]] && echo "$pid"
    return 0
}

# It runs in the head's network, and ends when a node's does. Packets are late if it has to wait for a
# core: so it goes before others where the system lets it.
start_switch() {
    local switch=$1 rate=$2 delay=$3 cross=${4:-$3} first=(chrt --fifo 1)
    [[ -c /dev/net/tun ]] || fail "delays need /dev/net/tun: load or build the module tun"
    "${first[@]}" true 2>/dev/null || first=(nice -n -20)
    setsid nsenter --target "$(holder head)" --net --mount --uts --ipc -- "${first[@]}" \
        "$switch" --nodes "$nodes" --rack-size "$rack_size" \
        --rate "$rate" --delay "$delay" --cross-rack-delay "$cross" \
        </dev/null >"$folder/log/switch.log" 2>&1 &
    echo $! >"$folder/switch.pid"
    disown
    until ip -n "$tag-head" link show "fab$nodes" &>/dev/null; do
        kill -0 "$(<"$folder/switch.pid")" 2>/dev/null || {
            rm -f "$folder/switch.pid"
            fail "the switch does not start: $(last_lines switch.log)"
        }
        sleep 0.01
    done
}

stop_switch() {
    local pid i
    pid=$(switch_process)
    rm -f "$folder/switch.pid"
    [[ -n $pid ]] || return 0
    kill -KILL "$pid" 2>/dev/null || true
    for ((i = 1; i <= nodes; i++)); do
        while ip -n "$tag-n$i" link show fab0 &>/dev/null; do sleep 0.01; done
    done
}

# Routes to the other nodes lead to the switch. If it ends, they are unreachable: better than as fast
# as the machine, while results state otherwise.
join_switch() {
    local node=$1 i
    if ip -n "$tag-head" link show "fab$node" &>/dev/null; then
        ip -n "$tag-head" link set "fab$node" netns "$tag-n$node" name fab0
    fi
    for ((i = 1; i <= nodes; i++)); do
        ((i == node)) || echo "route replace unreachable $subnet.$i metric 1000"
    done | ip -n "$tag-n$node" -batch -
    [[ -n $(holder "n$node") ]] || return 0
    {
        echo "link set fab0 address $(card "$node") addrgenmode none"
        echo "link set fab0 up"
        for ((i = 1; i <= nodes; i++)); do
            ((i != node)) || continue
            echo "neighbour replace $subnet.$i lladdr $(card "$i") dev fab0 nud permanent"
            echo "route replace $subnet.$i dev fab0 src $subnet.$node metric 10"
        done
    } | ip -n "$tag-n$node" -batch -
}

card() {
    printf '02:6b:6f:6c:6f:%02x' "$1"
}
