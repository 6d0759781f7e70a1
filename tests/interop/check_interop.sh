#!/bin/sh
# The interpreter of PLIMSOLL_PYTHON, else python3, runs check_interop.py; without one: skipped.
python=${PLIMSOLL_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    echo "skipped: there is no $python; PLIMSOLL_PYTHON names one with torch, transformers, peft"
    exit 77
fi
exec "$python" -W ignore "$(dirname "$0")/check_interop.py"
