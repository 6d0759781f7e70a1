/* rig.h - a small program with memory for its job tensors, and files to test it with. */
#ifndef PL_TESTS_CHECKPOINT_RIG_H
#define PL_TESTS_CHECKPOINT_RIG_H

#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/tensor_io.h"

#include <check.h>

struct rig_options {
    uint32_t mode, optimizer;
    enum pl_dtype dtype, adapter_dtype;
    bool master, untied, bias, qk_norm, fused, single_quant;
    enum pl_quant quant; /* of a qlora base */
    const char *experts; /* model_type of a mixture of four experts; NULL = a dense model */
    bool wide;           /* matrices of several groups of 4-bit values, the last block short */
    uint64_t freeze_layers, lora_r; /* lora_r 0 = 4 */
    const char *target;             /* one module name; NULL = all-linear */
    const char *whole[2];           /* modules trained whole; up to a NULL */
    uint64_t staging_bytes;         /* 0 = 1 MiB */
    bool kernels;                   /* a CPU device with two threads; else one without kernels */
    uint32_t ranks, rank, sharding; /* the program of one of several ranks */
};

struct rig {
    struct pl_model model;
    char config[1024]; /* its config.json */
    struct pl_program *program;
    struct pl_device device;  /* only memory */
    struct pl_device *opened; /* device with kernels; NULL = there is none */
    struct pl_tensor_io io;
    void **memory; /* [n_tensors]; NULL for step tensors */
};

void rig_open(struct rig *r, const struct rig_options *o);
void rig_close(struct rig *r);
/* Sets the bits of every weight, adapter, moment and master: a function of seed, finite as
 * numbers. */
void rig_scramble(struct rig *r, uint32_t seed);
void rig_clear(struct rig *r);
/* True if both hold the same bits in every tensor of these roles. */
bool rig_same(const struct rig *a, const struct rig *b, enum pl_role role);
/* True if both hold the same bits in every module that is trained whole. */
bool rig_same_whole(const struct rig *a, const struct rig *b);
uint32_t rig_find(const struct rig *r, enum pl_role role, enum pl_slot slot, uint32_t layer);

/* Saves as a run does at its end: into an existing directory, all files or none. */
pl_err rig_save_model(const struct pl_tensor_io *io, const char *dir, const char *config_json,
                      const struct pl_companions *companions, uint64_t shard_bytes,
                      struct pl_diag *d);
pl_err rig_save_adapter(const struct pl_tensor_io *io, const char *dir, const struct pl_job *job,
                        struct pl_diag *d);

/* Make a fresh directory of this test, and a path in it (valid for the next seven calls). */
void dir_make(char dir[64]);
void dir_remove(const char *dir);
const char *in(const char *dir, const char *name);
bool exists(const char *path);
void rig_die(void);            /* acts as a process that is killed: `before` of a pl_io_fault */
char *slurp(const char *path); /* malloc'd */
void spill(const char *path, const void *data, size_t bytes);
/* Writes a safetensors file from its parts. */
void st_spill(const char *path, const char *header, const void *data, size_t bytes);
/* Rewrites a safetensors file: each tensor passes through `edit`, which may rename it, change its
 * type or its shape's text ("[4, 4]"), or return false to drop it. */
struct st_edit {
    char name[256], dtype[16], shape[128];
};
void st_rewrite(const char *path, bool (*edit)(struct st_edit *e, const void *arg),
                const void *arg);

#define OK(call)                                                                                   \
    do {                                                                                           \
        struct pl_diag *ok_d_ = &diag;                                                             \
        pl_err ok_err_ = (call);                                                                   \
        ck_assert_msg(ok_err_ == PL_ERR_OK, "%s: %s", pl_err_code(ok_err_), ok_d_->message);       \
    } while (0)
#define FAILS(call, expected, text)                                                                \
    do {                                                                                           \
        diag = (struct pl_diag){0};                                                                \
        pl_err fails_err_ = (call);                                                                \
        ck_assert_str_eq(pl_err_code(fails_err_), pl_err_code(expected));                          \
        ck_assert_msg(strstr(diag.message, (text)), "`%s` does not say `%s`", diag.message,        \
                      (text));                                                                     \
        diag = (struct pl_diag){0};                                                                \
    } while (0)

#endif
