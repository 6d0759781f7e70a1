/* check_tensorboard.c - events files, read back by a reader of their own framing.
 *
 * The reader's crc comes from a table made another way than the writer's, and is checked against
 * the vectors of RFC 3720, B.4. */
#include "runtime/report/report.h"

#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/plimsoll-tb-XXXXXX", runs[64];

static void setup(void) {
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(runs, sizeof runs, "%s/runs", dir);
}

/* Calls nothing for "." and ".."; returns how many files there are, the last one's path in out. */
static int list_files(char *out, size_t cap, bool remove_them) {
    int n = 0;
    DIR *d = opendir(runs);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(out, cap, "%s/%s", runs, e->d_name);
        if (remove_them) unlink(out);
        n++;
    }
    closedir(d);
    return n;
}

static void teardown(void) {
    char path[512];
    list_files(path, sizeof path, true);
    rmdir(runs);
    ck_assert_int_eq(rmdir(dir), 0);
}

static uint32_t table_crc32c(const unsigned char *p, size_t n) {
    uint32_t table[256], crc = ~0u;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[i] = c;
    }
    for (size_t i = 0; i < n; i++)
        crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
    return ~crc;
}

static uint64_t little(const unsigned char *p, int n) {
    uint64_t v = 0;
    for (int i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static uint32_t unmask(uint64_t masked) {
    uint32_t rot = (uint32_t)masked - 0xa282ead8u;
    return rot >> 17 | rot << 15;
}

struct file {
    unsigned char data[32768];
    size_t n, at;
};

static void load_events(struct file *f) {
    char path[512];
    *f = (struct file){0};
    ck_assert_int_eq(list_files(path, sizeof path, false), 1);
    ck_assert_ptr_nonnull(strstr(path, "/events.out.tfevents."));
    FILE *in = fopen(path, "rb");
    ck_assert_ptr_nonnull(in);
    f->n = fread(f->data, 1, sizeof f->data, in);
    fclose(in);
}

/* The data of the next record; its two checksums are verified. */
static const unsigned char *next_record(struct file *f, uint64_t *len) {
    ck_assert_uint_ge(f->n - f->at, 16);
    const unsigned char *p = f->data + f->at;
    *len = little(p, 8);
    ck_assert_uint_eq(unmask(little(p + 8, 4)), table_crc32c(p, 8));
    ck_assert_uint_ge(f->n - f->at, 16 + *len);
    ck_assert_uint_eq(unmask(little(p + 12 + *len, 4)), table_crc32c(p + 12, *len));
    f->at += 16 + *len;
    return p + 12;
}

static void check_wall_time(const unsigned char *event) {
    uint64_t bits = little(event + 1, 8);
    double seconds;
    memcpy(&seconds, &bits, sizeof seconds);
    ck_assert_uint_eq(event[0], 1 << 3 | 1);
    ck_assert(fabs(seconds - (double)time(NULL)) < 60);
}

START_TEST(the_readers_crc_is_castagnoli) {
    static const unsigned char zeros[32] = {0}, digits[] = "123456789";
    ck_assert_uint_eq(table_crc32c(zeros, 32), 0x8a9136aau);
    ck_assert_uint_eq(table_crc32c(digits, 9), 0xe3069283u);
}
END_TEST

START_TEST(the_first_record_is_the_version) {
    struct pl_tensorboard *t = NULL;
    struct pl_diag d = {0};
    ck_assert_msg(pl_tensorboard_open(runs, &t, &d) == PL_ERR_OK, "%s", d.message);
    pl_tensorboard_close(&t);
    ck_assert_ptr_null(t);
    struct file f;
    load_events(&f);
    uint64_t len;
    const unsigned char *event = next_record(&f, &len);
    check_wall_time(event);
    ck_assert_uint_eq(len, 9 + 2 + 13);
    ck_assert_mem_eq(event + 9,
                     "\x1a\x0d"
                     "brain.Event:2",
                     15);
    ck_assert_uint_eq(f.at, f.n);
}
END_TEST

START_TEST(a_scalar_is_step_tag_and_float) {
    struct pl_tensorboard *t = NULL;
    ck_assert_int_eq(pl_tensorboard_open(runs, &t, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_tensorboard_scalar(t, "train/loss", 300, 1.5, NULL), PL_ERR_OK);
    struct file f; /* read before close: every event is flushed */
    load_events(&f);
    uint64_t len;
    next_record(&f, &len);
    const unsigned char *event = next_record(&f, &len);
    check_wall_time(event);
    static const unsigned char want[] = {
        0x10, 0xac, 0x02,                                                /* step: 300 */
        0x2a, 0x13,                                                      /* summary, 19 bytes */
        0x0a, 0x11,                                                      /* value, 17 bytes */
        0x0a, 0x0a, 't',  'r',  'a',  'i', 'n', '/', 'l', 'o', 's', 's', /* tag */
        0x15, 0x00, 0x00, 0xc0, 0x3f,                                    /* simple_value: 1.5f */
    };
    ck_assert_uint_eq(len, 9 + sizeof want);
    ck_assert_mem_eq(event + 9, want, sizeof want);
    ck_assert_uint_eq(f.at, f.n);
    pl_tensorboard_close(&t);
}
END_TEST

/* tensorboard.plugins.text: a tensor of strings with the plugin's name, of class TENSOR. */
START_TEST(a_text_is_a_tensor_of_one_string) {
    struct pl_tensorboard *t = NULL;
    ck_assert_int_eq(pl_tensorboard_open(runs, &t, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_tensorboard_text(t, "say", 3, "word", 4, NULL), PL_ERR_OK);
    struct file f;
    load_events(&f);
    uint64_t len;
    next_record(&f, &len);
    const unsigned char *event = next_record(&f, &len);
    check_wall_time(event);
    static const unsigned char want[] = {
        0x10, 0x03,                                   /* step: 3 */
        0x2a, 0x23,                                   /* summary, 35 bytes */
        0x0a, 0x21,                                   /* value, 33 bytes */
        0x0a, 0x03, 's',  'a',  'y',                  /* tag */
        0x4a, 0x0a,                                   /* metadata, 10 bytes */
        0x0a, 0x06, 0x0a, 0x04, 't',  'e',  'x', 't', /* plugin_data, its name */
        0x20, 0x02,                                   /* data_class: TENSOR */
        0x42, 0x0e,                                   /* tensor, 14 bytes */
        0x08, 0x07,                                   /* dtype: DT_STRING */
        0x12, 0x04, 0x12, 0x02, 0x08, 0x01,           /* shape, a dim of 1 */
        0x42, 0x04, 'w',  'o',  'r',  'd',            /* string_val */
    };
    ck_assert_uint_eq(len, 9 + sizeof want);
    ck_assert_mem_eq(event + 9, want, sizeof want);
    ck_assert_uint_eq(f.at, f.n);
    pl_tensorboard_close(&t);
}
END_TEST

START_TEST(a_long_text_ends_with_a_whole_character) {
    static char text[20000];
    struct pl_tensorboard *t = NULL;
    for (size_t i = 0; i + 3 <= sizeof text; i += 3)
        memcpy(text + i, "\xE2\x82\xAC", 3);
    ck_assert_int_eq(pl_tensorboard_open(runs, &t, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_tensorboard_text(t, "say", 3, text, sizeof text, NULL), PL_ERR_OK);
    struct file f;
    load_events(&f);
    uint64_t len;
    next_record(&f, &len);
    const unsigned char *event = next_record(&f, &len);
    ck_assert_uint_lt(len, 17000);
    ck_assert_mem_eq(event + len - 3, "\xE2\x82\xAC", 3);
    pl_tensorboard_close(&t);
}
END_TEST

START_TEST(steps_are_varints) {
    static const struct {
        uint64_t step;
        unsigned char bytes[3];
        int n;
    } varints[] = {{0, {0x00}, 1},
                   {127, {0x7f}, 1},
                   {128, {0x80, 0x01}, 2},
                   {16383, {0xff, 0x7f}, 2},
                   {16384, {0x80, 0x80, 0x01}, 3}};
    struct pl_tensorboard *t = NULL;
    ck_assert_int_eq(pl_tensorboard_open(runs, &t, NULL), PL_ERR_OK);
    for (size_t i = 0; i < sizeof varints / sizeof *varints; i++)
        ck_assert_int_eq(pl_tensorboard_scalar(t, "x", varints[i].step, 0, NULL), PL_ERR_OK);
    pl_tensorboard_close(&t);
    struct file f;
    load_events(&f);
    uint64_t len;
    next_record(&f, &len);
    for (size_t i = 0; i < sizeof varints / sizeof *varints; i++) {
        const unsigned char *event = next_record(&f, &len);
        ck_assert_uint_eq(event[9], 2 << 3);
        ck_assert_mem_eq(event + 10, varints[i].bytes, (size_t)varints[i].n);
        ck_assert_uint_eq(event[10 + varints[i].n], 5 << 3 | 2);
    }
}
END_TEST

START_TEST(a_long_tag_is_cut_and_the_record_stays_whole) {
    char tag[400];
    memset(tag, 'x', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    struct pl_tensorboard *t = NULL;
    ck_assert_int_eq(pl_tensorboard_open(runs, &t, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_tensorboard_scalar(t, tag, UINT64_MAX, NAN, NULL), PL_ERR_OK);
    pl_tensorboard_close(&t);
    struct file f;
    load_events(&f);
    uint64_t len;
    next_record(&f, &len);
    const unsigned char *event = next_record(&f, &len);
    const unsigned char *summary = event + 9 + 1 + 10; /* after wall time and a ten-byte varint */
    ck_assert_uint_eq(summary[0], 5 << 3 | 2);
    ck_assert_uint_eq(summary[1], event + len - (summary + 2)); /* nests to the very end */
    ck_assert_uint_eq(summary[2], 1 << 3 | 2);
    ck_assert_uint_eq(summary[3], event + len - (summary + 4));
}
END_TEST

START_TEST(two_files_of_one_second_do_not_clash) {
    struct pl_tensorboard *a = NULL, *b = NULL;
    ck_assert_int_eq(pl_tensorboard_open(runs, &a, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_tensorboard_open(runs, &b, NULL), PL_ERR_OK);
    char path[512];
    ck_assert_int_eq(list_files(path, sizeof path, false), 2);
    pl_tensorboard_close(&a);
    pl_tensorboard_close(&b);
}
END_TEST

START_TEST(a_directory_that_cannot_be_made_is_an_error) {
    struct pl_tensorboard *t = NULL;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_tensorboard_open("/nonexistent/runs", &t, &d), PL_ERR_IO);
    ck_assert_ptr_null(t);
    ck_assert_str_eq(d.file, "/nonexistent/runs");
    ck_assert_int_eq(pl_tensorboard_open("/dev/null", &t, NULL), PL_ERR_IO);
    ck_assert_ptr_null(t);
}
END_TEST

int main(void) {
    Suite *s = suite_create("report.tensorboard");
    TCase *tc = tcase_create("events");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, the_readers_crc_is_castagnoli);
    tcase_add_test(tc, the_first_record_is_the_version);
    tcase_add_test(tc, a_scalar_is_step_tag_and_float);
    tcase_add_test(tc, a_text_is_a_tensor_of_one_string);
    tcase_add_test(tc, a_long_text_ends_with_a_whole_character);
    tcase_add_test(tc, steps_are_varints);
    tcase_add_test(tc, a_long_tag_is_cut_and_the_record_stays_whole);
    tcase_add_test(tc, two_files_of_one_second_do_not_clash);
    tcase_add_test(tc, a_directory_that_cannot_be_made_is_an_error);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
