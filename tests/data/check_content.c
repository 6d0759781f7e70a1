/* check_content.c - any number of data files, what is unpacked of packed ones, and files that
 * change between two reads of a row. */
#include "runtime/data/cache.h"
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#define FILES    DATA "/files/"
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static char dir[SCRATCH_PATH];

static void make(void) {
    scratch_make(dir);
}
static void unmake(void) {
    scratch_remove(dir);
}

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

/* --- many files ------------------------------------------------------------------------------- */
enum { MANY = 150, DESCRIPTORS = 40 };

static void write_many(const char *ending) {
    char path[600], row[64];
    for (int i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "%s/%03d.jsonl%s", dir, i, ending);
        snprintf(row, sizeof row, "{\"text\":\"row %03d\"}\n", i);
        if (!*ending) {
            write_file(path, row, strlen(row));
            continue;
        }
        gzFile f = gzopen(path, "w");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_gt(gzwrite(f, row, (unsigned)strlen(row)), 0);
        ck_assert_int_eq(gzclose(f), Z_OK);
    }
}

static const struct {
    const char *ending;
    bool cached;
} kinds[] = {{"", false}, {".gz", false}, {"", true}, {".gz", true}};

/* C1 of content.h and S5 of data.h */
START_TEST(files_beyond_the_limit_of_descriptors_are_read) {
    const struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};
    struct fixture f;
    struct pl_sample s = {0};
    char cache[600], buf[2048], want[64];
    write_many(kinds[_i].ending);
    fixture_start(&f, PL_FORMAT_TEXT);
    snprintf(f.path, sizeof f.path, "%s", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    f.job.dataset_cache = kinds[_i].cached ? cache : NULL;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int round = 0; round < 2; round++) {
        pl_err err = fixture_open(&f);
        ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
        ck_assert_uint_eq(pl_data_rows(f.data), MANY);
        for (int i = 0; i < 2 * MANY; i++) {
            const int row = i * 37 % MANY;
            err = pl_data_sample(f.data, (uint64_t)row, &s, &f.d);
            ck_assert_msg(err == PL_ERR_OK, "row %d: %s", row, f.d.message);
            snprintf(want, sizeof want, "row %03d$", row);
            ck_assert_str_eq(fixture_show(&s, false, buf), want);
        }
        ck_assert_str_eq(pl_text_str(&f.notes), "");
    }
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* Nothing may be opened: the hint says what raises the limit. */
START_TEST(the_limit_of_descriptors_is_named_where_it_is_met) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_TEXT);
    snprintf(f.path, sizeof f.path, "%s", FILES "dir/a.jsonl");
    struct rlimit before;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {0, before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FILE);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), "ulimit -n"), "%s", pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

/* --- files that change ------------------------------------------------------------------------ */
static const struct {
    const char *name, *before, *after;
    uint64_t row, line;
} changes[] = {
    {"a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cd\"}\n", "{\"text\":\"ab\"}\n{\"text\":\"xy\"}\n",
     1, 2},
    {"a.json", "[{\"text\":\"ab\"},\n\n{\"text\":\"cd\"}]",
     "[{\"text\":\"ab\"},\n\n{\"text\":\"xy\"}]", 1, 3},
    {"a.csv", "text\nab\ncd\n", "text\nxb\ncd\n", 0, 2},
    {"a.csv", "text\nab\ncd\n", "text\nab\nc\"\n", 1, 3},
    {"a.jsonl", "{\"input_ids\":[1,2,3]}\n", "{\"input_ids\":[1,7,3]}\n", 0, 1},
    {"a.jsonl", "{\"input_ids\":[1,2],\"labels\":[1,2]}\n",
     "{\"input_ids\":[1,2],\"labels\":[1,7]}\n", 0, 1},
    {"a.jsonl", "{\"instruction\":\"a\",\"output\":\"b\"}\n",
     "{\"instruction\":\"c\",\"output\":\"b\"}\n", 0, 1},
    {"a.jsonl", "{\"prompt\":\"ab\",\"completion\":\"c\"}",
     "{\"prompt\":\"xb\",\"completion\":\"c\"}", 0, 1},
    {"a.jsonl",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
     "\"b\"}]}",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":"
     "\"b\"}]}",
     0, 1},
};

