#!/bin/sh
# errors.sh SOURCE-ROOT - README's section "Error codes" lists the codes of errors.h, all and only.
# A tree whose README has no such section passes.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

[ -f README.md ] && grep -q '^## Error codes' README.md || exit 0
pattern='(CONFIG|MODEL|TOKENIZER|DATA|CHECKPOINT|COMM|RUNTIME)_[A-Z_]*[A-Z]'
known=$(grep -oE "\"$pattern\"" estimator/base/errors.h | tr -d '"' | sort -u)
told=$(awk '/^## /{inside = /^## Error codes/} inside' README.md | grep -oE "\`$pattern\`" |
    tr -d '`' | sort -u)
bad=0
for code in $known; do
    echo "$told" | grep -qx "$code" && continue
    echo "README.md: $code is missing from \"Error codes\"" >&2
    bad=$((bad + 1))
done
for code in $told; do
    echo "$known" | grep -qx "$code" && continue
    echo "README.md: $code is not in estimator/base/errors.h" >&2
    bad=$((bad + 1))
done
finish errors "$bad"
