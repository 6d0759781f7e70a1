#!/bin/sh
# lengths.sh SOURCE-ROOT - files of at most 800 lines, functions of at most 120.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

report=$(
    for f in $(c_files '*.[ch]' '*.cu'); do
        awk -v file="$f" '
            BEGIN { comment = 0; depth = 0; macro = 0 }
            {
                line = $0
                # text in strings and comments holds braces that are none
                gsub(/\\\\/, "", line)
                gsub(/\\["\x27]/, "", line)
                gsub(/"[^"]*"/, "", line)
                gsub(/\x27[^\x27]\x27/, "", line)
                if (comment && sub(/^.*\*\//, "", line)) comment = 0
                if (comment) next
                gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", line)
                sub(/\/\/.*/, "", line)
                if (sub(/\/\*.*/, "", line)) comment = 1
                # a macro may open what it does not close
                in_macro = macro || line ~ /^[ ]*#/
                macro = in_macro && line ~ /\\$/
                if (in_macro) next
                # functions open with ") {"; tables and types do not
                is_function = line ~ /\)[^=]*{[^}]*$/
                was = depth
                depth += gsub(/{/, "", line) - gsub(/}/, "", line)
                if (was == 0 && depth > 0) start = is_function ? NR : 0
                if (was > 0 && depth <= 0) {
                    if (start && NR - start + 1 > 120)
                        print file ":" start ": " NR - start + 1 " lines in one function"
                    depth = 0
                }
            }
            END { if (NR > 800) print file ": " NR " lines" }' "$f"
    done
)
[ -z "$report" ] && exit 0
echo "$report" >&2
finish lengths "$(echo "$report" | wc -l)"
