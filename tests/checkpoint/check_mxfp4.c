/* check_mxfp4.c - experts that files hold as MXFP4 codes are read as the values that their
 * definition gives in float64, or as their codes, and files in which they do not fit together are
 * refused. */
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/weight_files.h"
#include "tests/checkpoint/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.safetensors"
#define EXPERTS   "model.layers.0.mlp.experts.down_proj"

static struct pl_diag diag;
static char dir[64];

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
}
static void teardown(void) {
    dir_remove(dir);
}

/* --- files ------------------------------------------------------------------------------------ */

struct file {
    struct pl_text header, data;
};

static void put(struct file *f, const char *name, const char *end, const char *dtype,
                const char *shape, const void *data, size_t bytes) {
    pl_text_addf(
        &f->header, "%c\"%s%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
        f->header.len ? ',' : '{', name, end, dtype, shape, f->data.len, f->data.len + bytes);
    pl_text_addn(&f->data, data, bytes);
}

static void write_file(struct file *f, const char *name) {
    pl_text_add(&f->header, "}");
    ck_assert(!f->header.failed && !f->data.failed);
    st_spill(in(dir, name), f->header.data, f->data.data, f->data.len);
    pl_text_finish(&f->header);
    pl_text_finish(&f->data);
    *f = (struct file){0};
}

/* Codes of experts of [out, in]. */
struct codes {
    uint64_t experts, out, in;
    unsigned char *blocks, *scales;
    char blocks_shape[64], scales_shape[64];
};

static uint64_t count(const struct codes *c) {
    return c->experts * c->out * c->in;
}

/* Codes of every value, and scales of every size that is a number. */
static struct codes make_codes(uint64_t experts, uint64_t out, uint64_t in_, uint32_t seed) {
    struct codes c = {.experts = experts, .out = out, .in = in_};
    c.blocks = malloc(count(&c) / 2);
    c.scales = malloc(count(&c) / 32);
    ck_assert(c.blocks && c.scales);
    for (uint64_t i = 0; i < count(&c) / 2; i++, seed = seed * 1664525u + 1013904223u)
        c.blocks[i] = (unsigned char)(seed >> 24);
    for (uint64_t i = 0; i < count(&c) / 32; i++, seed = seed * 1664525u + 1013904223u)
        c.scales[i] = (unsigned char)((seed >> 24) % 255);
    snprintf(c.blocks_shape, sizeof c.blocks_shape, "[%d, %d, %d, 16]", (int)experts, (int)out,
             (int)in_ / 32);
    snprintf(c.scales_shape, sizeof c.scales_shape, "[%d, %d, %d]", (int)experts, (int)out,
             (int)in_ / 32);
    return c;
}

static void free_codes(struct codes *c) {
    free(c->blocks), free(c->scales);
}

static void put_blocks(struct file *f, const char *name, const struct codes *c) {
    put(f, name, "_blocks", "U8", c->blocks_shape, c->blocks, count(c) / 2);
}

static void put_scales(struct file *f, const char *name, const struct codes *c) {
    put(f, name, "_scales", "U8", c->scales_shape, c->scales, count(c) / 32);
}

/* bf16 of element [e, i, o], by the definition of the format. */
static uint16_t value(const struct codes *c, uint64_t e, uint64_t i, uint64_t o) {
    static const double table[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const uint64_t at = (e * c->out + o) * c->in + i;
    const unsigned nibble = c->blocks[at / 2] >> at % 2 * 4 & 15;
    const double magnitude = ldexp(table[nibble & 7], c->scales[at / 32] - 127);
    const float single = (float)(nibble & 8 ? -magnitude : magnitude);
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    ck_assert(single != single || (bits & 0xffff) == 0); /* bf16 holds it */
    return (uint16_t)(bits >> 16);
}

/* Both zeros are one value. */
static void assert_values(const struct codes *c, const uint16_t *got, uint64_t first, uint64_t n) {
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t at = first + k, o = at % c->out, i = at / c->out % c->in;
        const uint16_t want = value(c, at / c->out / c->in, i, o);
        ck_assert_msg(got[k] == want || ((got[k] | want) & 0x7fff) == 0,
                      "element %d: %04x, not %04x", (int)at, got[k], want);
    }
}

static pl_err open_files(struct pl_weight_files *f) {
    return pl_weight_files_open(f, dir, "model", PL_ERR_MODEL_FILE, &diag);
}

/* --- values ----------------------------------------------------------------------------------- */

