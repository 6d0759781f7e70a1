/* check_cards.c - what people type for a GPU leads to its row; the rows are all there. */
#include "estimator/card/budget.h"
#include "estimator/card/cards.h"
#include "estimator/card/traits.h"

#include <check.h>
#include <stdio.h>
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
    {"RTX 5070 Laptop", "RTX 5070 Laptop", false},
    {"A10 laptop", NULL, false},
    {"H100 NVL MIG 1g.12gb", NULL, false},
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

/* Names of GPUs as drivers give them. */
static const struct {
    const char *driver, *row;
} drivers[] = {
    {"NVIDIA A100-SXM4-80GB", "A100 80GB"},
    {"NVIDIA A100-PCIE-40GB", "A100 40GB"},
    {"NVIDIA A100 80GB PCIe", "A100 80GB"},
    {"NVIDIA A100-SXM4-40GB MIG 3g.20gb", "A100 3g.20gb"},
    {"NVIDIA A100X", NULL},
    {"NVIDIA A800-SXM4-80GB", NULL},
    {"NVIDIA H100 80GB HBM3", "H100"},
    {"NVIDIA H100 PCIe", "H100"},
    {"NVIDIA H100 NVL", "H100 NVL"},
    {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100 1g.10gb"},
    {"NVIDIA H100 NVL MIG 1g.12gb", NULL},
    {"NVIDIA H20", NULL},
    {"NVIDIA H200", "H200"},
    {"NVIDIA GH200 480GB", "GH200"},
    {"NVIDIA B200", "B200"},
    {"NVIDIA L4", "L4"},
    {"NVIDIA L20", NULL},
    {"NVIDIA L40", "L40"},
    {"NVIDIA L40S", "L40S"},
    {"Tesla T4", "T4"},
    {"Tesla V100-SXM2-16GB", "V100 16GB"},
    {"Tesla V100-PCIE-32GB", "V100 32GB"},
    {"NVIDIA A10", "A10"},
    {"NVIDIA A10G", "A10G"},
    {"NVIDIA A2", "A2"},
    {"NVIDIA RTX A2000", NULL},
    {"NVIDIA RTX A2000 12GB", "RTX A2000 12GB"},
    {"NVIDIA RTX A400", NULL},
    {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"},
    {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"},
    {"NVIDIA GeForce RTX 4070", "RTX 4070"},
    {"NVIDIA GeForce RTX 4070 Ti", "RTX 4070 Ti"},
    {"NVIDIA GeForce RTX 4070 SUPER", "RTX 4070 SUPER"},
    {"NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"},
    {"NVIDIA GeForce RTX 4070 Laptop GPU", "RTX 4070 Laptop"},
    {"NVIDIA GeForce RTX 5070 Laptop GPU", "RTX 5070 Laptop"},
    {"NVIDIA GeForce RTX 5070 Ti Laptop GPU", "RTX 5070 Ti Laptop"},
    {"NVIDIA GeForce RTX 5060 Laptop GPU", "RTX 5060 Laptop"},
    {"NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"},
    {"NVIDIA GeForce RTX 2080", "RTX 2080"},
    {"NVIDIA GeForce RTX 2080 SUPER", "RTX 2080 SUPER"},
    {"NVIDIA GeForce RTX 2060", "RTX 2060"},
    {"NVIDIA GeForce RTX 2070 with Max-Q Design", "RTX 2070"},
    {"NVIDIA GeForce GTX 1660 Ti", "GTX 1660 Ti"},
    {"GeForce GTX 1650 with Max-Q Design", "GTX 1650"},
    {"NVIDIA TITAN RTX", "TITAN RTX"},
    {"NVIDIA TITAN V", NULL},
    {"NVIDIA T1000 8GB", "T1000 8GB"},
    {"NVIDIA T1000", "T1000"},
    {"NVIDIA GeForce GTX 1080 Ti", NULL},
    {"Quadro RTX 8000", "Quadro RTX 8000"},
    {"NVIDIA Quadro RTX 6000", "Quadro RTX 6000"},
    {"Quadro P5000", NULL},
    {"", NULL},
};

START_TEST(what_a_driver_says_leads_to_its_row_or_to_none) {
    const struct pl_card *c = pl_card_find(drivers[_i].driver);
    const char *row = c ? c->name : "none", *want = drivers[_i].row ? drivers[_i].row : "none";
    ck_assert_msg(strcmp(row, want) == 0, "%s: %s", drivers[_i].driver, row);
}
END_TEST

/* A laptop's GPU and a slice have other memory than the GPU whose name they begin with. */
START_TEST(no_laptop_and_no_slice_is_taken_for_the_whole_gpu) {
    size_t n;
    const struct pl_card *cards = pl_card_table(&n);
    for (size_t i = 0; i < n; i++) {
        char name[64];
        bool ambiguous;
        snprintf(name, sizeof name, "%s Laptop", cards[i].name);
        const struct pl_card *c = pl_card_named(name, &ambiguous);
        ck_assert_msg(!c || c->kind == PL_CARD_LAPTOP, "%s: %s", name, c ? c->name : "");
        snprintf(name, sizeof name, "%s MIG 9g.99gb", cards[i].name);
        if (cards[i].kind == PL_CARD_MIG) continue;
        c = pl_card_named(name, &ambiguous);
        ck_assert_msg(!c, "%s: %s", name, c ? c->name : "");
        ck_assert_ptr_null(pl_card_find(name));
    }
}
END_TEST

START_TEST(an_older_gpu_is_refused_with_its_capability) {
    struct pl_diag d = {0};
    const struct pl_traits old = pl_traits_cuda(72), least = pl_traits_cuda(PL_CARD_OLDEST_SM);
    const struct pl_traits cpu = pl_traits_cpu(0);
    ck_assert_int_eq(pl_card_check_sm("cuda:0 (Tesla V100)", 70, &d), PL_ERR_NO_DEVICE);
    ck_assert_str_eq(d.message, "cuda:0 (Tesla V100) has compute capability 7.0; the kernels "
                                "need 7.5 (Turing) or later");
    ck_assert_int_eq(pl_card_check_sm("x", PL_CARD_OLDEST_SM, NULL), PL_ERR_OK);
    ck_assert(!pl_traits_run(&old) && pl_traits_run(&least) && pl_traits_run(&cpu));
    ck_assert_uint_eq(cpu.threads, 1); /* at least */
    ck_assert_uint_eq(least.pinned_bytes, PL_CUDA_STAGING_BYTES + PL_CUDA_RING_BYTES);
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
    tcase_add_loop_test(tc, what_a_driver_says_leads_to_its_row_or_to_none, 0, COUNT(drivers));
    tcase_add_test(tc, no_laptop_and_no_slice_is_taken_for_the_whole_gpu);
    tcase_add_test(tc, an_older_gpu_is_refused_with_its_capability);
    tcase_add_loop_test(tc, what_is_usable_never_wraps_around, 0, COUNT(budgets));
    tcase_add_test(tc, a_name_of_megabytes_is_near_nothing_and_says_so_at_once);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
