#!/bin/sh
# errors.sh SOURCE-ROOT - the section "Error codes" of docs/reference.md lists the codes of errors.h,
# all and only (a tree without the page or the section passes); missing memory of the host has one
# wording, "no memory for WHAT".
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

bad=0
# shellcheck disable=SC2046 # names of this tree hold no blanks
if grep -nE '"(no|not enough) memory( [^f]|")' $(c_files '*.[ch]' | grep -v '^tests/') \
    /dev/null >&2; then
    echo '^ "no memory for WHAT" is the wording' >&2
    bad=1
fi
page=docs/reference.md
[ -f "$page" ] && grep -q '^## Error codes' "$page" || finish errors "$bad"
pattern='(CONFIG|MODEL|TOKENIZER|DATA|CHECKPOINT|COMM|RUNTIME)_[A-Z_]*[A-Z]'
known=$(grep -oE "\"$pattern\"" estimator/base/errors.h | tr -d '"' | sort -u)
told=$(awk '/^## /{inside = /^## Error codes/} inside' "$page" | grep -oE "\`$pattern\`" |
    tr -d '`' | sort -u)
for code in $known; do
    echo "$told" | grep -qx "$code" && continue
    echo "$page: $code is missing from \"Error codes\"" >&2
    bad=$((bad + 1))
done
for code in $told; do
    echo "$known" | grep -qx "$code" && continue
    echo "$page: $code is not in estimator/base/errors.h" >&2
    bad=$((bad + 1))
done
finish errors "$bad"
