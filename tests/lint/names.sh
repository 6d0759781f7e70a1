#!/bin/sh
# names.sh SOURCE-ROOT - no two sources share a name, so that a backtrace line says which file it
# is. A kernel is named after its op, once for each back-end, and is compared within its back-end.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

bad=0
# twice LIST: base names that occur more than once.
twice() {
    echo "$1" | sed 's|.*/||' | LC_ALL=C sort | uniq -d
}
all=$(c_files '*.c' '*.cu')
others=$(echo "$all" | grep -v '^runtime/kernels/[^/]*/' || true)
backends=$(echo "$all" | grep '^runtime/kernels/[^/]*/' | cut -d/ -f3 | sort -u || true)
for group in others $backends; do
    if [ "$group" = others ]; then
        list=$others
    else
        list=$(echo "$all" | grep "^runtime/kernels/$group/")
    fi
    for name in $(twice "$list"); do
        echo "$name: $(echo "$list" | grep "/$name\$" | tr '\n' ' ')" >&2
        bad=$((bad + 1))
    done
done
finish names "$bad"