/* Rows that are no multiple of what is turned round at a time. */
#define SHAPE 3, 70, 96

static void assert_reads(const char *name) {
    struct codes c = make_codes(SHAPE, 7);
    struct pl_weight_files f;
    struct pl_window w = {.name = EXPERTS};
    OK(open_files(&f));
    ck_assert_msg(pl_window_find(&f, &w), "%s is not there", name);
    ck_assert_int_eq(w.entry->dtype, PL_DTYPE_BF16);
    ck_assert(w.entry->rank == 3 && w.entry->dims[0] == 3 && w.entry->dims[1] == 96 &&
              w.entry->dims[2] == 70);
    uint16_t *got = malloc(2 * count(&c));
    ck_assert_ptr_nonnull(got);
    OK(pl_st_read(w.file, w.entry, 0, got, 2 * count(&c), &diag));
    assert_values(&c, got, 0, count(&c));
    for (uint64_t first = 0; first < count(&c); first += 6719) {
        const uint64_t n = count(&c) - first < 7001 ? count(&c) - first : 7001;
        OK(pl_st_read(w.file, w.entry, 2 * first, got, 2 * n, &diag));
        assert_values(&c, got, first, n);
    }
    for (uint32_t i = 0; i < f.n; i++) /* codes and scales are no tensors of their own */
        for (uint64_t k = 0; k < f.files[i].n; k++)
            ck_assert_ptr_null(strstr(f.files[i].entries[k].name, "down_proj_"));
    pl_weight_files_close(&f);
    free(got);
    free_codes(&c);
}

static void put_all(struct file *f, const char *name) {
    struct codes c = make_codes(SHAPE, 7);
    put(f, "another", "", "U8", "[1]", "x", 1);
    put_blocks(f, name, &c);
    put_scales(f, name, &c);
    free_codes(&c);
}

static const char *const names[] = {EXPERTS, "module." EXPERTS};

/* X1 of mxfp4_weights.h: the values in bf16 are those of float64. */
START_TEST(codes_are_read_as_values) {
    struct file f = {0};
    put_all(&f, names[_i]);
    write_file(&f, FILE_NAME);
    assert_reads(names[_i]);
}
END_TEST

/* Shards are cut by size, wherever that is. */
START_TEST(scales_may_be_in_another_file) {
    static const char index[] =
        "{\"weight_map\":{\"" EXPERTS "_blocks\":\"a.safetensors\",\"" EXPERTS
        "_scales\":\"b.safetensors\"}}";
    struct codes c = make_codes(SHAPE, 7);
    struct file f = {0};
    put_blocks(&f, EXPERTS, &c);
    write_file(&f, "a.safetensors");
    put_scales(&f, EXPERTS, &c);
    write_file(&f, "b.safetensors");
    spill(in(dir, FILE_NAME ".index.json"), index, sizeof index - 1);
    assert_reads(EXPERTS);
    free_codes(&c);
}
END_TEST

/* The codes and scales of a tensor stand for the values of the files: [in, out], a scale for every
 * 32 rows of a column. */
static void assert_codes(const struct codes *c, const struct rig *r, const struct pl_window *w) {
    const unsigned char *held = r->memory[w->tensor], *scales = r->memory[w->absmax];
    for (uint64_t at = 0; at < count(c); at++) {
        const uint64_t o = at % c->out, i = at / c->out % c->in, e = at / c->out / c->in;
        const uint64_t file = (e * c->out + o) * c->in + i;
        const unsigned want = c->blocks[file / 2] >> file % 2 * 4 & 15;
        const unsigned got = held[at / 2] >> (at % 2 ? 0 : 4) & 15;
        ck_assert_msg(got == want, "code %d is %u, not %u", (int)at, got, want);
        ck_assert_uint_eq(scales[(e * c->in + i) / 32 * c->out + o], c->scales[file / 32]);
    }
}

static const struct rig_options filled[] = {
    {.mode = PL_MODE_LORA, .dtype = PL_DTYPE_BF16, .experts = "gpt_oss"},
    {.mode = PL_MODE_QLORA, .quant = PL_QUANT_MXFP4, .dtype = PL_DTYPE_BF16, .experts = "gpt_oss"},
};

