/* check_recompute.c - the words of gradient_checkpointing and the levels that they mean. */
#include "estimator/config/recompute.h"

#include <check.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static const char *const plain[] = {"none", "light", "mlp", "attention", "full", "offload"};

static const struct {
    const char *word, *again;      /* as it is written back; NULL: the same */
    uint32_t first, third, fourth; /* the levels of layers 0, 2 and 3 */
} words[] = {
    {"none", NULL, 0, 0, 0},
    {"light", NULL, 1, 1, 1},
    {"mlp", NULL, 2, 2, 2},
    {"attention", NULL, 3, 3, 3},
    {"full", NULL, 4, 4, 4},
    {"offload", NULL, 5, 5, 5},
    {"every_1", NULL, 4, 4, 4},
    {"every_2", NULL, 4, 4, 0},
    {"every_3", NULL, 4, 0, 4},
    {"every_4096", NULL, 4, 0, 0},
    {"full:3", NULL, 4, 4, 0},
    {"full:2+light", NULL, 4, 1, 1},
    {"light:3+full", NULL, 1, 1, 4},
    {"none:3+mlp", NULL, 0, 0, 2},
    {"attention:4096+mlp", NULL, 3, 3, 3},
    {"full:3+none", "full:3", 4, 4, 0},
    {"offload:3", NULL, 5, 5, 0},
    {"offload:3+full", NULL, 5, 5, 4},
    {"offload:2+mlp", NULL, 5, 2, 2},
    {"offload:2+offload", "offload", 5, 5, 5},
    {"full:003", "full:3", 4, 4, 0},
    {"every_02", "every_2", 4, 4, 0},
    {"light:3+light", "light", 1, 1, 1},
    {"none:7", "none", 0, 0, 0},
};

/* C2 */
START_TEST(a_word_means_a_level_for_every_layer) {
    uint32_t v = 99;
    struct pl_text again = {0};
    ck_assert_msg(pl_recompute_parse(words[_i].word, &v) == PL_RECOMPUTE_READ, "%s",
                  words[_i].word);
    ck_assert(pl_recompute_offloads(v) == (words[_i].first == PL_RECOMPUTE_OFFLOAD));
    ck_assert_uint_eq(pl_recompute_of_layer(v, 0), words[_i].first);
    ck_assert_uint_eq(pl_recompute_of_layer(v, 2), words[_i].third);
    ck_assert_uint_eq(pl_recompute_of_layer(v, 3), words[_i].fourth);
    pl_recompute_print(v, &again);
    ck_assert_str_eq(pl_text_str(&again), words[_i].again ? words[_i].again : words[_i].word);
    pl_text_finish(&again);
}
END_TEST