static pl_err read_row_of(struct fixture *f, uint64_t row) {
    struct pl_sample s = {0};
    f->d = (struct pl_diag){0};
    pl_err err = pl_data_sample(f->data, row, &s, &f->d);
    pl_sample_finish(&s);
    return err;
}

/* C2 of content.h and S4 of data.h. Written in place, with its lengths and its time: only the
 * content tells. */
START_TEST(a_row_that_changed_after_it_was_counted_is_refused) {
    struct fixture f;
    struct stat st;
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s/%s", dir, changes[_i].name);
    write_file(f.path, changes[_i].before, strlen(changes[_i].before));
    ck_assert_uint_eq(strlen(changes[_i].before), strlen(changes[_i].after));
    ck_assert_int_eq(stat(f.path, &st), 0);
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_int_eq(read_row_of(&f, changes[_i].row), PL_ERR_OK);
    const int fd = open(f.path, O_WRONLY | O_CLOEXEC);
    const size_t n = strlen(changes[_i].after);
    ck_assert(fd >= 0 && write(fd, changes[_i].after, n) == (ssize_t)n);
    const struct timespec times[] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(read_row_of(&f, changes[_i].row), PL_ERR_DATA_FILE);
    ck_assert_str_eq(f.d.file, f.path);
    ck_assert_uint_eq(f.d.line, changes[_i].line);
    fixture_finish(&f);
}
END_TEST

static void take_name(const char *name, void *out) {
    snprintf(out, SCRATCH_PATH, "%s", name);
}

/* S4 of data.h. Each word of the cached tokens is written over in turn, by a token of the
 * vocabulary. */
