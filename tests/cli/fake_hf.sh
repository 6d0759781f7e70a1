#!/bin/sh
# fake_hf.sh - stands for `hf` of huggingface_hub in tests: writes its words into $FAKE_WORDS, one a
# line, and does what $FAKE_HF says. Its messages are those of huggingface_hub 2.4 and 0.24.
PATH=/usr/bin:/bin
printf '%s\n' "$@" >"$FAKE_WORDS"

# Puts files into the hub cache as snapshot_download does.
fetch() {
    kind=models
    revision=main
    for word; do
        case $word in
        --repo-type=dataset) kind=datasets ;;
        --revision=*) revision=${word#*=} ;;
        esac
    done
    dir=$HF_HOME/hub/$kind--$(printf %s "$2" | sed 's,/,--,')
    commit=0123456789abcdef0123456789abcdef01234567
    mkdir -p "$dir/blobs" "$dir/refs" "$dir/snapshots/$commit/data"
    printf %s $commit >"$dir/refs/$revision"
    for file in $files; do
        printf '\rFetching %s: 50%%' "$file" >&2
        printf '{}\n' >"$dir/blobs/$(basename "$file")"
        ln -sf "$dir/blobs/$(basename "$file")" "$dir/snapshots/$commit/$file"
    done
    printf '\n' >&2
    printf '%s\n' "$dir/snapshots/$commit"
}

fail() {
    printf '%b\n' "$1" >&2
    exit 1
}

case $FAKE_HF in
whole) files='config.json tokenizer.json model.safetensors' && fetch "$@" ;;
rows) files='data/train.jsonl' && fetch "$@" ;;
no_weights) files='config.json tokenizer.json' && fetch "$@" ;;
no_config) files='model.gguf' && fetch "$@" ;;
elsewhere) echo /somewhere/else ;;
gated) fail "Error: Access denied. Model '$2' requires approval." ;;
gated_old) fail "huggingface_hub.errors.GatedRepoError: 403 Client Error.\nCannot access gated repo" ;;
absent) fail "Error: Model '$2' not found. If the repo is private, make sure you are authenticated." ;;
absent_old)
    fail "RepositoryNotFoundError: 401 Client Error.\nRepository Not Found for url: https://x
If you are trying to access a private or gated repo, make sure you are authenticated."
    ;;
revision) fail "Error: Revision not found in model '$2'." ;;
network) fail "Error: Local entry not found. [Errno 111] Connection refused" ;;
disk) fail "OSError: [Errno 28] No space left on device" ;;
token) fail "401 Client Error: Unauthorized for url: https://x" ;;
old) fail "huggingface-cli: error: unrecognized arguments: --include" ;;
strange) echo "a failure of its own" >&2 && exit 7 ;;
killed) kill -KILL $$ ;;
long) i=0 && while [ $i -lt 3000 ]; do echo "line $i of what it says"; i=$((i + 1)); done && fail "Model 'x' not found." ;;
waits)
    trap 'echo stopped >>"$FAKE_WORDS"; exit 130' INT TERM
    echo waiting >>"$FAKE_WORDS"
    i=0
    while [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    ;;
leaves) sleep 20 & files='config.json model.safetensors' && fetch "$@" ;;
esac
