/* check_split.c - rows are cut at their boundaries wherever the reads of the file fall. */
#include "runtime/data/split.h"
#include "runtime/data/packing.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))
#define CHUNK    (1u << 18) /* the splitter reads so many bytes at a time */

static char dir[SCRATCH_PATH];
static uint64_t state;

static void make(void) {
    scratch_make(dir);
    state = 1;
}

static void unmake(void) {
    scratch_remove(dir);
}

static size_t draw(size_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % n;
}

/* A file of these bytes, opened. */
static int file_of(const void *bytes, size_t n) {
    const char *path = in_dir(dir, "rows");
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

struct cut { /* the expected rows of a text */
    const char *text;
    struct {
        const char *row;
        uint64_t line;
    } rows[6];
    bool csv, ends_file; /* options of the last row */
};

static const struct cut cuts[] = {
    {"{\"a\":1}\n{\"a\":2}\n", {{"{\"a\":1}", 1}, {"{\"a\":2}", 2}}, false, false},
    {"{\"a\":1}\n{\"a\":2}", {{"{\"a\":1}", 1}, {"{\"a\":2}", 2}}, false, true},
    {"{\"a\":1}\r\n\r\n \t\n{\"b\":1}\r\n", {{"{\"a\":1}\r", 1}, {"{\"b\":1}\r", 4}}, false, false},
    {"\xEF\xBB\xBF{\"a\":1}\n", {{"{\"a\":1}", 1}}, false, false},
    {"\n\n  {\"a\":1}  \n\n", {{"{\"a\":1}  ", 3}}, false, false},
    {"{\"a\":\"\xE2\x80\xA8\"}\n", {{"{\"a\":\"\xE2\x80\xA8\"}", 1}}, false, false}, /* U+2028 */
    {"{\"a\":1}\r{\"a\":2}", {{"{\"a\":1}\r{\"a\":2}", 1}}, false, true},
    {"[{\"a\":1},{\"b\":[1,2]}]", {{"{\"a\":1}", 1}, {"{\"b\":[1,2]}", 1}}, false, false},
    {"[\n {\"a\":\"],}\"} ,\n {\"b\":\"\\\"]\"}\n]\n",
     {{"{\"a\":\"],}\"} ", 2}, {"{\"b\":\"\\\"]\"}\n", 3}},
     false,
     false},
    {"[{\"a\":\"\\\\\"},{\"b\":1}]", {{"{\"a\":\"\\\\\"}", 1}, {"{\"b\":1}", 1}}, false, false},
    {"[]", {{NULL, 0}}, false, false},
    {" [ ] \n", {{NULL, 0}}, false, false},
    {"[1,\"x\",[[]],{}]", {{"1", 1}, {"\"x\"", 1}, {"[[]]", 1}, {"{}", 1}}, false, false},
    {"a,b\n1,\"x\ny\"\n2,z", {{"a,b\n", 1}, {"1,\"x\ny\"\n", 2}, {"2,z", 4}}, true, true},
    {"\r\n\na,b\r\n\n1,2\r\n", {{"a,b\r\n", 3}, {"1,2\r\n", 5}}, true, false},
    {"a\n\"say \"\"hi\"\"\"\n \n",
     {{"a\n", 1}, {"\"say \"\"hi\"\"\"\n", 2}, {" \n", 3}},
     true,
     false},
    {" \n\t\n", {{NULL, 0}}, false, false},
    {"{\n \"a\": \"}\\\"{\"\n}\n", {{"{\n \"a\": \"}\\\"{\"\n}", 1}}, false, false},
    {"{\n\"a\":{\"b\":[1,\n2]}}\n\n{\"a\":1}\r\n{\r\n}",
     {{"{\n\"a\":{\"b\":[1,\n2]}}", 1}, {"{\"a\":1}", 5}, {"{\r\n}", 6}},
     false,
     false},
    {"\n{\"a\":[{},\n{}]}{\n}", {{"{\"a\":[{},\n{}]}", 2}, {"{\n}", 3}}, false, false},
    {"{\"a\":\n{\"b\":1}}", {{"{\"a\":\n{\"b\":1}}", 1}}, false, false},
    /* a line that is cut short does not take the others with it */
    {"{\"a\":1,\n{\"a\":2}\n", {{"{\"a\":1,", 1}, {"{\"a\":2}", 2}}, false, false},
    {"{\"a\":\"b\n{\"a\":2}\n", {{"{\"a\":\"b", 1}, {"{\"a\":2}", 2}}, false, false},
    {"{\n\"a\":\"b\n}\n{\"a\":2}", {{"{\n\"a\":\"b", 1}, {"}", 3}, {"{\"a\":2}", 4}}, false, false},
    {"{\n\"a\":[1,\n", {{"{\n\"a\":[1,\n", 1}}, false, true},
};

/* L2, L3 and L4 of split.h */
START_TEST(a_text_is_cut_into_its_rows) {
    const struct cut *c = &cuts[_i];
    const int fd = file_of(c->text, strlen(c->text));
    struct pl_split s;
    struct pl_raw_row row;
    struct pl_diag d = {0};
    bool more = true;
    ck_assert_int_eq(pl_split_open(&s, &PL_CONTENT_OF(fd), "rows", c->csv, &d), PL_ERR_OK);
    for (int i = 0; c->rows[i].row; i++) {
        ck_assert_int_eq(pl_split_next(&s, &row, &more, &d), PL_ERR_OK);
        ck_assert_msg(more, "%s: row %d is missing", c->text, i);
        ck_assert_msg(row.n == strlen(c->rows[i].row) &&
                          memcmp(row.text, c->rows[i].row, row.n) == 0,
                      "%s: row %d: %.*s", c->text, i, (int)row.n, row.text);
        ck_assert_uint_eq(row.line, c->rows[i].line);
        ck_assert_mem_eq(c->text + row.offset, row.text, row.n);
        ck_assert(row.line_start <= row.offset);
        ck_assert(!row.line_start || c->text[row.line_start - 1] == '\n');
        ck_assert_int_eq(row.ends_file, !c->rows[i + 1].row && c->ends_file);
    }
    for (int twice = 0; twice < 2; twice++) {
        ck_assert_int_eq(pl_split_next(&s, &row, &more, &d), PL_ERR_OK);
        ck_assert_msg(!more, "%s: another row: %.*s", c->text, (int)row.n, row.text);
    }
    pl_split_finish(&s);
    close(fd);
}
END_TEST

static const struct {
    const char *text;
    uint64_t line, column;
    const char *why;
} wrong[] = {
    {"[{}", 1, 4, "not closed"},
    {"[{},\n", 2, 1, "not closed"},
    {"[", 1, 2, "not closed"},
    {"[{} {}]", 1, 0, NULL}, /* the row says what is wrong inside it */
    {"[{},]", 1, 5, "trailing comma"},
    {"[{}]\n[]", 2, 1, "text after the closing bracket"},
    {"[{}}]", 1, 4, "expected `,` or `]`"},
};

START_TEST(a_broken_array_is_refused_at_its_place) {
    const char *text = wrong[_i].text;
    const int fd = file_of(text, strlen(text));
    struct pl_split s;
    struct pl_raw_row row;
    struct pl_diag d = {0};
    bool more = true;
    pl_err err = PL_ERR_OK;
    ck_assert_int_eq(pl_split_open(&s, &PL_CONTENT_OF(fd), "rows", false, &d), PL_ERR_OK);
    for (int i = 0; i < 9 && more && err == PL_ERR_OK; i++)
        err = pl_split_next(&s, &row, &more, &d);
    ck_assert_int_eq(err, wrong[_i].why ? PL_ERR_DATA_SYNTAX : PL_ERR_OK);
    if (wrong[_i].why) {
        ck_assert_msg(strstr(d.message, wrong[_i].why) != NULL, "%s: %s", text, d.message);
        ck_assert_str_eq(d.file, "rows");
        ck_assert_msg(d.line == wrong[_i].line && d.column == wrong[_i].column, "%s: %llu:%llu",
                      text, (unsigned long long)d.line, (unsigned long long)d.column);
    }
    pl_split_finish(&s);
    close(fd);
}
END_TEST

static const struct {
    const char *begin, *why;
    size_t n; /* 0: the length of the text */
} others[] = {
    {"PK\x03\x04zip", "zip archive", 0},
    {"BZh91AY", "bzip2", 0},
    {"PAR1\x15", "Parquet", 0},
    {"ARROW1\0\0", "Arrow file", 8},
    {"\xFF\xFE{\0", "UTF-16", 4},
    {"\xFE\xFF\0{", "UTF-16", 4},
    {"<!doctype html>", "HTML or XML", 0},
    {"version https://git-lfs.github.com/spec/v1\n", "Git LFS", 0},
    {"", "empty", 0},
};

START_TEST(what_is_no_text_is_named) {
    const size_t n = others[_i].n ? others[_i].n : strlen(others[_i].begin);
    const int fd = file_of(others[_i].begin, n);
    struct pl_split s;
    struct pl_diag d = {0};
    const pl_err err = pl_split_open(&s, &PL_CONTENT_OF(fd), "rows", _i % 2 == 1, &d);
    ck_assert_int_eq(err, n ? PL_ERR_DATA_SYNTAX : PL_ERR_DATA_EMPTY);
    ck_assert_msg(strstr(d.message, others[_i].why) != NULL, "%s", d.message);
    ck_assert_ptr_null(s.buf);
    close(fd);
}
END_TEST

/* Rows of random length, some of them around the end of a read, in the three shapes of a file. */
static char *random_rows(int shape, size_t *n, size_t *lengths, int rows) {
    char *text = malloc((size_t)rows * (CHUNK + 64) * 2 + 64);
    ck_assert_ptr_nonnull(text);
    size_t at = 0;
    if (shape == 1) text[at++] = '[';
    for (int i = 0; i < rows; i++) {
        static const char *const heads[] = {"{\"t\":\"", "{\"t\":\"", "\""};
        static const char *const tails[] = {"\"}", "\"}", "\"\"\nx\",1\n"};
        const size_t left = CHUNK - at % CHUNK, begin = at;
        size_t inner = draw(3) ? draw(200) : left + draw(40);
        if (inner > 20) inner -= 20;
        at += (size_t)sprintf(text + at, "%s", heads[shape]);
        for (size_t k = 0; k < inner; k++)
            text[at++] = "abc ,{}[]:"[draw(10)];
        if (shape == 2) text[at++] = '\n'; /* within quotes */
        at += (size_t)sprintf(text + at, "%s", tails[shape]);
        lengths[i] = at - begin;
        if (shape == 0) text[at++] = '\n';
        if (shape == 1) text[at++] = i + 1 < rows ? ',' : ']';
    }
    *n = at;
    return text;
}

/* L1 of split.h */
START_TEST(rows_are_the_same_wherever_a_read_ends) {
    enum { ROWS = 60 };
    size_t n, lengths[ROWS], at = _i == 1;
    uint64_t line = 1;
    char *text = random_rows(_i, &n, lengths, ROWS);
    const int fd = file_of(text, n);
    struct pl_split s;
    struct pl_raw_row row;
    bool more;
    ck_assert_uint_gt(n, 4 * CHUNK);
    ck_assert_int_eq(pl_split_open(&s, &PL_CONTENT_OF(fd), "rows", _i == 2, NULL), PL_ERR_OK);
    for (int i = 0; i < ROWS; i++) {
        ck_assert_int_eq(pl_split_next(&s, &row, &more, NULL), PL_ERR_OK);
        ck_assert(more);
        ck_assert_uint_eq(row.offset, at);
        ck_assert_uint_eq(row.n, lengths[i]);
        ck_assert_mem_eq(row.text, text + at, row.n);
        ck_assert_uint_eq(row.line, line);
        ck_assert_uint_eq(row.line_start, _i == 1 ? 0 : at);
        at += row.n + (_i < 2);
        line += _i == 0 ? 1 : _i == 2 ? 3 : 0;
        ck_assert_uint_le(s.cap, 8 * CHUNK); /* one row is held, not the file */
    }
    ck_assert_int_eq(pl_split_next(&s, &row, &more, NULL), PL_ERR_OK);
    ck_assert(!more);
    pl_split_finish(&s);
    close(fd);
    free(text);
}
END_TEST

/* G1 and G2 of packing.h. The first slot with enough room, looked for one by one. */
START_TEST(a_packed_row_goes_into_the_first_slot_with_room) {
    struct pl_packer p = {0};
    for (int round = 0; round < 400; round++) {
        uint64_t room[40], slot, put = 0;
        const uint64_t slots = 1 + draw(COUNT(room)), tokens = 2 + draw(64);
        ck_assert_int_eq(pl_packer_begin(&p, slots, tokens, NULL), PL_ERR_OK);
        for (uint64_t i = 0; i < slots; i++)
            room[i] = tokens;
        for (;;) {
            const uint64_t row = draw(4) ? 2 + draw((size_t)tokens - 1) : 0;
            uint64_t want = 0;
            while (want < slots && room[want] < row)
                want++;
            if (!row) want = 0;
            if (put == slots * (tokens / 2)) want = slots;
            ck_assert_int_eq(pl_packer_put(&p, row, &slot), want < slots);
            if (want == slots) break;
            ck_assert_uint_eq(slot, want);
            ck_assert_uint_eq(p.rows, ++put);
            room[want] -= row;
        }
        ck_assert_uint_eq(p.rows, put); /* a row that did not fit is not counted */
    }
    pl_packer_finish(&p);
}
END_TEST

START_TEST(without_packing_a_slot_takes_one_row_of_any_length) {
    struct pl_packer p = {0};
    uint64_t slot = 99;
    ck_assert_int_eq(pl_packer_begin(&p, 3, 0, NULL), PL_ERR_OK);
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert(pl_packer_put(&p, UINT64_MAX - i, &slot));
        ck_assert_uint_eq(slot, i);
    }
    ck_assert(!pl_packer_put(&p, 0, &slot));
    ck_assert_ptr_null(p.room);
    pl_packer_finish(&p);
}
END_TEST

