#!/bin/sh
# headers.sh SOURCE-ROOT - every header compiles alone, and twice in one file. CC from the
# environment. Headers of the CUDA back-end find the stand-ins of tests/cuda_sim for NVIDIA's, so that
# no toolkit is needed; the stand-ins themselves are partly C++ and are left to their own tests.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

bad=0
for f in $(c_files '*.h'); do
    case $f in tests/cuda_sim/include/*) continue ;; esac
    # PL_LEVEL names the instruction set that a kernel header is compiled for
    if ! printf '#include "%s"\n#include "%s"\n' "$f" "$f" |
        ${CC:-cc} -std=c11 -D_GNU_SOURCE -DPL_LEVEL=base -fsyntax-only -I. \
        -Itests/cuda_sim/include -x c -; then
        echo "$f: does not compile alone" >&2
        bad=$((bad + 1))
    fi
done
finish headers "$bad"
