/* check_safetensors.c - what a safetensors header may and may not say. */
#include "runtime/checkpoint/safetensors.h"
#include "tests/checkpoint/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[64];
static struct pl_diag diag;

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
}
static void teardown(void) {
    dir_remove(dir);
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to   \
    "]}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *says;
} malformed[] = {
    {"", 0, "zeros"},
    {"[]", 0, "start with {"},
    {" {}", 0, "start with {"},
    {"{", 0, "not valid JSON"},
    {"{} x", 0, "not valid JSON"},
    {"{\"a\":1}", 0, "`a` is not an object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "`a` has no dtype"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "`a` has no dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "`a` has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "`a`: data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "`a`: data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, "`a`: data_offsets"},
    {"{" T("a", "F32", "[1]", -4, 0) "}", 4, "`a`: data_offsets"},
    {"{" T("a", "F32", "[1]", 0.0, 4.0) "}", 4, "`a`: data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[\"0\",\"4\"]}}", 4,
     "`a`: data_offsets"},
    {"{" T("a", "F32", "[1]", 4, 0) "}", 4, "`a` lies at"},
    {"{" T("a", "F32", "[2]", 0, 8) "}", 4, "the file is truncated: it has"},
    {"{" T("a", "F32", "[1]", 0, 9223372036854775807) "}", 4, "`a` lies at"},
    {"{" T("a", "F32", "[1]", 0, 18446744073709551620) "}", 4, "`a`: data_offsets"},
    {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, "`a`: dimension 0"},
    {"{" T("a", "F32", "[1, 1.5]", 0, 4) "}", 4, "`a`: dimension 1"},
    {"{" T("a", "F32", "[null]", 0, 4) "}", 4, "`a`: dimension 0"},
    {"{" T("a", "F32", "4", 0, 4) "}", 4, "`a` has no shape"},
    {"{" T("a", "F32", "[2]", 0, 4) "}", 4, "`a`: shape [2] of F32"},
    {"{" T("a", "BF16", "[1]", 0, 4) "}", 4, "`a`: shape [1] of BF16"},
    {"{" T("a", "F4", "[3]", 0, 2) "}", 2, "`a`: shape [3] of F4"},
    {"{" T("a", "F32", "[4294967296, 4294967296]", 0, 4) "}", 4, "`a`: its shape overflows"},
    {"{" T("a", "F32", "[4611686018427387905]", 0, 4) "}", 4, "`a`: shape"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 0, 4) "}", 4, "overlap"},
    {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 4, 8) "}", 8, "`a` and `b` overlap"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12, "before tensor `b`"},
    {"{" T("a", "F32", "[1]", 4, 8) "}", 8, "4 bytes before tensor `a`"},
    {"{" T("a", "F32", "[1]", 0, 4) "}", 5, "1 bytes after the last tensor `a`"},
    {"{}", 3, "3 bytes after the header"},
    {"{" T("a", "F32", "[0]", 2, 2) "," T("b", "F32", "[1]", 0, 4) "}", 4, "overlap"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "duplicate"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "duplicate"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"format\":1}}", 0, "`format` is not a string"},
    {"{\"a\\u0000b\":{}}", 0, "not valid JSON"},
    {"{\"\xff\":{}}", 0, "not valid JSON"},
};

START_TEST(a_malformed_header_is_refused_by_name) {
    const char *path = in(dir, "bad.safetensors");
    static const char zeros[64];
    struct pl_st_file f;
    st_spill(path, malformed[_i].header, zeros, malformed[_i].data_bytes);
    FAILS(pl_st_open(&f, path, &diag), PL_ERR_CHECKPOINT_FORMAT, malformed[_i].says);
    ck_assert_int_eq(pl_st_open(&f, path, &diag), PL_ERR_CHECKPOINT_FORMAT);
    ck_assert_str_eq(diag.file, path);
}
END_TEST

/* clang-format off: one tensor a line */
static const char good[] =
    "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "F32", "[2, 2]", 0, 16) "," T(
        "a", "BF16", "[3]", 16, 22) "," T("e", "F32", "[4294967296, 4294967296, 0]", 16,
                                          16) "," T("s", "I64", "[]", 22,
                                                    30) "," T("q", "NEW9", "[5]", 30, 33) "}   ";
/* clang-format on */