/* A model of transformers' names whose experts are codes, into the tensors of a program. */
START_TEST(a_model_of_codes_fills_the_tensors_of_a_program) {
    struct rig made, read;
    struct pl_windows w = {0}, held = {0};
    struct file f = {0};
    struct codes c[2 * 3];
    uint32_t n = 0;
    rig_open(&made, &filled[0]);
    rig_open(&read, &filled[_i]);
    rig_scramble(&made, 3);
    OK(pl_windows_add_model(&w, made.program, &diag));
    for (uint32_t i = 0; i < w.n; i++) {
        const struct pl_window *x = &w.items[i];
        char shape[64];
        snprintf(shape, sizeof shape, x->rank == 2 ? "[%d, %d]" : "[%d]", (int)x->dims[0],
                 (int)x->dims[1]);
        if (!x->matrices) {
            put(&f, x->name, "", "BF16", shape, (const char *)made.memory[x->tensor] + 2 * x->first,
                2 * x->count);
            continue;
        }
        c[n] = make_codes(4, x->dims[1], x->dims[0] / 4, i);
        put_blocks(&f, x->name, &c[n]);
        put_scales(&f, x->name, &c[n]);
        n++;
    }
    ck_assert_uint_eq(n, 2 * 3);
    write_file(&f, FILE_NAME);
    OK(pl_model_check_files(read.program, dir, &diag));
    OK(pl_model_load(&read.io, dir, &diag));
    OK(pl_windows_add_model(&held, read.program, &diag));
    ck_assert_uint_eq(held.n, w.n);
    for (uint32_t i = 0, k = 0; i < w.n; i++) {
        const struct pl_window *x = &w.items[i], *y = &held.items[i];
        ck_assert_str_eq(x->name, y->name);
        ck_assert(y->quantised == (_i && x->matrices));
        if (y->quantised) {
            assert_codes(&c[k], &read, y);
        } else if (x->matrices) {
            assert_values(&c[k], read.memory[y->tensor], 0, x->count);
        } else {
            ck_assert_mem_eq((char *)read.memory[y->tensor] + 2 * y->first,
                             (char *)made.memory[x->tensor] + 2 * x->first, 2 * x->count);
        }
        if (x->matrices) free_codes(&c[k++]);
    }
    pl_windows_finish(&held);
    pl_windows_finish(&w);
    rig_close(&read);
    rig_close(&made);
}
END_TEST

