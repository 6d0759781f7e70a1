#!/bin/sh
# bare.sh RELEASE CACHE FOLDER COMMAND... - runs COMMAND in a Debian that has nothing but Python: no
# compiler, no library that a build would bring. FOLDER is /packages there, where the command starts.
# RELEASE is bookworm or another; CACHE keeps its archive, which the first call makes. The copy that
# COMMAND runs in, and what was mounted for it, are gone afterwards. Exits with 77 and the reason
# where no such system can be made. BARE_MIRROR names another mirror of Debian.
set -eu
release=$1
cache=$2
folder=$3
shift 3
mirror=${BARE_MIRROR:-http://deb.debian.org/debian}
base=$cache/$release.tar

skip() {
    echo "skipped: needs $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "root, to make a bare system"
command -v debootstrap >/dev/null || skip "the package debootstrap"
unshare --mount --pid --fork true 2>/dev/null || skip "the right to unshare --mount"

run=$(mktemp -d "$cache/run.XXXXXX")
trap 'rm -rf "$run"' EXIT
if [ ! -f "$base" ]; then
    debootstrap --variant=minbase --include=python3-venv "$release" "$run/root" "$mirror" \
        >"$cache/$release.log" 2>&1 ||
        skip "a mirror of Debian that has $release; $cache/$release.log says more"
    for file in /etc/apt/apt.conf.d/*proxy*; do
        [ ! -f "$file" ] || cp "$file" "$run/root/etc/apt/apt.conf.d/"
    done
    tar -C "$run/root" -cf "$base.part" .
    rm -rf "$run/root"
    mv "$base.part" "$base"
fi

mkdir "$run/root"
tar -C "$run/root" -xf "$base"
[ ! -f /etc/resolv.conf ] || cp -L /etc/resolv.conf "$run/root/etc/resolv.conf"
mkdir "$run/root/packages"
cp -R "$folder/." "$run/root/packages/"
export BARE_ROOT="$run/root"
# Mounts of a namespace of its own end with it. What is quoted is for the shells within.
# shellcheck disable=SC2016
env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    BARE_ROOT="$BARE_ROOT" ${http_proxy:+http_proxy="$http_proxy"} \
    unshare --mount --pid --fork sh -euc '
        mount --make-rprivate /
        mount -t proc proc "$BARE_ROOT/proc"
        mount --rbind /dev "$BARE_ROOT/dev"
        exec chroot "$BARE_ROOT" sh -euc "cd /packages && exec \"\$@\"" sh "$@"' sh "$@"