START_TEST(a_good_file_opens_and_each_tensor_reads) {
    const char *path = in(dir, "good.safetensors");
    char data[33];
    struct pl_st_file f;
    for (int i = 0; i < 33; i++)
        data[i] = (char)i;
    st_spill(path, good, data, sizeof data);
    OK(pl_st_open(&f, path, &diag));
    ck_assert_uint_eq(f.n, 5);
    const struct pl_st_entry *a = pl_st_find(&f, "a"), *b = pl_st_find(&f, "b");
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_null(pl_st_find(&f, "c"));
    ck_assert_int_eq(a->dtype, PL_DTYPE_BF16);
    ck_assert_uint_eq(b->rank, 2);
    ck_assert_uint_eq(b->dims[1], 2);
    ck_assert_uint_eq(pl_st_find(&f, "s")->rank, 0);
    ck_assert_int_eq(pl_st_find(&f, "q")->dtype, PL_DTYPE_COUNT);
    char got[4];
    OK(pl_st_read(&f, a, 2, got, 4, &diag));
    ck_assert_mem_eq(got, data + 18, 4);
    pl_st_close(&f);
    pl_st_close(&f);
}
END_TEST

START_TEST(an_empty_file_without_tensors_is_legal) {
    const char *path = in(dir, "empty.safetensors");
    struct pl_st_file f;
    st_spill(path, "{}", "", 0);
    OK(pl_st_open(&f, path, &diag));
    ck_assert_uint_eq(f.n, 0);
    pl_st_close(&f);
}
END_TEST

START_TEST(a_file_cut_at_any_byte_is_refused) {
    const char *path = in(dir, "cut.safetensors");
    char whole[512];
    static const char data[33];
    struct pl_st_file f;
    st_spill(path, good, data, sizeof data);
    char *text = slurp(path);
    size_t bytes = 8 + strlen(good) + sizeof data;
    ck_assert_uint_le(bytes, sizeof whole);
    memcpy(whole, text, bytes);
    free(text);
    for (size_t n = 0; n < bytes; n++) {
        spill(path, whole, n);
        diag = (struct pl_diag){0};
        ck_assert_msg(pl_st_open(&f, path, &diag) == PL_ERR_CHECKPOINT_FORMAT, "cut at %zu", n);
        ck_assert_msg(n >= 8 || strstr(diag.message, n ? "too short" : "is empty"), "%s",
                      diag.message);
    }
}
END_TEST

START_TEST(a_huge_length_word_allocates_nothing) {
    static const struct {
        unsigned char word[8];
        const char *says;
    } rows[] = {
        {{255, 255, 255, 255, 255, 255, 255, 255}, "over the limit"},
        {{1, 225, 245, 5, 0, 0, 0, 0}, "a header of 100000001 bytes is over the limit"},
        {{0, 225, 245, 5, 0, 0, 0, 0}, "does not fit a file"},
        {{3, 0, 0, 0, 0, 0, 0, 0}, "does not fit a file"},
        {{0, 0, 0, 0, 0, 0, 0, 128}, "over the limit"},
    };
    const char *path = in(dir, "huge.safetensors");
    struct pl_st_file f;
    char bytes[10];
    memcpy(bytes, rows[_i].word, 8);
    memcpy(bytes + 8, "{}", 2);
    spill(path, bytes, sizeof bytes);
    FAILS(pl_st_open(&f, path, &diag), PL_ERR_CHECKPOINT_FORMAT, rows[_i].says);
}
END_TEST

static const struct {
    const char *bytes;
    size_t n;
    const char *says, *hint;
} stand_ins[] = {
#define S(text) text, sizeof(text) - 1
    {S("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"), "Git LFS pointer",
     "git lfs pull"},
    {S("versi"), "too short", "damaged"},
    {S("<!DOCTYPE html>\n<html>"), "HTML", "plimsoll fetch OWNER/NAME"},
    {S("Entry not found"), "message of the hub", "plimsoll fetch OWNER/NAME"},
    {S("PK\3\4archive/data.pkl"), "torch.save", "save_pretrained"},
    {S("\x80\2\x8a\nl\xfc\x9c\x46"), "torch.save", "save_pretrained"},
    {S("GGUF\3\0\0\0\0\0\0\0"), "GGUF", ".gguf"},
    {S("\0\0\0\0\0\0\0\0\0\0"), "zeros", "plimsoll fetch OWNER/NAME"},
    {S(""), "the file is empty", "again"},
    {S("\x20\0\0\0\0\0\0\0{\"a\":"), "does not fit a file", "damaged"},
#undef S
};

