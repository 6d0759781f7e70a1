/* check_merge.c - merging by files: the sums, the types, the books, and nothing half there. */
#include "estimator/config/job_text.h"
#include "estimator/ops/scratch/workspace_gemm.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/merge/merge.h"
#include "tests/checkpoint/rig.h"
#include "tests/support/scratch.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static struct pl_diag diag;
static struct pl_job job;

/* A base in `base`, an adapter of scale 2 in `adapter`. */
struct kind {
    struct rig_options base, adapter;
};
static const struct kind kinds[] = {
    {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_F32}, {.mode = PL_MODE_LORA}},
    {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16, .bias = true},
     {.mode = PL_MODE_LORA, .bias = true, .adapter_dtype = PL_DTYPE_BF16}},
    {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16, .qk_norm = true, .untied = true},
     {.mode = PL_MODE_LORA, .qk_norm = true, .untied = true, .target = "down_proj", .lora_r = 3}},
    {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_F32, .fused = true},
     {.mode = PL_MODE_LORA, .fused = true}},
    {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16}, {.mode = PL_MODE_LORA, .freeze_layers = 2}},
    {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16}, /* tied */
     {.mode = PL_MODE_LORA, .whole = {"embed_tokens"}}},
    {{.mode = PL_MODE_FULL}, {.mode = PL_MODE_LORA, .whole = {"embed_tokens", "lm_head"}}},
    {{.mode = PL_MODE_FULL, .untied = true},
     {.mode = PL_MODE_LORA, .dtype = PL_DTYPE_BF16, .untied = true, .whole = {"lm_head"}}},
    {{.mode = PL_MODE_FULL, .untied = true},
     {.mode = PL_MODE_LORA, .untied = true, .target = "embed_tokens", .lora_r = 5}},
    {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16}, /* tied */
     {.mode = PL_MODE_LORA, .target = "embed_tokens"}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Numbers of the size weights have, in either type. */
static void fill(struct rig *r, enum pl_category category, float scale) {
    uint32_t seed = 1;
    for (uint32_t i = 0; i < r->program->n_tensors; i++) {
        const struct pl_tensor *t = &r->program->tensors[i];
        uint64_t n = t->bytes / pl_dtype_bytes(t->dtype);
        bool whole = category == PL_CATEGORY_ADAPTER && t->role == PL_ROLE_WEIGHT && t->trainable;
        if ((t->category != category && !whole) || t->role == PL_ROLE_ROPE) continue;
        for (uint64_t k = 0; k < n; k++) {
            seed = seed * 1664525u + 1013904223u;
            float v = scale * ((float)(seed >> 8) / (float)(1 << 23) - 1);
            pl_convert_from_f32((char *)r->memory[i] + k * pl_dtype_bytes(t->dtype), &v, t->dtype,
                                1);
        }
    }
}

static void make_sources(const struct kind *k) {
    struct rig base, adapter;
    rig_open(&base, &k->base);
    rig_open(&adapter, &k->adapter);
    fill(&base, PL_CATEGORY_WEIGHTS, 0.1f);
    fill(&adapter, PL_CATEGORY_ADAPTER, 0.5f);
    ck_assert_int_eq(mkdir(in(dir, "base"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "adapter"), 0777), 0);
    OK(rig_save_model(&base.io, in(dir, "base"), base.config, NULL, PL_SHARD_BYTES, &diag));
    spill(in(dir, "base/tokenizer.json"), "{}", 2);
    OK(rig_save_adapter(&adapter.io, in(dir, "adapter"), &job, &diag));
    rig_close(&base);
    rig_close(&adapter);
}

