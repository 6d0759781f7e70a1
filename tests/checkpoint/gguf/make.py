#!/usr/bin/env python3
"""make.py DIR - writes the GGUF files of check_gguf_weights.c, and what they hold for transformers.

Needs numpy, gguf and transformers 5.23 (pip install numpy gguf transformers). NAME.gguf is written with gguf's own
writer; NAME.json is the config.json and NAME.safetensors the weights of the same model as
transformers names them. The values of types.gguf are those that gguf.quants.dequantize gives.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np

HIDDEN, FFN, VOCAB, HEADS, KV, DIM, LAYERS = 16, 8, 8, 2, 1, 8, 2
rng = np.random.default_rng(20)


def write_safetensors(path, tensors):
    header, at = {}, 0
    names = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16"}
    for name, w in tensors.items():
        header[name] = {
            "dtype": names[w.dtype],
            "shape": list(w.shape),
            "data_offsets": [at, at + w.nbytes],
        }
        at += w.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for w in tensors.values():
            f.write(np.ascontiguousarray(w).tobytes())


def write_types(out):
    """Two rows of three blocks of every type that is read; scales are finite halves."""
    wanted = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4"
    scales = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    scales |= {"Q4_1": (0, 2), "Q5_1": (0, 2), "MXFP4": ()}
    w, values = gguf.GGUFWriter(out / "types.gguf", "llama"), {}
    for name in wanted.split():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (6, size), dtype=np.uint8)
        if name in ("F32", "F16", "BF16"):
            blocks = rng.normal(size=(6, 1)).astype(np.float32)
            bits = blocks.view(np.uint32) >> 16
            blocks = {"F32": blocks, "F16": blocks.astype(np.float16), "BF16": bits.astype("<u2")}[
                name
            ].view(np.uint8)
        else:
            if name == "MXFP4":
                blocks[:, 0] = rng.integers(0, 200, 6)
                blocks[0, 0], blocks[1, 0] = 0, 1  # powers of two below the least normal number
            for at in scales.get(name, (0,)):
                d = rng.normal(0, 0.1, 6).astype(np.float16).view(np.uint8).reshape(6, 2)
                blocks[:, at : at + 2] = d
        data = blocks.reshape(2, 3 * blocks.shape[1])
        values[name] = gguf.quants.dequantize(data, kind).astype(np.float32)
        if name in ("F32", "F16"):
            data = data.view(np.float32 if name == "F32" else np.float16)
        w.add_tensor(name, data, raw_dtype=kind)
        if name == "F16":
            values[name] = data
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    write_safetensors(out / "types.safetensors", values)


def interleave(w, heads):
    """convert_hf_to_gguf.py, LlamaModel.permute."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


