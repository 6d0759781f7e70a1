#!/bin/sh
# promises.sh SOURCE-ROOT - every test that a row of docs/reliability.md names exists, and every row of
# its table of promises names one. BUILD_ROOT is where meson lists the tests; status 77 (skipped)
# without it. A tree without the document passes.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

[ -f docs/reliability.md ] || exit 0
[ -n "${BUILD_ROOT:-}" ] || {
    echo "skipped: needs a build without a sanitizer"
    exit 77
}
known=$(grep -oE '"name": "[^"]*"' "$BUILD_ROOT/meson-info/intro-tests.json" |
    sed 's/.*: "//; s/"$//' | sort -u)
rows=$(awk '/^## /{inside = /^## What we promise/} inside && /^\|/' docs/reliability.md | sed 1,2d)
bad=0
tests=$(echo "$rows" | awk -F'|' '{print $3}' | grep -oE '`[^`]*`' | tr -d '`' | sort -u || true)
for name in $tests; do
    echo "$known" | grep -qxF -- "$name" && continue
    echo "docs/reliability.md: there is no test $name" >&2
    bad=$((bad + 1))
done
empty=$(echo "$rows" | awk -F'|' '$3 !~ /`/' | sed '/^$/d')
if [ -n "$empty" ]; then
    echo "$empty" >&2
    echo "^ no test holds it" >&2
    bad=$((bad + 1))
fi
finish promises "$bad"
