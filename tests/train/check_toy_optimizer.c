/* check_toy_optimizer.c - that a row of estimator/config/optimizers.h is all that the rest needs:
 * the binary under test has rows of its own (toy_optimizer.h), and no other file knows of them. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

/* A toy, what it is a copy of, and the names of its scales where it has some. */
static const struct {
    const char *toy, *real, *scales;
} pairs[] = {{"toy", "adamw", NULL}, {"toy_8bit", "adamw_8bit", ".absmax"}};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

#define WEIGHT "model.layers.0.mlp.down_proj.weight"

static void setup(void) {
    scratch_make(dir);
    /* 4,608 elements of WEIGHT: enough for states in 8 bits */
    tiny_make(dir, &(struct tiny){.ffn = 144},
              "batch_size: 2\nmax_steps: 4\nsave_steps: 2\nlearning_rate: 0.01\nlr_scheduler: "
              "constant\n");
}

static void teardown(void) {
    scratch_remove(dir);
}

static void train(const char *optimizer, const char *out, const char *a, const char *b) {
    char key[64], to[64];
    snprintf(key, sizeof key, "optimizer=%s", optimizer);
    snprintf(to, sizeof to, "output_dir=%s", out);
    plimsoll_train_expect(0, dir, (const char *[]){key, to, a, b, NULL});
}

static void path_of(const char *name, char path[SCRATCH_PATH + 64]) {
    snprintf(path, SCRATCH_PATH + 64, "%s/%s", dir, name);
}

static void expect_same_weights(const char *a, const char *b) {
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    path_of(a, x);
    path_of(b, y);
    weights_assert_same(x, y, "model");
}

/* State `theirs` of WEIGHT in the files of one run is `ours` in the other's. */
static void expect_state(const struct weights *a, const char *ours, const struct weights *b,
                         const char *theirs, const char *end) {
    char name[128], other[128];
    snprintf(name, sizeof name, WEIGHT ".%s%s", ours, end);
    snprintf(other, sizeof other, WEIGHT ".%s%s", theirs, end);
    struct weight x = weights_find(a, name), y = weights_find(b, other);
    ck_assert_msg(x.entry && y.entry, "no %s, or no %s", name, other);
    ck_assert_msg(weight_same_bits(&x, &y), "%s is not %s", name, other);
}

START_TEST(it_trains_and_its_states_are_saved_under_their_names) {
    struct weights toy, real;
    char path[SCRATCH_PATH + 64];
    train(pairs[_i].real, "real", NULL, NULL);
    train(pairs[_i].toy, "toy", NULL, NULL);
    expect_same_weights("real", "toy");
    path_of("real/checkpoint-4", path);
    weights_open(&real, path, "optimizer");
    path_of("toy/checkpoint-4", path);
    weights_open(&toy, path, "optimizer");
    for (int k = 0; k < 2; k++) {
        expect_state(&toy, k ? "second_toy" : "first_toy", &real, k ? "exp_avg_sq" : "exp_avg", "");
        if (pairs[_i].scales)
            expect_state(&toy, k ? "second_toy" : "first_toy", &real, k ? "exp_avg_sq" : "exp_avg",
                         pairs[_i].scales);
    }
    weights_close(&toy);
    weights_close(&real);
}
END_TEST

START_TEST(a_resumed_run_is_the_run_itself) {
    train(pairs[_i].toy, "straight", NULL, NULL);
    train(pairs[_i].toy, "halves", "max_steps=2", NULL);
    train(pairs[_i].toy, "halves", NULL, NULL);
    expect_same_weights("straight", "halves");
}
END_TEST

START_TEST(an_offloaded_run_is_the_run_itself) {
    train(pairs[_i].toy, "plain", NULL, NULL);
    train(pairs[_i].toy, "states", "offload=optimizer", NULL);
    train(pairs[_i].toy, "all", "offload=weights", "offload_update=host");
    expect_same_weights("plain", "states");
    expect_same_weights("plain", "all");
}
END_TEST

/* The name of a tensor in the header of a file becomes another of the same length. */
static void rename_tensor(const char *path, const char *name, const char *other) {
    size_t n;
    char *bytes = file_read(path, &n), *at = memmem(bytes, n, name, strlen(name));
    ck_assert_msg(at, "no %s in %s", name, path);
    memcpy(at, other, strlen(other));
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    free(bytes);
}

START_TEST(verify_knows_whose_state_it_is) {
    static const char checkpoint[] = "out/checkpoint-4";
    train(pairs[_i].toy, "out", NULL, NULL);
    const char *const words[] = {"verify", checkpoint, NULL};
    struct outcome o = plimsoll_expect(0, dir, words);
    outcome_finish(&o);
    ck_assert_int_eq(unlink(in_dir(dir, textf("%s/trainer_state.json", checkpoint))), 0);
    rename_tensor(in_dir(dir, textf("%s/optimizer.safetensors", checkpoint)),
                  "model.norm.weight.second_toy", "model.worm.weight.second_toy");
    o = plimsoll_expect(5, dir, words);
    ck_assert_msg(
        strstr(o.out, "`model.worm.weight.second_toy` is the state of a tensor that is not there"),
        "%s", o.out);
    outcome_finish(&o);
}
END_TEST

static void expect_text(int status, const char *const words[], const char *text) {
    struct outcome o = plimsoll_expect(status, dir, words);
    ck_assert_msg(strstr(o.out, text) || strstr(o.err, text), "%s: no `%s`", words[0], text);
    outcome_finish(&o);
}

#define SMOL "HuggingFaceTB/SmolLM2-135M", "--mode", "full"

START_TEST(help_hints_advice_and_remedies_name_it) {
    expect_text(0, (const char *[]){"help", "optimizer", NULL}, "; toy: of a test");
    expect_text(0, (const char *[]){"completion", "bash", NULL}, " toy toy_8bit");
    expect_text(2, (const char *[]){"estimate-vram", SMOL, "--optimizer", "old_toy", NULL},
                "write `toy`");
    expect_text(2, (const char *[]){"estimate-vram", SMOL, "--optimizer", "toy_9bit", NULL},
                "did you mean `toy_8bit`");
    expect_text(
        3, (const char *[]){"estimate-vram", SMOL, "--optimizer", "toy", "--vram", "1GiB", NULL},
        "optimizer: toy_8bit");
    expect_text(0, (const char *[]){"plan", SMOL, "--vram", "16GiB", "--tables", "settings", NULL},
                " -> toy_8bit");
}
END_TEST

int main(void) {
    Suite *s = suite_create("toy optimizer");
    TCase *tc = tcase_create("a row");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, it_trains_and_its_states_are_saved_under_their_names, 0, N_PAIRS);
    tcase_add_loop_test(tc, a_resumed_run_is_the_run_itself, 0, N_PAIRS);
    tcase_add_loop_test(tc, an_offloaded_run_is_the_run_itself, 0, N_PAIRS);
    tcase_add_loop_test(tc, verify_knows_whose_state_it_is, 0, N_PAIRS);
    tcase_add_test(tc, help_hints_advice_and_remedies_name_it);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
