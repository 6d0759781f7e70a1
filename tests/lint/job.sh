#!/bin/sh
# job.sh SOURCE-ROOT - a job stays as it was written: estimator/config alone writes one (spec.h). A
# question, a price or a row of advice has a copy of its own to change; a run has none. The names that the
# file of an adapter gives are a job of their own.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

sources() {
    c_files '*.[ch]' '*.cu' | grep -v -e '^tests/' -e '^estimator/config/'
}

# complain PATTERN ADVICE FILE...: every line of the files that has PATTERN
complain() {
    pattern=$1 advice=$2
    shift 2
    grep -nE "$pattern" "$@" /dev/null | sed "s|\$|  <- $advice|"
}

member='[a-z_]+(\.[a-z_]+|\[[^]]*\])*'
set='([-+*/|&^]|<<|>>)?=[^=]'
bad=$({
    # shellcheck disable=SC2046 # names of this tree hold no blanks
    complain "(^|[^[:alnum:]_])job->$member +$set|^ *\*job = " \
        'spec.h: make it a fact, or change a copy (struct pl_variant)' \
        $(sources | grep -v -e '^estimator/advice/' -e '^estimator/gate/price\.c$') || true
    # shellcheck disable=SC2046
    complain "job\.$member +$set" 'spec.h: a run has no copy of a job; make it a fact' \
        $(sources | grep -e '^runtime/' -e '^oom_recovery/') || true
    # shellcheck disable=SC2046
    complain '(^|[^t]) *struct pl_job \*[a-z]' 'const: a run does not write its job' \
        $(sources | grep -e '^runtime/' -e '^oom_recovery/') |
        grep -v -e 'const struct pl_job \*' -e 'struct pl_job \*names' || true
} | tee /dev/stderr | wc -l)
finish job "$bad"
