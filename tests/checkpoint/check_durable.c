/* check_durable.c - a file is there in full or as it was, whichever call fails. */
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/read_file.h"
#include "tests/checkpoint/rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static struct pl_diag diag;

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
}
static void teardown(void) {
    pl_checkpoint_set_fault(NULL);
    dir_remove(dir);
}

static unsigned entries(const char *path) {
    unsigned n = 0;
    DIR *d = opendir(path);
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

START_TEST(a_written_file_holds_the_bytes_and_nothing_else_is_left) {
    const char *path = in(dir, "a.txt");
    OK(pl_file_write(path, "hello\0x", 7, &diag));
    char *text = slurp(path);
    ck_assert_mem_eq(text, "hello\0x", 7);
    free(text);
    ck_assert_uint_eq(entries(dir), 1);
}
END_TEST

START_TEST(a_path_without_a_directory_means_the_current_one) {
    char before[512];
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(dir), 0);
    pl_err err = pl_file_write("here", "x", 1, &diag);
    ck_assert_int_eq(chdir(before), 0);
    ck_assert_int_eq(err, PL_ERR_OK);
    ck_assert(exists(in(dir, "here")));
}
END_TEST

/* _i: 0 = the call fails once, 1 = it and all later ones do. U1: the name is taken by the
 * rename, after all that may fail before it. U2: a sync that failed is not tried again, which
 * would succeed, and the file is removed. U3: the calls are counted. */
START_TEST(whichever_call_fails_the_old_file_stays) {
    const char *path = in(dir, "a.txt");
    bool done = false;
    uint64_t at = 1;
    for (; !done; at++) {
        struct pl_io_fault fault = {.at = at, .count = _i ? UINT64_MAX : 1};
        OK(pl_file_write(path, "old", 3, &diag));
        pl_checkpoint_set_fault(&fault);
        pl_err err = pl_file_write(path, "newer", 5, &diag);
        pl_checkpoint_set_fault(NULL);
        done = fault.calls < at;
        char *text = slurp(path);
        ck_assert_uint_eq(entries(dir), 1);
        if (done) {
            ck_assert_int_eq(err, PL_ERR_OK);
        } else {
            ck_assert_int_eq(err, PL_ERR_CHECKPOINT_WRITE);
            ck_assert_ptr_nonnull(strstr(diag.message, dir));
            ck_assert_ptr_nonnull(strstr(diag.message, "No space left on device"));
            diag = (struct pl_diag){0};
        }
        /* open, write, fsync, close, rename: before the name changed hands. After: dir fsync, close
         */
        ck_assert_str_eq(text, at <= 5 ? "old" : "newer");
        free(text);
    }
    ck_assert_uint_eq(at, 9);
}
END_TEST

START_TEST(a_real_failure_names_path_and_reason) {
    FAILS(pl_file_write(in(dir, "no/such/file"), "x", 1, &diag), PL_ERR_CHECKPOINT_WRITE,
          "no/such/file.tmp: No such file or directory");
}
END_TEST

START_TEST(files_of_one_outbox_change_together) {
    struct pl_outbox o;
    spill(in(dir, "a"), "old", 3);
    OK(pl_outbox_init(&o, dir, &diag));
    OK(pl_outbox_put(&o, "a", "new", 3, &diag));
    OK(pl_outbox_put(&o, "b", "new", 3, &diag));
    char *a = slurp(in(dir, "a"));
    ck_assert_str_eq(a, "old");
    ck_assert(!exists(in(dir, "b")));
    free(a);
    OK(pl_outbox_commit(&o, &diag));
    a = slurp(in(dir, "a"));
    ck_assert_str_eq(a, "new");
    ck_assert(exists(in(dir, "b")));
    free(a);
    pl_outbox_finish(&o);
    pl_outbox_finish(&o);
    ck_assert_uint_eq(entries(dir), 2);
}
END_TEST

START_TEST(an_abandoned_outbox_leaves_nothing) {
    struct pl_outbox o;
    OK(pl_outbox_init(&o, dir, &diag));
    OK(pl_outbox_put(&o, "a", "new", 3, &diag));
    OK(pl_outbox_open(&o, "b", &diag));
    OK(pl_outbox_write(&o, "half", 4, &diag));
    pl_outbox_finish(&o);
    ck_assert_uint_eq(entries(dir), 0);
}
END_TEST

