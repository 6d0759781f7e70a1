#!/bin/sh
# check_scripts: shellcheck of every script a user runs. $1 is the repository root.
set -eu
cd "$1"
# The page shows the scripts that are installed.
for script in configs/slurm-*.sh; do
    awk -v name="${script##*/}" '/^```bash$/ { text = ""; next }
        /^```$/ { if (index(text, "sbatch " name)) printf "%s", text; text = ""; next }
        { text = text $0 "\n" }' docs/several-devices.md | diff - "$script" || {
        echo "docs/several-devices.md has another $script"
        exit 1
    }
done
command -v shellcheck >/dev/null 2>&1 || {
    echo "skipped: needs the package shellcheck"
    exit 77
}
shellcheck -x tools/setup tools/quickstart tools/quickstart-data tools/test tools/package tools/packaging/cc_old_glibc tools/fuzz tools/torture .ci/run \
    tests/cli/check_scripts.sh tests/cli/pages_sandbox.sh tests/packages/*.sh tests/cli/check_pretrained.sh configs/slurm-*.sh
