#!/bin/sh
# check_nvcc.sh SOURCE-ROOT BUILT - nvcc compiles every .cu file without a warning, for sm_90; with
# PLIMSOLL_ALL_ARCHS=1 for every GPU the kernels are made for. Exit 77 (skipped) without a toolkit,
# and where BUILT is `true`: the build has just done it, warnings being errors there.
set -eu
cd "$1"

if [ "${2:-}" = true ] && [ "${PLIMSOLL_ALL_ARCHS:-0}" != 1 ]; then
    echo "skipped: needs PLIMSOLL_ALL_ARCHS=1 for other GPUs; this build has compiled every file"
    exit 77
fi

nvcc=
for candidate in nvcc ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} ${CUDA_PATH:+"$CUDA_PATH/bin/nvcc"} \
    /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc; do
    nvcc=$(command -v "$candidate") && break
done
if [ -z "$nvcc" ]; then
    echo "skipped: needs the CUDA toolkit (nvcc)"
    exit 77
fi

archs=90
[ "${PLIMSOLL_ALL_ARCHS:-0}" = 1 ] && archs='75 80 86 89 90 100 120'
known=$("$nvcc" --list-gpu-arch)
bad=0
for arch in $archs; do
    if ! echo "$known" | grep -qx "compute_$arch"; then
        echo "cuda.nvcc: this toolkit does not know sm_$arch"
        continue
    fi
    for file in runtime/kernels/cuda/*.cu; do
        # Warnings of device code can be made errors; those of the host compiler too.
        if ! "$nvcc" -std=c++17 -I. -arch="sm_$arch" -Werror all-warnings \
            -Xcompiler -Wall,-Wextra,-Werror -c "$file" -o /dev/null; then
            echo "$file: not clean for sm_$arch" >&2
            bad=$((bad + 1))
        fi
    done
done
[ "$bad" -eq 0 ]