ROWS = {
    "self_attn.q_proj.weight": ("attn_q.weight", (HEADS * DIM, HIDDEN)),
    "self_attn.k_proj.weight": ("attn_k.weight", (KV * DIM, HIDDEN)),
    "self_attn.v_proj.weight": ("attn_v.weight", (KV * DIM, HIDDEN)),
    "self_attn.o_proj.weight": ("attn_output.weight", (HIDDEN, HEADS * DIM)),
    "mlp.gate_proj.weight": ("ffn_gate.weight", (FFN, HIDDEN)),
    "mlp.up_proj.weight": ("ffn_up.weight", (FFN, HIDDEN)),
    "mlp.down_proj.weight": ("ffn_down.weight", (HIDDEN, FFN)),
    "input_layernorm.weight": ("attn_norm.weight", (HIDDEN,)),
    "post_attention_layernorm.weight": ("ffn_norm.weight", (HIDDEN,)),
}
QKV_BIAS = {
    "self_attn.q_proj.bias": ("attn_q.bias", (HEADS * DIM,)),
    "self_attn.k_proj.bias": ("attn_k.bias", (KV * DIM,)),
    "self_attn.v_proj.bias": ("attn_v.bias", (KV * DIM,)),
}
O_BIAS = {"self_attn.o_proj.bias": ("attn_output.bias", (HIDDEN,))}
QK_NORM = {
    "self_attn.q_norm.weight": ("attn_q_norm.weight", (DIM,)),
    "self_attn.k_norm.weight": ("attn_k_norm.weight", (DIM,)),
}
PHI3 = {
    "self_attn.qkv_proj.weight": ("attn_qkv.weight", ((HEADS + 2 * KV) * DIM, HIDDEN)),
    "self_attn.o_proj.weight": ("attn_output.weight", (HIDDEN, HEADS * DIM)),
    "mlp.gate_up_proj.weight": ("ffn_up.weight", (2 * FFN, HIDDEN)),
    "mlp.down_proj.weight": ("ffn_down.weight", (HIDDEN, FFN)),
    "input_layernorm.weight": ("attn_norm.weight", (HIDDEN,)),
    "post_attention_layernorm.weight": ("ffn_norm.weight", (HIDDEN,)),
}
GEMMA3 = {
    **ROWS,
    **QK_NORM,
    "post_attention_layernorm.weight": ("post_attention_norm.weight", (HIDDEN,)),
    "pre_feedforward_layernorm.weight": ("ffn_norm.weight", (HIDDEN,)),
    "post_feedforward_layernorm.weight": ("post_ffw_norm.weight", (HIDDEN,)),
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LONG = [1.0 + 0.25 * i for i in range(DIM // 2)]
SHORT = [1.0 + 0.125 * i for i in range(DIM // 2)]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
MISTRAL3_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16384,
    "llama_4_scaling_beta": 0.1,
}

# name: architecture, rows of a layer, config.json beyond the sizes, metadata beyond the sizes
CASES = {
    "llama": ("llama", ROWS, {"model_type": "llama", "rope_theta": 1e5}, {"rope.freq_base": 1e5}),
    "llama-bias": (
        "llama",
        {**ROWS, **QKV_BIAS, **O_BIAS},
        {"model_type": "llama", "attention_bias": True, "tie_word_embeddings": True},
        {"rope.freq_base": 1e4},
    ),
    "llama31": (
        "llama",
        ROWS,
        {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3_ROPE},
        {"rope.freq_base": 5e5},
    ),
    "mistral": (
        "llama",
        ROWS,
        {"model_type": "mistral", "sliding_window": 64},
        {"attention.sliding_window": 64},
    ),
    "qwen2": (
        "qwen2",
        {**ROWS, **QKV_BIAS},
        {"model_type": "qwen2", "rope_theta": 1e6, "rope_scaling": YARN},
        {
            "rope.freq_base": 1e6,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32768,
        },
    ),
    "qwen3": (
        "qwen3",
        {**ROWS, **QK_NORM},
        {"model_type": "qwen3", "rope_theta": 1e6, "tie_word_embeddings": True},
        {"rope.freq_base": 1e6, "attention.key_length": DIM, "attention.value_length": DIM},
    ),
    "phi3": (
        "phi3",
        PHI3,
        {
            "model_type": "phi3",
            "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "longrope", "long_factor": LONG, "short_factor": SHORT},
            "sliding_window": 1000,
        },
        {"rope.scaling.original_context_length": 4096, "attention.sliding_window": 1000},
    ),
    "phi3-partial": (
        "phi3",
        PHI3,
        {"model_type": "phi3", "partial_rotary_factor": 0.5, "tie_word_embeddings": True},
        {"rope.dimension_count": DIM // 2},
    ),
    "smollm3": (
        "smollm3",
        ROWS,
        {"model_type": "smollm3", "tie_word_embeddings": True, "rope_theta": 2e6},
        {"rope.freq_base": 2e6},
    ),
    "mistral3": (
        "mistral3",
        ROWS,
        {"model_type": "ministral3", "rope_parameters": MISTRAL3_ROPE},
        {
            "rope.freq_base": 1e6,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 16.0,
            "rope.scaling.yarn_beta_fast": 32.0,
            "rope.scaling.yarn_beta_slow": 1.0,
            "rope.scaling.yarn_log_multiplier": 1.0,
            "rope.scaling.original_context_length": 16384,
            "attention.temperature_scale": 0.1,
        },
    ),
    "gemma3": (
        "gemma3",
        GEMMA3,
        {
            "model_type": "gemma3_text",
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "sliding_window": 512,
            "query_pre_attn_scalar": DIM,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "tie_word_embeddings": True,
        },
        {
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
            "attention.sliding_window": 512,
            "attention.key_length": DIM,
            "attention.value_length": DIM,
        },
    ),
}


def llama3_factors(rope, theta):
    """convert_hf_to_gguf.py, LlamaModel.generate_extra_tensors."""
    freqs = 1.0 / (theta ** (np.arange(0, DIM, 2, dtype=np.float64) / DIM))
    low, high, old = 1.0, 4.0, rope["original_max_position_embeddings"]
    out = []
    for f in freqs:
        wave = 2 * np.pi / f
        smooth = (old / wave - low) / (high - low)
        mid = 1 / ((1 - smooth) / rope["factor"] + smooth)
        out.append(1 if wave < old / high else rope["factor"] if wave > old / low else mid)
    return np.array(out, dtype=np.float32)


def make_config(extra):
    base = {
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": DIM,
        "max_position_embeddings": 4096,
        "vocab_size": VOCAB,
        "rms_norm_eps": float(np.float32(1e-5)),
        "rope_theta": 1e4,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        "sliding_window": None,
        "torch_dtype": "float32",
    }
    return {**base, **extra}


def add_values(w, arch, config, extra):
    real = {"rope.freq_base": config.get("rope_theta", 1e4)}
    whole = {
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "block_count": LAYERS,
        "context_length": config["max_position_embeddings"],
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV,
        "rope.dimension_count": DIM,
    }
    real["attention.layer_norm_rms_epsilon"] = 1e-5
    for key, v in {**real, **whole, **extra}.items():
        if isinstance(v, str):
            w.add_string(f"{arch}.{key}", v)
        elif isinstance(v, float):
            w.add_float32(f"{arch}.{key}", v)
        else:
            w.add_uint32(f"{arch}.{key}", v)
    w.add_uint32("tokenizer.ggml.bos_token_id", 1)
    w.add_uint32("tokenizer.ggml.eos_token_id", 2)


def add_tensor(w, arch, name, v):
    if arch in ("llama", "smollm3", "mistral3") and (".attn_q." in name or ".attn_k." in name):
        v = interleave(v, HEADS if ".attn_q." in name else KV)
    if arch == "gemma3" and name.endswith("norm.weight"):
        v = (v.astype(np.float32) + np.float32(1)).astype(np.float32)
    w.add_tensor(name, v)


def write_case(out, name):
    arch, rows, more, extra = CASES[name]
    config = make_config(more)
    (out / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
    w, values = gguf.GGUFWriter(out / f"{name}.gguf", arch), {}
    add_values(w, arch, config, extra)
    whole = {"model.embed_tokens.weight": ("token_embd.weight", (VOCAB, HIDDEN))}
    whole["model.norm.weight"] = ("output_norm.weight", (HIDDEN,))
    if not config["tie_word_embeddings"]:
        whole["lm_head.weight"] = ("output.weight", (VOCAB, HIDDEN))
    layers = {
        f"model.layers.{i}.{hf}": (f"blk.{i}.{g}", shape)
        for i in range(LAYERS)
        for hf, (g, shape) in rows.items()
    }
    for hf, (g, shape) in {**whole, **layers}.items():
        kind = np.float32 if len(shape) == 1 else np.float16
        v = rng.normal(0, 0.3, shape).astype(kind)
        add_tensor(w, arch, g, v)
        if arch == "gemma3" and g.endswith("norm.weight"):
            v = (v + np.float32(1)) - np.float32(1)
        values[hf] = v
    if name == "llama31":
        w.add_tensor("rope_freqs.weight", llama3_factors(LLAMA3_ROPE, 5e5))
    if name == "phi3":
        w.add_tensor("rope_factors_long.weight", np.array(LONG, dtype=np.float32))
        w.add_tensor("rope_factors_short.weight", np.array(SHORT, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    write_safetensors(out / f"{name}.safetensors", values)


def write_parts(out):
    """The model `llama` as llama.cpp's gguf-split cuts it: metadata is in the first part alone."""
    whole = gguf.GGUFReader(out / "llama.gguf")
    half = len(whole.tensors) // 2
    for no, tensors in enumerate((whole.tensors[:half], whole.tensors[half:])):
        w = gguf.GGUFWriter(out / f"parts-{no + 1:05}-of-00002.gguf", "llama")
        w.add_uint16("split.no", no)
        w.add_uint16("split.count", 2)
        w.add_int32("split.tensors.count", len(whole.tensors))
        if no == 0:
            add_values(w, "llama", make_config(CASES["llama"][2]), CASES["llama"][3])
        for t in tensors:
            w.add_tensor(t.name, t.data)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


TEXTS = [
    "",
    "Hello, world!",
    "  two  blanks and 2024 digits, 3.14",
    "don't WE'RE",
    "tab\tand\nline\r\n\nend ",
    "na\u00efve \u65e5\u672c\u8a9e \U0001f389",
    "<s>in <|sep|> marks</s>",
    "the theme of the thing",
]


def byte_alphabet():
    """The byte-level alphabet of GPT-2 (encoder.py, bytes_to_unicode)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}


def byte_tokenizer(pre):
    """Some merges of letters over the bytes, and marks."""
    letters = byte_alphabet()
    space = letters[32]
    merges = [("t", "h"), ("th", "e"), (space, "the"), ("i", "n"), ("in", "g"), ("o", "f")]
    merges += [(space, "of"), ("2", "0"), ("20", "2"), ("202", "4"), (space, space), ("l", "l")]
    tokens = ["<s>", "</s>", "<|sep|>", *letters.values(), *(a + b for a, b in merges)]
    types = [3, 3, 4] + [1] * (len(tokens) - 3)
    joined = [" ".join(m) for m in merges]
    return dict(
        tokenizer_type="gpt2", pre_tokenizer_type=pre, tokens=tokens, token_type=types, merges=joined
    )


def piece_tokenizer(blanks="\u2581\u2581"):
    """SentencePiece: words by their scores, letters, and bytes for what has no letter."""
    words = ["the", "them", "theme", "th", "he", "in", "ing", "thing", "of", "ll", "\u2581of", "wor"]
    words = ["\u2581the", "\u2581th", "\u2581t", *words, "wo", "ld", blanks]
    letters = sorted(set("".join(TEXTS[1:5]) + "\u2581abcdefghijklmnopqrstuvwxyz") - set(" \t\n\r"))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words, *letters]
    scores = [0.0] * 259 + [float(-i) for i in range(len(words))] + [-100.0] * len(letters)
    types = [2, 3, 3] + [6] * 256 + [1] * (len(words) + len(letters))
    return dict(tokenizer_type="llama", tokens=tokens, scores=scores, token_type=types)


TOKENIZERS = {
    "bytes-qwen2": ("qwen2", byte_tokenizer("qwen2")),
    "bytes-gpt2": ("llama", byte_tokenizer("gpt-2")),
    "pieces-llama": ("llama", piece_tokenizer()),
    "pieces-phi3": ("phi3", piece_tokenizer()),
    "pieces-gemma3": ("gemma3", piece_tokenizer("  ")),
}


def write_tokenizer(out, name):
    """NAME.gguf, and the ids that transformers gives with the tokenizer of such a file."""
    from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping

    arch, t = TOKENIZERS[name]
    w = gguf.GGUFWriter(out / f"{name}.gguf", arch)
    w.add_tokenizer_model(t["tokenizer_type"])
    if "merges" in t:
        w.add_tokenizer_pre(t["pre_tokenizer_type"])
        w.add_token_merges(t["merges"])
    else:
        w.add_token_scores(t["scores"])
    w.add_token_list(t["tokens"])
    w.add_token_types(t["token_type"])
    w.add_bos_token_id(t["tokens"].index("<s>"))
    w.add_eos_token_id(t["tokens"].index("</s>"))
    w.add_chat_template("{{ bos_token }}{{ messages[0].content }}")
    w.add_tensor("empty", np.zeros(1, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    encoder, _ = mapping.convert_gguf_tokenizer(arch, dict(t))
    with open(out / f"{name}.jsonl", "w") as f:
        for text in TEXTS:
            ids = encoder.encode(text, add_special_tokens=False).ids
            f.write(json.dumps({"text": text, "ids": ids}) + "\n")


out = pathlib.Path(sys.argv[1])
write_types(out)
for case in CASES:
    write_case(out, case)
write_parts(out)
for tokenizer in TOKENIZERS:
    write_tokenizer(out, tokenizer)
