#!/bin/sh
# Installs what the tests need beyond Rust, gcc and make, where that can be done; says which parts of
# them can run: `parts` prints one word a line.
#   tools.sh install | parts
set -eu
packages="g++ libclang-dev libopenmpi-dev openmpi-bin libmpich-dev mpich slurm-wlm munge iproute2"

has() { command -v "$1" >/dev/null 2>&1; }

# What bindgen loads.
has_clang() {
    [ -n "${LIBCLANG_PATH:-}" ] || has llvm-config ||
        ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* /usr/lib64/libclang*.so* >/dev/null 2>&1
}

parts() {
    if has mpicc && has_clang; then echo mpi; fi
    if has mpicc.mpich && has mpirun.mpich && has_clang; then echo mpich; fi
    # Network namespaces and daemons take root.
    if has mpicc && has_clang && has slurmctld && has slurmd && has munged && has ip && [ "$(id -u)" = 0 ]
    then echo cluster; fi
    # The kernels of GPUs, compiled for the processor.
    if has "${CXX:-g++}"; then echo kernels; fi
}

install() {
    PATH=$PATH:/usr/sbin:/sbin
    [ "$(parts | wc -l)" -lt 4 ] || return 0
    if ! has apt-get; then
        echo "install MPI, libclang and Slurm to test what needs them; on Debian: $packages" >&2
    elif [ "$(id -u)" = 0 ]; then
        apt-get install -y --no-install-recommends $packages >/dev/null 2>&1 ||
            { apt-get update >/dev/null && apt-get install -y --no-install-recommends $packages >/dev/null; }
    elif has sudo && sudo -n true 2>/dev/null; then
        sudo apt-get install -y --no-install-recommends $packages >/dev/null
    else
        echo "to test MPI and Slurm, too: sudo apt-get install -y --no-install-recommends $packages" >&2
    fi
}

case "${1:-}" in
install) install ;;
parts) PATH=$PATH:/usr/sbin:/sbin; parts ;;
*) sed -n '2,4p' "$0" >&2; exit 2 ;;
esac