static void setup(void) {
    diag = (struct pl_diag){0};
    OK(pl_job_defaults(&job, &diag));
    /* A kill takes nothing from the kernel, so a disk would only make this slow. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
    dir_make(dir);
}
static void teardown(void) {
    pl_checkpoint_set_fault(NULL);
    pl_job_finish(&job);
    dir_remove(dir);
}

static struct pl_merge_request request(enum pl_dtype dtype) {
    static char paths[3][128];
    static const char *const names[] = {"base", "adapter", "merged"};
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", dir, names[i]);
    return (struct pl_merge_request){
        .model = paths[0], .adapter = paths[1], .output = paths[2], .dtype = dtype};
}

static pl_err merge_all(const struct pl_merge_request *r) {
    struct pl_merge m;
    pl_err err = pl_merge_init(&m, r, &diag);
    if (err == PL_ERR_OK) err = pl_merge_run(&m, &diag);
    pl_merge_finish(&m);
    return err;
}

static float *values_of(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t *n) {
    uint64_t bytes = e->end - e->begin;
    char *raw = malloc(bytes + 1);
    *n = bytes / pl_dtype_bytes(e->dtype);
    float *v = malloc(*n * sizeof *v + 1);
    OK(pl_st_read(f, e, 0, raw, bytes, &diag));
    pl_convert_to_f32(v, raw, e->dtype, *n);
    free(raw);
    return v;
}

static const struct pl_st_entry *adapter_entry(const struct pl_st_file *f, const char *weight,
                                               char which) {
    char name[256];
    snprintf(name, sizeof name, "base_model.model.%.*s.lora_%c.weight", (int)strlen(weight) - 7,
             weight, which);
    if (strstr(weight, "embed_tokens"))
        snprintf(name, sizeof name, "base_model.model.%.*s.lora_embedding_%c",
                 (int)strlen(weight) - 7, weight, which);
    return pl_st_find(f, name);
}

/* Returns the source of a tensor of the merged model: the base's, or the adapter's own that
 * replaces it. The head of a tied model is the embedding. */
static float *origin(const struct pl_st_file *base, const struct pl_st_file *adapter,
                     const char *name, uint64_t *n) {
    char whole[256];
    snprintf(whole, sizeof whole, "base_model.model.%s", name);
    const struct pl_st_entry *e = pl_st_find(adapter, whole);
    if (e) return values_of(adapter, e, n);
    if (!(e = pl_st_find(base, name))) e = pl_st_find(base, "model.embed_tokens.weight");
    return values_of(base, e, n);
}

/* W + scale B A in double, rounded as the output is; `slack` for the order of fp32 sums. */
static void check_tensor(const struct pl_st_file *base, const struct pl_st_file *adapter,
                         const struct pl_st_file *merged, const struct pl_st_entry *out,
                         double scale, uint32_t *adapted) {
    uint64_t n, r_in, out_r;
    const struct pl_st_entry *ea = adapter_entry(adapter, out->name, 'A');
    float *w = origin(base, adapter, out->name, &n), *got = values_of(merged, out, &out_r);
    ck_assert_uint_eq(n, out_r);
    if (!ea) {
        for (uint64_t i = 0; i < n; i++) {
            float want = w[i];
            uint16_t half;
            if (out->dtype != PL_DTYPE_F32) {
                pl_convert_from_f32(&half, &w[i], out->dtype, 1);
                pl_convert_to_f32(&want, &half, out->dtype, 1);
            }
            ck_assert_msg(memcmp(&want, &got[i], 4) == 0, "%s[%d]", out->name, (int)i);
        }
        free(w), free(got);
        return;
    }
    float *a = values_of(adapter, ea, &r_in);
    float *b = values_of(adapter, adapter_entry(adapter, out->name, 'B'), &out_r);
    uint64_t r = ea->dims[0], in = ea->dims[1], cols = out->dims[1];
    const bool table = strstr(out->name, "embed_tokens") != NULL; /* B A turned round */
    for (uint64_t i = 0; i < n; i++) {
        double want = w[i];
        const uint64_t row = table ? i % cols : i / cols, col = table ? i / cols : i % cols;
        for (uint64_t k = 0; k < r; k++)
            want += scale * b[row * r + k] * a[k * in + col];
        /* fp32 sums of at most 5 terms below 4; half a unit of bf16's 8 digits, of fp16's 11 */
        double unit = out->dtype == PL_DTYPE_BF16  ? 0x1p-8
                      : out->dtype == PL_DTYPE_F16 ? 0x1p-11
                                                   : 0;
        double slack = fabs(want) * unit + 1e-6;
        ck_assert_msg(fabs(got[i] - want) <= slack, "%s[%d]: %g, not %g", out->name, (int)i,
                      (double)got[i], want);
    }
    ++*adapted;
    free(w), free(got), free(a), free(b);
}

/* dtype PL_DTYPE_COUNT: each tensor in the type of the base's. */
static uint32_t check_merged(enum pl_dtype dtype, double scale) {
    struct pl_st_file base, adapter, merged;
    uint32_t adapted = 0, whole = 0;
    OK(pl_st_open(&base, in(dir, "base/model.safetensors"), &diag));
    OK(pl_st_open(&adapter, in(dir, "adapter/adapter_model.safetensors"), &diag));
    OK(pl_st_open(&merged, in(dir, "merged/model.safetensors"), &diag));
    for (uint64_t i = 0; i < adapter.n; i++)
        whole += strstr(adapter.entries[i].name, ".lora_") == NULL;
    const bool unties = !pl_st_find(&base, "lm_head.weight") &&
                        (whole || adapter_entry(&adapter, "model.embed_tokens.weight", 'A'));
    ck_assert_uint_eq(merged.n, base.n + unties);
    for (uint64_t i = 0; i < merged.n; i++) {
        const struct pl_st_entry *from = pl_st_find(&base, merged.entries[i].name);
        if (!from) from = pl_st_find(&base, "model.embed_tokens.weight");
        ck_assert_int_eq(merged.entries[i].dtype, dtype == PL_DTYPE_COUNT ? from->dtype : dtype);
        check_tensor(&base, &adapter, &merged, &merged.entries[i], scale, &adapted);
    }
    ck_assert_uint_eq(adapter.n, 2 * adapted + whole);
    json_t *config = json_load_file(in(dir, "merged/config.json"), 0, NULL);
    const bool tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
    ck_assert_int_eq(tied, pl_st_find(&merged, "lm_head.weight") == NULL);
    json_decref(config);
    pl_st_close(&base);
    pl_st_close(&adapter);
    pl_st_close(&merged);
    return adapted;
}

static const struct {
    enum pl_dtype dtype;
    const char *name; /* in config.json */
} outputs[] = {{PL_DTYPE_F32, "float32"}, {PL_DTYPE_BF16, "bfloat16"}, {PL_DTYPE_F16, "float16"}};
enum { N_OUTPUTS = sizeof outputs / sizeof *outputs };

/* F3 of merge_files.h: an element is off by half a unit of the output's type at the most, so that
 * it was rounded once. */
START_TEST(a_merged_model_is_the_base_plus_the_scaled_product) {
    const struct kind *k = &kinds[_i % N_KINDS];
    enum pl_dtype dtype = outputs[_i / N_KINDS].dtype;
    struct pl_merge_request r = request(dtype);
    make_sources(k);
    OK(merge_all(&r));
    ck_assert_uint_gt(check_merged(dtype, 2), 0);
    json_t *config = json_load_file(in(dir, "merged/config.json"), 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(config, "torch_dtype")),
                     outputs[_i / N_KINDS].name);
    ck_assert_int_eq(json_integer_value(json_object_get(config, "hidden_size")), 16);
    json_decref(config);
    ck_assert(exists(in(dir, "merged/tokenizer.json")));
}
END_TEST

