/* check_arguments.c - every function of plimsoll.h with NULL, empty and out-of-range arguments.
 *
 * Linked as another program would link it. Runs in the root of the sources, whose header says which
 * functions there are: one without a row here is a failure. */
#include "estimator/api/plimsoll.h"

#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "Qwen/Qwen2.5-0.5B-Instruct"

/* A question that is refused; `says` is a part of the message. */
static const struct {
    const char *model, *mode;
    uint32_t r, batch, length;
    const char *settings[3];
    const char *says;
} questions[] = {
    {NULL, "lora", 0, 1, 64, {NULL}, "no model"},
    {"", "lora", 0, 1, 64, {NULL}, "no model"},
    {"~", "lora", 0, 1, 64, {NULL}, "model"},
    {"no/such-model", "lora", 0, 1, 64, {NULL}, "no/such-model"},
    {MODEL, "", 0, 1, 64, {NULL}, "no mode"},
    {MODEL, "~", 0, 1, 64, {NULL}, "mode"},
    {MODEL, "null", 0, 1, 64, {NULL}, "mode"},
    {MODEL, "lorra", 0, 1, 64, {NULL}, "mode"},
    {MODEL, "lora", UINT32_MAX, 1, 64, {NULL}, "lora_r"},
    {MODEL, "lora", 0, UINT32_MAX, 64, {NULL}, "batch_size"},
    {MODEL, "lora", 0, 1, 1, {NULL}, "max_seq_length"},
    {MODEL, "lora", 0, 1, UINT32_MAX, {NULL}, "max_seq_length"},
    {MODEL, "lora", 0, 1, 64, {"", NULL}, "key=value"},
    {MODEL, "lora", 0, 1, 64, {"batch_size", NULL}, "key=value"},
    {MODEL, "lora", 0, 1, 64, {"=1", NULL}, "is not a key"},
    {MODEL, "lora", 0, 1, 64, {"mode=", NULL}, "mode"},
    {MODEL, "lora", 0, 1, 64, {"mode=null", NULL}, "mode"},
    {MODEL, "lora", 0, 1, 64, {"model=~", NULL}, "model"},
    {MODEL, "lora", 0, 1, 64, {"gpu=", NULL}, ""},
    {MODEL, "lora", 0, 1, 64, {"gpu=no such card", NULL}, "no such card"},
    {MODEL, "lora", 0, 1, 64, {"vram_budget=-1", NULL}, "vram_budget"},
    {MODEL, "lora", 0, 1, 64, {"lora_dropout=nan", NULL}, "lora_dropout"},
    {MODEL, "lora", 0, 1, 64, {"datasets=[{}]", NULL}, ""},
    {MODEL, "lora", 0, 1, 64, {"lora_target_modules=[]", NULL}, ""},
    {MODEL, "lora", 0, 1, 64, {"run_name=\xff", NULL}, "UTF-8"},
};
#define N_QUESTIONS (sizeof questions / sizeof *questions)

/* Passes a struct for the error, or NULL; the error is complete or absent. */
static void check_error(size_t i, bool answered, const struct pl_vram_error *e) {
    ck_assert_msg(!answered, "question %zu is answered", i);
    ck_assert_int_gt(e->exit_status, 0);
    ck_assert_msg(e->code[0] && strstr(e->message, questions[i].says), "question %zu: %s: %s", i,
                  e->code, e->message);
}

static void check_estimate_vram(void) {
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        struct pl_vram_error e = {0};
        for (int k = 0; k < 2; k++)
            check_error(i,
                        pl_estimate_vram(questions[i].model, questions[i].mode, questions[i].r,
                                         questions[i].batch, questions[i].length,
                                         questions[i].settings, k ? NULL : &e) != NULL,
                        &e);
    }
    struct pl_vram_estimate *e = pl_estimate_vram(MODEL, NULL, 0, 0, 64, NULL, NULL);
    ck_assert_ptr_nonnull(e); /* NULL and 0 are defaults */
    pl_estimate_free(e);
}

static void check_receipt_vram(void) {
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        struct pl_vram_error e = {0};
        for (int k = 0; k < 2; k++)
            check_error(i,
                        pl_receipt_vram(questions[i].model, questions[i].mode, questions[i].r,
                                        questions[i].batch, questions[i].length,
                                        questions[i].settings, k ? NULL : &e) != NULL,
                        &e);
    }
    char *receipt = pl_receipt_vram(MODEL, NULL, 0, 1, 64, NULL, NULL);
    ck_assert_ptr_nonnull(receipt);
    pl_receipt_free(receipt);
}

