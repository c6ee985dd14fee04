#!/bin/sh
# Makes kernels.ptx anew with NVRTC 12.0, which needs no GPU: later ones write PTX that drivers of CUDA 12.0
# do not take. Needs python3 with venv, and a network.
set -eu
cd "$(dirname "$0")"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet "nvidia-cuda-nvrtc-cu12==12.0.140"
library=$(find "$place" -name 'libnvrtc.so.12')
# It loads libnvrtc-builtins from its own folder.
LD_LIBRARY_PATH=$(dirname "$library") KOLO_NVRTC_LIB=$library UPDATE_PTX=1 \
    "${CARGO:-cargo}" test --locked -p gpu --test all ptx_is_made
"${CARGO:-cargo}" test --locked -p gpu --test all ptx