START_TEST(without_a_type_the_output_is_stored_as_the_base) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&kinds[_i]);
    OK(merge_all(&r));
    check_merged(kinds[_i].base.dtype, 2);
}
END_TEST

static bool call_half_f16(struct st_edit *e, const void *all) {
    if (all || strstr(e->name, "layers.1.")) strcpy(e->dtype, "F16");
    return true;
}

/* 16 bits that were made as bf16 are fp16 numbers too. */
START_TEST(a_base_in_fp16_merges_to_fp16_and_a_mixed_one_to_the_same_mix) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&kinds[1]);
    st_rewrite(in(dir, "base/model.safetensors"), call_half_f16, _i ? "all" : NULL);
    OK(merge_all(&r));
    ck_assert_uint_gt(check_merged(PL_DTYPE_COUNT, 2), 0);
}
END_TEST

START_TEST(rank_stabilised_adapters_scale_by_the_root_of_the_rank) {
    struct pl_merge_request r = request(PL_DTYPE_F32);
    OK(pl_job_set(&job, "use_rslora", "true", &diag));
    OK(pl_job_set(&job, "lora_alpha", "3", &diag));
    make_sources(&kinds[0]);
    OK(merge_all(&r));
    check_merged(PL_DTYPE_F32, 1.5); /* 3 / sqrt(4) */
}
END_TEST

