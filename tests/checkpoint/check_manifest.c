/* check_manifest.c - bytes against the list of a directory's files, JSON with its place, and values
 * of two files in the narrower of their types. */
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/surplus.h"
#include "runtime/checkpoint/windows.h"
#include "tests/checkpoint/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static char dir[64];
static struct pl_diag diag;

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
}
static void teardown(void) {
    dir_remove(dir);
}

/* --- the list of files ------------------------------------------------------------------------ */

static json_t *list_of(const char *const *names, int n) {
    json_t *files = json_object();
    for (int i = 0; i < n; i++) {
        struct pl_file_digest x;
        OK(pl_file_digest_read(in(dir, names[i]), &x, &diag));
        OK(pl_manifest_add(files, names[i], &x, &diag));
    }
    return files;
}

START_TEST(a_digest_is_that_of_the_bytes_whatever_their_number) {
    static const size_t sizes[] = {0, 1, 31, 32, 33, (1u << 20) - 1, 1u << 20, (1u << 20) + 1};
    char *bytes = calloc(1, (1u << 20) + 1);
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < COUNT(sizes); i++) {
        struct pl_file_digest x;
        struct pl_digest h;
        memset(bytes, 'a' + i, sizes[i]);
        spill(in(dir, "f"), bytes, sizes[i]);
        pl_digest_init(&h, 0);
        pl_digest_add(&h, bytes, sizes[i]);
        OK(pl_file_digest_read(in(dir, "f"), &x, &diag));
        ck_assert_uint_eq(x.bytes, sizes[i]);
        ck_assert_uint_eq(x.xxh64, pl_digest_value(&h));
    }
    free(bytes);
}
END_TEST

START_TEST(every_damage_is_told_by_the_name_of_its_file) {
    static const char *const names[] = {"a.safetensors", "b.json"};
    spill(in(dir, "a.safetensors"), "12345678", 8);
    spill(in(dir, "b.json"), "{}", 2);
    json_t *files = list_of(names, 2);
    OK(pl_manifest_check(files, dir, &diag));
    spill(in(dir, "b.json"), "{]", 2);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "b.json is damaged");
    spill(in(dir, "b.json"), "{} ", 3);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT,
          "saved with 2 bytes and has 3");
    spill(in(dir, "b.json"), "", 0);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "has 0");
    ck_assert_int_eq(remove(in(dir, "b.json")), 0);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FILE, "b.json");
    ck_assert_int_eq(mkdir(in(dir, "b.json"), 0700), 0);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FILE, "not a regular file");
    ck_assert_int_eq(rmdir(in(dir, "b.json")), 0);
    ck_assert_int_eq(mkfifo(in(dir, "b.json"), 0600), 0); /* nobody writes to it */
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FILE, "not a regular file");
    json_decref(files);
}
END_TEST

static const struct {
    const char *entry, *says;
} entries[] = {
    {"{}", "saved with 0 bytes and has 4"},
    {"{\"bytes\":4}", "digest (none)"},
    {"{\"bytes\":4,\"xxh64\":7}", "digest (none)"},
    {"{\"bytes\":\"4\",\"xxh64\":\"0\"}", "saved with 0 bytes"},
    {"{\"bytes\":4.0,\"xxh64\":\"0\"}", "saved with 0 bytes"},
    {"{\"bytes\":-4,\"xxh64\":\"0\"}", "saved with -4 bytes"},
    {"{\"bytes\":4,\"xxh64\":\"\"}", "damaged"},
    {"[]", "saved with 0 bytes"},
    {"null", "saved with 0 bytes"},
};

START_TEST(an_entry_that_says_nothing_vouches_for_nothing) {
    spill(in(dir, "f"), "1234", 4);
    json_t *entry = json_loads(entries[_i].entry, JSON_DECODE_ANY, NULL);
    FAILS(pl_manifest_check_file(dir, "f", entry, &diag), PL_ERR_CHECKPOINT_FORMAT,
          entries[_i].says);
    json_decref(entry);
}
END_TEST

/* Pieces of `bytes` that end there. */
static json_t *pieces_of(const char *bytes, const uint64_t *ends, uint32_t n) {
    struct pl_file_piece pieces[4];
    json_t *files = json_object();
    for (uint32_t i = 0; i < n; i++) {
        struct pl_digest h;
        pieces[i] = (struct pl_file_piece){i ? ends[i - 1] : 0, ends[i], 0};
        pl_digest_init(&h, 0);
        pl_digest_add(&h, bytes + pieces[i].begin, (size_t)(ends[i] - pieces[i].begin));
        pieces[i].xxh64 = pl_digest_value(&h);
    }
    OK(pl_manifest_add_pieces(files, "f", pieces, n, &diag));
    return files;
}

