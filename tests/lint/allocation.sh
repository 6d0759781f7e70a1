#!/bin/sh
# allocation.sh SOURCE-ROOT - memory of the host is asked for through estimator/base/alloc.h alone.
# Tests ask libc.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

calls='(^|[^[:alnum:]_>.])((m|c|re)alloc|reallocarray|aligned_alloc|posix_memalign|v?asprintf|strn?dup)\('
# shellcheck disable=SC2046 # names of this tree hold no blanks
bad=$(grep -nE "$calls" $(c_files '*.[ch]' '*.cu' | grep -v '^tests/') /dev/null |
    grep -v '^estimator/base/alloc\.c:' | sed 's|$|  <- estimator/base/alloc.h has it|' |
    tee /dev/stderr | wc -l)
finish allocation "$bad"