START_TEST(shards_hold_what_one_file_holds) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    struct rig one, many;
    make_sources(&kinds[0]);
    OK(merge_all(&r));
    rig_open(&one, &kinds[0].base);
    OK(pl_model_load(&one.io, r.output, &diag));
    dir_remove(r.output);
    r.shard_bytes = 4000;
    OK(merge_all(&r));
    ck_assert(!exists(in(dir, "merged/model.safetensors")));
    ck_assert(exists(in(dir, "merged/model.safetensors.index.json")));
    rig_open(&many, &kinds[0].base);
    OK(pl_model_load(&many.io, r.output, &diag));
    ck_assert(rig_same(&one, &many, PL_ROLE_WEIGHT));
    rig_close(&one);
    rig_close(&many);
}
END_TEST

START_TEST(a_budget_shrinks_the_buffers_and_changes_no_bit) {
    struct pl_merge_request r = request(PL_DTYPE_F32);
    struct pl_merge m;
    make_sources(&kinds[_i]);
    OK(merge_all(&r));
    OK(pl_path_rename(in(dir, "merged"), in(dir, "unlimited"), &diag));
    /* the blocks of a product, and a few rows a stretch */
    const uint64_t blocks = PL_GEMM_PANEL * PL_GEMM_LINE + PL_GEMM_UNIT * PL_GEMM_UNIT;
    const uint64_t budget = 4 * pl_cpu_count() * blocks + 2048;
    r.budget_bytes = budget;
    OK(pl_merge_init(&m, &r, &diag));
    uint64_t planned = m.planned.plan->arena_bytes;
    OK(pl_merge_run(&m, &diag));
    ck_assert_uint_le(planned, budget);
    ck_assert_uint_eq(m.allocated_bytes, planned);
    ck_assert_uint_eq(m.device->peak_bytes, planned);
    ck_assert_uint_eq(m.done_bytes, m.total_bytes);
    pl_merge_finish(&m);
    check_merged(PL_DTYPE_F32, 2);
    ck_assert(
        file_same(in(dir, "merged/model.safetensors"), in(dir, "unlimited/model.safetensors")));
}
END_TEST

/* M1: refused before anything is written. */
START_TEST(what_the_last_halving_needs_is_the_least_that_is_taken) {
    struct pl_merge_request r = request(PL_DTYPE_F32);
    struct pl_merge m;
    make_sources(&kinds[0]);
    r.budget_bytes = 1;
    FAILS(merge_all(&r), PL_ERR_DOES_NOT_FIT, "at the least, --memory allows 1 B");
    ck_assert(!exists(r.output));
    (void)pl_merge_init(&m, &r, NULL);
    r.budget_bytes = m.planned.plan->arena_bytes;
    pl_merge_finish(&m);
    OK(merge_all(&r));
    check_merged(PL_DTYPE_F32, 2);
    dir_remove(r.output);
    r.budget_bytes--;
    FAILS(merge_all(&r), PL_ERR_DOES_NOT_FIT, "merging needs");
}
END_TEST

/* F4 of merge_files.h: no file of a merge that failed has its name. */
START_TEST(a_failure_at_any_write_leaves_nothing) {
    struct pl_merge_request r = request(PL_DTYPE_BF16);
    make_sources(&kinds[3]);
    r.shard_bytes = 4000;
    for (uint64_t at = 1;; at++) {
        struct pl_io_fault fault = {.at = at, .count = UINT64_MAX};
        pl_checkpoint_set_fault(&fault);
        pl_err err = merge_all(&r);
        pl_checkpoint_set_fault(NULL);
        if (err == PL_ERR_OK) {
            ck_assert_uint_gt(at, 30);
            break;
        }
        ck_assert_int_eq(err, PL_ERR_CHECKPOINT_WRITE);
        ck_assert_msg(!exists(r.output), "write %d", (int)at);
        diag = (struct pl_diag){0};
    }
    ck_assert(exists(in(dir, "merged/config.json")));
}
END_TEST

