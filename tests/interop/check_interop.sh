#!/bin/sh
# The interpreter of PLIMSOLL_PYTHON, else python3, runs the script that is named; without one:
# skipped.
python=${PLIMSOLL_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    echo "skipped: needs $python; PLIMSOLL_PYTHON names one with torch, transformers and peft"
    exit 77
fi
exec "$python" -W ignore "$(dirname "$0")/$1"