START_TEST(a_file_of_pieces_is_told_by_the_piece_that_is_damaged) {
    const uint64_t ends[] = {3, 8, 9};
    json_t *files = pieces_of("123456789", ends, 3);
    ck_assert(pl_manifest_has_pieces(files));
    spill(in(dir, "f"), "123456789", 9);
    OK(pl_manifest_check(files, dir, &diag));
    spill(in(dir, "f"), "023456789", 9);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "bytes 0 to 3 were");
    spill(in(dir, "f"), "123456709", 9);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "bytes 3 to 8 were");
    spill(in(dir, "f"), "123456780", 9);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "bytes 8 to 9 were");
    spill(in(dir, "f"), "1234567890", 10);
    FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT,
          "saved with 9 bytes and has 10");
    for (uint64_t n = 0; n < 9; n++) {
        spill(in(dir, "f"), "123456789", n);
        FAILS(pl_manifest_check(files, dir, &diag), PL_ERR_CHECKPOINT_FORMAT,
              "saved with 9 bytes and has");
    }
    json_decref(files);
}
END_TEST

START_TEST(one_piece_is_listed_as_the_file) {
    const uint64_t end = 4;
    json_t *files = pieces_of("1234", &end, 1);
    ck_assert(!pl_manifest_has_pieces(files) && !pl_manifest_has_pieces(NULL));
    json_t *entry = json_object_get(files, "f");
    ck_assert(json_object_size(entry) == 2 && json_object_get(entry, "xxh64"));
    spill(in(dir, "f"), "1234", 4);
    OK(pl_manifest_check(files, dir, &diag));
    json_decref(files);
}
END_TEST

/* The digest of "1234". */
#define WHOLE "\"d8316e61d84f6ba4\""
static const struct {
    const char *pieces, *says;
} lists[] = {
    {"[]", "the list of its pieces is none"},
    {"[[4]]", "the list of its pieces is none"},
    {"[[4, 7]]", "the list of its pieces is none"},
    {"[4]", "the list of its pieces is none"},
    {"[[0, " WHOLE "]]", "the list of its pieces is none"},
    {"[[-1, " WHOLE "]]", "the list of its pieces is none"},
    {"[[4, " WHOLE "], [4, " WHOLE "]]", "the list of its pieces is none"},
    {"[[4, " WHOLE "], [3, " WHOLE "]]", "the list of its pieces is none"},
    {"[[3, " WHOLE "]]", "bytes 0 to 3 were"},
    {"{}", "the list of its pieces is none"},
    {"7", "the list of its pieces is none"},
    {"[[2, \"\"]]", "bytes 0 to 2 were"},
    {"[[5, " WHOLE "]]", "the list of its pieces is none"},
};

/* M2: pieces with a gap, in another order or with another end are refused. */
START_TEST(a_list_of_pieces_that_says_nothing_vouches_for_nothing) {
    char text[160];
    spill(in(dir, "f"), "1234", 4);
    snprintf(text, sizeof text, "{\"bytes\": 4, \"pieces\": [[4, %s]]}", WHOLE);
    json_t *entry = json_loads(text, 0, NULL);
    OK(pl_manifest_check_file(dir, "f", entry, &diag));
    json_decref(entry);
    snprintf(text, sizeof text, "{\"bytes\": 4, \"pieces\": %s}", lists[_i].pieces);
    entry = json_loads(text, 0, NULL);
    FAILS(pl_manifest_check_file(dir, "f", entry, &diag), PL_ERR_CHECKPOINT_FORMAT, lists[_i].says);
    json_decref(entry);
}
END_TEST

START_TEST(a_list_reaches_no_other_directory) {
    static const char *const names[] = {"", "/etc/hostname", "../f", "sub/f"};
    json_t *entry = json_pack("{s:i}", "bytes", 4);
    spill(in(dir, "f"), "1234", 4);
    for (int i = 0; i < COUNT(names); i++)
        FAILS(pl_manifest_check_file(dir, names[i], entry, &diag), PL_ERR_CHECKPOINT_FORMAT,
              "is not a file name");
    FAILS(pl_manifest_check_file(dir, "..", entry, &diag), PL_ERR_CHECKPOINT_FILE,
          "not a regular file");
    json_decref(entry);
}
END_TEST