/* Merges in a child process that is killed before its at-th call; false: it ended before. */
static bool killed_at(const struct pl_merge_request *r, uint64_t at) {
    struct pl_io_fault fault = {.at = at, .count = 1, .before = rig_die};
    int status;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        pl_checkpoint_set_fault(&fault);
        _exit(merge_all(r) == PL_ERR_OK ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) ck_assert_int_eq(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

struct pair {
    const char *a, *b;
    bool same;
};

static void compare_file(const char *name, void *ctx) {
    struct pair *p = ctx;
    if (strstr(name, ".tmp")) return; /* left by a killed merge: ignored */
    const char *a = textf("%s/%s", p->a, name), *b = textf("%s/%s", p->b, name);
    p->same = p->same && exists(a) && exists(b) && file_same(a, b);
}

static bool same_set(const char *a, const char *b) {
    struct pair p = {a, b, true};
    dir_each(a, compare_file, &p);
    dir_each(b, compare_file, &p);
    return p.same;
}

/* The same command starts over, or finds the model of the killed one whole and says so. */
START_TEST(a_killed_merge_does_not_block_the_same_one) {
    struct pl_merge_request r = request(PL_DTYPE_F32);
    char whole[128];
    unsigned finished = 0;
    bool killed = true;
    make_sources(&kinds[0]);
    r.shard_bytes = 9000;
    OK(merge_all(&r));
    snprintf(whole, sizeof whole, "%s/whole", dir);
    ck_assert_int_eq(rename(r.output, whole), 0);
    for (uint64_t at = 1; killed; at++) {
        dir_remove(r.output);
        killed = killed_at(&r, at);
        diag = (struct pl_diag){0};
        pl_err err = merge_all(&r);
        bool told = strstr(pl_diag_hint_text(&diag), "it is complete") != NULL;
        ck_assert_msg(err == PL_ERR_OK || err == PL_ERR_USAGE, "call %d: %s", (int)at,
                      diag.message);
        ck_assert_msg(same_set(r.output, whole), "call %d", (int)at);
        finished += told;
    }
    ck_assert_uint_gt(finished, 5);
    ck_assert(!exists(in(r.output, "model.safetensors.index.json.tmp")));
}
END_TEST

/* An export that takes the place of an earlier one is one of the two. */
START_TEST(a_killed_merge_leaves_the_model_before_it_or_its_own) {
    struct pl_merge_request r = request(PL_DTYPE_BF16);
    char paths[2][128];
    int seen[2] = {0};
    bool killed = true;
    make_sources(&kinds[0]);
    for (int i = 0; i < 2; i++) {
        r.dtype = i ? PL_DTYPE_F32 : PL_DTYPE_BF16;
        r.shard_bytes = i ? 9000 : 4500;
        OK(merge_all(&r));
        snprintf(paths[i], sizeof paths[i], "%s/whole%d", dir, i);
        ck_assert_int_eq(rename(r.output, paths[i]), 0);
    }
    r.replace = true;
    for (uint64_t at = 1; killed; at++) {
        dir_remove(r.output);
        scratch_copy(paths[0], r.output);
        killed = killed_at(&r, at);
        OK(pl_save_set_settle(r.output, &diag));
        bool old = same_set(r.output, paths[0]), new = same_set(r.output, paths[1]);
        ck_assert_msg(old != new, "call %d", (int)at);
        seen[new]++;
    }
    ck_assert(seen[0] > 20 && seen[1] > 5);
}
END_TEST

START_TEST(two_merges_do_not_write_one_directory) {
    struct pl_merge_request r = request(PL_DTYPE_F32);
    int lock;
    make_sources(&kinds[0]);
    ck_assert_int_eq(mkdir(r.output, 0777), 0);
    OK(pl_dir_lock(r.output, &lock, &diag));
    FAILS(merge_all(&r), PL_ERR_IO, "another run writes into");
    close(lock);
    OK(merge_all(&r));
}
END_TEST

static volatile sig_atomic_t stop;
static int stretches;
static void stop_at_the_ninth(void *ctx, uint64_t done_bytes, uint64_t total_bytes) {
    (void)ctx;
    ck_assert_uint_le(done_bytes, total_bytes);
    if (++stretches == 9) stop = 2;
}

START_TEST(a_signal_ends_it_and_leaves_nothing) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    r.stop = &stop;
    r.progress = stop_at_the_ninth;
    make_sources(&kinds[0]);
    FAILS(merge_all(&r), PL_ERR_INTERRUPTED, "stopped by signal 2; nothing was written");
    ck_assert_int_eq(stretches, 9);
    ck_assert(!exists(r.output));
    /* a directory that was there stays, empty */
    ck_assert_int_eq(mkdir(r.output, 0777), 0);
    FAILS(merge_all(&r), PL_ERR_INTERRUPTED, "stopped");
    stop = 0;
    stretches = 9;
    OK(merge_all(&r)); /* refuses a directory that is not empty */
}
END_TEST

START_TEST(a_directory_with_something_in_it_is_left_alone) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&kinds[0]);
    ck_assert_int_eq(mkdir(r.output, 0777), 0);
    spill(in(dir, "merged/config.json"), "mine", 4);
    FAILS(merge_all(&r), PL_ERR_USAGE, "is not empty: it holds config.json");
    char *text = slurp(in(dir, "merged/config.json"));
    ck_assert_str_eq(text, "mine");
    free(text);
}
END_TEST

