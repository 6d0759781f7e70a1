# shellcheck shell=sh
# files.sh - the files that lints look at, sourced by each. Needs: find, sort; the current directory
# is the source root. Build folders and virtual environments lie outside the rooms.

rooms="estimator oom_recovery runtime tools tests"

# c_files PATTERN...: C sources and headers of the rooms whose names match one of the patterns.
c_files() {
    for room in $rooms; do
        [ -d "$room" ] || continue
        for pattern in "$@"; do
            find "$room" -type f -name "$pattern"
        done
    done | LC_ALL=C sort
}

# text_files: everything a person wrote, data of tests left out.
text_files() {
    {
        c_files '*.[ch]' '*.cu' '*.sh' '*.md' '*.yaml' 'meson.build'
        find . -maxdepth 1 -type f \( -name '*.md' -o -name 'meson*' \) | sed 's|^\./||'
        [ -d docs ] && find docs -type f -name '*.md'
        [ -d configs ] && find configs -type f \( -name '*.md' -o -name '*.yaml' \)
        [ -d .ci ] && find .ci -type f
    } | LC_ALL=C sort
}

# finish NAME COUNT-OF-VIOLATIONS: the exit of every lint.
finish() {
    [ "$2" -eq 0 ] && exit 0
    echo "$1: $2 violations" >&2
    exit 1
}
