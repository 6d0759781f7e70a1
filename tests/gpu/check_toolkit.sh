#!/bin/sh
# check_toolkit.sh SOURCE-ROOT MESON - a build finds the toolkit of an nvcc that is a script or a link
# in another place. The toolkit is one of empty files whose nvcc answers what a build asks of it.
set -eu
root=$1 meson=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
toolkit=$scratch/toolkit
mkdir -p "$toolkit/bin" "$toolkit/include" "$toolkit/lib64" "$scratch/script/bin" "$scratch/link/bin"
: >"$toolkit/include/cuda_runtime.h"
ar cr "$toolkit/lib64/libcudart_static.a"
# As NVIDIA's, it finds its toolkit from where it was called.
cat >"$toolkit/bin/nvcc" <<'EOF_NVCC'
#!/bin/sh
top=$(dirname "$0")/..
case $1 in
--version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
--list-gpu-arch) echo compute_90 ;;
--dryrun) [ ! -d "$top/include" ] || echo "#$ TOP=$top" >&2 ;;
esac
EOF_NVCC
printf '#!/bin/sh\nexec %s/bin/nvcc "$@"\n' "$toolkit" >"$scratch/script/bin/nvcc"
chmod +x "$toolkit/bin/nvcc" "$scratch/script/bin/nvcc"
ln -s "$toolkit/bin/nvcc" "$scratch/link/bin/nvcc"

for kind in script link; do
    # shellcheck disable=SC2086 # $meson is a command of several words
    CUDA_HOME=$scratch/$kind $meson setup "$scratch/build-$kind" "$root" -Dtests=disabled \
        -Dcuda=enabled >"$scratch/said" 2>&1 || {
        echo "toolkit: with a $kind to nvcc: $(grep ERROR "$scratch/said")" >&2
        exit 1
    }
    grep -q "isystem $toolkit/.*include" "$scratch/build-$kind/build.ninja" || {
        echo "toolkit: with a $kind to nvcc: the toolkit's headers are not looked for" >&2
        exit 1
    }
done
