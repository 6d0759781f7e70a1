/* catalogue.c - config.json of public models, as published, less the keys that only describe the
 * software that wrote them. */
#include "estimator/model/catalogue.h"

#include <string.h>
#include <strings.h>

/* The argument as JSON text; the preprocessor leaves what it puts into a string unexpanded. */
#define CONFIG(...) #__VA_ARGS__

/* clang-format off */
static const struct pl_known_model known[] = {
    {"Llama-2-7B",
     {"meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 1,
       "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
       "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
       "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-05, "rope_scaling":
       null, "tie_word_embeddings": false, "torch_dtype": "float16", "vocab_size": 32000})},
    {"Llama-2-13B",
     {"meta-llama/Llama-2-13b-hf", "meta-llama/Llama-2-13b-chat-hf"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 1,
       "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
       "intermediate_size": 13824, "max_position_embeddings": 4096, "num_attention_heads": 40,
       "num_hidden_layers": 40, "num_key_value_heads": 40, "rms_norm_eps": 1e-05, "rope_scaling":
       null, "tie_word_embeddings": false, "torch_dtype": "float16", "vocab_size": 32000})},
    {"Llama-2-70B",
     {"meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b-chat-hf"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 1,
       "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 8192, "initializer_range": 0.02,
       "intermediate_size": 28672, "max_position_embeddings": 4096, "num_attention_heads": 64,
       "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
       "tie_word_embeddings": false, "torch_dtype": "float16", "vocab_size": 32000})},
    {"Llama-3-8B",
     {"meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B-Instruct",
     "meta-llama/Llama-3-8B", "meta-llama/Llama-3-8B-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128009,
       "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size":
       14336, "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 32,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta":
       500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})},
    {"Llama-3.1-70B",
     {"meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct",
     "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008,
       128009], "hidden_act": "silu", "hidden_size": 8192, "initializer_range": 0.02,
       "intermediate_size": 28672, "max_position_embeddings": 131072, "mlp_bias": false,
     "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps":
       1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
       "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
       "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})},
    {"Llama-3.1-8B",
     {"meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct",
     "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008,
       128009], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
       "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
     "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps":
       1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
       "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
       "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})},
    {"Llama-3.2-1B",
     {"meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008,
       128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range":
       0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
     "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps":
       1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
       "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
       "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 128256})},
    {"Llama-3.2-3B",
     {"meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-3B-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008,
       128009], "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072, "initializer_range":
       0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
     "num_attention_heads": 24, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps":
       1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
       "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
       "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 128256})},
    {"TinyLlama-1.1B",
     {"TinyLlama/TinyLlama-1.1B-Chat-v1.0",
     "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 1, "dtype": "float32", "eos_token_id": 2,
       "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
       "intermediate_size": 5632, "max_position_embeddings": 2048, "mlp_bias": false,
     "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4, "rms_norm_eps":
       1e-05, "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false,
       "vocab_size": 32000})},
    {"SmolLM2-135M",
     {"HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
       "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
       "max_position_embeddings": 8192, "mlp_bias": false, "num_attention_heads": 9,
       "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "rms_norm_eps": 1e-05,
     "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings":
       true, "torch_dtype": "bfloat16", "vocab_size": 49152})},
    {"SmolLM2-360M",
     {"HuggingFaceTB/SmolLM2-360M", "HuggingFaceTB/SmolLM2-360M-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
       "hidden_size": 960, "initializer_range": 0.02, "intermediate_size": 2560,
       "max_position_embeddings": 8192, "mlp_bias": false, "num_attention_heads": 15,
       "num_hidden_layers": 32, "num_key_value_heads": 5, "pad_token_id": 2, "rms_norm_eps": 1e-05,
     "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings":
       true, "torch_dtype": "bfloat16", "vocab_size": 49152})},
    {"SmolLM2-1.7B",
     {"HuggingFaceTB/SmolLM2-1.7B", "HuggingFaceTB/SmolLM2-1.7B-Instruct"},
     CONFIG({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu",
       "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
       "max_position_embeddings": 8192, "mlp_bias": false, "num_attention_heads": 32,
       "num_hidden_layers": 24, "num_key_value_heads": 32, "rms_norm_eps": 1e-05, "rope_scaling":
       null, "rope_theta": 130000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
       "vocab_size": 49152})},
    {"SmolLM3-3B",
     {"HuggingFaceTB/SmolLM3-3B", "HuggingFaceTB/SmolLM3-3B-Base"},
     CONFIG({"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128012,
       "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size":
       11008, "layer_types": ["full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention"], "max_position_embeddings": 65536,
       "max_window_layers": 28, "mlp_bias": false, "no_rope_layer_interval": 4, "no_rope_layers":
     [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1,
     0, 1, 1, 1, 0], "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
     "pad_token_id": 128004, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
       "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
       "use_sliding_window": false, "vocab_size": 128256})},
    {"Qwen2.5-0.5B",
     {"Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct"},
     CONFIG({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout":
       0.0, "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size":
       896, "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
       "max_window_layers": 24, "num_attention_heads": 14, "num_hidden_layers": 24,
       "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window":
       32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_mrope": false,
       "use_sliding_window": false, "vocab_size": 151936})},
    {"Qwen2.5-1.5B",
     {"Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-1.5B-Instruct"},
     CONFIG({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout":
       0.0, "bos_token_id": 151643, "dtype": "float16", "eos_token_id": 151645, "hidden_act":
       "silu", "hidden_size": 1536, "initializer_range": 0.02, "intermediate_size": 8960,
       "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
       "full_attention", "full_attention", "full_attention", "full_attention"],
       "max_position_embeddings": 32768, "max_window_layers": 21, "num_attention_heads": 12,
       "num_hidden_layers": 28, "num_key_value_heads": 2, "pad_token_id": null, "rms_norm_eps":
       1e-06, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
       "sliding_window": null, "tie_word_embeddings": true, "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Qwen2.5-3B",
     {"Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B-Instruct"},
     CONFIG({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout":
       0.0, "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size":
       2048, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings":
       32768, "max_window_layers": 70, "num_attention_heads": 16, "num_hidden_layers": 36,
       "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window":
       32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Qwen2.5-7B",
     {"Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct"},
     CONFIG({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout":
       0.0, "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size":
       3584, "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings":
       32768, "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
       "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window":
     131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 152064})},
    {"Qwen2.5-14B",
     {"Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-14B-Instruct"},
     CONFIG({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout":
       0.0, "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size":
       5120, "initializer_range": 0.02, "intermediate_size": 13824, "max_position_embeddings":
       131072, "max_window_layers": 48, "num_attention_heads": 40, "num_hidden_layers": 48,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window":
     131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 152064})},
    {"Qwen2.5-32B",
     {"Qwen/Qwen2.5-32B", "Qwen/Qwen2.5-32B-Instruct"},
     CONFIG({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout":
       0.0, "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size":
       5120, "initializer_range": 0.02, "intermediate_size": 27648, "max_position_embeddings":
       131072, "max_window_layers": 70, "num_attention_heads": 40, "num_hidden_layers": 64,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window":
     131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 152064})},
    {"Qwen2.5-72B",
     {"Qwen/Qwen2.5-72B", "Qwen/Qwen2.5-72B-Instruct"},
     CONFIG({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout":
       0.0, "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size":
       8192, "initializer_range": 0.02, "intermediate_size": 29568, "max_position_embeddings":
       32768, "max_window_layers": 70, "num_attention_heads": 64, "num_hidden_layers": 80,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window":
     131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 152064})},
    {"Qwen3-0.6B",
     {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B-Base"},
     CONFIG({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim":
       128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
       "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
     "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps":
       1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
       "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Qwen3-1.7B",
     {"Qwen/Qwen3-1.7B", "Qwen/Qwen3-1.7B-Base"},
     CONFIG({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim":
       128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
       "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 28,
     "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps":
       1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
       "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Qwen3-4B",
     {"Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Base"},
     CONFIG({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim":
       128, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
       "intermediate_size": 9728, "max_position_embeddings": 40960, "max_window_layers": 36,
     "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps":
       1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
       "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Qwen3-8B",
     {"Qwen/Qwen3-8B", "Qwen/Qwen3-8B-Base"},
     CONFIG({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim":
       128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
       "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36,
     "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps":
       1e-06, "rope_scaling": null, "rope_theta": 1000000.0, "sliding_window": null,
       "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Qwen3-14B",
     {"Qwen/Qwen3-14B", "Qwen/Qwen3-14B-Base"},
     CONFIG({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim":
       128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
       "intermediate_size": 17408, "max_position_embeddings": 40960, "max_window_layers": 40,
     "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps":
       1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
       "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Qwen3-32B",
     {"Qwen/Qwen3-32B"},
     CONFIG({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias":
       false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim":
       128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
       "intermediate_size": 25600, "max_position_embeddings": 40960, "max_window_layers": 64,
     "num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps":
       1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
       "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
       "vocab_size": 151936})},
    {"Ministral-3-3B",
     {"mistralai/Ministral-3-3B-Base-2512", "mistralai/Ministral-3-3B-Instruct-2512",
     "mistralai/Ministral-3-3B-Reasoning-2512"},
     CONFIG({"architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3",
       "attention_dropout": 0.0, "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu",
       "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 9216,
       "max_position_embeddings": 262144, "num_attention_heads": 32, "num_hidden_layers": 26,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_parameters": {"beta_fast": 32.0,
       "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
       "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1000000.0,
       "rope_type": "yarn", "type": "yarn"}, "sliding_window": null, "tie_word_embeddings": true,
       "use_cache": true, "vocab_size": 131072})},
    {"Ministral-3-8B",
     {"mistralai/Ministral-3-8B-Base-2512", "mistralai/Ministral-3-8B-Instruct-2512",
     "mistralai/Ministral-3-8B-Reasoning-2512"},
     CONFIG({"architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3",
       "attention_dropout": 0.0, "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu",
       "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
       "max_position_embeddings": 262144, "num_attention_heads": 32, "num_hidden_layers": 34,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_parameters": {"beta_fast": 32.0,
       "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
       "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1000000.0,
       "rope_type": "yarn", "type": "yarn"}, "sliding_window": null, "tie_word_embeddings": false,
       "use_cache": true, "vocab_size": 131072})},
    {"Ministral-3-14B",
     {"mistralai/Ministral-3-14B-Base-2512", "mistralai/Ministral-3-14B-Instruct-2512",
     "mistralai/Ministral-3-14B-Reasoning-2512"},
     CONFIG({"architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3",
       "attention_dropout": 0.0, "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu",
       "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 16384,
       "max_position_embeddings": 262144, "num_attention_heads": 32, "num_hidden_layers": 40,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_parameters": {"beta_fast": 32.0,
       "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
       "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta":
       1000000000.0, "rope_type": "yarn", "type": "yarn"}, "sliding_window": null,
       "tie_word_embeddings": false, "use_cache": true, "vocab_size": 131072})},
    {"Gemma-3-1B",
     {"google/gemma-3-1b-it", "google/gemma-3-1b-pt"},
     CONFIG({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
       "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2,
       "eos_token_id": [1, 106], "pad_token_id": 0, "head_dim": 256, "hidden_activation":
       "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
       "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads":
       4, "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
       "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
       "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
       "torch_dtype": "bfloat16", "vocab_size": 262144})},
    {"Gemma-3-4B",
     {"google/gemma-3-4b-it", "google/gemma-3-4b-pt"},
     CONFIG({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
       "eos_token_id": [1, 106], "hidden_size": 2560, "intermediate_size": 10240,
       "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
       "sliding_window": 1024, "torch_dtype": "bfloat16"})},
    {"Gemma-3-12B",
     {"google/gemma-3-12b-it", "google/gemma-3-12b-pt"},
     CONFIG({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
       "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2,
       "eos_token_id": 106, "pad_token_id": 0, "head_dim": 256, "hidden_activation":
       "gelu_pytorch_tanh", "hidden_size": 3840, "initializer_range": 0.02,
       "intermediate_size": 15360, "max_position_embeddings": 131072,
       "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8,
       "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
       "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1000000,
       "sliding_window": 1024, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
       "vocab_size": 262208})},
    {"Gemma-3-27B",
     {"google/gemma-3-27b-it", "google/gemma-3-27b-pt"},
     CONFIG({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
       "eos_token_id": [1, 106], "head_dim": 128, "hidden_size": 5376, "intermediate_size":
       21504, "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads":
       16, "query_pre_attn_scalar": 168, "rope_scaling": {"factor": 8.0, "rope_type":
       "linear"}, "sliding_window": 1024, "torch_dtype": "bfloat16"})},
    {"Mistral-7B-v0.3",
     {"mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"},
     CONFIG({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
       "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
       "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
       "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window":
       null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32768})},
    {"Mistral-Small-24B",
     {"mistralai/Mistral-Small-24B-Base-2501", "mistralai/Mistral-Small-24B-Instruct-2501"},
     CONFIG({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
       "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128,
       "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size":
       32768, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 40,
     "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 100000000.0, "sliding_window":
       null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 131072})},
    {"Mistral-Small-22B",
     {"mistralai/Mistral-Small-Instruct-2409"},
     CONFIG({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
       "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128,
       "hidden_act": "silu", "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size":
       16384, "max_position_embeddings": 32768, "num_attention_heads": 48, "num_hidden_layers": 56,
       "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window":
       null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32768})},
    {"Phi-4",
     {"microsoft/phi-4"},
     CONFIG({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": false,
       "attention_dropout": 0.0, "bos_token_id": 100257, "embd_pdrop": 0.0, "eos_token_id": 100257,
       "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size":
       17920, "max_position_embeddings": 16384, "num_attention_heads": 40, "num_hidden_layers": 40,
       "num_key_value_heads": 10, "original_max_position_embeddings": 16384, "pad_token_id": 100257,
       "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 250000,
       "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
       "vocab_size": 100352})},
    {"Phi-4-mini",
     {"microsoft/Phi-4-mini-instruct"},
     CONFIG({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": false,
       "attention_dropout": 0.0, "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999,
       "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size":
       8192, "lm_head_bias": false, "max_position_embeddings": 131072, "mlp_bias": false,
       "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
       "original_max_position_embeddings": 4096, "pad_token_id": 199999, "partial_rotary_factor":
       0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": {"long_factor": [1,
       1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817, 2.187582649,
       2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023, 4.785517845,
       5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372, 10.4687158,
       11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105,
       25.61086418, 28.64115884, 32.03, 32.1, 32.13, 32.23, 32.6, 32.61, 32.64, 32.66, 32.7, 32.71,
       32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77], "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0,
       1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
       1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
       1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "type": "longrope"}, "rope_theta": 10000.0,
       "sliding_window": 262144, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
       "vocab_size": 200064})},
};
/* clang-format on */
#define N_KNOWN (sizeof known / sizeof *known)

static const char *behind_slash(const char *id) {
    const char *slash = strchr(id, '/');
    return slash ? slash + 1 : id;
}

static bool is_called(const struct pl_known_model *k, const char *name) {
    if (strcasecmp(k->name, name) == 0) return true;
    for (size_t i = 0; i < PL_KNOWN_IDS && k->ids[i]; i++)
        if (strcasecmp(k->ids[i], name) == 0 || strcasecmp(behind_slash(k->ids[i]), name) == 0)
            return true;
    return false;
}

const struct pl_known_model *pl_catalogue_find(const char *name) {
    for (size_t i = 0; i < N_KNOWN; i++)
        if (is_called(&known[i], name)) return &known[i];
    return NULL;
}

const struct pl_known_model *pl_catalogue_table(size_t *n) {
    *n = N_KNOWN;
    return known;
}

/* Every word that pl_catalogue_find() takes but whole ids, each once. */
static size_t all_names(const char **out) {
    size_t n = 0;
    for (size_t i = 0; i < N_KNOWN; i++) {
        out[n++] = known[i].name;
        for (size_t j = 0; j < PL_KNOWN_IDS && known[i].ids[j]; j++) {
            const char *name = behind_slash(known[i].ids[j]);
            if (strcasecmp(name, known[i].name) != 0) out[n++] = name;
        }
    }
    return n;
}

void pl_catalogue_nearest(const char *name, struct pl_text *out) {
    const char *names[N_KNOWN * (1 + PL_KNOWN_IDS)], *near[3];
    size_t n = pl_text_nearest_few(behind_slash(name), names, all_names(names), near, 3);
    for (size_t i = 0; i < n; i++)
        pl_text_addf(out, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", near[i]);
}
