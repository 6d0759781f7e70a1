#!/bin/sh
# on_gpu.sh COMMAND... - runs COMMAND where there is an NVIDIA GPU, else counts as skipped.
[ -e /dev/nvidiactl ] || {
    echo "no NVIDIA GPU on this machine"
    exit 77
}
exec "$@"
