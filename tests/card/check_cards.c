/* check_cards.c - what people type for a GPU leads to its row; the rows are all there. */
#include "estimator/card/budget.h"
#include "estimator/card/cards.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *typed, *row;
    bool ambiguous;
} typed[] = {
    {"RTX 4090", "RTX 4090", false},
    {"rtx4090", "RTX 4090", false},
    {"4090", "RTX 4090", false},
    {"rtx-4070-ti-super", "RTX 4070 Ti SUPER", false},
    {"4070 ti", "RTX 4070 Ti", false},
    {"RTX_3060_Laptop", "RTX 3060 Laptop", false},
    {"NVIDIA GeForce RTX 4080 SUPER", "RTX 4080 SUPER", false},
    {"geforce rtx 3090", "RTX 3090", false},
    {"Tesla T4", "T4", false},
    {"t4", "T4", false},
    {"A100-80GB", "A100 80GB", false},
    {"a100 40gb", "A100 40GB", false},
    {"NVIDIA A100-SXM4-80GB", "A100 80GB", false},
    {"A100", "A100 40GB", true},
    {"V100", "V100 16GB", true},
    {"H100", "H100", false},
    {"H100 80GB", "H100", false},
    {"H100 1g.10gb", "H100 1g.10gb", false},
    {"A6000", "RTX A6000", false},
    {"RTX 6000 Ada Generation", "RTX 6000 Ada", false},
    {"RTX 9999", NULL, false},
    {"RTX 3050 6GB", "RTX 3050 6GB", false},
    {"RTX 3050", "RTX 3050", false},
    {"3080-12GB", "RTX 3080 12GB", false},
    {"NVIDIA GeForce RTX 3080", "RTX 3080", false},
    {"RTX 4090 24GB", "RTX 4090", false},
    {"RTX 4090 48GB", NULL, false},
    {"1g.5gb", "A100 1g.5gb", false},
    {"1g.10gb", "A100 1g.10gb", true},
    {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100 1g.5gb", false},
    {"A1000", NULL, false},
    {"1g.5g", NULL, false},
    {"nvidia", NULL, false},
    {"  ", NULL, false},
    {"", NULL, false},
};

START_TEST(what_people_type_leads_to_the_row_they_mean) {
    bool ambiguous = true;
    const struct pl_card *c = pl_card_named(typed[_i].typed, &ambiguous);
    if (typed[_i].row) {
        ck_assert_msg(c != NULL, "%s", typed[_i].typed);
        ck_assert_str_eq(c->name, typed[_i].row);
    } else {
        ck_assert_msg(c == NULL, "%s: %s", typed[_i].typed, c ? c->name : "");
    }
    ck_assert_int_eq(ambiguous, typed[_i].ambiguous);
}
END_TEST

/* Nothing is answered for one GPU that was asked about two, or about a device without kernels. */
START_TEST(what_is_no_single_nvidia_gpu_is_refused_as_what_it_is) {
    static const struct {
        const char *typed, *message;
    } rows[] = {{"RTX 4090 x2", "more than one GPU"},
                {"2x A100", "more than one GPU"},
                {"MI300X", "NVIDIA GPUs"},
                {"AMD Radeon RX 7900 XTX", "NVIDIA GPUs"},
                {"Apple M3 Max", "NVIDIA GPUs"},
                {"TPU v4", "NVIDIA GPUs"},
                {"RTX 4090 48GB", "no GPU of the table"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pl_card *c;
        struct pl_diag d = {0};
        bool ambiguous;
        ck_assert_int_eq(pl_card_require(rows[i].typed, &c, &ambiguous, &d), PL_ERR_USAGE);
        ck_assert_msg(strstr(d.message, rows[i].message) != NULL, "%s: %s", rows[i].typed,
                      d.message);
        ck_assert_ptr_null(c);
    }
}
END_TEST

START_TEST(a_misspelt_card_has_neighbours) {
    const char *near[3];
    ck_assert_uint_eq(pl_card_nearest("RTX 4091", near, 3), 3);
    ck_assert_str_eq(near[0], "RTX 4090");
    ck_assert_uint_eq(pl_card_nearest("zzzzzzzzzzz", near, 3), 0);
}
END_TEST

/* Every GPU that the documents of this kind of tool name, and every kind. */
static const char *const expected[] = {
    "T4",
    "RTX 3090",
    "RTX 4090",
    "A100 40GB",
    "A100 80GB",
    "RTX 4080",
    "RTX 5080",
    "RTX 4070 Ti SUPER",
    "RTX 5090",
    "H100",
    "H200",
    "L4",
    "A10G",
    "RTX A6000",
    "RTX 6000 Ada",
    "A100 1g.5gb",
    "RTX 4060 Laptop",
    "L40S",
    "V100 16GB",
    "RTX 3050 Laptop",
};

START_TEST(the_table_has_at_least_forty_cards_of_every_kind_and_each_is_found_by_its_name) {
    size_t n;
    uint32_t kinds = 0;
    bool ambiguous;
    const struct pl_card *cards = pl_card_table(&n);
    ck_assert_uint_ge(n, 40);
    for (size_t i = 0; i < n; i++) {
        kinds |= 1u << cards[i].kind;
        ck_assert_ptr_eq(pl_card_named(cards[i].name, &ambiguous), &cards[i]);
        ck_assert_ptr_eq(pl_card_find(cards[i].name), &cards[i]);
        ck_assert_str_ne(cards[i].source, "");
        ck_assert_str_ne(cards[i].context_source, "");
        ck_assert_uint_lt(cards[i].visible_bytes, (uint64_t)cards[i].nameplate_gb << 30);
    }
    ck_assert_uint_eq(kinds, (1u << (PL_CARD_LAPTOP + 1)) - 1);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        ck_assert_str_eq(pl_card_named(expected[i], &ambiguous)->name, expected[i]);
}
END_TEST

START_TEST(a_guessed_context_is_doubted_more_than_a_measured_one) {
    bool ambiguous;
    const struct pl_card *measured = pl_card_named("T4", &ambiguous);
    const struct pl_card *guessed = pl_card_named("A30", &ambiguous);
    ck_assert_uint_eq(pl_card_context_doubt(measured), measured->context_bytes / 4);
    ck_assert_uint_eq(pl_card_context_doubt(guessed), guessed->context_bytes / 2);
}
END_TEST

static const struct {
    struct pl_budget budget;
    uint64_t usable;
} budgets[] = {
    {{.total_bytes = 1000}, 1000},
    {{.total_bytes = 1000, .margin_bytes = 100, .context_bytes = 200, .doubt_bytes = 50}, 650},
    {{.total_bytes = 1000, .margin_bytes = 100, .context_bytes = 800, .doubt_bytes = 100}, 0},
    {{.total_bytes = 1000, .margin_bytes = 2000}, 0},
    {{.total_bytes = 1000, .margin_bytes = UINT64_MAX, .context_bytes = UINT64_MAX}, 0},
    {{.total_bytes = 1000, .margin_bytes = 900, .context_bytes = 200}, 0},
};

START_TEST(what_is_usable_never_wraps_around) {
    ck_assert_uint_eq(pl_budget_usable(&budgets[_i].budget), budgets[_i].usable);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

/* Distances are tried from 0 up to half the length of the word. */
START_TEST(a_name_of_megabytes_is_near_nothing_and_says_so_at_once) {
    const size_t n = (size_t)16 << 20;
    const char *near[3];
    char *word = malloc(n + 1);
    ck_assert_ptr_nonnull(word);
    memset(word, 'a', n);
    word[n] = 0;
    ck_assert_uint_eq(pl_card_nearest(word, near, 3), 0);
    free(word);
}
END_TEST

int main(void) {
    Suite *s = suite_create("card.cards");
    TCase *tc = tcase_create("cards");
    tcase_add_loop_test(tc, what_people_type_leads_to_the_row_they_mean, 0, COUNT(typed));
    tcase_add_test(tc, what_is_no_single_nvidia_gpu_is_refused_as_what_it_is);
    tcase_add_test(tc, a_misspelt_card_has_neighbours);
    tcase_add_test(tc,
                   the_table_has_at_least_forty_cards_of_every_kind_and_each_is_found_by_its_name);
    tcase_add_test(tc, a_guessed_context_is_doubted_more_than_a_measured_one);
    tcase_add_loop_test(tc, what_is_usable_never_wraps_around, 0, COUNT(budgets));
    tcase_add_test(tc, a_name_of_megabytes_is_near_nothing_and_says_so_at_once);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
