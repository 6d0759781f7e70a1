#!/bin/sh
# pages_sandbox.sh SOURCE-ROOT - makes in the current directory what the commands of the pages name:
# two models and a data set in a hub cache and a model in a directory, an adapter, data, and an `hf`
# that has nothing left to fetch. PLIMSOLL names the binary.
set -eu
source=$1

mkdir -p bin build data path/to output build/tools
ln -s "$PLIMSOLL" bin/plimsoll
ln -s "$PLIMSOLL" build/tools/plimsoll
ln -s "$source/configs" configs
printf '#!/bin/sh\n' >bin/hf
chmod +x bin/hf

cat >config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
 "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 2048, "max_position_embeddings": 4096,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu",
 "initializer_range": 0.1, "torch_dtype": "bfloat16", "eos_token_id": 2}
END
i=0
while [ $i -lt 100 ]; do
    echo "{\"input_ids\": [3, 1, 4, 1, 5, 9, $i, 6], \"labels\": [-100, 1, 4, 1, 5, 9, $i, 6]}"
    i=$((i + 1))
done >data/train.jsonl
i=0
while [ $i -lt 32 ]; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"What is $i?\"}," \
        "{\"role\": \"assistant\", \"content\": \"A number.\"}]}"
    i=$((i + 1))
done >data/chats.jsonl
cp data/chats.jsonl chats.jsonl
# The rows and the job of docs/preference.md, as they stand there. Backquotes are those of Markdown.
# shellcheck disable=SC2016
sed -n '/^```json$/,/^```$/p' "$source/docs/preference.md" | sed '/^```/d' >data/pairs.jsonl
# shellcheck disable=SC2016
sed -n '/^```yaml$/,/^```$/p' "$source/docs/preference.md" | sed '/^```/d' >pairs.yaml
echo '{"text": "To be, or not to be."}' >rows.jsonl
echo "To be" >prompt.txt
printf 'What is 1?\nWhat is 2?\n' >questions.txt

cat >their.yaml <<'END'
base_model: meta-llama/Llama-3.2-1B-Instruct
adapter: qlora
load_in_4bit: true
lora_r: 32
lora_alpha: 16
lora_target_linear: true
datasets:
  - path: our-lab/support-chats
    type: chat_template
    message_property_mappings: {role: from, content: value}
sequence_len: 2048
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 1
optimizer: paged_adamw_8bit
learning_rate: 2e-4
bf16: auto
gradient_checkpointing: true
flash_attention: true
wandb_project: support
END

# random weights, after one step
train() {
    plimsoll train - max_steps=1 "$@" >&2 <<'END'
model: path/to/model
mode: full
dtype: bf16
dataset: data/train.jsonl
max_seq_length: 16
batch_size: 2
device: cpu
output_dir: output/first
END
}
PATH=$PWD/bin:$PATH
train init=random model=null model_config=config.json
mkdir path/to/model
cp output/first/config.json output/first/model.safetensors path/to/model/
rm -r output/first

# template HEADER END-OF-HEADER END-OF-TURN: a chat template that does the least
template() {
    printf '%s' "{%- for m in messages %}$1{{ m.role }}$2{{ m.content }}$3{% endfor %}" \
        "{% if add_generation_prompt %}$1assistant$2{% endif %}"
}
# in_hub ID TOKENIZER
in_hub() {
    repo=hub/models--$1
    mkdir -p "$repo/refs" "$repo/snapshots"
    printf 0 >"$repo/refs/main"
    cp -r path/to/model "$repo/snapshots/0"
    cp "$source/tests/data/tokenizer/$2"/tokenizer* "$repo/snapshots/0/"
}
in_hub meta-llama--Llama-3.2-1B-Instruct llama3_style
template '<|start_header_id|>' '<|end_header_id|>' '<|eot_id|>' \
    >hub/models--meta-llama--Llama-3.2-1B-Instruct/snapshots/0/chat_template.jinja
in_hub HuggingFaceTB--SmolLM2-135M qwen2_style
cp "$source/tests/data/tokenizer/qwen2_style"/tokenizer* path/to/model/
template '<|im_start|>' '
' '<|im_end|>' >own.jinja
cp own.jinja path/to/model/chat_template.jinja
train mode=lora output_dir=output/lora

rows=hub/datasets--tatsu-lab--alpaca
mkdir -p $rows/refs $rows/snapshots/0123
printf 0123 >$rows/refs/main
cp rows.jsonl $rows/snapshots/0123/
