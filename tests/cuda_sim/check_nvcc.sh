#!/bin/sh
# check_nvcc.sh SOURCE-ROOT BUILT - nvcc compiles every .cu file without a warning, for sm_90; with
# PLIMSOLL_ALL_ARCHS=1 for every GPU the kernels are made for; and attention with the instructions of
# sm_90a (-Dhopper=true). Where BUILT is `true` it compiles these alone: the build has just done the
# others, warnings being errors there. Exit 77 (skipped) without a toolkit.
set -eu
cd "$1"

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
[ "${2:-}" = true ] && archs=
[ "${PLIMSOLL_ALL_ARCHS:-0}" = 1 ] && archs='75 80 86 89 90 100 120'
known=$("$nvcc" --list-gpu-arch)
bad=0

# Warnings of device code can be made errors; those of the host compiler too.
compile() { # architecture, file, options
    arch=$1 file=$2
    shift 2
    "$nvcc" -std=c++17 -I. -arch="sm_$arch" "$@" -Werror all-warnings \
        -Xcompiler -Wall,-Wextra,-Werror -c "$file" -o /dev/null && return
    echo "$file: not clean for sm_$arch" >&2
    bad=$((bad + 1))
}

for arch in $archs; do
    if ! echo "$known" | grep -qx "compute_$arch"; then
        echo "cuda.nvcc: this toolkit does not know sm_$arch"
        continue
    fi
    for file in runtime/kernels/cuda/*.cu; do
        compile "$arch" "$file"
    done
done
for file in runtime/kernels/cuda/attention_fwd.cu runtime/kernels/cuda/attention_bwd.cu; do
    compile 90a "$file" -DPL_HOPPER -Xptxas -O0 # a quarter of the time; no one runs the code
done
[ "$bad" -eq 0 ]
