#!/bin/sh
# check_package.sh SOURCE-ROOT FOLDER wheel|tarball|deb - builds the package in FOLDER, installs it in
# a bare Debian and uses it there: answers, a training run, the files that come with the program.
set -eu
source=$1
folder=$2
kind=$3

skip() {
    echo "skipped: needs $*"
    exit 77
}
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "the package python3-venv"
release=bookworm
case $kind in
tarball) release=bullseye ;; # an older glibc than that of any build
deb)
    { command -v dh && command -v lintian; } >/dev/null || skip "the packages debhelper and lintian"
    release=$(. /etc/os-release && echo "$ID ${VERSION_CODENAME:-}")
    case $release in
    "debian "?*) release=${release#debian } ;;
    *) skip "Debian, for its packages" ;;
    esac
    ;;
esac
mkdir -p "$folder/cache"
"$source/tests/packages/bare.sh" "$release" "$folder/cache" "$source/tests/packages" true

[ ! -d /usr/lib/ccache ] || PATH=/usr/lib/ccache:$PATH
status=0
PACKAGE_BUILD=$folder/build PACKAGE_OUT=$folder/$kind \
    "$source/tools/package" "$kind" -Dcuda=disabled >"$folder/$kind.files" 2>"$folder/$kind.log" || status=$?
! grep -q 'cannot install them from PyPI' "$folder/$kind.log" || skip "PyPI"
[ $status -eq 0 ] || {
    tail -n 30 "$folder/$kind.log"
    exit 1
}

# The bare system gets the package, the job of the quickstart, and the scripts that use them.
carried=$folder/carried-$kind
rm -rf "$carried"
mkdir -p "$carried/build/quickstart"
while read -r name; do
    cp "$name" "$carried/"
done <"$folder/$kind.files"
cp -R "$source/configs" "$carried/"
cp "$source/tests/packages/use.sh" "$source/tests/packages/use.py" "$carried/"
"$source/tools/quickstart-data" "$carried/build/quickstart/text.jsonl"
version=$(sed -n "s/^ *version: '\([0-9.]*\)',\$/\1/p" "$source/meson.build")
"$source/tests/packages/bare.sh" "$release" "$folder/cache" "$carried" ./use.sh "$kind" "$version"
