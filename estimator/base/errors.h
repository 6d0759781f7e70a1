/* errors.h - every way Plimsoll can fail, as one table.
 *
 * X(name, exit status, code the user sees, default hint)
 * Codes are stable for ever; exit statuses are those of docs/reference.md:
 *   0 done - 1 run-time failure - 2 usage or configuration - 3 does not fit - 4 out of memory after
 *   recovery - 5 bad model, tokenizer, data or checkpoint file - 6 no usable device. */
#ifndef PL_ESTIMATOR_BASE_ERRORS_H
#define PL_ESTIMATOR_BASE_ERRORS_H

#define PL_ERR_MAP(X)                                                                              \
    X(OK, 0, "OK", "")                                                                             \
    X(USAGE, 2, "CONFIG_USAGE", "run `plimsoll help`")                                             \
    X(CONFIG_FILE, 2, "CONFIG_FILE", "check the path and its permissions")                         \
    X(CONFIG_SYNTAX, 2, "CONFIG_SYNTAX", "one `key: value` per line; indent with spaces")          \
    X(CONFIG_UNKNOWN_KEY, 2, "CONFIG_UNKNOWN_KEY", "`plimsoll help keys` lists every key")         \
    X(CONFIG_DUPLICATE_KEY, 2, "CONFIG_DUPLICATE_KEY", "keep one of the two lines")                \
    X(CONFIG_TYPE, 2, "CONFIG_TYPE", "`plimsoll help keys` gives the type of every key")           \
    X(CONFIG_RANGE, 2, "CONFIG_RANGE", "`plimsoll help keys` gives the range of every key")        \
    X(CONFIG_CONFLICT, 2, "CONFIG_CONFLICT", "change one of the two settings")                     \
    X(CONFIG_MISSING, 2, "CONFIG_MISSING", "add the key to the configuration")                     \
    X(CONFIG_FOREIGN, 2, "CONFIG_FOREIGN", "`plimsoll import FILE -o job.yaml` writes the job")    \
    X(MODEL_FILE, 5, "MODEL_FILE",                                                                 \
      "a model is a directory with config.json and safetensors, or GGUF")                          \
    X(MODEL_SYNTAX, 5, "MODEL_SYNTAX", "the file is not valid JSON: correct it there")             \
    X(MODEL_FIELD, 5, "MODEL_FIELD", "compare config.json with the published one")                 \
    X(MODEL_UNSUPPORTED, 5, "MODEL_UNSUPPORTED",                                                   \
      "families: llama, qwen2, qwen3, mistral, phi3, "                                             \
      "smollm3, ministral3, gemma3_text, qwen3_moe, gpt_oss, qwen3_5_text, gemma4_text")           \
    X(MODEL_WEIGHTS, 5, "MODEL_WEIGHTS", "the weights must belong to this config.json")            \
    X(TOKENIZER_FILE, 5, "TOKENIZER_FILE", "give the tokenizer that the model was trained with")   \
    X(TOKENIZER_SYNTAX, 5, "TOKENIZER_SYNTAX", "the file is not valid JSON: correct it there")     \
    X(TOKENIZER_FIELD, 5, "TOKENIZER_FIELD", "compare tokenizer.json with the published one")      \
    X(TOKENIZER_UNSUPPORTED, 5, "TOKENIZER_UNSUPPORTED",                                           \
      "BPE with ByteLevel or Metaspace is read; tokenise elsewhere and use `format: tokens`")      \
    X(TOKENIZER_INPUT, 5, "TOKENIZER_INPUT", "text must be UTF-8, ids those of this tokenizer")    \
    X(DATA_FILE, 5, "DATA_FILE", "check the path and its permissions")                             \
    X(DATA_SYNTAX, 5, "DATA_SYNTAX", "JSONL wants one complete JSON object per line")              \
    X(DATA_FIELD, 5, "DATA_FIELD", "docs/data.md lists the keys of every format")                  \
    X(DATA_TEMPLATE, 5, "DATA_TEMPLATE", "choose another `chat_template`, or correct the row")     \
    X(TEMPLATE_LIMIT, 5, "TEMPLATE_LIMIT",                                                         \
      "the template loops or builds too much: choose another `chat_template`")                     \
    X(DATA_EMPTY, 5, "DATA_EMPTY", "no row gives a token to train on")                             \
    X(CHECKPOINT_FILE, 5, "CHECKPOINT_FILE", "check the path and its permissions")                 \
    X(CHECKPOINT_FORMAT, 5, "CHECKPOINT_FORMAT", "the file is damaged or not safetensors")         \
    X(CHECKPOINT_MISMATCH, 5, "CHECKPOINT_MISMATCH",                                               \
      "resume with the configuration it was "                                                      \
      "saved with, or set `resume: never`")                                                        \
    X(CHECKPOINT_WRITE, 1, "CHECKPOINT_WRITE",                                                     \
      "check disk space and permissions; what was "                                                \
      "there before is kept")                                                                      \
    X(DOES_NOT_FIT, 3, "RUNTIME_DOES_NOT_FIT", "apply one of the remedies listed above")           \
    X(FULL_FT_MODEL_TOO_LARGE, 3, "RUNTIME_FULL_FT_MODEL_TOO_LARGE",                               \
      "use `full_ft_offload: true` or `mode: lora`, or raise `full_ft_ceiling_billions`")          \
    X(GPU_OOM, 4, "RUNTIME_GPU_OOM", "apply one of the remedies listed above")                     \
    X(HOST_OOM, 1, "RUNTIME_HOST_OOM", "the machine is out of memory, not the device")             \
    X(DEVICE_LOST, 1, "RUNTIME_DEVICE_LOST",                                                       \
      "the device reported an error it cannot recover from; resume from the last checkpoint")      \
    X(NO_DEVICE, 6, "RUNTIME_NO_DEVICE", "`device: cpu` always works")                             \
    X(DEVICE_OOM, 4, "RUNTIME_DEVICE_OOM",                                                         \
      "nothing can be halved here: free memory on the device, or start with a smaller plan")       \
    X(PLAN_BROKEN, 1, "RUNTIME_PLAN_BROKEN", "this is a defect in Plimsoll: please report it")     \
    X(COMM_INIT, 1, "COMM_INIT", "docs/several-devices.md says how ranks are started")             \
    X(COMM_MISMATCH, 1, "COMM_MISMATCH", "start every rank with the same files and settings")      \
    X(COMM_PEER_LOST, 1, "COMM_PEER_LOST",                                                         \
      "see what that rank said last; the same command resumes from the last checkpoint")           \
    X(NOT_FINITE, 1, "RUNTIME_NOT_FINITE", "lower `learning_rate` or set `max_grad_norm: 1.0`")    \
    X(OVERFLOW, 2, "RUNTIME_SIZE_OVERFLOW", "the sizes asked for do not fit 64 bits")              \
    X(IO, 1, "RUNTIME_IO", "check disk space and permissions")                                     \
    X(INTERRUPTED, 130, "RUNTIME_INTERRUPTED", "start the same command again to resume")

typedef enum pl_err {
#define X(name, exit_status, code, hint) PL_ERR_##name,
    PL_ERR_MAP(X)
#undef X
        PL_ERR_COUNT
} pl_err;

#define PL_TRY(call)                                                                               \
    do {                                                                                           \
        pl_err try_err_ = (call);                                                                  \
        if (try_err_ != PL_ERR_OK) return try_err_;                                                \
    } while (0)

/* PL_TRY for functions with one exit: `err` must be in scope. */
#define PL_TRY_GOTO(call, label)                                                                   \
    do {                                                                                           \
        if ((err = (call)) != PL_ERR_OK) goto label;                                               \
    } while (0)

const char *pl_err_code(pl_err err); /* e.g. "RUNTIME_GPU_OOM" */
const char *pl_err_hint(pl_err err); /* "" when there is none */
int pl_err_exit_status(pl_err err);

#endif
