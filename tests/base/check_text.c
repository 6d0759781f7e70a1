/* check_text.c - the growable string, texts in a caller's array, and spelling hints. */
#include "estimator/base/alloc.h"
#include "estimator/base/text.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static uint64_t state;

static size_t draw(size_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % n;
}

/* Pieces of every length, NUL among them, by all three calls, against one plain array. */
START_TEST(what_was_appended_is_there_byte_for_byte) {
    static char want[1 << 16];
    size_t n = 0;
    struct pl_text t = {0};
    state = (uint64_t)_i;
    ck_assert_str_eq(pl_text_str(&t), "");
    while (n < sizeof want - 1200) {
        char piece[1024];
        const size_t length = draw(sizeof piece - 1);
        for (size_t i = 0; i < length; i++)
            piece[i] = (char)(1 + draw(255));
        piece[length] = 0;
        switch (draw(3)) {
        case 0:
            pl_text_add(&t, piece);
            break;
        case 1:
            pl_text_addf(&t, "%s", piece);
            break;
        default:
            if (length) piece[draw(length)] = 0;
            pl_text_addn(&t, piece, length);
        }
        memcpy(want + n, piece, length);
        n += length;
        ck_assert(!t.failed);
        ck_assert_uint_eq(t.len, n);
        ck_assert_uint_lt(t.len, t.cap);
        ck_assert_int_eq(t.data[n], 0);
    }
    ck_assert_mem_eq(t.data, want, n);
    pl_text_finish(&t);
    ck_assert_ptr_null(t.data);
    ck_assert_uint_eq(t.len + t.cap, 0);
}
END_TEST

START_TEST(nothing_is_appended_after_a_request_that_failed) {
    char piece[300];
    struct pl_text t = {0};
    memset(piece, 'x', sizeof piece);
    pl_text_add(&t, "begin ");
    pl_alloc_fail(1, 1);
    pl_text_addn(&t, piece, sizeof piece);
    pl_alloc_fail(0, 0);
    ck_assert(t.failed);
    pl_text_add(&t, "end"); /* there would be room */
    pl_text_addf(&t, "%d", 7);
    ck_assert(t.failed);
    ck_assert_str_eq(pl_text_str(&t), "begin ");
    pl_text_finish(&t);
    ck_assert(!t.failed);
    pl_text_add(&t, "again");
    ck_assert_str_eq(pl_text_str(&t), "again");
    pl_text_finish(&t);
}
END_TEST

START_TEST(a_text_in_an_array_takes_what_its_array_holds) {
    char room[8] = "";
    struct pl_text t = PL_TEXT_FIXED(room);
    pl_text_add(&t, "1234");
    pl_text_addf(&t, "%d", 567);
    ck_assert(!t.failed);
    ck_assert_str_eq(room, "1234567");
    pl_text_add(&t, "8"); /* a ninth byte would be its NUL */
    ck_assert(t.failed);
    ck_assert_str_eq(room, "1234567");
    const uint64_t before = pl_alloc_requests();
    struct pl_text again = PL_TEXT_FIXED(room);
    pl_text_addf(&again, "%s", "123456789");
    ck_assert(again.failed);
    ck_assert_uint_eq(again.len, 0);
    pl_text_finish(&again); /* frees nothing: the array is not from malloc */
    ck_assert_uint_eq(pl_alloc_requests(), before);
}
END_TEST

static const char *const names[] = {"batch_size",    "lora_r", "lora_alpha",
                                    "learning_rate", "seed",   "max_steps"};

static const struct {
    const char *word, *nearest; /* NULL: none is near */
} words[] = {
    {"batchsize", "batch_size"},
    {"batch_siez", "batch_size"},
    {"lora_r", "lora_r"},
    {"lora_rr", "lora_r"},
    {"lorar", "lora_r"},
    {"sed", "seed"},
    {"eeds", "seed"},
    {"max_step", "max_steps"},
    {"leraning_rate", "learning_rate"},
    {"x", NULL},
    {"", NULL},
    {"optimizer", NULL},
    {"loralpha", "lora_alpha"},
    {"LORA_R", NULL},
};

START_TEST(a_misspelt_word_leads_to_the_nearest_name) {
    const char *nearest = pl_text_nearest(words[_i].word, names, sizeof names / sizeof *names);
    if (words[_i].nearest) {
        ck_assert_msg(nearest != NULL, "%s: none", words[_i].word);
        ck_assert_str_eq(nearest, words[_i].nearest);
    } else {
        ck_assert_msg(nearest == NULL, "%s: %s", words[_i].word, nearest ? nearest : "");
    }
}
END_TEST

