#include "tests/checkpoint/rig.h"

#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/kernels/back_ends.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pl_err copy_up(struct pl_device *dev, void *dst, const void *src, uint64_t bytes) {
    (void)dev;
    memcpy(dst, src, bytes);
    return PL_ERR_OK;
}

static const struct pl_device_ops memory_ops = {
    .name = "memory", .upload = copy_up, .download = copy_up};

static void *address(void *ctx, uint32_t tensor) {
    struct rig *r = ctx;
    ck_assert_ptr_nonnull(r->memory[tensor]);
    return r->memory[tensor];
}

static void read_model(struct rig *r, const struct rig_options *o) {
    struct pl_diag diag = {0};
    char experts[256] = "";
    if (o->experts)
        snprintf(experts, sizeof experts,
                 ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":8,"
                 "\"moe_intermediate_size\":%d,"
                 "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.0}",
                 o->wide ? 249 : 24);
    int n = snprintf(r->config, sizeof r->config,
                     "{\"model_type\":\"%s\",\"hidden_size\":%d,\"intermediate_size\":%d,"
                     "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                     "\"head_dim\":4,\"vocab_size\":40,\"max_position_embeddings\":64,"
                     "\"rms_norm_eps\":1e-6,\"hidden_act\":\"silu\",\"rope_theta\":10000.0,"
                     "\"initializer_range\":0.02,\"pad_token_id\":0,\"tie_word_embeddings\":%s%s}",
                     o->experts   ? o->experts
                     : o->fused   ? "phi3"
                     : o->qk_norm ? "qwen3"
                     : o->bias    ? "qwen2"
                                  : "llama",
                     o->wide      ? 200
                     : o->experts ? 32
                                  : 16,
                     o->wide      ? 249
                     : o->experts ? 32
                                  : 24,
                     o->untied ? "false" : "true", experts);
    OK(pl_model_parse("config.json", r->config, (uint64_t)n, &r->model, &diag));
}

void rig_open(struct rig *r, const struct rig_options *o) {
    struct pl_diag diag = {0};
    const struct pl_traits traits = pl_traits_cpu(1);
    const char *target = o->target ? o->target : "all-linear";
    const uint32_t n_whole = o->whole[0] ? 1 + (o->whole[1] != NULL) : 0;
    *r = (struct rig){0};
    read_model(r, o);
    struct pl_job_shape shape = {.mode = o->mode,
                                 .batch_size = 1,
                                 .max_seq_length = 8,
                                 .dtype = o->dtype,
                                 .adapter_dtype = o->adapter_dtype,
                                 .gradient_dtype = PL_DTYPE_F32,
                                 .master_weights = o->master,
                                 .adapter_masters = o->master,
                                 .optimizer = o->optimizer,
                                 .quant = o->quant,
                                 .double_quant = !o->single_quant && pl_quant_has_absmax(o->quant),
                                 .compute_dtype = o->dtype,
                                 .lora_r = o->lora_r ? o->lora_r : 4,
                                 .lora_scale = 2,
                                 .freeze_layers = o->freeze_layers,
                                 .max_grad_norm = 1,
                                 .ranks = o->ranks,
                                 .rank = o->rank,
                                 .rank_order = o->ranks > 0,
                                 .sharding = o->sharding,
                                 .load = true,
                                 .save = true};
    if (pl_mode_adapts(o->mode))
        OK(pl_targets_find(
            &r->model,
            &(struct pl_target_choice){.modules = {&target, 1}, .whole = {o->whole, n_whole}},
            &shape.lora_targets, NULL, &diag));
    OK(pl_program_create(&r->model, &shape, &traits, &r->program, &diag));
    r->memory = calloc(r->program->n_tensors, sizeof *r->memory);
    ck_assert_ptr_nonnull(r->memory);
    for (uint32_t i = 0; i < r->program->n_tensors; i++)
        if (r->program->tensors[i].scope == PL_SCOPE_JOB)
            r->memory[i] = calloc(1, r->program->tensors[i].bytes);
    r->device.ops = &memory_ops;
    if (o->kernels) OK(pl_device_open(&pl_back_end_cpu, 2, PL_NO_BUDGET, &r->opened, &diag));
    uint64_t staging = o->staging_bytes ? o->staging_bytes : 1 << 20;
    r->io = (struct pl_tensor_io){.program = r->program,
                                  .device = r->opened ? r->opened : &r->device,
                                  .address = address,
                                  .ctx = r,
                                  .staging = malloc(staging),
                                  .staging_bytes = staging};
}

void rig_close(struct rig *r) {
    for (uint32_t i = 0; i < r->program->n_tensors; i++)
        free(r->memory[i]);
    free(r->memory);
    free(r->io.staging);
    pl_program_destroy(&r->program);
    pl_device_close(&r->opened);
}

static bool is_state(enum pl_role role) {
    return role == PL_ROLE_WEIGHT || role == PL_ROLE_LORA_A || role == PL_ROLE_LORA_B ||
           (role >= PL_ROLE_STATE && role <= PL_ROLE_MASTER);
}

void rig_scramble(struct rig *r, uint32_t seed) {
    for (uint32_t i = 0; i < r->program->n_tensors; i++) {
        const struct pl_tensor *t = &r->program->tensors[i];
        uint16_t *half = r->memory[i];
        if (!is_state(t->role)) continue;
        for (uint64_t k = 0; k < t->bytes / 2; k++) {
            seed = seed * 1664525u + 1013904223u;
            /* the low bit of the exponent is cleared: never all ones, never NaN or infinity */
            half[k] = (uint16_t)(seed >> 16 & 0xff7fu);
        }
    }
}

