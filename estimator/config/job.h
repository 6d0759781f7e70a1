/* job.h - one training job as data: what the YAML file said, checked and with defaults filled.
 *
 * The types; job_text.h reads and writes a job, validate.h refuses one, job_values.h has what
 * follows from its keys. Needs: base. No globals.
 *   J1  every field is in the range of its row in keys.h, or unset / auto where the row allows it
 *   J2  combinations that cannot run together were refused by name (pl_job_validate), and keys
 *       without a meaning with the others have their defaults (pl_job_drop_useless)
 *   J3  pl_job_write() -> pl_job_read() gives an equal job */
#ifndef PL_ESTIMATOR_CONFIG_JOB_H
#define PL_ESTIMATOR_CONFIG_JOB_H

#include "estimator/config/key_classes.h"
#include "estimator/config/keys.h"
#include "estimator/config/recompute.h"
#include "estimator/config/row_slice.h"
#include "estimator/ops/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_AUTO       UINT32_MAX
#define PL_AUTO_BYTES UINT64_MAX
#define PL_UNSET_U32  (UINT32_MAX - 1) /* U32 and ENUM keys whose default is "" */
#define PL_UNSET_U64  (UINT64_MAX - 1)
/* An F64 key whose default is "" holds NaN while it is unset. */

enum { PL_INIT_PRETRAINED, PL_INIT_RANDOM };
enum { PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA };
/* True if the mode trains adapters on a frozen base. */
static inline bool pl_mode_adapts(uint32_t mode) {
    return mode == PL_MODE_LORA || mode == PL_MODE_QLORA;
}
enum { PL_QUANT_TYPE_AUTO, PL_QUANT_TYPE_NF4, PL_QUANT_TYPE_FP4, PL_QUANT_TYPE_MXFP4 };
enum { PL_TRI_AUTO, PL_TRI_TRUE, PL_TRI_FALSE };
enum { PL_OVERLENGTH_TRUNCATE, PL_OVERLENGTH_DROP, PL_OVERLENGTH_ERROR };
enum {
    PL_SCHEDULE_CONSTANT,
    PL_SCHEDULE_CONSTANT_WITH_WARMUP,
    PL_SCHEDULE_LINEAR,
    PL_SCHEDULE_COSINE,
    PL_SCHEDULE_COSINE_WITH_MIN_LR,
};
/* The tensors that live in host memory; each value includes those before it. */
enum { PL_OFFLOAD_NONE, PL_OFFLOAD_OPTIMIZER, PL_OFFLOAD_GRADIENTS, PL_OFFLOAD_WEIGHTS };
enum { PL_METRIC_LOSS, PL_METRIC_ACCURACY, PL_METRIC_PERPLEXITY };
enum { PL_LONG_FROM_BATCH, PL_LONG_FROM_SAMPLE };
enum { PL_EMBEDDING_DEVICE, PL_EMBEDDING_HOST };
enum { PL_UPDATE_AUTO, PL_UPDATE_DEVICE, PL_UPDATE_HOST };
enum { PL_JOB_COMM_AUTO, PL_JOB_COMM_NCCL, PL_JOB_COMM_MPI };
/* The tensors of which a rank holds its part only; each value includes those before it. */
enum {
    PL_SHARDING_AUTO,
    PL_SHARDING_NONE,
    PL_SHARDING_OPTIMIZER,
    PL_SHARDING_GRADIENTS,
    PL_SHARDING_WEIGHTS
};
enum { PL_PREFLIGHT_ENFORCE, PL_PREFLIGHT_WARN, PL_PREFLIGHT_OFF };
/* DEVICE: `cuda` is the first GPU; cuda:N is PL_DEVICE_CUDA_AT + N. */
enum { PL_DEVICE_AUTO, PL_DEVICE_CPU, PL_DEVICE_NULL, PL_DEVICE_CUDA, PL_DEVICE_CUDA_AT = 16 };
#define PL_DEVICE_CUDA_MAX 255 /* largest N */
static inline bool pl_device_is_cuda(uint32_t device) {
    return device >= PL_DEVICE_CUDA;
}
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
    PL_FORMAT_PREFERENCE,
};
enum { PL_REFERENCE_BASE, PL_REFERENCE_INITIAL };
enum { PL_TRUNCATION_KEEP_START, PL_TRUNCATION_KEEP_END };
enum { PL_TRAIN_ON_ALL, PL_TRAIN_ON_RESPONSES, PL_TRAIN_ON_LAST };
enum { PL_CHAT_TEMPLATE_AUTO };                /* the others in the order of the row's choices */
#define PL_CHAT_TEMPLATE_FILE (UINT32_MAX - 2) /* the choice that stands for a template in a file */

