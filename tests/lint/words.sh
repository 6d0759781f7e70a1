#!/bin/sh
# words.sh SOURCE-ROOT - nothing names the place where it happened to be written.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

bad=0
# each pattern is cut in two so that this file does not hold it
for word in '/wo''rk/' 'sha''red/' 'helper ses''sion' 'AI assis''tant'; do
    # shellcheck disable=SC2046 # names of this tree hold no blanks
    if grep -nIF -- "$word" $(text_files) /dev/null >&2; then
        bad=$((bad + 1))
    fi
done
finish words "$bad"
