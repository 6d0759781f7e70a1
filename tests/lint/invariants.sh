#!/bin/sh
# invariants.sh SOURCE-ROOT - the numbered invariants of a header's first comment stand in lines of
# their own: " *   B1  text". A series is its letters, or none, and its numbers follow each other.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

bad=0
# shellcheck disable=SC2046 # names of this tree hold no blanks
found=$(awk '
FNR == 1 { inside = 1; delete last }
!inside { next }
{
    text = $0
    if (match(text, /^ \*   [A-Z]*[0-9]+  [^ ]/)) {
        mark = substr(text, 6, RLENGTH - 8)
        letter = mark
        sub(/[0-9]+/, "", letter)
        number = substr(mark, length(letter) + 1) + 0
        if (letter in last && number != last[letter] + 1)
            printf "%s:%d: %s follows %s%d\n", FILENAME, FNR, mark, letter, last[letter]
        last[letter] = number
        text = substr(text, RLENGTH)
    }
    for (letter in last) {
        next_one = letter (last[letter] + 1)
        if (index(text, " " next_one "  "))
            printf "%s:%d: %s does not begin a line\n", FILENAME, FNR, next_one
    }
}
/\*\// { inside = 0 }' $(c_files '*.h') /dev/null)
if [ -n "$found" ]; then
    echo "$found" >&2
    bad=$(echo "$found" | wc -l)
fi
finish invariants "$bad"