/* --- JSON files ------------------------------------------------------------------------------- */

static const struct {
    const char *text, *says;
    uint64_t line, column;
} texts[] = {
    {"{\"a\": 1,\n \"b\": }", "`}` where a value is expected", 2, 7},
    {"[1]", "not a JSON object", 1, 1},
    {"{} x", "text after the JSON value", 1, 4},
    {"", "the file is empty", 1, 1},
};

START_TEST(what_is_no_object_is_refused_at_its_place) {
    json_t *v = NULL;
    spill(in(dir, "x.json"), texts[_i].text, strlen(texts[_i].text));
    ck_assert_int_eq(pl_json_read(in(dir, "x.json"), &v, &diag), PL_ERR_CHECKPOINT_FORMAT);
    ck_assert_ptr_null(v);
    ck_assert_msg(strstr(diag.message, texts[_i].says) != NULL, "%s", diag.message);
    ck_assert_msg(diag.line == texts[_i].line && diag.column == texts[_i].column, "%llu:%llu",
                  (unsigned long long)diag.line, (unsigned long long)diag.column);
    ck_assert_str_eq(diag.file, in(dir, "x.json"));
}
END_TEST

START_TEST(a_file_that_would_take_gigabytes_as_a_tree_is_not_parsed) {
    const size_t n = PL_JSON_MOST_VALUES + 8;
    char *text = malloc(n);
    json_t *v = NULL;
    ck_assert_ptr_nonnull(text);
    memset(text, ',', n);
    ck_assert(pl_json_is_small(text, PL_JSON_MOST_VALUES - 1));
    ck_assert(!pl_json_is_small(text, PL_JSON_MOST_VALUES));
    FAILS(pl_json_parse("big.json", text, n, &v, &diag), PL_ERR_CHECKPOINT_FORMAT,
          "big.json: more than 4000000 values");
    free(text);
}
END_TEST

START_TEST(what_was_put_reads_back_sorted_and_with_its_newline) {
    struct pl_outbox o = {0};
    json_t *v = json_pack("{s:i, s:[f, n, b], s:{s:s}}", "z", 1, "a", 0.5, 1, "m", "k", "\xC3\xA9"),
           *again = NULL;
    OK(pl_outbox_init(&o, dir, &diag));
    OK(pl_json_put(&o, "x.json", v, &diag));
    OK(pl_outbox_commit(&o, &diag));
    pl_outbox_finish(&o);
    OK(pl_json_read(in(dir, "x.json"), &again, &diag));
    ck_assert(json_equal(v, again));
    char *text = slurp(in(dir, "x.json")), *made = pl_json_text(v);
    ck_assert_str_eq(text, made);
    ck_assert(strstr(text, "\"a\"") < strstr(text, "\"m\"") &&
              strstr(text, "\"m\"") < strstr(text, "\"z\""));
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    ck_assert_int_eq(text[strlen(text) - 2], '}');
    free(text);
    free(made);
    json_decref(v);
    json_decref(again);
    OK(pl_outbox_init(&o, dir, &diag));
    FAILS(pl_json_put(&o, "y.json", NULL, &diag), PL_ERR_HOST_OOM, "no memory for y.json");
    pl_outbox_finish(&o);
    ck_assert(!exists(in(dir, "y.json")) && !exists(in(dir, "y.json.tmp")));
}
END_TEST

/* --- values of two files ---------------------------------------------------------------------- */

enum { MOST = 40000 }; /* three pieces of a comparison */

/* A file of one tensor of n values in this type. */
static void open_values(struct pl_st_file *f, const char *name, enum pl_dtype type,
                        const float *values, uint64_t n) {
    char header[160];
    const uint64_t bytes = n * pl_dtype_bytes(type);
    const char *word = type == PL_DTYPE_F32 ? "F32" : type == PL_DTYPE_BF16 ? "BF16" : "F16";
    void *raw = malloc(bytes);
    ck_assert_ptr_nonnull(raw);
    pl_convert_from_f32(raw, values, type, n);
    snprintf(header, sizeof header,
             "{\"w\":{\"dtype\":\"%s\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}", word,
             (unsigned long long)n, (unsigned long long)bytes);
    st_spill(in(dir, name), header, raw, bytes);
    free(raw);
    OK(pl_st_open(f, in(dir, name), &diag));
}

