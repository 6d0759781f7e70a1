#!/bin/sh
# errors.sh SOURCE-ROOT - the section "Error codes" of docs/reference.md lists the codes of errors.h,
# all and only. A tree without the page or the section passes.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

page=docs/reference.md
[ -f "$page" ] && grep -q '^## Error codes' "$page" || exit 0
pattern='(CONFIG|MODEL|TOKENIZER|DATA|CHECKPOINT|COMM|RUNTIME)_[A-Z_]*[A-Z]'
known=$(grep -oE "\"$pattern\"" estimator/base/errors.h | tr -d '"' | sort -u)
told=$(awk '/^## /{inside = /^## Error codes/} inside' "$page" | grep -oE "\`$pattern\`" |
    tr -d '`' | sort -u)
bad=0
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
