/* check_embedding.c - rows of the embedding that a step sees seldom, or must not train. Through the
 * real binary. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})
#define EMBEDDING "model.embed_tokens.weight"

/* The largest difference between row `row` of two saved embeddings; row -1: of all of it. */
static double moved(const char *a, const char *b, int64_t row, uint64_t cols) {
    struct weights left, right;
    uint64_t n, first = row < 0 ? 0 : (uint64_t)row * cols;
    double most = 0;
    weights_open(&left, in_dir(dir, a), "model");
    weights_open(&right, in_dir(dir, b), "model");
    struct weight from = weights_find(&left, EMBEDDING), to = weights_find(&right, EMBEDDING);
    float *x = weight_values(&from, &n), *y = weight_values(&to, &n);
    for (uint64_t i = first; i < (row < 0 ? n : first + cols); i++)
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
    free(x);
    free(y);
    weights_close(&left);
    weights_close(&right);
    return most;
}

/* --- the padding id --------------------------------------------------------------------------- */

enum { PAD = 7, HIDDEN = 32 };

/* One step of all rows at two rates: a row without a gradient ends the same at both. */
static void train_at_two_rates(bool untied, const char *more) {
    tiny_make(dir, &(struct tiny){.untied = untied, .pad = PAD},
              "optimizer: sgd\nlr_scheduler: constant\nwarmup_ratio: 0\n"
              "max_grad_norm: 0\nweight_decay: 0\nbatch_size: 12\n"
              "gradient_accumulation_steps: 2\nmax_steps: 1\n");
    TRAIN(0, "learning_rate=0.5", "output_dir=half", more);
    TRAIN(0, "learning_rate=1", "output_dir=one", more);
}

static const char *const types[] = {"dtype=fp32", "dtype=bf16"};

START_TEST(the_padding_row_gets_no_gradient_from_the_look_up) {
    train_at_two_rates(true, types[_i]);
    ck_assert(moved("half", "one", PAD, HIDDEN) == 0);
    ck_assert(moved("half", "one", PAD + 1, HIDDEN) > 0);
}
END_TEST

START_TEST(the_padding_row_of_a_tied_head_gets_the_heads_gradient) {
    train_at_two_rates(false, types[_i]);
    ck_assert(moved("half", "one", PAD, HIDDEN) > 0);
}
END_TEST

/* --- moments in 8 bits ------------------------------------------------------------------------ */

/* A token of a large vocabulary comes in one step of many. Where its second moment was rounded to 0
 * and the first was not, the next step moved it by hundreds of learning rates. */
START_TEST(rows_that_come_seldom_move_as_under_exact_adamw) {
    const double rate = 1e-4;
    tiny_make(dir, &(struct tiny){.vocab = 2000, .rows = 120, .untied = _i},
              "batch_size: 2\nmax_steps: 60\nlearning_rate: 1.0e-4\n");
    TRAIN(0, "optimizer=adamw", "output_dir=exact");
    TRAIN(0, "optimizer=adamw_8bit", "output_dir=coded");
    double gap = moved("exact", "coded", -1, HIDDEN) / rate;
    ck_assert_msg(gap < 10, "a weight of the embedding is %.0f learning rates away", gap);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.embedding");
    TCase *tc = tcase_create("embedding");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, the_padding_row_gets_no_gradient_from_the_look_up, 0, 2);
    tcase_add_loop_test(tc, the_padding_row_of_a_tied_head_gets_the_heads_gradient, 0, 2);
    tcase_add_loop_test(tc, rows_that_come_seldom_move_as_under_exact_adamw, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