void rig_clear(struct rig *r) {
    for (uint32_t i = 0; i < r->program->n_tensors; i++)
        if (is_state(r->program->tensors[i].role))
            memset(r->memory[i], 0, r->program->tensors[i].bytes);
}

bool rig_same(const struct rig *a, const struct rig *b, enum pl_role role) {
    uint32_t compared = 0;
    for (uint32_t i = 0; i < a->program->n_tensors; i++) {
        if (a->program->tensors[i].role != role) continue;
        compared++;
        if (memcmp(a->memory[i], b->memory[i], a->program->tensors[i].bytes) != 0) return false;
    }
    ck_assert_uint_gt(compared, 0);
    return true;
}

bool rig_same_whole(const struct rig *a, const struct rig *b) {
    for (uint32_t i = 0; i < a->program->n_tensors; i++) {
        const struct pl_tensor *t = &a->program->tensors[i];
        if (t->role == PL_ROLE_WEIGHT && t->trainable &&
            memcmp(a->memory[i], b->memory[i], t->bytes) != 0)
            return false;
    }
    return true;
}

uint32_t rig_find(const struct rig *r, enum pl_role role, enum pl_slot slot, uint32_t layer) {
    for (uint32_t i = 0; i < r->program->n_tensors; i++) {
        const struct pl_tensor *t = &r->program->tensors[i];
        if (t->role == role && t->slot == slot && t->layer == layer) return i;
    }
    ck_abort_msg("no such tensor");
}

pl_err rig_save_model(const struct pl_tensor_io *io, const char *dir, const char *config_json,
                      const struct pl_companions *companions, uint64_t shard_bytes,
                      struct pl_diag *d) {
    struct pl_outbox o = {0};
    pl_err err = pl_save_set_begin(dir, d);
    if (err == PL_ERR_OK) err = pl_outbox_init(&o, dir, d);
    if (err == PL_ERR_OK) err = pl_model_put(io, &o, config_json, companions, shard_bytes, d);
    if (err == PL_ERR_OK) err = pl_save_set_commit(&o, pl_model_is_leftover, &o, d);
    pl_outbox_finish(&o);
    return err;
}

pl_err rig_save_adapter(const struct pl_tensor_io *io, const char *dir, const struct pl_job *job,
                        struct pl_diag *d) {
    struct pl_outbox o = {0};
    pl_err err = pl_save_set_begin(dir, d);
    if (err == PL_ERR_OK) err = pl_outbox_init(&o, dir, d);
    if (err == PL_ERR_OK) err = pl_adapter_put(io, &o, job, NULL, d);
    if (err == PL_ERR_OK) err = pl_save_set_commit(&o, NULL, NULL, d);
    pl_outbox_finish(&o);
    return err;
}

void dir_make(char dir[64]) {
    const char *base = getenv("TMPDIR");
    snprintf(dir, 64, "%.40s/pl-ckpt-XXXXXX", base && *base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

void dir_remove(const char *dir) {
    ck_assert_int_eq(pl_tree_remove(dir, NULL), PL_ERR_OK);
}

const char *in(const char *dir, const char *name) {
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

void rig_die(void) {
    (void)raise(SIGKILL);
}

bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

char *slurp(const char *path) {
    struct pl_diag diag = {0};
    char *text;
    uint64_t bytes;
    OK(pl_file_read(path, 1 << 30, &text, &bytes, &diag));
    return text;
}

void spill(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, bytes, f), bytes);
    ck_assert_int_eq(fclose(f), 0);
}

void st_spill(const char *path, const char *header, const void *data, size_t bytes) {
    struct pl_text t = {0};
    char word[8];
    for (int i = 0; i < 8; i++)
        word[i] = (char)(strlen(header) >> 8 * i);
    pl_text_addn(&t, word, 8);
    pl_text_add(&t, header);
    pl_text_addn(&t, data, bytes);
    ck_assert(!t.failed);
    spill(path, t.data, t.len);
    pl_text_finish(&t);
}

void st_rewrite(const char *path, bool (*edit)(struct st_edit *e, const void *arg),
                const void *arg) {
    struct pl_diag diag = {0};
    struct pl_st_file f;
    struct pl_text header = {0}, data = {0};
    OK(pl_st_open(&f, path, &diag));
    for (uint64_t i = 0; i < f.n; i++) {
        const struct pl_st_entry *e = &f.entries[i];
        uint64_t bytes = e->end - e->begin;
        struct st_edit x;
        snprintf(x.name, sizeof x.name, "%s", e->name);
        snprintf(x.dtype, sizeof x.dtype, "%s", e->dtype_name);
        pl_st_shape_text(e->rank, e->dims, x.shape);
        if (!edit(&x, arg)) continue;
        pl_text_addf(&header, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                     header.len ? ',' : '{', x.name, x.dtype, x.shape, data.len,
                     data.len + (size_t)bytes);
        char *piece = malloc(bytes + 1);
        OK(pl_st_read(&f, e, 0, piece, bytes, &diag));
        pl_text_addn(&data, piece, bytes);
        free(piece);
    }
    pl_st_close(&f);
    pl_text_add(&header, "}");
    st_spill(path, header.data, data.data, data.len);
    pl_text_finish(&header);
    pl_text_finish(&data);
}
