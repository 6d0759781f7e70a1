#!/bin/sh
# use.sh wheel|tarball|deb VERSION - runs in a bare Debian, next to the package: installs it, asks,
# trains. Prints what was installed and how large it is.
set -eu
kind=$1
version=$2
fail() {
    echo "$kind: $*" >&2
    exit 1
}
for program in cc gcc clang meson; do
    ! command -v $program >/dev/null || fail "$program is in this system, which should be bare"
done

case $kind in
wheel)
    python3 -m venv /opt/plimsoll
    /opt/plimsoll/bin/pip install -q --no-index ./plimsoll-*.whl
    prefix=/opt/plimsoll
    ;;
tarball)
    mkdir /opt/plimsoll
    tar -C /opt/plimsoll --strip-components=1 -xzf ./plimsoll-*.tar.gz
    prefix=/opt/plimsoll
    ;;
deb)
    apt-get update -q >/dev/null
    apt-get install -y -q --no-install-recommends ./*.deb >install.log 2>&1 || {
        cat install.log
        exit 1
    }
    prefix=/usr
    ;;
esac
PATH=$prefix/bin:$PATH
case $kind in
deb) dpkg-query -W -f '${Package}: ${Installed-Size} KiB\n' '*plimsoll*' ;;
wheel)
    size=$(cd "$prefix" && du -ck --apparent-size bin/plimsoll share lib/python3*/site-packages/plimsoll*)
    echo "$kind: $(echo "$size" | sed -n 's/\ttotal$//p') KiB"
    ;;
tarball) echo "$kind: $(du -sk --apparent-size "$prefix" | cut -f1) KiB" ;;
esac

[ "$(command -v plimsoll)" = "$prefix/bin/plimsoll" ] || fail "plimsoll is not on PATH"
plimsoll version | grep -qx "plimsoll $version" || fail "version: $(plimsoll version)"
plimsoll estimate-vram Qwen/Qwen2.5-7B-Instruct --mode qlora --gpu "RTX 4090" -q | grep -q 'verdict: fits' ||
    fail "estimate-vram has no verdict"

for file in share/man/man1/plimsoll-train.1 share/man/man5/plimsoll.yaml.5 \
    share/bash-completion/completions/plimsoll share/zsh/site-functions/_plimsoll \
    share/doc/plimsoll/examples/smollm2-135m-lora.yaml; do
    [ -f "$prefix/$file" ] || [ -f "$prefix/$file.gz" ] || fail "no $file"
done
licences="LICENSE licences/zlib1g-dev"
[ "$kind" != deb ] || licences=copyright
for file in $licences; do
    [ -f "$prefix/share/doc/plimsoll/$file" ] || fail "no $file"
done

plimsoll train configs/quickstart.yaml max_steps=2 warmup_steps=0 save_steps=0 batch_size=2 \
    val_set_size=0 -q
[ -f output/quickstart/model.safetensors ] || fail "the quickstart left no model"
plimsoll verify output/quickstart >/dev/null

case $kind in
wheel) /opt/plimsoll/bin/python use.py ;;
*) python3 - "$kind" "$prefix" <<'END' ;;
import ctypes, sys
kind, prefix = sys.argv[1:]
ctypes.CDLL("libplimsoll.so.0" if kind == "deb" else f"{prefix}/lib/libplimsoll.so.0").pl_version
END
esac
