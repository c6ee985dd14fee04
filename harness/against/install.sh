#!/bin/sh
# Installs real Horovod with MPI and Gloo, and PyTorch for processors, into a virtual environment; on Debian 12 as
# root, in about six minutes on two cores. Nothing is patched.
#
#   harness/against/install.sh [FOLDER]      FOLDER: target/horovod by default
set -eu
here=$(dirname "$(readlink -f "$0")")
folder=${1:-$here/../../target/horovod}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

mkdir -p "$folder"
folder=$(readlink -f "$folder")
stamp=$folder/installed
wanted=$(cat "$here/requirements.txt" "$here/horovod.txt")
if [ -x "$folder/bin/horovodrun" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    echo "$folder is up to date"
    exit 0
fi

missing=""
# libclang-dev is for kolo's own ranks over MPI.
for package in cmake g++ make pkg-config python3-venv python3-dev openmpi-bin libopenmpi-dev libclang-dev; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
        missing="$missing $package"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || fail "packages are missing; as root: apt-get install -y$missing"
    command -v apt-get >/dev/null || fail "this is no Debian; install by your own means:$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    # shellcheck disable=SC2086  # a list
    apt-get install -q -y --no-install-recommends $missing
fi
python3 -c 'import sys; sys.exit(sys.version_info[:2] > (3, 11))' ||
    fail "torch 2.0.1 has wheels up to Python 3.11, and this is $(python3 --version)"

python3 -m venv --clear "$folder"
pip() {
    "$folder/bin/pip" --disable-pip-version-check "$@"
}
pip install --quiet --requirement "$here/requirements.txt"
# Horovod asks for a CMake older than 4, which torch's dependencies bring along; and mpicxx is Open MPI's.
HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=MPI \
    HOROVOD_CMAKE=/usr/bin/cmake OMPI_CXX=g++ MAKEFLAGS="-j$(nproc)" PATH="$folder/bin:$PATH" \
    "$folder/bin/pip" --disable-pip-version-check install --no-build-isolation --no-deps --no-binary :all: \
    --requirement "$here/horovod.txt"
"$folder/bin/horovodrun" --check-build
printf '%s\n' "$wanted" >"$stamp"
echo "$folder is ready"
