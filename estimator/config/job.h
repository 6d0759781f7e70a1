/* job.h - one training job as data: what the YAML file said, checked and with defaults filled.
 *
 * In: YAML text, `key=value` overrides.  Out: struct pl_job.  Needs: base. No globals.
 *   J1  every field is in the range of its row in keys.h, or unset / auto where the row allows it
 *   J2  combinations that cannot run together were refused by name (pl_job_validate), and keys
 *       without a meaning with the others have their defaults (pl_job_drop_useless)
 *   J3  pl_job_write() -> pl_job_read() gives an equal job
 * Use: struct pl_job job = {0};
 *      pl_job_read(&job, "run.yaml", overrides, n, NULL, &diag); ... pl_job_finish(&job); */
#ifndef PL_ESTIMATOR_CONFIG_JOB_H
#define PL_ESTIMATOR_CONFIG_JOB_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/key_classes.h"
#include "estimator/config/keys.h"
#include "estimator/config/recompute.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_AUTO UINT32_MAX
#define PL_AUTO_BYTES UINT64_MAX
#define PL_UNSET_U32 (UINT32_MAX - 1) /* U32 and ENUM keys whose default is "" */
#define PL_UNSET_U64 (UINT64_MAX - 1)
/* F64 keys whose default is "" hold NaN while unset. */

enum { PL_INIT_PRETRAINED, PL_INIT_RANDOM };
enum { PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA };
/* Adapters on a frozen base. */
static inline bool pl_mode_adapts(uint32_t mode) {
    return mode == PL_MODE_LORA || mode == PL_MODE_QLORA;
}
enum { PL_QUANT_TYPE_NF4, PL_QUANT_TYPE_FP4 };
enum { PL_COMPUTE_AUTO, PL_COMPUTE_BF16, PL_COMPUTE_FP32 };
enum { PL_JOB_DTYPE_BF16, PL_JOB_DTYPE_FP32 };
enum { PL_BASE_AUTO, PL_BASE_BF16, PL_BASE_FP32 };
enum { PL_TRI_AUTO, PL_TRI_TRUE, PL_TRI_FALSE };
enum { PL_GRADIENT_AUTO, PL_GRADIENT_BF16, PL_GRADIENT_FP32 };
enum { PL_MOMENT_FP32, PL_MOMENT_BF16 };
enum { PL_ADAPTER_FP32, PL_ADAPTER_BF16 };
enum { PL_OVERLENGTH_TRUNCATE, PL_OVERLENGTH_DROP, PL_OVERLENGTH_ERROR };
enum {
    PL_SCHEDULE_CONSTANT,
    PL_SCHEDULE_CONSTANT_WITH_WARMUP,
    PL_SCHEDULE_LINEAR,
    PL_SCHEDULE_COSINE,
    PL_SCHEDULE_COSINE_WITH_MIN_LR,
};
/* What lives in host memory: each with those before it. */
enum { PL_OFFLOAD_NONE, PL_OFFLOAD_OPTIMIZER, PL_OFFLOAD_GRADIENTS, PL_OFFLOAD_WEIGHTS };
enum { PL_LONG_FROM_BATCH, PL_LONG_FROM_SAMPLE };
enum { PL_EMBEDDING_DEVICE, PL_EMBEDDING_HOST };
enum { PL_UPDATE_AUTO, PL_UPDATE_DEVICE, PL_UPDATE_HOST };
enum { PL_PREFLIGHT_ENFORCE, PL_PREFLIGHT_WARN, PL_PREFLIGHT_OFF };
/* DEVICE: `cuda` is the first GPU; cuda:N is PL_DEVICE_CUDA_AT + N. */
enum { PL_DEVICE_AUTO, PL_DEVICE_CPU, PL_DEVICE_NULL, PL_DEVICE_CUDA, PL_DEVICE_CUDA_AT = 16 };
#define PL_DEVICE_CUDA_MAX 255 /* largest N */
static inline bool pl_device_is_cuda(uint32_t device) { return device >= PL_DEVICE_CUDA; }
static inline uint32_t pl_device_ordinal(uint32_t device) {
    return device >= PL_DEVICE_CUDA_AT ? device - PL_DEVICE_CUDA_AT : 0;
}

enum {
    PL_FORMAT_AUTO,
    PL_FORMAT_TOKENS,
    PL_FORMAT_TEXT,
    PL_FORMAT_ALPACA,
    PL_FORMAT_MESSAGES,
    PL_FORMAT_SHAREGPT,
    PL_FORMAT_PROMPT_COMPLETION,
};
enum { PL_TRAIN_ON_ALL, PL_TRAIN_ON_RESPONSES, PL_TRAIN_ON_LAST };
enum { PL_CHAT_TEMPLATE_AUTO }; /* the others in the order of the row's choices */
#define PL_CHAT_TEMPLATE_FILE (UINT32_MAX - 2) /* the template is that of a file */

struct pl_str_list {
    char **items; /* owned */
    uint32_t n;
};

struct pl_template_choice {
    uint32_t choice; /* PL_CHAT_TEMPLATE_* */
    char *path;      /* owned; of PL_CHAT_TEMPLATE_FILE, else NULL */
};