static bool keep_tensor(struct st_edit *e, const void *arg) {
    const char *const *edit = arg; /* name, and what becomes of it; NULL = dropped */
    if (strcmp(e->name, edit[0]) != 0) return true;
    if (edit[1]) snprintf(e->name, sizeof e->name, "%s", edit[1]);
    return edit[1] != NULL;
}

#define Q_B "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"
static const struct {
    const char *edit[2], *says;
} strangers[] = {
    {{Q_B, NULL}, "layers.1.self_attn.q_proj.lora_B.weight` is missing"},
    {{Q_B, "base_model.model.lm_head.lora_B.weight"}, "q_proj.lora_B.weight` is missing"},
    {{"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight", NULL},
     "layers.1.self_attn.q_proj.lora_A.weight` is missing"},
    {{"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight",
      "base_model.model.model.layers.1.self_attn.q_norm.lora_A.weight"},
     "layers.1.self_attn.q_proj.lora_A.weight` is missing"},
};

/* F1 of merge_files.h: a tensor of either side that has no place is found before anything is
 * written. */
START_TEST(an_adapter_that_does_not_fit_is_refused_by_the_tensor) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&kinds[0]);
    st_rewrite(in(dir, "adapter/adapter_model.safetensors"), keep_tensor, strangers[_i].edit);
    FAILS(merge_all(&r), PL_ERR_CHECKPOINT_MISMATCH, strangers[_i].says);
    ck_assert(!exists(r.output));
}
END_TEST

START_TEST(an_adapter_of_another_width_is_refused_with_both_shapes) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&kinds[0]);
    json_t *config = json_load_file(in(dir, "adapter/adapter_config.json"), 0, NULL);
    json_object_set_new(config, "r", json_integer(5));
    json_dump_file(config, in(dir, "adapter/adapter_config.json"), 0);
    json_decref(config);
    FAILS(merge_all(&r), PL_ERR_CHECKPOINT_MISMATCH, "has shape [4, 16], the model wants [5, 16]");
}
END_TEST

#define EMBED       "model.embed_tokens.weight"
#define SAVED_EMBED "base_model.model." EMBED

static void set_in_config(const char *key, json_t *value) {
    json_t *config = json_load_file(in(dir, "adapter/adapter_config.json"), 0, NULL);
    json_object_set_new(config, key, value);
    json_dump_file(config, in(dir, "adapter/adapter_config.json"), 0);
    json_decref(config);
}

