#!/bin/sh
# on_gpu.sh COMMAND... - runs COMMAND where there is an NVIDIA GPU, else counts as skipped.
[ -e /dev/nvidiactl ] || {
    echo "skipped: needs an NVIDIA GPU"
    exit 77
}
exec "$@"
