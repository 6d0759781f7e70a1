#!/bin/sh
# embed.sh FILE... - prints C: each file as an array of characters, which ends with NUL. The array of
# page/style.css is pl_page_style_css.
set -eu
printf '#include "runtime/report/page_files.h"\n'
for file in "$@"; do
    printf 'const char pl_page_%s[] = {\n' "$(basename "$file" | tr . _)"
    od -An -v -td1 "$file" | sed 's/ *\(-*[0-9][0-9]*\)/\1,/g'
    printf '0};\n'
done
