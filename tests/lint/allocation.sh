#!/bin/sh
# allocation.sh SOURCE-ROOT - memory of the host is asked for through estimator/base/alloc.h alone,
# and JSON goes through estimator/base/json_tree.h where jansson loses letters, keys or members without
# a word when memory is short. Tests ask libc, and jansson.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

# complain PATTERN ENTRY ADVICE: every line that has PATTERN, but for those of ENTRY.c itself
complain() {
    # shellcheck disable=SC2046 # names of this tree hold no blanks
    grep -nE "$1" $(c_files '*.[ch]' '*.cu' | grep -v '^tests/') /dev/null |
        grep -v "^$2\.c:" | sed "s|\$|  <- $3|"
}

bad=$({
    complain '(^|[^[:alnum:]_>.])((m|c|re)alloc|reallocarray|aligned_alloc|posix_memalign|v?asprintf|strn?dup)\(' \
        estimator/base/alloc 'estimator/base/alloc.h has it' || true
    complain '(^|[^[:alnum:]_])json_(load[a-z_]*|dump[a-z]*)\(' \
        estimator/base/json_tree 'estimator/base/json_tree.h has pl_json_load and pl_json_dump' || true
    complain '^ *(\(void\) ?)?json_(array_(append|insert|set)|object_(set|update))[a-z_]*\(' \
        estimator/base/json_tree 'unchecked: estimator/base/json_tree.h has pl_json_append and pl_json_set' |
        grep -vE '[!=]= 0' || true
} | tee /dev/stderr | wc -l)
finish allocation "$bad"