/* The base's embedding in place of that of the adapter's file; both are fp32. */
static void copy_embedding(void) {
    struct pl_st_file from, to;
    OK(pl_st_open(&from, in(dir, "base/model.safetensors"), &diag));
    OK(pl_st_open(&to, in(dir, "adapter/adapter_model.safetensors"), &diag));
    const struct pl_st_entry *x = pl_st_find(&from, EMBED), *y = pl_st_find(&to, SAVED_EMBED);
    ck_assert(x && y && x->end - x->begin == y->end - y->begin);
    const uint64_t bytes = x->end - x->begin;
    char *values = malloc(bytes);
    OK(pl_st_read(&from, x, 0, values, bytes, &diag));
    FILE *f = fopen(in(dir, "adapter/adapter_model.safetensors"), "r+b");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, (long)(to.data_offset + y->begin), SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(values, 1, bytes, f), bytes);
    ck_assert_int_eq(fclose(f), 0);
    free(values);
    pl_st_close(&from);
    pl_st_close(&to);
}

static bool reshape_embedding(struct st_edit *e, const void *arg) {
    (void)arg;
    if (strcmp(e->name, SAVED_EMBED) == 0) strcpy(e->shape, "[20, 32]");
    return true;
}

/* PEFT saves it where the vocabulary was resized, or all embeddings were to be saved. */
START_TEST(a_saved_embedding_is_that_of_the_base_or_refused) {
    static const struct kind saved[] = {
        {{.mode = PL_MODE_FULL, .untied = true},
         {.mode = PL_MODE_LORA, .untied = true, .whole = {"embed_tokens"}}},
        {{.mode = PL_MODE_FULL}, {.mode = PL_MODE_LORA, .whole = {"embed_tokens"}}},
    };
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&saved[_i]);
    set_in_config("modules_to_save", json_null());
    FAILS(merge_all(&r), PL_ERR_CHECKPOINT_MISMATCH,
          SAVED_EMBED "` is not the weight of this model");
    copy_embedding();
    r.gguf = in(dir, "a.gguf"); /* without the base nothing can be compared */
    FAILS(merge_all(&r), PL_ERR_CHECKPOINT_MISMATCH, SAVED_EMBED "` has no place in this run");
    r.gguf = NULL;
    OK(merge_all(&r));
    ck_assert(exists(in(dir, "merged/model.safetensors")));
    st_rewrite(in(dir, "adapter/adapter_model.safetensors"), reshape_embedding, NULL);
    r.output = in(dir, "another");
    ck_assert_int_eq(merge_all(&r), PL_ERR_CHECKPOINT_MISMATCH);
    ck_assert_msg(strstr(diag.hint, "resize_token_embeddings(20)") != NULL, "%s", diag.hint);
}
END_TEST

static bool rename_path(struct st_edit *e, const void *arg) {
    static const char plain[] = "base_model.model.model.";
    char name[sizeof e->name];
    snprintf(name, sizeof name, "base_model.model.%s%s", (const char *)arg,
             e->name + strlen(plain));
    memcpy(e->name, name, sizeof name);
    return true;
}

static const struct {
    const char *path, *targets; /* targets: JSON */
} classes[] = {
    {"model.language_model.", "[\"q_proj\"]"},
    {"model.language_model.", "\"model\\\\.language_model\\\\.layers\\\\..*q_proj\""},
    {"language_model.model.", "\".*language_model.*\\\\.q_proj\""},
    {"model.language_model.", "[\"model.language_model.layers.0.self_attn.q_proj\", "
                              "\"language_model.layers.1.self_attn.q_proj\","
                              "\"layers.2.self_attn.q_proj\"]"},
    {"model.",
     "\"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj).*?)|"
     "(?:\\\\bmodel\\\\.layers\\\\.[\\\\d]{1,}\\\\.(?:self_attn|mlp)\\\\.(?:(?:q_proj)))\""},
};

/* The adapter's modules have other paths, in the names of tensors and in their references. */
START_TEST(an_adapter_of_a_multimodal_class_is_that_of_its_language_model) {
    static const struct kind k = {{.mode = PL_MODE_FULL, .dtype = PL_DTYPE_F32},
                                  {.mode = PL_MODE_LORA, .target = "q_proj"}};
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&k);
    OK(merge_all(&r));
    st_rewrite(in(dir, "adapter/adapter_model.safetensors"), rename_path, classes[_i].path);
    set_in_config("target_modules", json_loads(classes[_i].targets, JSON_DECODE_ANY, NULL));
    r.output = in(dir, "another");
    OK(merge_all(&r));
    char *a = slurp(in(dir, "merged/model.safetensors"));
    char *b = slurp(in(dir, "another/model.safetensors"));
    struct stat st;
    ck_assert_int_eq(stat(in(dir, "merged/model.safetensors"), &st), 0);
    ck_assert_mem_eq(a, b, (size_t)st.st_size);
    free(a);
    free(b);
}
END_TEST

