#!/bin/sh
# check_scripts: shellcheck of every script a user runs. $1 is the repository root.
set -eu
cd "$1"
command -v shellcheck >/dev/null 2>&1 || {
    echo "skipped: needs the package shellcheck"
    exit 77
}
shellcheck -x tools/setup tools/quickstart tools/quickstart-data tools/test tools/fuzz tools/torture .ci/run \
    tests/cli/check_scripts.sh tests/cli/pages_sandbox.sh