START_TEST(what_lies_in_place_of_a_file_is_named) {
    const char *path = in(dir, "model.safetensors");
    struct pl_st_file f;
    spill(path, stand_ins[_i].bytes, stand_ins[_i].n);
    ck_assert_int_eq(pl_st_open(&f, path, &diag), PL_ERR_CHECKPOINT_FORMAT);
    ck_assert_msg(strstr(diag.message, stand_ins[_i].says) != NULL, "%s", diag.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&diag), stand_ins[_i].hint) != NULL, "%s",
                  pl_diag_hint_text(&diag));
}
END_TEST

START_TEST(deep_json_is_refused_without_a_crash) {
    const char *path = in(dir, "deep.safetensors");
    struct pl_text t = {0};
    struct pl_st_file f;
    pl_text_add(&t, "{\"a\":");
    for (int i = 0; i < 200000; i++)
        pl_text_add(&t, "[");
    st_spill(path, pl_text_str(&t), "", 0);
    pl_text_finish(&t);
    FAILS(pl_st_open(&f, path, &diag), PL_ERR_CHECKPOINT_FORMAT, "not valid JSON");
}
END_TEST

/* Values are what a parsed header costs, not bytes: these would take 1 GB. */
START_TEST(a_header_of_too_many_values_is_not_parsed) {
    const char *path = in(dir, "many.safetensors");
    const size_t n = (size_t)3 * 4000000;
    char *header = malloc(n + 16);
    struct pl_st_file f;
    ck_assert_ptr_nonnull(header);
    strcpy(header, "{\"a\":[");
    for (size_t i = 0; i < n; i += 3)
        memcpy(header + 6 + i, "[],", 3);
    strcpy(header + 6 + n - 1, "]}");
    st_spill(path, header, "", 0);
    free(header);
    FAILS(pl_st_open(&f, path, &diag), PL_ERR_CHECKPOINT_FORMAT, "more than 4000000 values");
}
END_TEST

START_TEST(a_missing_file_and_a_directory_are_file_errors) {
    struct pl_st_file f;
    FAILS(pl_st_open(&f, in(dir, "none"), &diag), PL_ERR_CHECKPOINT_FILE, "No such file");
    FAILS(pl_st_open(&f, dir, &diag), PL_ERR_CHECKPOINT_FILE, "not a regular file");
}
END_TEST

START_TEST(a_written_header_reads_back_and_is_aligned) {
    const char *path = in(dir, "made.safetensors");
    const uint64_t x[] = {3, 5}, y[] = {7}, z[] = {0};
    const struct pl_st_item items[] = {{"x.weight", PL_DTYPE_F32, 2, x},
                                       {"y.bias", PL_DTYPE_BF16, 1, y},
                                       {"z", PL_DTYPE_F32, 1, z}};
    struct pl_text t = {0};
    struct pl_st_file f;
    static const char data[74];
    OK(pl_st_header(items, 3, &t, &diag));
    ck_assert_uint_eq(t.len % 8, 0);
    ck_assert_ptr_nonnull(strstr(t.data + 8, "\"__metadata__\":{\"format\":\"pt\"}"));
    pl_text_addn(&t, data, sizeof data);
    spill(path, t.data, t.len);
    pl_text_finish(&t);
    OK(pl_st_open(&f, path, &diag));
    ck_assert_uint_eq(f.n, 3);
    ck_assert_uint_eq(pl_st_find(&f, "y.bias")->begin, 60);
    ck_assert_uint_eq(pl_st_find(&f, "y.bias")->end, 74);
    pl_st_close(&f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_malformed_header_is_refused_by_name, 0,
                        sizeof malformed / sizeof *malformed);
    tcase_add_test(t, a_good_file_opens_and_each_tensor_reads);
    tcase_add_test(t, an_empty_file_without_tensors_is_legal);
    tcase_add_test(t, a_file_cut_at_any_byte_is_refused);
    tcase_add_loop_test(t, a_huge_length_word_allocates_nothing, 0, 5);
    tcase_add_loop_test(t, what_lies_in_place_of_a_file_is_named, 0,
                        sizeof stand_ins / sizeof *stand_ins);
    tcase_add_test(t, deep_json_is_refused_without_a_crash);
    tcase_add_test(t, a_header_of_too_many_values_is_not_parsed);
    tcase_add_test(t, a_missing_file_and_a_directory_are_file_errors);
    tcase_add_test(t, a_written_header_reads_back_and_is_aligned);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
