#!/bin/sh
# check_matrix.sh PROGRAM - runs check_matrix.py with the interpreter of PLIMSOLL_PYTHON, else
# python3; skipped where pyarrow or carquet is not installed.
python=${PLIMSOLL_PYTHON:-python3}
if ! "$python" -c 'import pyarrow' 2>/dev/null; then
    echo "skipped: needs pyarrow (pip install pyarrow); PLIMSOLL_PYTHON names a Python that has it"
    exit 77
fi
at=$(dirname "$0")
if ! "$1" "$at/text.parquet" >/dev/null 2>&1; then
    echo "skipped: needs carquet (pip install 'carquet==0.7.*')"
    exit 77
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$python" "$at/check_matrix.py" "$1"
