#!/bin/sh
# text.sh SOURCE-ROOT - no trailing blanks; in C no tab, no line past 100 columns, no note to do
# something later. Columns and indents of .editorconfig are those of .clang-format.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

bad=0
# complain WHAT PATTERN FILE...: grep's lines are the report.
complain() {
    what=$1
    shift
    if grep -nE "$@" /dev/null >&2; then
        echo "^ $what" >&2
        bad=$((bad + 1))
    fi
}
tab=$(printf '\t')
# shellcheck disable=SC2046 # names of this tree hold no blanks
complain "trailing blanks" "[ $tab]\$" $(text_files)
c=$(c_files '*.[ch]' '*.cu')
# shellcheck disable=SC2086
if [ -n "$c" ]; then
    complain "a tab" "$tab" $c
    complain "longer than 100 columns" '^.{101}' $c
    complain "a note to do it later" '(^|[^[:alnum:]_])(TO''DO|FIX''ME|XX''X)($|[^[:alnum:]_])' $c
fi
# setting FILE NAME: its value, of the first line that has one.
setting() {
    sed -n "s/^$2[ :=]*//p" "$1" | head -n 1
}
for pair in max_line_length:ColumnLimit indent_size:IndentWidth; do
    [ -f .editorconfig ] || continue
    ours=$(setting .editorconfig "${pair%:*}")
    theirs=$(setting .clang-format "${pair#*:}")
    [ "$ours" = "$theirs" ] && continue
    echo ".editorconfig: ${pair%:*} $ours, .clang-format has $theirs" >&2
    bad=$((bad + 1))
done
finish text "$bad"
