#!/bin/sh
# rehearse.sh PYTHON BUILD - the report of a GPU from end to end, on the emulated one: every table
# has its rows, an interrupted report goes on where it ended, and a row that fails is one row.
set -eu
here=$(dirname "$0")
python=$1 build=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
report() {
    "$python" "$here/report.py" --rehearse --build "$build" --python none --out "$out" "$@"
}
fail() {
    echo "rehearse: $*" >&2
    exit 1
}

report --only suites,memory,samples --minutes 5 >/dev/null || fail "the first call failed"
grep -q '4 of 4 runs allocated exactly' "$out/RESULTS.md" || fail "no memory table"
grep -q 'refused: RUNTIME_FULL_FT_MODEL_TOO_LARGE' "$out/RESULTS.md" || fail "no refusal"

# As if the call had ended inside a row, and another row had been lost.
"$python" - "$out/RESULTS.json" <<'EOF_PYTHON'
import json, sys
book = json.load(open(sys.argv[1]))
book["rows"] = [r for r in book["rows"] if "lora 1x16" not in r["key"] or r["part"] != "memory"]
json.dump(book, open(sys.argv[1], "w"))
EOF_PYTHON
report --resume "$out/RESULTS.json" --only memory,speed,attention,kernels,products,profiles --minutes 5 \
    >/dev/null 2>"$out/said" || fail "the second call failed: $(cat "$out/said")"
grep -q 'memory: tiny qlora' "$out/said" || fail "a lost row was not run again"
! grep -q 'memory: tiny full' "$out/said" || fail "a row was run twice"
for part in memory speed attention kernels products profiles suites samples; do
    grep -q "\"part\": \"$part\"" "$out/RESULTS.json" || fail "no row of $part"
done
! grep -q 'No table' "$out/RESULTS.md" || fail "a table could not be written"
grep -q '| linear ' "$out/RESULTS.md" || fail "no product"
grep -q '| 2 x 16 | 2/1 | 16 | 0' "$out/RESULTS.md" || fail "no attention"
grep -q '| 1 x 16 | auto: none |' "$out/RESULTS.md" || fail "no level that was decided"
grep -q 'the table of cards' "$out/RESULTS.md" || fail "no prediction without an earlier run"
grep -q 'LLMQ publishes' "$out/RESULTS.md" || fail "no row beside another table"
grep -q '| dequant4 ' "$out/RESULTS.md" || fail "no kernel of 4-bit weights"

# Ranks: NCCL with one, two that have its bits, and two on one GPU, which NCCL refuses.
report --only ranks --minutes 5 >/dev/null 2>"$out/said" || fail "ranks failed: $(cat "$out/said")"
for row in '| 1 | none | tiny | full, comm nccl |' '| 2 | none | tiny |' '| 2 | gradients | tiny |' \
    '| 2 | weights | tiny |'; do
    grep -F "$row" "$out/RESULTS.md" | grep -qF '| equal |' || fail "no ranks: $row"
done
grep -qF '| two ranks on one GPU |' "$out/RESULTS.md" || fail "two ranks trained on one GPU"

# Without binaries nothing runs, all of it is listed, and a later call may still run it.
mkdir "$out/empty"
if "$python" "$here/report.py" --rehearse --build "$out/empty" --python none --out "$out/none" \
    --minutes 1 >/dev/null 2>&1; then
    fail "a report without a binary succeeded"
fi
grep -q '^- suites: conformance: not built' "$out/none/RESULTS.md" ||
    fail "what was missing is not named"
for part in suites sanitizers; do
    ! grep -q "\"part\": \"$part\"" "$out/none/RESULTS.json" ||
        fail "what was not built counts as run: $part"
done