START_TEST(cached_tokens_that_changed_are_refused) {
    struct fixture f;
    char cache[SCRATCH_PATH + 8], name[SCRATCH_PATH];
    const uint32_t other = 'x';
    fixture_start(&f, PL_FORMAT_TEXT);
    snprintf(f.path, sizeof f.path, "%s/a.jsonl", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    f.job.dataset_cache = cache;
    file_write(f.path, "{\"text\":\"abcd\"}\n");
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_uint_eq(dir_each(cache, take_name, name), 1);
    ck_assert_int_eq(read_row_of(&f, 0), PL_ERR_OK);
    const int fd = open(in_dir(cache, name), O_WRONLY | O_CLOEXEC);
    const off_t at = (off_t)sizeof(struct pl_cache_header) + 4 * _i;
    ck_assert(fd >= 0 && pwrite(fd, &other, sizeof other, at) == sizeof other && !close(fd));
    ck_assert_int_eq(read_row_of(&f, 0), PL_ERR_DATA_FILE);
    fixture_finish(&f);
}
END_TEST

/* --- packed files ----------------------------------------------------------------------------- */
enum { PACKED_MOST = 512 };

struct packed {
    unsigned char bytes[PACKED_MOST];
    size_t n;
};

static void add_bytes(struct packed *p, const void *bytes, size_t n) {
    ck_assert_uint_le(p->n + n, PACKED_MOST);
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

/* 'g' and 'z': a member of gzip, a frame of zstd; 's': a frame to skip; '0': zeros; 'x': text. */
static void add_piece(struct packed *p, char piece) {
    static const unsigned char skip[] = {0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
    static const unsigned char zeros[60];
    const char *file = piece == 'g' ? FILES "two.jsonl.gz" : FILES "two.jsonl.zst";
    size_t n = 0;
    if (piece == 's') add_bytes(p, skip, sizeof skip);
    if (piece == '0') add_bytes(p, zeros, sizeof zeros);
    if (piece == 'x') add_bytes(p, "tail", 4);
    if (piece != 'g' && piece != 'z') return;
    char *bytes = file_read(file, &n);
    add_bytes(p, bytes, n);
    free(bytes);
}

static const struct {
    const char *pieces;
    uint64_t rows; /* 0: refused */
    const char *says;
} packed[] = {
    {"g0", 2, NULL},
    {"g0g", 4, NULL},
    {"g00", 2, NULL},
    {"gx", 0, "what follows it is not compressed"},
    {"g0x", 0, "what follows it is not compressed"},
#if PL_TEST_ZSTD
    {"sz", 2, NULL},
    {"zsz", 4, NULL},
    {"zs", 2, NULL},
    {"z0", 2, NULL},
    {"ss", 0, "the file is empty"},
    {"zx", 0, "what follows it is not compressed"},
    {"zg", 0, "what follows it is not compressed"},
#endif
};

static void open_bytes(struct fixture *f, const void *bytes, size_t n, pl_err *err) {
    fixture_start(f, PL_FORMAT_AUTO);
    snprintf(f->path, sizeof f->path, "%s/packed.jsonl", dir);
    write_file(f->path, bytes, n);
    *err = fixture_open(f);
}

/* U1 of unpack.h, whatever the name says */
START_TEST(members_follow_each_other_and_zeros_are_passed_over) {
    struct packed p = {.n = 0};
    struct fixture f;
    pl_err err;
    for (const char *piece = packed[_i].pieces; *piece; piece++)
        add_piece(&p, *piece);
    open_bytes(&f, p.bytes, p.n, &err);
    if (packed[_i].rows) {
        ck_assert_msg(err == PL_ERR_OK, "%s: %s", packed[_i].pieces, f.d.message);
        ck_assert_uint_eq(pl_data_rows(f.data), packed[_i].rows);
    } else {
        ck_assert_int_ne(err, PL_ERR_OK);
        ck_assert_msg(strstr(f.d.message, packed[_i].says), "%s", f.d.message);
    }
    fixture_finish(&f);
}
END_TEST

/* Every beginning of two members, but the first whole. */
START_TEST(what_is_cut_short_is_refused) {
    struct packed one = {.n = 0}, two = {.n = 0};
    struct fixture f;
    pl_err err;
    add_piece(&one, (char)_i);
    add_piece(&two, (char)_i);
    add_piece(&two, (char)_i);
    for (size_t n = 4; n < two.n; n++) {
        open_bytes(&f, two.bytes, n, &err);
        if (n == one.n) ck_assert_int_eq(err, PL_ERR_OK);
        if (n != one.n) ck_assert_msg(strstr(f.d.message, "cut short"), "%zu: %s", n, f.d.message);
        fixture_finish(&f);
    }
}
END_TEST

#if PL_TEST_ZSTD
/* U3 of unpack.h. A frame that says that it looks back 2 GiB, as `zstd --long=31` writes it for a
 * stream. */
START_TEST(a_long_window_is_read) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s", FILES "long.jsonl.zst");
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_uint_eq(pl_data_rows(f.data), 2);
    fixture_finish(&f);
}
END_TEST

/* U3 of unpack.h. The byte of the window, set to 3.75 TiB. */
START_TEST(a_window_beyond_the_limit_is_named) {
    struct fixture f;
    size_t n;
    pl_err err;
    char *bytes = file_read(FILES "long.jsonl.zst", &n);
    bytes[5] = (char)0xFF;
    open_bytes(&f, bytes, n, &err);
    ck_assert_int_eq(err, PL_ERR_DATA_SYNTAX);
    ck_assert_msg(strstr(f.d.message, "window of the file is above the limit of 2048 MiB"), "%s",
                  f.d.message);
    free(bytes);
    fixture_finish(&f);
}
END_TEST
#endif

int main(void) {
    Suite *suite = suite_create("content");
    TCase *t = tcase_create("content");
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_loop_test(t, files_beyond_the_limit_of_descriptors_are_read, 0, COUNT(kinds));
    tcase_add_test(t, the_limit_of_descriptors_is_named_where_it_is_met);
    tcase_add_loop_test(t, a_row_that_changed_after_it_was_counted_is_refused, 0, COUNT(changes));
    tcase_add_loop_test(t, cached_tokens_that_changed_are_refused, 0, 5);
    tcase_add_loop_test(t, members_follow_each_other_and_zeros_are_passed_over, 0, COUNT(packed));
    tcase_add_loop_test(t, what_is_cut_short_is_refused, 'g', 'g' + 1);
#if PL_TEST_ZSTD
    tcase_add_loop_test(t, what_is_cut_short_is_refused, 'z', 'z' + 1);
    tcase_add_test(t, a_long_window_is_read);
    tcase_add_test(t, a_window_beyond_the_limit_is_named);
#endif
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
