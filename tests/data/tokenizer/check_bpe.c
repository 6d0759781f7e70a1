/* check_bpe.c - merging against a plain reference, short and long pieces, and where tokens begin.
 */
#include "runtime/data/tokenizer/bpe.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 3, MERGES = 60, LONGEST = 400 };

static uint64_t state;
static uint32_t draw(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

struct model {
    struct pl_vocab vocab;
    struct pl_bpe bpe;
    struct pl_bpe_scratch scratch;
    int32_t left[MERGES], right[MERGES], result[MERGES];
    uint32_t n;
};

/* Pieces are made by merging two that are there: the way training makes them, without the text. */
static void model_make(struct model *m, uint64_t seed) {
    char joined[256];
    size_t a, b;
    *m = (struct model){0};
    state = seed;
    for (uint32_t i = 0; i < LETTERS; i++)
        ck_assert(pl_vocab_put(&m->vocab, i, &(char){(char)('a' + (int)i)}, 1));
    ck_assert(pl_bpe_reserve(&m->bpe, MERGES));
    m->scratch = (struct pl_bpe_scratch){0};
    while (m->n < MERGES) {
        int32_t left = (int32_t)draw(m->vocab.size), right = (int32_t)draw(m->vocab.size);
        const char *l = pl_vocab_piece(&m->vocab, left, &a);
        const char *r = pl_vocab_piece(&m->vocab, right, &b);
        if (a + b > 40) continue;
        memcpy(joined, l, a);
        memcpy(joined + a, r, b);
        bool twice = false;
        for (uint32_t i = 0; i < m->n; i++)
            twice = twice || (m->left[i] == left && m->right[i] == right);
        if (twice) continue;
        int32_t id = pl_vocab_find(&m->vocab, joined, a + b);
        if (id < 0) {
            id = (int32_t)m->vocab.size;
            ck_assert(pl_vocab_put(&m->vocab, (uint32_t)id, joined, a + b));
        }
        pl_bpe_add_merge(&m->bpe, left, right, id);
        m->left[m->n] = left;
        m->right[m->n] = right;
        m->result[m->n++] = id;
    }
    m->bpe.vocab = &m->vocab;
    m->bpe.unk = -1;
    for (int c = 0; c < 256; c++) {
        m->bpe.single[c] = c >= 'a' && c < 'a' + LETTERS ? c - 'a' : -1;
        m->bpe.fallback[c] = -1;
    }
}

static void model_free(struct model *m) {
    pl_bpe_scratch_finish(&m->scratch);
    pl_bpe_finish(&m->bpe);
    pl_vocab_finish(&m->vocab);
}

/* Rank by rank would not do: a merge may make a pair of a lower rank. */
static size_t reference(const struct model *m, const char *text, size_t n, int32_t *ids) {
    for (size_t i = 0; i < n; i++)
        ids[i] = text[i] - 'a';
    for (;;) {
        size_t at = 0;
        uint32_t best = m->n;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t r = 0; r < best; r++)
                if (m->left[r] == ids[i] && m->right[r] == ids[i + 1]) {
                    best = r;
                    at = i;
                }
        if (best == m->n) return n;
        ids[at] = m->result[best];
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void encode(struct model *m, const char *text, size_t n, struct pl_token_list *out) {
    struct pl_span piece = {.s = text, .n = n, .base = 1000};
    out->n = out->all = 0;
    ck_assert_int_eq(pl_bpe_encode(&m->bpe, &m->scratch, &piece, out, NULL), PL_ERR_OK);
}

/* E1 of bpe.h; tokens begin where S1 of span.h says */
START_TEST(the_lowest_rank_goes_first_and_of_equal_ones_the_leftmost) {
    struct model m;
    struct pl_token_list got = {0};
    char text[LONGEST];
    int32_t want[LONGEST];
    model_make(&m, (uint64_t)_i + 1);
    for (size_t n = 1; n < LONGEST; n += n < 80 ? 1 : 37) {
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + draw(i % 7 ? 2 : LETTERS));
        size_t n_want = reference(&m, text, n, want);
        for (int twice = 0; twice < 2; twice++) { /* the second time from the cache */
            encode(&m, text, n, &got);
            ck_assert_msg(got.n == n_want && !memcmp(got.ids, want, n_want * sizeof *want),
                          "%.*s, time %d: %llu tokens, expected %zu", (int)n, text, twice + 1,
                          (unsigned long long)got.n, n_want);
            uint64_t at = 1000;
            for (size_t i = 0; i < n_want; i++) {
                size_t bytes;
                ck_assert_uint_eq(got.starts[i], at);
                ck_assert_ptr_nonnull(pl_vocab_piece(&m.vocab, want[i], &bytes));
                at += bytes;
            }
            ck_assert_uint_eq(at, 1000 + n);
        }
    }
    pl_token_list_finish(&got);
    model_free(&m);
}
END_TEST

/* E2 of bpe.h. Quadratic time would be 10^13 steps: the time limit of the test would end it. */
START_TEST(four_million_letters_in_one_piece_are_merged) {
    struct model m;
    struct pl_token_list got = {0};
    size_t n = (size_t)4 << 20;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    model_make(&m, 1);
    if (pl_vocab_find(&m.vocab, "aa", 2) < 0) {
        int32_t id = (int32_t)m.vocab.size;
        ck_assert(pl_vocab_put(&m.vocab, m.vocab.size, "aa", 2));
        m.bpe.n_merges--; /* in the place of the last */
        pl_bpe_add_merge(&m.bpe, 0, 0, id);
    }
    memset(text, 'a', n);
    encode(&m, text, n, &got);
    ck_assert_uint_le(got.n, n / 2);
    pl_token_list_finish(&got);
    model_free(&m);
    free(text);
}
END_TEST

/* A long piece is cut where no merge reaches: its tokens are those of the whole. */
START_TEST(a_long_piece_has_the_tokens_of_the_whole) {
    struct model m;
    struct pl_token_list whole = {0}, cut = {0}, few = {.most = 7};
    const size_t n = 300000;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    model_make(&m, (uint64_t)_i + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + draw(LETTERS + _i % 2)); /* the last one has no piece */
    encode(&m, text, n, &whole);
    pl_bpe_find_joins(&m.bpe);
    ck_assert(m.bpe.cuts);
    encode(&m, text, n, &cut);
    encode(&m, text, n, &few);
    ck_assert_uint_eq(cut.n, whole.n);
    ck_assert_int_eq(memcmp(cut.ids, whole.ids, whole.n * sizeof *whole.ids), 0);
    for (uint64_t i = 0; i < whole.n && _i % 2 == 0; i++)
        if (cut.starts[i] != whole.starts[i]) ck_abort_msg("token %llu", (unsigned long long)i);
    ck_assert_uint_eq(few.n, 7);
    ck_assert_uint_eq(few.all, whole.n);
    ck_assert_int_eq(few.last, whole.ids[whole.n - 1]);
    ck_assert_int_eq(memcmp(few.ids, whole.ids, 7 * sizeof *whole.ids), 0);
    pl_token_list_finish(&whole);
    pl_token_list_finish(&cut);
    pl_token_list_finish(&few);
    model_free(&m);
    free(text);
}
END_TEST

START_TEST(unknown_characters_fuse_fall_back_or_leave_nothing) {
    static const struct {
        bool fuse;
        int32_t unk;
        int n;
        int32_t ids[6];
    } cases[] = {
        {true, 2, 3, {0, 2, 1}},
        {false, 2, 4, {0, 2, 2, 1}},
        {false, -1, 2, {0, 1}},
    };
    struct model m;
    struct pl_token_list got = {0};
    model_make(&m, 1);
    m.bpe.n_slots = 256; /* no merges */
    for (uint64_t i = 0; i < m.bpe.n_slots; i++)
        m.bpe.merges[i].pair = UINT64_MAX;
    m.bpe.fuse_unk = cases[_i].fuse;
    m.bpe.unk = cases[_i].unk;
    encode(&m, "axyb", 4, &got);
    ck_assert_uint_eq(got.n, (uint64_t)cases[_i].n);
    ck_assert_mem_eq(got.ids, cases[_i].ids, (size_t)cases[_i].n * sizeof *got.ids);
    m.bpe.fallback['x'] = 7;
    m.bpe.fallback['y'] = 8;
    encode(&m, "axyba", 5, &got);
    ck_assert_mem_eq(got.ids, ((int32_t[]){0, 7, 8, 1, 0}), 5 * sizeof *got.ids);
    pl_token_list_finish(&got);
    model_free(&m);
}
END_TEST

/* V3 of vocab.h */
START_TEST(ids_may_have_gaps) {
    struct pl_vocab v = {0};
    size_t n;
    ck_assert(pl_vocab_put(&v, 7, "the", 3));
    ck_assert(pl_vocab_put(&v, 2, "a", 1));
    ck_assert_uint_eq(v.size, 8);
    ck_assert_int_eq(pl_vocab_find(&v, "the", 3), 7);
    ck_assert_int_eq(pl_vocab_find(&v, "th", 2), -1);
    for (int64_t id = -1; id < 9; id++) {
        const char *piece = pl_vocab_piece(&v, id, &n);
        ck_assert_int_eq(piece != NULL, id == 2 || id == 7);
    }
    pl_vocab_finish(&v);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bpe");
    TCase *t = tcase_create("merging");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_lowest_rank_goes_first_and_of_equal_ones_the_leftmost, 0, 8);
    tcase_add_test(t, four_million_letters_in_one_piece_are_merged);
    tcase_add_loop_test(t, a_long_piece_has_the_tokens_of_the_whole, 0, 8);
    tcase_add_loop_test(t, unknown_characters_fuse_fall_back_or_leave_nothing, 0, 3);
    tcase_add_test(t, ids_may_have_gaps);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