struct pl_str_list {
    char **items; /* owned */
    uint32_t n;
};

struct pl_template_choice {
    uint32_t choice; /* PL_CHAT_TEMPLATE_* */
    char *path;      /* owned; set for PL_CHAT_TEMPLATE_FILE, else NULL */
};

enum { PL_SPLIT_TRAIN, PL_SPLIT_EVAL };

/* The names of our columns in a data file, and the words of its roles: X(column, key of an entry).
 * Words are separated by commas. */
#define PL_COLUMNS(X)                                                                              \
    X(TEXT, field_text)                                                                            \
    X(INSTRUCTION, field_instruction)                                                              \
    X(INPUT, field_input)                                                                          \
    X(OUTPUT, field_output)                                                                        \
    X(SYSTEM, field_system)                                                                        \
    X(PROMPT, field_prompt)                                                                        \
    X(COMPLETION, field_completion)                                                                \
    X(MESSAGES, field_messages)                                                                    \
    X(CHOSEN, field_chosen)                                                                        \
    X(REJECTED, field_rejected)                                                                    \
    X(LABEL, field_label)                                                                          \
    X(WEIGHT, field_weight)                                                                        \
    X(ROLE, message_field_role)                                                                    \
    X(CONTENT, message_field_content)                                                              \
    X(USER_WORDS, role_user)                                                                       \
    X(ASSISTANT_WORDS, role_assistant)                                                             \
    X(SYSTEM_WORDS, role_system)                                                                   \
    X(PROMPT_FORMAT, prompt_format)                                                                \
    X(QUESTION_FORMAT, question_format)                                                            \
    X(NO_INPUT_FORMAT, no_input_format)
enum pl_column {
#define X(column, key) PL_COLUMN_##column,
    PL_COLUMNS(X)
#undef X
        PL_COLUMN_COUNT
};
struct pl_columns {
    char *name[PL_COLUMN_COUNT]; /* owned; NULL = our own name */
};

struct pl_dataset {
    char *path; /* owned */
    struct pl_columns columns;
    uint32_t format;
    uint32_t split;            /* PL_SPLIT_*: an entry of `datasets` may be for evaluation */
    struct pl_row_slice slice; /* these rows of its files alone */
    double weight;             /* passes over the file in an epoch; 1 = every row once */
    uint64_t max_samples;      /* the first rows of the slice, so many at most; 0 = all */
    uint32_t number;           /* of the entry, where one stands for each of its files */
    uint64_t line, column;     /* where the YAML named it */
};
#define PL_DATASET_DEFAULT ((struct pl_dataset){.format = PL_FORMAT_AUTO, .weight = 1})

struct pl_dataset_list {
    struct pl_dataset *items; /* owned */
    uint32_t n;
};

typedef char *pl_type_STR;
typedef char *pl_type_PATH;
typedef bool pl_type_BOOL;
typedef uint32_t pl_type_U32, pl_type_ENUM, pl_type_AUTO, pl_type_RECOMPUTE, pl_type_DEVICE;
typedef uint32_t pl_type_DTYPE; /* enum pl_dtype, PL_DTYPE_AUTO for `auto` */
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
    bool given[PL_KEY_COUNT];  /* set by the file or an override, not by its default */
    bool unread[PL_KEY_COUNT]; /* a value was given and refused; never set in a job that was read */
    struct pl_place place[PL_KEY_COUNT];
    char *path;            /* path of the YAML file, NULL if the job came from flags alone */
    uint32_t auto_samples; /* not a key: samples of a step whose size no key gives, computed from
                            * the rows. 0: not decided (pl_job_step_samples); PL_UNSET_U32: a step
                            * is made of micro-batches, however many samples they hold */
    bool inference; /* not a key: the weights that `mode` names are generated with, not trained */
};

#endif