START_TEST(a_saved_model_is_no_longer_codes) {
    static const char config[] = "{\"quantization_config\":{\"quant_method\":\"mxfp4\"},\"a\":1}";
    char *text = pl_model_config_text(config, PL_DTYPE_BF16, false);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_null(strstr(text, "mxfp4"));
    ck_assert_ptr_nonnull(strstr(text, "\"a\": 1"));
    free(text);
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */

static void no_scales(struct file *f, struct codes *c) {
    put_blocks(f, EXPERTS, c);
}

static void other_scales(struct file *f, struct codes *c) {
    put_blocks(f, EXPERTS, c);
    c->out--;
    snprintf(c->scales_shape, sizeof c->scales_shape, "[3, 69, 3]");
    put_scales(f, EXPERTS, c);
}

static void wide_scales(struct file *f, struct codes *c) {
    put_blocks(f, EXPERTS, c);
    snprintf(c->scales_shape, sizeof c->scales_shape, "[3, 70, 3, 1]");
    put_scales(f, EXPERTS, c);
}

static void values_too(struct file *f, struct codes *c) {
    put_blocks(f, EXPERTS, c);
    put_scales(f, EXPERTS, c);
    put(f, EXPERTS, "", "BF16", "[1]", "xx", 2);
}

/* No experts, so that nothing of it is in the file. */
static void large(struct file *f, struct codes *c) {
    (void)c;
    put(f, EXPERTS, "_blocks", "U8", "[0, 4294967296, 4294967296, 16]", "", 0);
    put(f, EXPERTS, "_scales", "U8", "[0, 4294967296, 4294967296]", "", 0);
}

static const struct {
    void (*put)(struct file *f, struct codes *c);
    const char *says;
} refused[] = {
    {no_scales, "`" EXPERTS "_blocks` has no scales next to it"},
    {other_scales, "`" EXPERTS "_scales` has another type or shape"},
    {wide_scales, "`" EXPERTS "_scales` has another type or shape"},
    {values_too, "`" EXPERTS "` is there as codes, too"},
    {large, "`" EXPERTS "_blocks` has values that overflow 64 bits"},
};

START_TEST(codes_that_do_not_fit_are_refused) {
    struct codes c = make_codes(SHAPE, 7);
    struct pl_weight_files f;
    struct file file = {0};
    refused[_i].put(&file, &c);
    write_file(&file, FILE_NAME);
    FAILS(open_files(&f), PL_ERR_CHECKPOINT_FORMAT, refused[_i].says);
    free_codes(&c);
}
END_TEST

START_TEST(a_scale_that_is_no_number_is_refused) {
    struct codes c = make_codes(SHAPE, 7);
    struct pl_weight_files f;
    struct file file = {0};
    c.scales[70 * 3 * 2 + 5] = 255; /* of the last expert */
    put_blocks(&file, EXPERTS, &c);
    put_scales(&file, EXPERTS, &c);
    write_file(&file, FILE_NAME);
    OK(open_files(&f));
    struct pl_window w = {.name = EXPERTS};
    uint16_t x;
    ck_assert(pl_window_find(&f, &w));
    OK(pl_st_read(w.file, w.entry, 0, &x, sizeof x, &diag));
    FAILS(pl_st_read(w.file, w.entry, w.entry->end - 2, &x, sizeof x, &diag),
          PL_ERR_CHECKPOINT_FORMAT, "a scale of its codes is 255");
    pl_weight_files_close(&f);
    free_codes(&c);
}
END_TEST

/* A program of codes, and experts in files with another content: values, a scale that is no number,
 * and values that fp16 cannot hold. */
static const struct {
    int scale; /* -1: values */
    enum pl_dtype dtype;
    pl_err err;
    const char *says;
} unheld[] = {
    {-1, PL_DTYPE_BF16, PL_ERR_MODEL_WEIGHTS, "holds values, and no MXFP4 codes"},
    {255, PL_DTYPE_BF16, PL_ERR_CHECKPOINT_FORMAT, "a scale of its codes is 255"},
    {141, PL_DTYPE_F16, PL_ERR_MODEL_WEIGHTS, "has values above 65504"},
};

START_TEST(codes_that_a_program_cannot_hold_are_refused) {
    const struct rig_options options = {.mode = PL_MODE_QLORA,
                                        .quant = PL_QUANT_MXFP4,
                                        .dtype = unheld[_i].dtype,
                                        .experts = "gpt_oss"};
    struct pl_windows w = {0};
    struct file f = {0};
    struct rig r;
    rig_open(&r, &options);
    OK(pl_windows_add_model(&w, r.program, &diag));
    for (uint32_t i = 0; i < w.n; i++) {
        const struct pl_window *x = &w.items[i];
        uint64_t dims[3];
        char shape[PL_ST_SHAPE_TEXT];
        pl_st_shape_text(pl_window_shape(x, dims), dims, shape);
        void *data = calloc(x->count, 2);
        ck_assert_ptr_nonnull(data);
        if (x->matrices && unheld[_i].scale >= 0) {
            struct codes c = make_codes(4, x->dims[1], x->dims[0] / 4, i);
            memset(c.scales, 127, count(&c) / 32);
            c.scales[7] = (unsigned char)unheld[_i].scale;
            put_blocks(&f, x->name, &c);
            put_scales(&f, x->name, &c);
            free_codes(&c);
        } else {
            put(&f, x->name, "", "BF16", shape, data, 2 * x->count);
        }
        free(data);
    }
    write_file(&f, FILE_NAME);
    FAILS(pl_model_load(&r.io, dir, &diag), unheld[_i].err, unheld[_i].says);
    pl_windows_finish(&w);
    rig_close(&r);
}
END_TEST

START_TEST(a_file_that_ends_early_is_refused) {
    struct file file = {0};
    struct pl_weight_files f;
    put_all(&file, EXPERTS);
    file.data.len--;
    write_file(&file, FILE_NAME);
    FAILS(open_files(&f), PL_ERR_CHECKPOINT_FORMAT, FILE_NAME);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.mxfp4");
    TCase *t = tcase_create("codes");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, codes_are_read_as_values, 0, sizeof names / sizeof *names);
    tcase_add_test(t, scales_may_be_in_another_file);
    tcase_add_loop_test(t, a_model_of_codes_fills_the_tensors_of_a_program, 0,
                        sizeof filled / sizeof *filled);
    tcase_add_loop_test(t, codes_that_a_program_cannot_hold_are_refused, 0,
                        sizeof unheld / sizeof *unheld);
    tcase_add_test(t, a_saved_model_is_no_longer_codes);
    tcase_add_loop_test(t, codes_that_do_not_fit_are_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(t, a_scale_that_is_no_number_is_refused);
    tcase_add_test(t, a_file_that_ends_early_is_refused);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