static bool are_same(enum pl_dtype type_a, const float *a, enum pl_dtype type_b, const float *b,
                     uint64_t n) {
    struct pl_st_file fa, fb;
    bool same = false, back = true;
    open_values(&fa, "a", type_a, a, n);
    open_values(&fb, "b", type_b, b, n);
    const struct pl_window wa = {.file = &fa, .entry = pl_st_find(&fa, "w"), .count = n};
    const struct pl_window wb = {.file = &fb, .entry = pl_st_find(&fb, "w"), .count = n};
    OK(pl_windows_compare(&wa, &wb, &same, &diag));
    OK(pl_windows_compare(&wb, &wa, &back, &diag));
    ck_assert_int_eq(same, back);
    pl_st_close(&fa);
    pl_st_close(&fb);
    return same;
}

START_TEST(values_are_compared_in_the_narrower_type) {
    static float a[MOST], b[MOST];
    const enum pl_dtype narrow = _i % 2 ? PL_DTYPE_F16 : PL_DTYPE_BF16;
    for (int i = 0; i < MOST; i++)
        a[i] = b[i] = (float)(i % 1001) / 512 - 1;
    ck_assert(are_same(PL_DTYPE_F32, a, PL_DTYPE_F32, b, MOST));
    ck_assert(are_same(PL_DTYPE_F32, a, narrow, b, MOST)); /* most are rounded in one file */
    ck_assert(are_same(narrow, a, narrow, b, MOST));
    static const int places[] = {0, 1, 16383, 16384, 32767, 32768, MOST - 1};
    for (int i = 0; i < COUNT(places); i++) {
        const float kept = b[places[i]];
        b[places[i]] = kept + 0.02f; /* more than both narrow types round away at 1 */
        ck_assert_msg(!are_same(PL_DTYPE_F32, a, narrow, b, MOST), "at %d", places[i]);
        ck_assert(!are_same(PL_DTYPE_F32, a, PL_DTYPE_F32, b, MOST));
        ck_assert(are_same(narrow, a, narrow, b, (uint64_t)places[i])); /* the bytes before it are
                                                                           equal */
        b[places[i]] = kept + 1e-6f; /* a difference that the narrow type does not hold */
        ck_assert(!are_same(PL_DTYPE_F32, a, PL_DTYPE_F32, b, MOST));
        b[places[i]] = kept;
    }
}
END_TEST

START_TEST(the_base_of_another_adapter_is_refused_by_its_file) {
    struct pl_st_file f;
    const float one = 1;
    open_values(&f, "adapter", PL_DTYPE_F32, &one, 1);
    const struct pl_window w = {.name = "base_model.model.lm_head.base_layer.weight", .file = &f};
    ck_assert(pl_window_names_base_copy(w.name));
    ck_assert(!pl_window_names_base_copy("base_model.model.model.norm.weight"));
    ck_assert_int_eq(pl_window_refuse_copy(&w, &diag), PL_ERR_CHECKPOINT_MISMATCH);
    ck_assert_str_eq(diag.file, in(dir, "adapter"));
    ck_assert_msg(strstr(diag.message, "is not the weight of this model") != NULL, "%s",
                  diag.message);
    ck_assert_msg(strstr(diag.hint, "no other") != NULL, "%s", diag.hint);
    pl_st_close(&f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.manifest");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_digest_is_that_of_the_bytes_whatever_their_number);
    tcase_add_test(t, every_damage_is_told_by_the_name_of_its_file);
    tcase_add_loop_test(t, an_entry_that_says_nothing_vouches_for_nothing, 0, COUNT(entries));
    tcase_add_test(t, a_file_of_pieces_is_told_by_the_piece_that_is_damaged);
    tcase_add_test(t, one_piece_is_listed_as_the_file);
    tcase_add_loop_test(t, a_list_of_pieces_that_says_nothing_vouches_for_nothing, 0, COUNT(lists));
    tcase_add_test(t, a_list_reaches_no_other_directory);
    tcase_add_loop_test(t, what_is_no_object_is_refused_at_its_place, 0, COUNT(texts));
    tcase_add_test(t, a_file_that_would_take_gigabytes_as_a_tree_is_not_parsed);
    tcase_add_test(t, what_was_put_reads_back_sorted_and_with_its_newline);
    tcase_add_loop_test(t, values_are_compared_in_the_narrower_type, 0, 2);
    tcase_add_test(t, the_base_of_another_adapter_is_refused_by_its_file);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