static void check_estimate_fits_on_card(void) {
    struct pl_vram_estimate *e = pl_estimate_vram(MODEL, "lora", 8, 1, 64, NULL, NULL);
    ck_assert_ptr_nonnull(e);
    ck_assert(!pl_estimate_fits_on_card(NULL, 80));
    ck_assert(!pl_estimate_fits_on_card(e, (double)NAN));
    ck_assert(!pl_estimate_fits_on_card(e, -1));
    ck_assert(!pl_estimate_fits_on_card(e, 0));
    ck_assert(!pl_estimate_fits_on_card(e, -(double)INFINITY));
    ck_assert(pl_estimate_fits_on_card(e, (double)INFINITY));
    pl_estimate_free(e);
}

static void check_estimate_summary(void) {
    char room[4] = "abc";
    struct pl_vram_estimate *e = pl_estimate_vram(MODEL, "lora", 8, 1, 64, NULL, NULL);
    ck_assert_ptr_nonnull(e);
    const size_t n = pl_estimate_summary(e, NULL, 0);
    ck_assert_uint_gt(n, 20);
    ck_assert_uint_eq(pl_estimate_summary(e, NULL, 100), n);
    ck_assert_uint_eq(pl_estimate_summary(e, room, 0), n);
    ck_assert_str_eq(room, "abc");
    ck_assert_uint_eq(pl_estimate_summary(e, room, sizeof room), n);
    ck_assert_uint_eq(strlen(room), sizeof room - 1);
    ck_assert_uint_eq(pl_estimate_summary(NULL, room, sizeof room), 0);
    ck_assert_str_eq(room, "");
    pl_estimate_free(e);
}

static void check_estimate_free(void) {
    pl_estimate_free(NULL);
}

static void check_vram_json(void) {
    struct pl_vram_estimate *e = pl_estimate_vram(MODEL, "lora", 8, 1, 64, NULL, NULL);
    ck_assert_ptr_nonnull(e);
    ck_assert_ptr_null(pl_vram_json(NULL));
    ck_assert_str_eq(pl_vram_json(e), e->json);
    pl_estimate_free(e);
}

static void check_vram_card_bytes(void) {
    struct pl_vram_estimate *e = pl_estimate_vram(MODEL, "lora", 8, 1, 64, NULL, NULL);
    ck_assert_ptr_nonnull(e);
    ck_assert_uint_eq(pl_vram_card_bytes(NULL), 0);
    const double gb = (double)pl_vram_card_bytes(e) / 1e9;
    ck_assert(pl_estimate_fits_on_card(e, gb * 1.000001));
    ck_assert(!pl_estimate_fits_on_card(e, gb * 0.999999));
    pl_estimate_free(e);
}

static void check_receipt_free(void) {
    pl_receipt_free(NULL);
}

static void check_version(void) {
    ck_assert_str_eq(pl_version(), PLIMSOLL_VERSION);
}

#define FUNCTIONS(X)                                                                               \
    X(estimate_vram)                                                                               \
    X(estimate_fits_on_card)                                                                       \
    X(estimate_summary)                                                                            \
    X(estimate_free)                                                                               \
    X(vram_json)                                                                                   \
    X(vram_card_bytes)                                                                             \
    X(receipt_vram)                                                                                \
    X(receipt_free)                                                                                \
    X(version)

static const struct {
    const char *name;
    void (*check)(void);
} functions[] = {
#define X(name) {"pl_" #name, check_##name},
    FUNCTIONS(X)
#undef X
};
#define N_FUNCTIONS (sizeof functions / sizeof *functions)

START_TEST(a_function_answers_or_refuses_whatever_it_is_given) {
    functions[_i].check();
}
END_TEST

static bool has_row(const char *name, size_t n) {
    for (size_t i = 0; i < N_FUNCTIONS; i++)
        if (strlen(functions[i].name) == n && memcmp(functions[i].name, name, n) == 0) return true;
    return false;
}

/* A declaration begins with PL_PUBLIC; its name stands before the first parenthesis. */
START_TEST(no_function_of_the_header_is_left_out) {
    static char text[65536];
    size_t found = 0;
    FILE *f = fopen("estimator/api/plimsoll.h", "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    for (char *at = text; (at = strstr(at, "\nPL_PUBLIC ")); found++) {
        char *end = strchr(++at, '('), *name = end;
        ck_assert_ptr_nonnull(end);
        while (isalnum((unsigned char)name[-1]) || name[-1] == '_')
            name--;
        ck_assert_msg(has_row(name, (size_t)(end - name)), "%.*s has no row here",
                      (int)(end - name), name);
    }
    ck_assert_uint_eq(found, N_FUNCTIONS);
}
END_TEST

int main(void) {
    Suite *s = suite_create("api.arguments");
    TCase *t = tcase_create("arguments");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_function_answers_or_refuses_whatever_it_is_given, 0, N_FUNCTIONS);
    tcase_add_test(t, no_function_of_the_header_is_left_out);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
