#!/bin/sh
# pages.sh SOURCE-ROOT - README.md has at most 200 lines and names every page of docs/ and of the
# root; every link of these pages leads to a file, and to a heading of it where it names one;
# docs/reference.md has every environment variable that the program reads; the newest release of
# CHANGELOG.md is the version that meson.build has.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

bad=0
complain() {
    echo "$*" >&2
    bad=$((bad + 1))
}
[ "$(wc -l <README.md)" -le 200 ] || complain "README.md: more than 200 lines"

# anchors FILE: its headings as GitHub names them.
anchors() {
    sed -n 's/^##* //p' "$1" | tr 'A-Z ' 'a-z-' | tr -dc 'a-z0-9_\n-'
}
for page in *.md docs/*.md; do
    [ -f "$page" ] || continue
    case $page in
    README.md) ;;
    *) grep -qF "]($page" README.md || complain "README.md: no link to $page" ;;
    esac
    for link in $(grep -oE '\]\([^)]*\)' "$page" | sed 's/^](//; s/)$//' | sort -u); do
        case $link in *://*) continue ;; esac
        file=${link%%#*}
        target=$(dirname "$page")/$file
        [ -n "$file" ] || target=$page
        if [ ! -f "$target" ]; then
            complain "$page: no file $link"
        elif [ "$link" != "$file" ]; then
            anchors "$target" | grep -qx -- "${link#*#}" || complain "$page: no heading $link"
        fi
    done
done

version=$(sed -n "s/^  version: '\(.*\)',\$/\1/p" meson.build 2>/dev/null || true)
newest=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md 2>/dev/null | head -n 1)
[ "$version" = "$newest" ] ||
    complain "CHANGELOG.md: the newest release is ${newest:-none}, meson.build has ${version:-none}"

read_in=$(c_files '*.c' | grep -v '^tests/' || true)
# shellcheck disable=SC2086 # names of this tree hold no blanks
for name in $(grep -ohE 'getenv\("[A-Z_]*"\)' $read_in /dev/null | cut -d'"' -f2 | sort -u); do
    grep -qF "\`$name\`" docs/reference.md || complain "docs/reference.md: $name is missing"
done
finish pages "$bad"
