#!/bin/sh
# check_man.sh DIRECTORY-OF-PAGES - a reader gets what was written: no page makes man complain, each
# command of the binary has one, and every line of its examples is there as it is to be typed.
# PLIMSOLL names the binary.
set -eu
pages=$1
skip() {
    echo "skipped: needs $*"
    exit 77
}
if ! { command -v man && command -v groff && command -v col; } >/dev/null; then
    skip "the packages man-db, groff and bsdextrautils"
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A width at which nothing is broken; `man` of an image without manuals only says so.
export MANWIDTH=240 LC_ALL=C.UTF-8
show() { man --warnings -l "$1" 2>"$dir/warnings" | col -bx; }
show "$pages/plimsoll.1" | grep -q '^NAME' || skip "a system with manuals (an image without them has unminimize)"

bad=0
complain() {
    echo "$*" >&2
    bad=1
}
for page in "$pages"/*.[15]; do
    show "$page" >"$dir/shown"
    [ ! -s "$dir/warnings" ] || complain "$page: $(cat "$dir/warnings")"
    MANWIDTH=80 man --warnings -l "$page" 2>"$dir/warnings" >/dev/null
    [ ! -s "$dir/warnings" ] || complain "$page, 80 columns: $(cat "$dir/warnings")"
    [ "$(grep -cE '^(NAME|DESCRIPTION|SEE ALSO)$' "$dir/shown")" -ge 2 ] || complain "$page: empty"
done
"$PLIMSOLL" help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' >"$dir/commands"
[ -s "$dir/commands" ] || complain "no commands in help"
while read -r command; do
    show "$pages/plimsoll-$command.1" | sed 's/^ *//' >"$dir/shown"
    "$PLIMSOLL" help "$command" | sed -n '/^Examples:/,/^$/p' | sed '1d;$d;s/^ *//' >"$dir/examples"
    [ -s "$dir/examples" ] || complain "$command: no examples"
    while IFS= read -r line; do
        grep -qxF -e "$line" "$dir/shown" || complain "$command: not in its page: $line"
    done <"$dir/examples"
done <"$dir/commands"
exit $bad
