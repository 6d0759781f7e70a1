#!/bin/sh
# check_install.sh SOURCE-ROOT BUILD-ROOT MESON... - an installed copy is all that a program needs:
# the example builds against it with cc and pkg-config, linked either way, and runs; of the library
# only the public symbols show. CC from the environment.
set -eu
source=$1
build=$2
shift 2
command -v pkg-config >/dev/null || {
    echo "skipped: needs the package pkg-config"
    exit 77
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
DESTDIR="$dir/root" "$@" install -C "$build" --no-rebuild --tags devel,runtime,man >"$dir/log" 2>&1 || {
    cat "$dir/log"
    exit 1
}
for page in man1/plimsoll.1 man1/plimsoll-train.1 man5/plimsoll.yaml.5; do
    find "$dir/root" -path "*/$page" | grep -q . || { echo "no $page was installed" >&2; exit 1; }
done
pc=$(find "$dir/root" -name plimsoll.pc)
[ -n "$pc" ] || { echo "no plimsoll.pc was installed" >&2; exit 1; }
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$dir/root"
lib=${pc%/pkgconfig/plimsoll.pc}

flags=$(pkg-config --cflags --libs plimsoll)
# shellcheck disable=SC2086 # flags are words
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror "$source/configs/embed/fits.c" -o "$dir/fits" $flags
# shellcheck disable=SC2086
${CC:-cc} -std=c11 "$source/configs/embed/fits.c" -o "$dir/fits-static" \
    $(pkg-config --cflags plimsoll) "$lib/libplimsoll.a" -lyaml -ljansson -lm

cd "$dir" # nothing of the source tree is at hand
export HOME="$dir" LD_LIBRARY_PATH="$lib"
for program in fits fits-static; do
    out=$("./$program" Qwen/Qwen2.5-7B-Instruct "RTX 4090")
    case $out in
    "VRAM estimate (lora, 7.6B params, batch=2, seq=2048): total="*"RTX 4090: fits;"*) ;;
    *) echo "$program: $out" >&2; exit 1 ;;
    esac
    status=0
    "./$program" Qwen/Qwen2.5-7B-Instruct T4 >/dev/null || status=$?
    [ "$status" -eq 3 ] || { echo "$program on a T4: exit $status" >&2; exit 1; }
    status=0
    "./$program" no-such-model T4 2>err || status=$?
    [ "$status" -eq 5 ] && grep -q '^MODEL_FILE: ' err || { cat err >&2; exit 1; }
done

shown=$(nm -D --defined-only "$lib/libplimsoll.so" | awk '{ print $3 }' | LC_ALL=C sort | tr '\n' ' ')
want="pl_estimate_fits_on_card pl_estimate_free pl_estimate_summary pl_estimate_vram pl_receipt_free pl_receipt_vram pl_version pl_vram_card_bytes pl_vram_json "
[ "$shown" = "$want" ] || { echo "symbols: $shown" >&2; exit 1; }