/* M1 of manifest.h: another content that the disk gives back does not get a digest of its own. */
START_TEST(the_digest_is_of_the_bytes_that_were_written) {
    struct pl_outbox o;
    OK(pl_outbox_init(&o, dir, &diag));
    o.manifest = json_object();
    OK(pl_outbox_open(&o, "a", &diag));
    OK(pl_outbox_write(&o, "good", 4, &diag));
    spill(in(dir, "a.tmp"), "lost", 4);
    OK(pl_outbox_close(&o, &diag));
    OK(pl_outbox_commit(&o, &diag));
    FAILS(pl_manifest_check(o.manifest, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "a is damaged");
    json_decref(o.manifest);
    pl_outbox_finish(&o);
}
END_TEST

/* Rank 0's outbox, and that of another process. */
START_TEST(a_shared_file_is_made_and_removed_by_one) {
    struct pl_outbox o = {0}, other = {0};
    struct pl_file_id id, none = {0};
    OK(pl_outbox_init(&o, dir, &diag));
    OK(pl_outbox_init(&other, dir, &diag));
    FAILS(pl_outbox_join(&other, "a", &none, &diag), PL_ERR_CHECKPOINT_WRITE, "cannot open");
    pl_outbox_finish(&other);
    OK(pl_outbox_init(&other, dir, &diag));
    OK(pl_outbox_open_shared(&o, "a", 10, &id, &diag));
    OK(pl_outbox_join(&other, "a", &id, &diag));
    OK(pl_outbox_write_at(&other, 6, "gh", 2, &diag));
    OK(pl_outbox_write_at(&other, 8, "ij", 2, &diag)); /* one piece with the one before */
    OK(pl_outbox_write_at(&other, 2, "c", 1, &diag));
    OK(pl_outbox_write_at(&o, 0, "ab", 2, &diag));
    OK(pl_outbox_write_at(&o, 3, "def", 3, &diag));
    ck_assert_uint_eq(other.n_pieces, 2);
    ck_assert(other.pieces[0].begin == 6 && other.pieces[0].end == 10);
    ck_assert(other.pieces[1].begin == 2 && other.pieces[1].end == 3);
    OK(pl_outbox_close_shared(&other, &diag));
    OK(pl_outbox_close_shared(&o, &diag));
    pl_outbox_finish(&other);
    ck_assert(exists(in(dir, "a.tmp")));
    OK(pl_outbox_commit(&o, &diag));
    char *text = slurp(in(dir, "a"));
    ck_assert_str_eq(text, "abcdefghij");
    free(text);
    pl_outbox_finish(&o);
}
END_TEST

START_TEST(another_file_of_that_name_is_not_written) {
    struct pl_outbox o = {0}, other = {0};
    struct pl_file_id id;
    OK(pl_outbox_init(&o, dir, &diag));
    OK(pl_outbox_open_shared(&o, "a", 4, &id, &diag));
    ck_assert_int_eq(rename(in(dir, "a.tmp"), in(dir, "kept")), 0);
    spill(in(dir, "a.tmp"), "1234", 4);
    OK(pl_outbox_init(&other, dir, &diag));
    FAILS(pl_outbox_join(&other, "a", &id, &diag), PL_ERR_CHECKPOINT_WRITE,
          "is not the file that rank 0 writes");
    pl_outbox_finish(&other);
    char *text = slurp(in(dir, "a.tmp"));
    ck_assert_str_eq(text, "1234");
    free(text);
    pl_outbox_finish(&o);
}
END_TEST

START_TEST(removing_a_tree_does_not_follow_links) {
    const char *tree = in(dir, "tree"), *kept = in(dir, "kept");
    ck_assert_int_eq(mkdir(tree, 0777), 0);
    ck_assert_int_eq(mkdir(kept, 0777), 0);
    spill(in(kept, "file"), "x", 1);
    ck_assert_int_eq(symlink(kept, in(tree, "link")), 0);
    OK(pl_tree_remove(tree, &diag));
    ck_assert(!exists(tree));
    ck_assert(exists(in(kept, "file")));
    OK(pl_tree_remove(tree, &diag));
}
END_TEST

START_TEST(a_file_over_the_limit_is_not_read) {
    char *text = NULL;
    uint64_t bytes;
    spill(in(dir, "big"), "12345", 5);
    FAILS(pl_file_read(in(dir, "big"), 4, &text, &bytes, &diag), PL_ERR_CHECKPOINT_FILE,
          "at most 4 bytes");
    FAILS(pl_file_read(dir, 4, &text, &bytes, &diag), PL_ERR_CHECKPOINT_FILE, "regular file");
}
END_TEST

static void *no_memory(size_t n) {
    (void)n;
    return NULL;
}

/* The parser has no place for what it had no memory for, and says -1. */
START_TEST(a_place_that_nobody_knows_is_not_shown) {
    json_t *root = NULL;
    spill(in(dir, "x.json"), "{}", 2);
    json_set_alloc_funcs(no_memory, free);
    pl_err err = pl_json_read(in(dir, "x.json"), &root, &diag);
    json_set_alloc_funcs(malloc, free);
    ck_assert_int_ne(err, PL_ERR_OK);
    ck_assert_uint_eq(diag.line, 0);
    ck_assert_uint_eq(diag.column, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.durable");
    TCase *t = tcase_create("durable");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_written_file_holds_the_bytes_and_nothing_else_is_left);
    tcase_add_test(t, a_path_without_a_directory_means_the_current_one);
    tcase_add_loop_test(t, whichever_call_fails_the_old_file_stays, 0, 2);
    tcase_add_test(t, a_real_failure_names_path_and_reason);
    tcase_add_test(t, files_of_one_outbox_change_together);
    tcase_add_test(t, an_abandoned_outbox_leaves_nothing);
    tcase_add_test(t, the_digest_is_of_the_bytes_that_were_written);
    tcase_add_test(t, a_shared_file_is_made_and_removed_by_one);
    tcase_add_test(t, another_file_of_that_name_is_not_written);
    tcase_add_test(t, removing_a_tree_does_not_follow_links);
    tcase_add_test(t, a_file_over_the_limit_is_not_read);
    tcase_add_test(t, a_place_that_nobody_knows_is_not_shown);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