START_TEST(slots_beyond_memory_are_refused_and_the_packer_stays_usable) {
    struct pl_packer p = {0};
    struct pl_diag d = {0};
    uint64_t slot;
    ck_assert_int_eq(pl_packer_begin(&p, 2, 8, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_packer_begin(&p, UINT64_C(1) << 60, 8, &d), PL_ERR_HOST_OOM);
    ck_assert_str_eq(d.message, "no memory for 1152921504606846976 slots of packed samples");
    ck_assert_int_eq(pl_packer_begin(&p, 2, 8, NULL), PL_ERR_OK);
    ck_assert(pl_packer_put(&p, 8, &slot) && slot == 0);
    ck_assert(pl_packer_put(&p, 8, &slot) && slot == 1);
    ck_assert(!pl_packer_put(&p, 2, &slot));
    pl_packer_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("data.split");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, make, unmake);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_text_is_cut_into_its_rows, 0, COUNT(cuts));
    tcase_add_loop_test(t, a_broken_array_is_refused_at_its_place, 0, COUNT(wrong));
    tcase_add_loop_test(t, what_is_no_text_is_named, 0, COUNT(others));
    tcase_add_loop_test(t, rows_are_the_same_wherever_a_read_ends, 0, 3);
    tcase_add_test(t, a_packed_row_goes_into_the_first_slot_with_room);
    tcase_add_test(t, without_packing_a_slot_takes_one_row_of_any_length);
    tcase_add_test(t, slots_beyond_memory_are_refused_and_the_packer_stays_usable);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
