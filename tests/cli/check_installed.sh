#!/bin/sh
# check_installed.sh SOURCE-ROOT BUILD-ROOT mpi|none PREFIX MESON - the list of all that
# `meson install` installs; completions are what the command prints. PLIMSOLL names the binary.
set -eu
source=$1
build=$2
mpi=$3
prefix=$4
meson=$5

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
DESTDIR="$dir/root" "$meson" install -C "$build" --no-rebuild >"$dir/log" 2>&1 || {
    cat "$dir/log"
    exit 1
}
cd "$dir/root$prefix"

# The folder of libraries has the name of the machine on some systems; releases change their number.
find . -type f -o -type l | sed 's|^\./||; s|^lib[^/]*/\([^/]*-linux-[^/]*/\)*|LIB/|; s|\.so\.[0-9]*\.[0-9.]*$|.so.VERSION|' |
    LC_ALL=C sort >"$dir/installed"
{
    cat <<'END'
bin/plimsoll
include/plimsoll.h
LIB/libplimsoll.a
LIB/libplimsoll.so
LIB/libplimsoll.so.0
LIB/libplimsoll.so.VERSION
LIB/pkgconfig/plimsoll.pc
share/bash-completion/completions/plimsoll
share/doc/plimsoll/LICENSE
share/doc/plimsoll/examples/embed/fits.c
share/fish/vendor_completions.d/plimsoll.fish
share/man/man1/plimsoll.1
share/man/man5/plimsoll.yaml.5
share/zsh/site-functions/_plimsoll
END
    [ "$mpi" = none ] || echo LIB/plimsoll/libplimsoll-mpi.so
    "$PLIMSOLL" help | sed -n '/^Commands:/,/^$/s|^  \([a-z-]*\) .*|share/man/man1/plimsoll-\1.1|p'
    for job in "$source"/configs/*.yaml; do
        case $job in
        */quickstart*) ;; # these need the repository
        *) echo "share/doc/plimsoll/examples/${job##*/}" ;;
        esac
    done
    for script in "$source"/configs/*.sh; do
        echo "share/doc/plimsoll/examples/${script##*/}"
    done
} | LC_ALL=C sort >"$dir/wanted"
diff "$dir/wanted" "$dir/installed" >"$dir/differ" || {
    echo "wanted (<) and installed (>) differ:" >&2
    cat "$dir/differ" >&2
    exit 1
}

cmp "$source/LICENSE" share/doc/plimsoll/LICENSE
for script in bash:bash-completion/completions/plimsoll zsh:zsh/site-functions/_plimsoll \
    fish:fish/vendor_completions.d/plimsoll.fish; do
    "$PLIMSOLL" completion "${script%%:*}" | cmp - "share/${script#*:}"
done
