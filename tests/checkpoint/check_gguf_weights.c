/* check_gguf_weights.c - GGUF models against what transformers makes of them, and damaged ones.
 *
 * gguf/make.py has written the files with the Python package gguf. */
#include "estimator/gguf/gguf_tokenizer.h"
#include "estimator/model/model.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/gguf_weights.h"
#include "runtime/checkpoint/weight_files.h"
#include "tests/checkpoint/rig.h"
#include "tests/support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct pl_diag diag;

static void setup(void) {
    diag = (struct pl_diag){0};
}

static const char *file(const char *name, const char *end) {
    return textf("%s/%s%s", GGUF_FILES, name, end);
}

static const char *const models[] = {"llama",   "llama-bias", "llama31", "mistral",
                                     "qwen2",   "qwen3",      "phi3",    "phi3-partial",
                                     "smollm3", "mistral3",   "gemma3"};
enum { N_MODELS = sizeof models / sizeof *models };

static void write_bytes(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

static void copy_file(const char *from, const char *to) {
    size_t n;
    char *bytes = file_read(from, &n);
    write_bytes(to, bytes, n);
    free(bytes);
}

/* --- weights --- */

static void *read_entry(const struct pl_st_file *f, const struct pl_st_entry *e) {
    char *bytes = malloc(e->end - e->begin + 1);
    OK(pl_st_read(f, e, 0, bytes, e->end - e->begin, &diag));
    return bytes;
}

/* Reads elements [from, from + n) again, as loading does with pieces of any size. */
static void check_piece(const struct pl_st_file *f, const struct pl_st_entry *e, const char *all,
                        uint64_t from, uint64_t n) {
    const uint64_t size = pl_dtype_bytes(e->dtype);
    char *bytes = malloc(n * size + 1);
    OK(pl_st_read(f, e, from * size, bytes, n * size, &diag));
    ck_assert_msg(memcmp(bytes, all + from * size, n * size) == 0, "%s from %u, %u elements",
                  e->name, (unsigned)from, (unsigned)n);
    free(bytes);
}

static void check_same(const struct pl_st_file *f, const struct pl_st_entry *e,
                       const struct pl_st_file *truth, const struct pl_st_entry *t) {
    ck_assert_uint_eq(e->rank, t->rank);
    for (uint32_t i = 0; i < e->rank; i++)
        ck_assert_uint_eq(e->dims[i], t->dims[i]);
    char *is = read_entry(f, e), *wanted = read_entry(truth, t);
    const uint64_t n = (t->end - t->begin) / pl_dtype_bytes(t->dtype);
    float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    pl_convert_to_f32(x, is, e->dtype, n);
    pl_convert_to_f32(y, wanted, t->dtype, n);
    for (uint64_t i = 0; i < n; i++)
        ck_assert_msg(memcmp(&x[i], &y[i], sizeof *x) == 0, "%s[%u] is %.9g, not %.9g", e->name,
                      (unsigned)i, (double)x[i], (double)y[i]);
    for (uint64_t from = 0; from < n; from += 1 + n / 7)
        check_piece(f, e, is, from, 1 + (n - from) / 2);
    free(x);
    free(y);
    free(is);
    free(wanted);
}

static void check_weights(const char *gguf, const char *name) {
    struct pl_st_file f, truth;
    OK(pl_gguf_weights_open(&f, gguf, &diag));
    OK(pl_st_open(&truth, file(name, ".safetensors"), &diag));
    ck_assert_uint_eq(f.n, truth.n);
    for (uint64_t i = 0; i < truth.n; i++) {
        const struct pl_st_entry *e = pl_st_find(&f, truth.entries[i].name);
        ck_assert_msg(e != NULL, "%s: %s is not there", name, truth.entries[i].name);
        check_same(&f, e, &truth, &truth.entries[i]);
    }
    pl_st_close(&f);
    pl_st_close(&truth);
}

/* B1 of gguf_blocks.h: the values have the bits that the package gguf gives them. */
START_TEST(every_type_has_the_values_of_ggml) {
    check_weights(file("types", ".gguf"), "types");
}
END_TEST

/* W2 of gguf_weights.h: the rows and the norms are compared with those of the safetensors files. */
START_TEST(names_rows_and_norms_are_those_of_transformers) {
    check_weights(file(models[_i], ".gguf"), models[_i]);
}
END_TEST

START_TEST(parts_are_one_file) {
    struct pl_gguf g;
    static struct pl_model m;
    check_weights(file("parts-00001-of-00002", ".gguf"), "llama");
    OK(pl_model_read(file("parts-00001-of-00002", ".gguf"), &m, &diag));
    ck_assert_uint_eq(m.vocab, 8);
    ck_assert(!m.tied); /* `output.weight` is in the second part */
    ck_assert_int_eq(pl_gguf_open(&g, file("parts-00002-of-00002", ".gguf"), &diag),
                     PL_ERR_MODEL_FILE);
    ck_assert_ptr_nonnull(strstr(diag.hint, "00001"));
}
END_TEST

START_TEST(a_missing_part_is_named) {
    char dir[SCRATCH_PATH];
    struct pl_gguf g;
    scratch_make(dir);
    copy_file(file("parts-00001-of-00002", ".gguf"), in_dir(dir, "m-00001-of-00002.gguf"));
    ck_assert_int_eq(pl_gguf_open(&g, in_dir(dir, "m-00001-of-00002.gguf"), &diag),
                     PL_ERR_MODEL_FILE);
    ck_assert_ptr_nonnull(strstr(diag.file, "m-00002-of-00002.gguf"));
    diag = (struct pl_diag){0};
    copy_file(file("parts-00001-of-00002", ".gguf"), in_dir(dir, "renamed.gguf"));
    ck_assert_int_eq(pl_gguf_open(&g, in_dir(dir, "renamed.gguf"), &diag), PL_ERR_MODEL_FILE);
    ck_assert_ptr_nonnull(strstr(diag.message, "-00001-of-00002.gguf"));
    scratch_remove(dir);
}
END_TEST

/* --- config.json --- */

static void check_rope(const struct pl_rope *a, const struct pl_rope *b) {
    ck_assert_int_eq(a->type, b->type);
    ck_assert_uint_eq(a->dim, b->dim);
    ck_assert_uint_eq(a->original_max_positions, b->original_max_positions);
    const double *const x[] = {&a->theta,
                               &a->factor,
                               &a->low_freq_factor,
                               &a->high_freq_factor,
                               &a->attention_factor,
                               &a->query_growth,
                               &a->ramp_low,
                               &a->ramp_high};
    const double *const y[] = {&b->theta,
                               &b->factor,
                               &b->low_freq_factor,
                               &b->high_freq_factor,
                               &b->attention_factor,
                               &b->query_growth,
                               &b->ramp_low,
                               &b->ramp_high};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        ck_assert_double_eq_tol(*x[i], *y[i], 1e-7 * (1 + *y[i]));
    for (size_t i = 0; i < PL_ROPE_MAX_PAIRS; i++) {
        ck_assert_double_eq(a->short_factor[i], b->short_factor[i]);
        ck_assert_double_eq(a->long_factor[i], b->long_factor[i]);
    }
}

/* C1 of gguf_config.h */
START_TEST(the_metadata_is_the_config) {
    static struct pl_model m, wanted;
    const char *name = models[_i];
    ck_assert_msg(pl_model_read(file(name, ".gguf"), &m, &diag) == PL_ERR_OK, "%s: %s", name,
                  diag.message);
    OK(pl_model_read(file(name, ".json"), &wanted, &diag));
    ck_assert_int_eq(m.family, wanted.family);
    const uint64_t x[] = {m.hidden, m.layers, m.heads,    m.kv_heads,
                          m.ffn,    m.vocab,  m.head_dim, m.max_positions};
    const uint64_t y[] = {wanted.hidden, wanted.layers, wanted.heads,    wanted.kv_heads,
                          wanted.ffn,    wanted.vocab,  wanted.head_dim, wanted.max_positions};
    ck_assert_mem_eq(x, y, sizeof x);
    const bool p[] = {m.tied, m.qkv_bias, m.o_bias, m.mlp_bias, m.qk_norm};
    const bool q[] = {wanted.tied, wanted.qkv_bias, wanted.o_bias, wanted.mlp_bias, wanted.qk_norm};
    ck_assert_mem_eq(p, q, sizeof p);
    ck_assert_double_eq(m.rms_eps, wanted.rms_eps);
    ck_assert_double_eq(m.score_scale, wanted.score_scale);
    ck_assert_uint_eq(m.n_ropes, wanted.n_ropes);
    for (uint32_t i = 0; i < m.n_ropes; i++)
        check_rope(&m.rope[i], &wanted.rope[i]);
    for (uint64_t i = 0; i < m.layers; i++) {
        ck_assert_uint_eq(m.layer[i].window, wanted.layer[i].window);
        ck_assert_uint_eq(m.layer[i].rope, wanted.layer[i].rope);
        ck_assert_int_eq(m.layer[i].kind, wanted.layer[i].kind);
    }
    ck_assert_int_eq(m.bos, wanted.bos);
    ck_assert_int_eq(m.pad, wanted.pad);
    ck_assert_uint_eq(m.n_eos, wanted.n_eos);
    ck_assert_int_eq(m.eos[0], wanted.eos[0]);
}
END_TEST

/* --- damaged files --- */

/* Everything that reads a model from its file: nothing may crash, whatever it says. */
static void read_all(const char *path) {
    static struct pl_model m;
    struct pl_st_file f;
    static const char *const texts[] = {"tokenizer.json", "tokenizer_config.json"};
    diag = (struct pl_diag){0};
    (void)pl_model_read(path, &m, &diag);
    for (size_t i = 0; i < 2; i++) {
        struct pl_text text = {0};
        bool there;
        (void)pl_gguf_companion(textf("%s/%s", path, texts[i]), &text, &there, &diag);
        pl_text_finish(&text);
    }
    diag = (struct pl_diag){0};
    if (pl_gguf_weights_open(&f, path, &diag) != PL_ERR_OK) {
        ck_assert_str_ne(diag.message, "");
        return;
    }
    for (uint64_t i = 0; i < f.n; i++) {
        char sample[256];
        const uint64_t bytes = f.entries[i].end < 256 ? f.entries[i].end : 256;
        (void)pl_st_read(&f, &f.entries[i], 0, sample, bytes, NULL);
    }
    pl_st_close(&f);
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* P1 of gguf_parse.h: Bytes of the header, whose lengths and counts are what a reader trusts. */
START_TEST(damaged_files_never_crash) {
    char dir[SCRATCH_PATH];
    size_t n;
    uint32_t seed = (uint32_t)_i + 1;
    scratch_make(dir);
    char *whole = file_read(file(models[_i], ".gguf"), &n);
    const char *path = in_dir(dir, "m.gguf");
    for (int k = 0; k < 300; k++) {
        char *bytes = malloc(n);
        memcpy(bytes, whole, n);
        for (uint32_t flips = 1 + draw(&seed) % 3; flips; flips--) {
            static const unsigned char extremes[] = {0, 1, 0x7f, 0x80, 0xff};
            bytes[draw(&seed) % 3000 % n] = (char)extremes[draw(&seed) % 5];
        }
        write_bytes(textf("%s", path), bytes, draw(&seed) % 4 ? n : draw(&seed) % n);
        read_all(path = in_dir(dir, "m.gguf"));
        free(bytes);
    }
    free(whole);
    scratch_remove(dir);
}
END_TEST

/* P1 of gguf_parse.h */
START_TEST(a_header_that_is_cut_is_no_error_until_the_file_ends) {
    struct pl_gguf_header h;
    size_t n;
    bool cut;
    char *bytes = file_read(file("llama", ".gguf"), &n);
    uint64_t least = 0;
    for (uint64_t k = 0; k < n && !least; k++) {
        OK(pl_gguf_parse("x", (unsigned char *)bytes, k, n, 0, &h, &cut, &diag));
        if (!cut) least = k;
        pl_gguf_header_finish(&h);
    }
    ck_assert_uint_gt(least, 500);
    for (uint64_t k = 0; k < least; k++) {
        diag = (struct pl_diag){0};
        ck_assert_int_eq(pl_gguf_parse("x", (unsigned char *)bytes, k, k, 0, &h, &cut, &diag),
                         PL_ERR_MODEL_SYNTAX);
        ck_assert(!cut);
    }
    free(bytes);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.gguf_weights");
    TCase *t = tcase_create("gguf");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, every_type_has_the_values_of_ggml);
    tcase_add_loop_test(t, names_rows_and_norms_are_those_of_transformers, 0, N_MODELS);
    tcase_add_test(t, parts_are_one_file);
    tcase_add_test(t, a_missing_part_is_named);
    tcase_add_loop_test(t, the_metadata_is_the_config, 0, N_MODELS);
    tcase_add_loop_test(t, damaged_files_never_crash, 0, N_MODELS);
    tcase_add_test(t, a_header_that_is_cut_is_no_error_until_the_file_ends);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