enum { PL_SPLIT_TRAIN, PL_SPLIT_EVAL };

/* What the columns of a data file are called instead of our names for them, and the words of its
 * roles: X(column, key of an entry). Words are separated by commas. */
#define PL_COLUMNS(X)                                                                              \
    X(TEXT, field_text)                                                                            \
    X(INSTRUCTION, field_instruction)                                                              \
    X(INPUT, field_input)                                                                          \
    X(OUTPUT, field_output)                                                                        \
    X(SYSTEM, field_system)                                                                        \
    X(PROMPT, field_prompt)                                                                        \
    X(COMPLETION, field_completion)                                                                \
    X(MESSAGES, field_messages)                                                                    \
    X(ROLE, message_field_role)                                                                    \
    X(CONTENT, message_field_content)                                                              \
    X(USER_WORDS, role_user)                                                                       \
    X(ASSISTANT_WORDS, role_assistant)                                                             \
    X(SYSTEM_WORDS, role_system)                                                                   \
    X(PROMPT_FORMAT, prompt_format)
enum pl_column {
#define X(column, key) PL_COLUMN_##column,
    PL_COLUMNS(X)
#undef X
        PL_COLUMN_COUNT
};
struct pl_columns {
    char *name[PL_COLUMN_COUNT]; /* owned; NULL = as we call it */
};

struct pl_dataset {
    char *path; /* owned */
    struct pl_columns columns;
    uint32_t format;
    uint32_t split; /* PL_SPLIT_*: an entry of `datasets` may be for evaluation */
    double weight;  /* passes over the file in an epoch; 1 = every row once */
    uint64_t line, column; /* where the YAML named it */
};
#define PL_DATASET_DEFAULT ((struct pl_dataset){.format = PL_FORMAT_AUTO, .weight = 1})

struct pl_dataset_list {
    struct pl_dataset *items; /* owned */
    uint32_t n;
};

typedef char *pl_type_STR;
typedef bool pl_type_BOOL;
typedef uint32_t pl_type_U32, pl_type_ENUM, pl_type_AUTO, pl_type_RECOMPUTE, pl_type_DEVICE;
typedef uint64_t pl_type_U64, pl_type_BYTES;
typedef double pl_type_F64;
typedef struct pl_template_choice pl_type_TEMPLATE;
typedef struct pl_str_list pl_type_LIST;
typedef struct pl_dataset_list pl_type_DATASETS;

struct pl_place { /* where a key was set; line 0 = default or override */
    uint64_t line, column;
};

enum pl_key_id {
#define X(key, type, def, lo, hi, choices, help) PL_KEY_##key,
    PL_CONFIG_KEYS(X)
#undef X
        PL_KEY_COUNT
};

struct pl_job {
#define X(key, type, def, lo, hi, choices, help) pl_type_##type key;
    PL_CONFIG_KEYS(X)
#undef X
    bool given[PL_KEY_COUNT]; /* set by the file or an override, not by its default */
    bool unread[PL_KEY_COUNT]; /* was given a value that is refused; of no job that was read */
    struct pl_place place[PL_KEY_COUNT];
    char *path; /* of the YAML file, NULL when the job came from flags alone */
    bool inference; /* no key: weights as `mode` says, to generate with and not to train */
};

/* Reads `path` (NULL: no file), applies overrides ("key=value", in order; they win over the file),
 * fills defaults, validates. On failure *job is finished. With d->all every key that is wrong is
 * reported, and every contradiction between keys that are not; a text that is no YAML ends it.
 * `notes` (nullable) gets one line for every synonym that was used, and a warning for every key
 * that has no meaning in this job (pl_job_drop_useless). */
pl_err pl_job_read(struct pl_job *job, const char *path, const char *const *overrides,
                   uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d);
/* The same of a job that is to be trained: pl_job_require_training is one of its rules. */
pl_err pl_job_read_to_train(struct pl_job *job, const char *path, const char *const *overrides,
                            uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d);
/* The same from memory; `name` is the file name in messages. */
pl_err pl_job_parse(struct pl_job *job, const char *name, const char *yaml, uint64_t yaml_bytes,
                    const char *const *overrides, uint32_t n_overrides, struct pl_text *notes,
                    struct pl_diag *d);
/* `inference`: whether an adapter is named, which is then applied without merging it. */
bool pl_job_names_adapter(const struct pl_job *job);
/* `--mode inference`, which is no mode of a job: to generate with the weights, and with adapters
 * where one is named. After all keys are set. */
void pl_job_set_inference(struct pl_job *job);
/* Every default, no file: the start of `estimate-vram MODEL --flags`. `mode` may stay unset. */
pl_err pl_job_defaults(struct pl_job *job, struct pl_diag *d);
/* Sets one key from text; value as in YAML. */
pl_err pl_job_set(struct pl_job *job, const char *key, const char *value, struct pl_diag *d);
/* The same from one override, "key=value"; notes as in pl_job_read. */
pl_err pl_job_assign(struct pl_job *job, const char *assignment, struct pl_text *notes,
                     struct pl_diag *d);
