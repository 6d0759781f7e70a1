/* check_proportion.c - host memory stays in proportion to the bytes of a file from elsewhere: small
 * files that would become large trees are refused, large ones as real files have them are read.
 * Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define MIB UINT64_C(1048576)
#ifdef __SANITIZE_ADDRESS__
#define OWN (512 * MIB) /* AddressSanitizer keeps what was freed, and has shadows of all */
#else
#define OWN (24 * MIB) /* memory of the process without any file */
#endif

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    file_write(in_dir(dir, "in"), "{\"text\":\"abc\"}\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* One assertion for all: each writes to a pipe of Check. */
static void repeat(FILE *f, const char *s, uint64_t times) {
    bool written = true;
    for (; times; times--)
        written = fputs(s, f) >= 0 && written;
    ck_assert(written);
}

static uint64_t bytes_of(const char *path) {
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

/* begin, times x s, end */
static uint64_t write_long(const char *name, const char *begin, const char *s, uint64_t times,
                           const char *end) {
    FILE *f = fopen(in_dir(dir, name), "wb");
    ck_assert_ptr_nonnull(f);
    repeat(f, begin, 1);
    repeat(f, s, times);
    repeat(f, end, 1);
    ck_assert_int_eq(fclose(f), 0);
    return bytes_of(in_dir(dir, name));
}

static void expect(const char *command, int status, const char *named, uint64_t most_bytes) {
    const char *argv[] = {"sh", "-c", command, getenv("PLIMSOLL"), NULL};
    struct outcome o = child_run(argv, dir, HANG_SECONDS);
    ck_assert_msg(!o.timed_out && o.status == status, "%s: %d: %s", command, o.status, o.err);
    ck_assert_msg(strstr(o.err, named), "%s", o.err);
    ck_assert_msg(o.peak_bytes <= most_bytes, "%s: %llu MiB at the most, not %llu", command,
                  (unsigned long long)(o.peak_bytes / MIB), (unsigned long long)(most_bytes / MIB));
    outcome_finish(&o);
}

#define TOKENIZE "exec \"$0\" tokenize --json --tokenizer . <in"
#define BPE      "{\"model\": {\"type\": \"BPE\", "

START_TEST(a_small_archive_of_a_large_file) {
    gzFile z = gzopen(in_dir(dir, "tokenizer.json.gz"), "wb9");
    char block[4096];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = i % 2 ? ',' : '0';
    ck_assert_ptr_nonnull(z);
    ck_assert_int_gt(gzputs(z, "{\"added_tokens\": ["), 0);
    bool written = true;
    for (int i = 0; i < 16384; i++)
        written = gzwrite(z, block, sizeof block) == sizeof block && written;
    ck_assert(written);
    ck_assert_int_gt(gzputs(z, "0]}"), 0);
    ck_assert_int_eq(gzclose(z), Z_OK);
    ck_assert_uint_lt(bytes_of(in_dir(dir, "tokenizer.json.gz")), 128 << 10);
    expect(TOKENIZE, 5, "100 times its size", OWN);
}
END_TEST

/* D1 of tokenizer_document.h */
START_TEST(values_of_a_tokenizer_outside_of_its_lists) {
    static const char *const values[] = {"[],", "{},", "0,", "\"\",", "[[0]],"};
    uint64_t bytes = write_long("tokenizer.json", "{\"added_tokens\": [", values[_i],
                                (6 << 20) / strlen(values[_i]), "0]}");
    expect(TOKENIZE, 5, "more values", OWN + 3 * bytes);
    bytes = write_long("tokenizer.json", "{\"added_tokens\": [", values[_i],
                       (20 << 20) / strlen(values[_i]), "0]}");
    expect(TOKENIZE, 5, "above 8 MiB", OWN + 3 * bytes);
}
END_TEST

START_TEST(values_of_a_tokenizer_config) {
    scratch_copy(TOKENIZERS "/qwen2_style", in_dir(dir, "tok"));
    const uint64_t bytes =
        write_long("tok/tokenizer_config.json", "{\"x\": [", "[],", 2 << 20, "0]}");
    expect("exec \"$0\" tokenize --json --tokenizer tok <in", 5, "more values", OWN + 3 * bytes);
}
END_TEST

START_TEST(more_merges_than_any_tokenizer_has) {
    const uint64_t bytes = write_long(
        "tokenizer.json", BPE "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [",
        "\"a b\",", 3 << 20, "\"a b\"]}}");
    expect(TOKENIZE, 5, "`model.merges` is too long", OWN + 3 * bytes);
}
END_TEST

START_TEST(an_id_far_from_all_others) {
    write_long("tokenizer.json", BPE "\"vocab\": {\"a\": ", "2097151", 1, "}, \"merges\": []}}");
    expect(TOKENIZE, 0, "", OWN + 32 * MIB);
    write_long("tokenizer.json", BPE "\"vocab\": {\"a\": ", "8388607", 1, "}, \"merges\": []}}");
    expect(TOKENIZE, 5, "no integer below", OWN);
}
END_TEST

START_TEST(values_of_a_config) {
    static const char *const values[] = {"[],", "{},", "0,", "\"\","};
    write_long("config.json", "{\"x\": [", values[_i], (4000000) / strlen(values[_i]), "0]}");
    expect("exec \"$0\" estimate-vram config.json --json", 5, "more values", OWN);
}
END_TEST

/* 266,304 pieces and 528,384 merges, as the largest published tokenizers have: every string of one
 * to three of 64 characters. */
START_TEST(a_tokenizer_as_large_as_real_ones_is_read) {
    FILE *f = fopen(in_dir(dir, "tokenizer.json"), "wb");
    unsigned id = 0;
    ck_assert_ptr_nonnull(f);
    fprintf(f, BPE "\"vocab\": {\n");
    for (int i = '0'; i < '0' + 64; i++)
        fprintf(f, i == '\\' ? "\"\\%c\": %u,\n" : "\"%c\": %u,\n", i, id++);
#define EACH(c) for (int c = '0'; c < '0' + 64; c++)
#define CHAR(c) ((c) == '\\' ? "\\" : ""), (c)
    EACH(a) EACH(b) fprintf(f, "\"%s%c%s%c\": %u,\n", CHAR(a), CHAR(b), id++);
    EACH(a) EACH(b) EACH(c) fprintf(f, "\"%s%c%s%c%s%c\": %u,\n", CHAR(a), CHAR(b), CHAR(c), id++);
    fprintf(f, "\"none\": %u}, \"merges\": [\n", id);
    EACH(a) EACH(b) fprintf(f, "[\"%s%c\", \"%s%c\"],\n", CHAR(a), CHAR(b));
    EACH(a)
    EACH(b)
    EACH(c)
    fprintf(f, "[\"%s%c%s%c\", \"%s%c\"],\n[\"%s%c\", \"%s%c%s%c\"],\n", CHAR(a), CHAR(b), CHAR(c),
            CHAR(a), CHAR(b), CHAR(c));
    fprintf(f, "\"0 0\"]}}\n");
    ck_assert_int_eq(fclose(f), 0);
    const uint64_t bytes = bytes_of(in_dir(dir, "tokenizer.json"));
    ck_assert_uint_gt(bytes, 10 * MIB);
    /* the text, pieces and merges, and hash tables whose slots are rounded up to powers of two */
    expect(TOKENIZE, 0, "", OWN + 5 * bytes);
}
END_TEST

/* A row far beyond max_seq_length, as one message and as many. */
START_TEST(a_long_row_of_messages) {
    static const char begin[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
                                "{\"role\":\"assistant\",\"content\":\"";
    static const char *const parts[] = {
        "to be or not to be, ",
        "a\"},{\"role\":\"user\",\"content\":\"and so on, for long enough to be of use, or not, "
        "as it was said before\"},{\"role\":\"assistant\",\"content\":\"b"};
    static const char job[] = "model_config: config.json\ninit: random\nmode: full\ntokenizer: "
                              "byte\nchat_template: chatml\n"
                              "datasets: [rows.jsonl]\nmax_seq_length: 512\ndataset_cache: off\n";
    file_write(in_dir(dir, "config.json"),
               "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, "
               "\"intermediate_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
               "\"max_position_embeddings\": 512}");
    file_write(in_dir(dir, "job.yaml"), job);
    const uint64_t bytes =
        write_long("rows.jsonl", begin, parts[_i], 20 * MIB / strlen(parts[_i]), "\"}]}\n");
    expect("exec \"$0\" tokenize job.yaml", 0, "cut to it", OWN + 8 * bytes);
}
END_TEST

int main(void) {
    Suite *s = suite_create("proportion");
    TCase *c = tcase_create("proportion");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, a_small_archive_of_a_large_file);
    tcase_add_loop_test(c, values_of_a_tokenizer_outside_of_its_lists, 0, 5);
    tcase_add_test(c, values_of_a_tokenizer_config);
    tcase_add_test(c, more_merges_than_any_tokenizer_has);
    tcase_add_test(c, an_id_far_from_all_others);
    tcase_add_loop_test(c, values_of_a_config, 0, 4);
    tcase_add_test(c, a_tokenizer_as_large_as_real_ones_is_read);
    tcase_add_loop_test(c, a_long_row_of_messages, 0, 2);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