/* The plain recursion of the definition. */
static size_t slow_distance(const char *a, const char *b) {
    if (!*a) return strlen(b);
    if (!*b) return strlen(a);
    size_t best = slow_distance(a + 1, b + 1) + (*a != *b);
    const size_t out = slow_distance(a + 1, b) + 1, in = slow_distance(a, b + 1) + 1;
    if (out < best) best = out;
    return in < best ? in : best;
}

/* One name at a time: it is near exactly when its distance is at most 1 + length / 3. */
START_TEST(near_is_what_the_header_says) {
    int near = 0, far = 0;
    state = 11;
    for (int round = 0; round < 3000; round++) {
        char word[7], name[7];
        const size_t lw = draw(sizeof word), ln = draw(sizeof name);
        for (size_t i = 0; i < lw; i++)
            word[i] = (char)('a' + draw(3));
        for (size_t i = 0; i < ln; i++)
            name[i] = (char)('a' + draw(3));
        word[lw] = name[ln] = 0;
        const char *const one[] = {name};
        const bool want = slow_distance(word, name) <= 1 + lw / 3;
        ck_assert_msg((pl_text_nearest(word, one, 1) != NULL) == want, "%s %s", word, name);
        near += want;
        far += !want;
    }
    ck_assert_int_gt(near, 200);
    ck_assert_int_gt(far, 200);
}
END_TEST

START_TEST(of_equally_near_names_the_first_is_taken) {
    static const char *const cards[] = {"RTX 4080", "RTX 4090", "RTX 4070", "RTX 3090", "A100"};
    const char *out[16];
    ck_assert_str_eq(pl_text_nearest("RTX 4060", cards, 5), "RTX 4080");
    ck_assert_uint_eq(pl_text_nearest_few("rtx 4060", cards, 5, out, 16), 4);
    ck_assert_str_eq(out[0], "RTX 4080");
    ck_assert_str_eq(out[1], "RTX 4090");
    ck_assert_str_eq(out[2], "RTX 4070");
    ck_assert_str_eq(out[3], "RTX 3090");
    /* the same order whatever the number that is asked for */
    for (size_t most = 0; most <= 4; most++) {
        const char *few[5] = {0};
        ck_assert_uint_eq(pl_text_nearest_few("rtx 4060", cards, 5, few, most), most);
        for (size_t i = 0; i < most; i++)
            ck_assert_ptr_eq(few[i], out[i]);
        ck_assert_ptr_null(few[most]);
    }
}
END_TEST

START_TEST(the_nearest_come_first_wherever_they_stand) {
    static const char *const table[] = {"abcdxx", "abcdex", "zzzzzz", "abcdef", "abxxxx", "ABCDEF"};
    const char *out[4];
    ck_assert_uint_eq(pl_text_nearest_few("abcdef", table, 6, out, 4), 4);
    ck_assert_str_eq(out[0], "abcdef");
    ck_assert_str_eq(out[1], "ABCDEF"); /* letter case aside */
    ck_assert_str_eq(out[2], "abcdex");
    ck_assert_str_eq(out[3], "abcdxx");
}
END_TEST

/* 64 letters are compared; 65 are near nothing, as a word and as a name. */
START_TEST(long_words_are_near_nothing) {
    char word[67], longer[67];
    const char *out[3];
    memset(word, 'a', 64);
    word[64] = 0;
    memset(longer, 'a', 65);
    longer[65] = 0;
    const char *const both[] = {longer, word};
    ck_assert_ptr_eq(pl_text_nearest(word, both, 2), word);
    ck_assert_ptr_null(pl_text_nearest(longer, both, 2));
    ck_assert_uint_eq(pl_text_nearest_few(word, both, 2, out, 3), 1);
    ck_assert_ptr_eq(out[0], word);
    ck_assert_uint_eq(pl_text_nearest_few(longer, both, 2, out, 3), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base.text");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, what_was_appended_is_there_byte_for_byte, 0, 4);
    tcase_add_test(t, nothing_is_appended_after_a_request_that_failed);
    tcase_add_test(t, a_text_in_an_array_takes_what_its_array_holds);
    tcase_add_loop_test(t, a_misspelt_word_leads_to_the_nearest_name, 0, COUNT(words));
    tcase_add_test(t, near_is_what_the_header_says);
    tcase_add_test(t, of_equally_near_names_the_first_is_taken);
    tcase_add_test(t, the_nearest_come_first_wherever_they_stand);
    tcase_add_test(t, long_words_are_near_nothing);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
