#!/bin/bash
# Builds kolo for a site, on a login node: slurm/build.sh [SITE]. Without a network: unpack what
# `make vendor` wrote, and run this in it.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/slurm/site.sh"

site=${1:-${KOLO_SITE:-generic}}
file=$(site_file "$site")
load_modules "$file"
mpi=$(site_value "$file" mpi openmpi)
plugin=$(site_value "$file" mpi_plugin pmix)
missing=()

type cargo >/dev/null 2>&1 ||
    missing+=("cargo: Rust is missing; see https://rustup.rs, or load a module of it")

mpicc=${MPICC:-mpicc}
if ! type "$mpicc" >/dev/null 2>&1; then
    missing+=("$mpicc: load a module of MPI (modules in $file), or set MPICC to the compiler's wrapper")
else
    # The header that it finds identifies the library. Open MPI's wrapper needs a file.
    source=$(mktemp --suffix=.c)
    echo '#include <mpi.h>' >"$source"
    defined=$("$mpicc" -E -dM "$source" 2>/dev/null || true)
    rm -f "$source"
    case $defined in
    *OMPI_MAJOR_VERSION*) found=openmpi ;;
    *MPICH_VERSION* | *I_MPI_VERSION*) found=mpich ;;
    *MPI_VERSION*) found=$mpi ;;
    *) found= && missing+=("mpi.h: $mpicc does not find it; install MPI's headers (libopenmpi-dev, libmpich-dev)") ;;
    esac
    [ -z "$found" ] || [ "$found" = "$mpi" ] ||
        missing+=("$mpi: $mpicc belongs to $found; set mpi = \"$found\" in $file, or MPICC")
fi

# bindgen reads mpi.h with it.
libclang() {
    local folder
    for folder in ${LIBCLANG_PATH:+"$LIBCLANG_PATH"} \
        "$(llvm-config --libdir 2>/dev/null || true)" \
        "$(dirname "$(type -P clang || echo /none/clang)")/../lib" \
        /usr/lib/llvm*/lib /usr/lib64/llvm*/lib /usr/lib64 /usr/lib/*-linux-gnu /usr/local/lib; do
        compgen -G "$folder/libclang*.so*" >/dev/null && return
    done
    return 1
}
libclang ||
    missing+=("libclang: load a module of LLVM, install libclang-dev, or pip install libclang and set LIBCLANG_PATH to the folder of libclang.so")

if [ "$(site_value "$file" launcher srun)" = srun ]; then
    offered=$(srun --mpi=list 2>&1 || true)
    case $offered in
    *"$plugin"*) ;;
    *) missing+=("$plugin: srun --mpi=list does not offer it; its output: ${offered//$'\n'/ }. Set mpi_plugin in $file, or launcher = \"mpirun\"") ;;
    esac
    case $mpi-$plugin in
    openmpi-pmi2) missing+=("pmi2: Open MPI supports it only if it was built with it; set mpi_plugin = \"pmix\" in $file") ;;
    mpich-pmix) echo "build.sh: MPICH supports pmix only if it was built with it; otherwise each rank is a world of its own: then set mpi_plugin = \"pmi2\" in $file" >&2 ;;
    esac
fi

if [ ${#missing[@]} -gt 0 ]; then
    echo "build.sh: missing for site $site ($file):" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 2
fi

cd "$root"
offline=()
[ ! -d vendor ] || offline=(--offline)
cargo build --release --locked "${offline[@]}" --features mpi
echo "built ${CARGO_TARGET_DIR:-$root/target}/release/kolo for site $site; next: kolo site check $site"