static const struct {
    const char *word;
    enum pl_recompute_word why;
} refused[] = {
    {"every_0", PL_RECOMPUTE_OUTSIDE},
    {"every_4097", PL_RECOMPUTE_OUTSIDE},
    {"every_99999999999999999999", PL_RECOMPUTE_OUTSIDE},
    {"full:0", PL_RECOMPUTE_OUTSIDE},
    {"full:4097", PL_RECOMPUTE_OUTSIDE},
    {"full:0+light", PL_RECOMPUTE_OUTSIDE},
    {"light:4294967297+full", PL_RECOMPUTE_OUTSIDE}, /* 1 modulo 2^32 */
    {"", PL_RECOMPUTE_UNKNOWN},
    {"Full", PL_RECOMPUTE_UNKNOWN},
    {"ful", PL_RECOMPUTE_UNKNOWN},
    {"fully", PL_RECOMPUTE_UNKNOWN},
    {"every_", PL_RECOMPUTE_UNKNOWN},
    {"every_x", PL_RECOMPUTE_UNKNOWN},
    {"every_-1", PL_RECOMPUTE_UNKNOWN},
    {"every_+1", PL_RECOMPUTE_UNKNOWN},
    {"every_1 ", PL_RECOMPUTE_UNKNOWN},
    {"every_0x2", PL_RECOMPUTE_UNKNOWN},
    {"full:", PL_RECOMPUTE_UNKNOWN},
    {"full:x", PL_RECOMPUTE_UNKNOWN},
    {"full:3+", PL_RECOMPUTE_UNKNOWN},
    {"full:+light", PL_RECOMPUTE_UNKNOWN},
    {"full:3+lite", PL_RECOMPUTE_UNKNOWN},
    {"full:3+light+mlp", PL_RECOMPUTE_UNKNOWN},
    {"full:3:4", PL_RECOMPUTE_UNKNOWN},
    {"full:3+offload", PL_RECOMPUTE_OFFLOAD_LAST},
    {"none:4096+offload", PL_RECOMPUTE_OFFLOAD_LAST},
    {"full:0+offload", PL_RECOMPUTE_OUTSIDE},
    {"full:3+offload:2", PL_RECOMPUTE_UNKNOWN},
    {"offload:0+full", PL_RECOMPUTE_OUTSIDE},
    {"offload:4097", PL_RECOMPUTE_OUTSIDE},
    {"offload:3+every_2", PL_RECOMPUTE_UNKNOWN},
    {"every_2+offload", PL_RECOMPUTE_UNKNOWN},
    {"auto:3", PL_RECOMPUTE_UNKNOWN},
    {"full:3+auto", PL_RECOMPUTE_UNKNOWN},
    {":3", PL_RECOMPUTE_UNKNOWN},
    {"every_11111111111111111111111111111111",
     PL_RECOMPUTE_UNKNOWN}, /* no number of so many digits */
};

/* C3 */
START_TEST(other_words_are_refused_and_limits_are_told_apart) {
    uint32_t v = 99;
    ck_assert_msg(pl_recompute_parse(refused[_i].word, &v) == refused[_i].why, "%s",
                  refused[_i].word);
    ck_assert_uint_eq(v, 99);
}
END_TEST

START_TEST(auto_is_a_word_without_a_level) {
    uint32_t v = 99;
    struct pl_text text = {0};
    ck_assert_int_eq(pl_recompute_parse("auto", &v), PL_RECOMPUTE_READ);
    ck_assert_uint_eq(v, PL_RECOMPUTE_AUTO);
    ck_assert(!pl_recompute_offloads(v));
    pl_recompute_print(v, &text);
    ck_assert_str_eq(pl_text_str(&text), "auto");
    pl_text_finish(&text);
}
END_TEST

/* C1: Every pair of levels that may stand together, at smallest, a middle and the largest number of
 * layers. */
START_TEST(every_mix_reads_back_as_itself) {
    static const uint32_t numbers[] = {1, 2, 77, PL_RECOMPUTE_LAYERS_MAX};
    for (uint32_t first = 0; first < PL_RECOMPUTE_PLAIN; first++) {
        for (uint32_t rest = 0; rest < PL_RECOMPUTE_OFFLOAD; rest++) {
            for (int i = 0; i < COUNT(numbers) && first != rest; i++) {
                const uint32_t k = numbers[i], v = PL_RECOMPUTE_MIX(first, k, rest);
                uint32_t again = 0;
                struct pl_text text = {0};
                pl_recompute_print(v, &text);
                ck_assert_uint_eq(strncmp(text.data, plain[first], strlen(plain[first])), 0);
                ck_assert_int_eq(pl_recompute_parse(text.data, &again), PL_RECOMPUTE_READ);
                ck_assert_msg(again == v, "%s", text.data);
                ck_assert_uint_eq(pl_recompute_of_layer(v, k - 1), first);
                ck_assert_uint_eq(pl_recompute_of_layer(v, k), rest);
                pl_text_finish(&text);
            }
        }
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("config.recompute");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, a_word_means_a_level_for_every_layer, 0, COUNT(words));
    tcase_add_loop_test(t, other_words_are_refused_and_limits_are_told_apart, 0, COUNT(refused));
    tcase_add_test(t, auto_is_a_word_without_a_level);
    tcase_add_test(t, every_mix_reads_back_as_itself);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
