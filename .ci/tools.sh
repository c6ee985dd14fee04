#!/bin/sh
# What `make test-all` needs beyond Rust and a C linker: installs it where that can be done, and reports
# what is missing.
#   tools.sh install     installs packages, on Debian as root or with passwordless sudo
#   tools.sh parts       prints the parts that can run here, one a line: mpi mpich cluster kernels
#                        python browser hlog
#   tools.sh missing     prints a line for each part that cannot run here
#   tools.sh not-tested  prints the list that the tests wrote to $KOLO_NOT_TESTED
set -eu
packages="g++ libclang-dev libopenmpi-dev openmpi-bin libmpich-dev mpich slurm-wlm munge iproute2 python3 python3-venv chromium \
    libhdrhistogram-java default-jre-headless"
PATH=$PATH:/usr/sbin:/sbin

has() { command -v "$1" >/dev/null 2>&1; }

# What bindgen loads.
has_clang() {
    [ -n "${LIBCLANG_PATH:-}" ] || has llvm-config ||
        ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* /usr/lib64/libclang*.so* >/dev/null 2>&1
}

can_run() {
    case $1 in
    fmt | clippy) "${CARGO:-cargo}" "$1" --version >/dev/null 2>&1 ;;
    mpi) has mpicc && has_clang ;;
    mpich) has mpicc.mpich && has mpirun.mpich && has_clang ;;
    # Network namespaces and daemons take root.
    cluster) has mpicc && has_clang && has slurmctld && has slurmd && has munged && has ip && [ "$(id -u)" = 0 ] ;;
    # The kernels of GPUs, compiled for the processor.
    kernels) has "${CXX:-g++}" ;;
    # The script of `kolo tune --confirm-script`.
    python) has python3 ;;
    # HdrHistogram's readers: that for Python comes from the package index.
    hlog) has python3 && python3 -c "import ensurepip, venv" 2>/dev/null && has java &&
        [ -e /usr/share/java/hdrhistogram.jar ] ;;
    # What tests of reports start.
    browser) [ -n "${KOLO_CHROMIUM:-}" ] || has chromium || has chromium-browser || has google-chrome || has chrome ;;
    esac
}

needs() {
    case $1 in
    fmt) echo "formatting: needs rustfmt (rustup component add rustfmt)" ;;
    clippy) echo "lints: need clippy (rustup component add clippy)" ;;
    mpi) echo "ranks over MPI: needs mpicc and libclang" ;;
    mpich) echo "ranks over MPICH: needs mpicc.mpich, mpirun.mpich and libclang" ;;
    browser) echo "reports in a browser: needs Chromium" ;;
    cluster) echo "jobs under Slurm: need root, mpicc, libclang, slurmctld, slurmd, munged and ip" ;;
    esac
}

parts() {
    for part in mpi mpich cluster kernels python browser hlog; do
        if can_run $part; then echo $part; fi
    done
}

# Tests report missing kernels and python by themselves.
missing() {
    for part in fmt clippy mpi mpich cluster browser; do
        can_run $part || needs $part
    done
}

install() {
    if has rustup; then
        for part in fmt clippy; do
            can_run $part || rustup component add "$(echo $part | sed s/^fmt/rustfmt/)" || true
        done
    fi
    [ "$(parts | wc -l)" -lt 7 ] || return 0
    if ! has apt-get; then
        echo "to test everything, install: MPI, MPICH, libclang, Slurm, munge, iproute2, g++, python3, Chromium, Java, HdrHistogram" >&2
    elif [ "$(id -u)" = 0 ]; then
        apt-get install -y --no-install-recommends $packages >/dev/null 2>&1 ||
            { apt-get update >/dev/null && apt-get install -y --no-install-recommends $packages >/dev/null; }
    elif has sudo && sudo -n true 2>/dev/null; then
        sudo apt-get install -y --no-install-recommends $packages >/dev/null
    else
        echo "to test everything: sudo apt-get install -y --no-install-recommends $packages" >&2
    fi
}

not_tested() {
    if [ -s "$KOLO_NOT_TESTED" ]; then
        echo "not tested here:"
        sort -u "$KOLO_NOT_TESTED" | sed 's/^/  /'
    fi
}

case "${1:-}" in
install) install ;;
parts) parts ;;
missing) missing ;;
not-tested) not_tested ;;
*) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