/* Sets keys that have no meaning with the others back to their defaults, as if they had not been
 * given (lora_r under `mode: full`); notes (nullable) gets a warning for each. What is trained does
 * not depend on them; where it would, pl_job_validate refuses the key. pl_job_read has already
 * called it. */
pl_err pl_job_drop_useless(struct pl_job *job, struct pl_text *notes, struct pl_diag *d);
/* Combinations (J2); pl_job_read has already called it. */
pl_err pl_job_validate(const struct pl_job *job, struct pl_diag *d);
/* What training needs beyond an estimate: data to train on, and at least one step. */
pl_err pl_job_require_training(const struct pl_job *job, struct pl_diag *d);
/* A failure that points at the line where `key` was set. */
pl_err pl_job_error(const struct pl_job *job, enum pl_key_id key, pl_err err, struct pl_diag *d,
                    const char *fmt, ...) PL_PRINTF(5, 6);
/* YAML with every key that has a value, one a line, in table order (config.resolved.yaml). */
void pl_job_write(const struct pl_job *job, struct pl_text *out);
/* The value of one key as YAML text; "" when unset. */
void pl_job_write_key(const struct pl_job *job, enum pl_key_id key, struct pl_text *out);
void pl_job_finish(struct pl_job *job); /* NULL-safe; leaves {0} */

/* Values that follow from several keys. */
double pl_job_lora_scale(const struct pl_job *job);
double pl_job_learning_rate(const struct pl_job *job);
/* PL_OFFLOAD_*: `offload`, or all of it where full_ft_offload asks for that; none of
 * inference. */
uint32_t pl_job_offload(const struct pl_job *job);
/* offload_update decided: on the host where states and gradients are both there. */
bool pl_job_updates_on_host(const struct pl_job *job);
uint32_t pl_job_accumulation(const struct pl_job *job, uint32_t batch_size);
/* Whether there is something to evaluate on: held-out rows, or files of their own. */
bool pl_job_evaluates(const struct pl_job *job);
const char *pl_column_key(enum pl_column column); /* "field_text" */
/* *out is what a copy of `from` owns; false: no memory, and *out is empty. */
bool pl_columns_copy(struct pl_columns *out, const struct pl_columns *from);
void pl_columns_finish(struct pl_columns *c); /* leaves {0} */
/* ", key: name" for every column that has one. */
void pl_columns_write(const struct pl_columns *c, struct pl_text *out);
/* The first entry of this split, NULL when there is none. */
const struct pl_dataset *pl_job_find_split(const struct pl_dataset_list *list, uint32_t split);
/* Input paths are tried from the current directory, then from the YAML file's directory.
 * Returns a malloc'd path (the first that exists, else as given), NULL when out of memory. */
char *pl_job_input_path(const struct pl_job *job, const char *path);

/* One entry of debug_inject: `kind@unit=N[,count=K|,forever]`. */
enum pl_fault_kind {
    PL_FAULT_DEVICE_OOM_ALLOC, /* device_oom@alloc=N: device allocation N fails */
    PL_FAULT_DEVICE_OOM_STEP,  /* device_oom@step=N: the device runs out of memory in step N */
    PL_FAULT_PINNED_OOM_ALLOC, /* pinned_oom@alloc=N: request N for pinned host memory fails */
    PL_FAULT_DISK_FULL_WRITE,  /* disk_full@write=N: file write N fails */
    PL_FAULT_HOST_OOM_ALLOC,   /* host_oom@alloc=N: request N for host memory fails, counted from
                                  the pre-flight on */
};
struct pl_fault {
    enum pl_fault_kind kind;
    uint64_t at, count; /* 1-based; count UINT64_MAX = for ever, 1 when not given */
};
/* False for anything else; *out is then untouched. pl_job_validate has checked every entry. */
bool pl_fault_parse(const char *text, struct pl_fault *out);

struct pl_key_info {
    const char *key, *type, *def, *choices, *help;
    double lo, hi;
};
/* What another value of the key means for a run that is resumed. */
enum pl_key_class pl_key_class(enum pl_key_id key);
const struct pl_key_info *pl_key_table(uint32_t *n); /* n = PL_KEY_COUNT */
/* By its name or a synonym; PL_KEY_COUNT: nothing is called so. */
enum pl_key_id pl_key_find(const char *name);
/* The i-th word of the choices "a|b|c" into buf; false past the last. */
#define PL_CHOICE_BYTES 32
bool pl_key_choice(const char *choices, uint32_t i, char buf[PL_CHOICE_BYTES]);
void pl_key_reference(struct pl_text *out);          /* configs/REFERENCE.md */
/* The parts of the reference, for other forms of it; names and values stand in `backquotes`. */
const char *pl_key_introduction(void);
const char *pl_key_section(enum pl_key_id key); /* the title of the section it opens, or NULL */
const char *pl_key_type_label(enum pl_key_id key);
void pl_key_write_values(enum pl_key_id key, struct pl_text *out); /* choices, or the range */
void pl_key_write_synonyms(enum pl_key_id key, struct pl_text *out);

#endif