START_TEST(what_peft_adds_to_an_adapter_is_named) {
    static const struct {
        const char *name, *hint;
    } rows[] = {{"base_model.model.model.vision_tower.layers.0.q_proj.lora_A.weight", "multimodal"},
                {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "DoRA"},
                {"base_model.model.score.weight", "a classifier"},
                {"base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", "lora_bias"}};
    static const struct kind k = {{.mode = PL_MODE_FULL, .untied = true},
                                  {.mode = PL_MODE_LORA, .untied = true, .whole = {"lm_head"}}};
    const char *const edit[] = {"base_model.model.lm_head.weight", rows[_i].name};
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&k);
    set_in_config("modules_to_save", json_null());
    st_rewrite(in(dir, "adapter/adapter_model.safetensors"), keep_tensor, edit);
    ck_assert_int_eq(merge_all(&r), PL_ERR_CHECKPOINT_MISMATCH);
    ck_assert_msg(strstr(diag.message, rows[_i].name) != NULL, "%s", diag.message);
    ck_assert_msg(strstr(diag.hint, rows[_i].hint) != NULL, "%s", diag.hint);
}
END_TEST

START_TEST(an_adapter_of_another_base_says_whose_it_is) {
    struct pl_merge_request r = request(PL_DTYPE_COUNT);
    make_sources(&kinds[0]);
    set_in_config("base_model_name_or_path", json_string("owner/other"));
    set_in_config("r", json_integer(5));
    ck_assert_int_eq(merge_all(&r), PL_ERR_CHECKPOINT_MISMATCH);
    ck_assert_msg(strstr(diag.hint, "this one says `owner/other`") != NULL, "%s", diag.hint);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.merge");
    TCase *t = tcase_create("merge");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_merged_model_is_the_base_plus_the_scaled_product, 0,
                        N_OUTPUTS * N_KINDS);
    tcase_add_loop_test(t, a_base_in_fp16_merges_to_fp16_and_a_mixed_one_to_the_same_mix, 0, 2);
    tcase_add_loop_test(t, without_a_type_the_output_is_stored_as_the_base, 0, 2);
    tcase_add_test(t, rank_stabilised_adapters_scale_by_the_root_of_the_rank);
    tcase_add_test(t, shards_hold_what_one_file_holds);
    tcase_add_loop_test(t, a_budget_shrinks_the_buffers_and_changes_no_bit, 0, N_KINDS);
    tcase_add_test(t, what_the_last_halving_needs_is_the_least_that_is_taken);
    tcase_add_test(t, a_failure_at_any_write_leaves_nothing);
    tcase_add_test(t, a_killed_merge_does_not_block_the_same_one);
    tcase_add_test(t, a_killed_merge_leaves_the_model_before_it_or_its_own);
    tcase_add_test(t, two_merges_do_not_write_one_directory);
    tcase_add_test(t, a_signal_ends_it_and_leaves_nothing);
    tcase_add_test(t, a_directory_with_something_in_it_is_left_alone);
    tcase_add_loop_test(t, an_adapter_that_does_not_fit_is_refused_by_the_tensor, 0,
                        sizeof strangers / sizeof *strangers);
    tcase_add_test(t, an_adapter_of_another_width_is_refused_with_both_shapes);
    tcase_add_loop_test(t, a_saved_embedding_is_that_of_the_base_or_refused, 0, 2);
    tcase_add_loop_test(t, an_adapter_of_a_multimodal_class_is_that_of_its_language_model, 0,
                        (int)(sizeof classes / sizeof *classes));
    tcase_add_loop_test(t, what_peft_adds_to_an_adapter_is_named, 0, 4);
    tcase_add_test(t, an_adapter_of_another_base_says_whose_it_is);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
