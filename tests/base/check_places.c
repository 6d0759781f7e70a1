/* check_places.c - what may be opened, what is there, and where things are remembered. */
#include "estimator/base/cache_dir.h"
#include "estimator/base/open_file.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static char dir[SCRATCH_PATH];

static void make(void) {
    scratch_make(dir);
    file_write(in_dir(dir, "file"), "1234");
    ck_assert_int_eq(mkdir(in_dir(dir, "sub"), 0700), 0);
    ck_assert_int_eq(mkfifo(in_dir(dir, "pipe"), 0600), 0);
    ck_assert_int_eq(symlink("file", in_dir(dir, "link")), 0);
    ck_assert_int_eq(symlink("nowhere", in_dir(dir, "dangling")), 0);
    ck_assert_int_eq(symlink("loop", in_dir(dir, "loop")), 0);
}

static void unmake(void) {
    scratch_remove(dir);
}

START_TEST(a_file_is_opened_with_what_it_is) {
    struct stat st;
    static const char *const names[] = {"file", "link"};
    for (int i = 0; i < COUNT(names); i++) {
        const char *why = "unset";
        char bytes[8];
        const int fd = pl_open_file(in_dir(dir, names[i]), &st, &why);
        ck_assert_msg(fd >= 0, "%s: %s", names[i], why);
        ck_assert_int_eq(st.st_size, 4);
        ck_assert_int_eq(read(fd, bytes, sizeof bytes), 4);
        ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
        FILE *f = pl_fopen_file(in_dir(dir, names[i]), NULL);
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(fgetc(f), '1');
        fclose(f);
    }
}
END_TEST

static void make_socket(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_lt(strlen(path), sizeof a.sun_path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    close(fd);
}

static const struct {
    const char *name;
    int error;
    const char *why;
} no_files[] = {
    {"sub", EISDIR, "it is a directory"},
    {"pipe", EINVAL, "it is a pipe"},
    {"/dev/null", EINVAL, "it is a character device"},
    {"socket", ENXIO, ""},
    {"none", ENOENT, "No such file"},
    {"dangling", ENOENT, "No such file"},
    {"loop", ELOOP, ""},
    {"file/x", ENOTDIR, "Not a directory"},
    {"", ENOENT, "No such file"},
};

/* R1 of open_file.h: A pipe without a writer: the call must not wait for one. */
START_TEST(what_is_no_file_is_refused_by_its_kind) {
    const char *name = no_files[_i].name, *why = "unset";
    const char *path = name[0] == '/' || !name[0] ? name : in_dir(dir, name);
    if (strcmp(name, "socket") == 0) make_socket(path);
    ck_assert_int_eq(pl_open_file(path, NULL, &why), -1);
    ck_assert_msg(errno == no_files[_i].error, "%s: %s", path, strerror(errno));
    ck_assert_msg(strstr(why, no_files[_i].why) != NULL, "%s: %s", path, why);
    why = "unset";
    ck_assert_ptr_null(pl_fopen_file(path, &why));
    ck_assert_int_eq(errno, no_files[_i].error);
    ck_assert_str_ne(why, "unset");
    ck_assert_ptr_null(pl_fopen_file(path, NULL));
}
END_TEST

START_TEST(nothing_stays_open_after_a_refusal) {
    const int before = dup(0);
    close(before);
    for (int i = 0; i < 3; i++) {
        (void)pl_open_file(in_dir(dir, "sub"), NULL, NULL);
        (void)pl_fopen_file(in_dir(dir, "pipe"), NULL);
    }
    const int after = dup(0);
    close(after);
    ck_assert_int_eq(after, before);
}
END_TEST

START_TEST(what_cannot_be_looked_at_is_not_absent) {
    char longer[5000];
    ck_assert_int_eq(pl_look_for(in_dir(dir, "file")), PL_THERE);
    ck_assert_int_eq(pl_look_for(in_dir(dir, "sub")), PL_THERE);
    ck_assert_int_eq(pl_look_for(in_dir(dir, "pipe")), PL_THERE);
    ck_assert_int_eq(pl_look_for(in_dir(dir, "none")), PL_NOT_THERE);
    ck_assert_int_eq(pl_look_for(in_dir(dir, "none/x")), PL_NOT_THERE);
    ck_assert_int_eq(pl_look_for(in_dir(dir, "file/x")), PL_NOT_THERE);
    ck_assert_int_eq(pl_look_for(in_dir(dir, "dangling")), PL_NOT_THERE);
    ck_assert_int_eq(pl_look_for(in_dir(dir, "loop")), PL_THERE_UNKNOWN);
    ck_assert_int_eq(errno, ELOOP);
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    ck_assert_int_eq(pl_look_for(longer), PL_THERE_UNKNOWN);
}
END_TEST

static const struct {
    const char *xdg, *home; /* NULL: the variable is not set */
    const char *path;       /* NULL: there is no place */
} homes[] = {
    {"/x/cache", "/home/a", "/x/cache/plimsoll"},
    {NULL, "/home/a", "/home/a/.cache/plimsoll"},
    {"", "/home/a", "/home/a/.cache/plimsoll"},
    {"relative", "/home/a", "/home/a/.cache/plimsoll"},
    {"/x", NULL, "/x/plimsoll"},
    {"/x", "", "/x/plimsoll"},
    {"relative", NULL, NULL},
    {NULL, "", NULL},
    {NULL, NULL, NULL},
};

static void set(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

START_TEST(the_cache_is_where_the_specification_says) {
    struct pl_text path = {0};
    set("XDG_CACHE_HOME", homes[_i].xdg);
    set("HOME", homes[_i].home);
    ck_assert_int_eq(pl_cache_dir(&path, false), homes[_i].path != NULL);
    if (homes[_i].path) ck_assert_str_eq(pl_text_str(&path), homes[_i].path);
    pl_text_finish(&path);
}
END_TEST

START_TEST(the_cache_is_made_when_asked_and_for_its_owner_only) {
    struct stat st;
    struct pl_text path = {0};
    unsetenv("XDG_CACHE_HOME");
    set("HOME", dir);
    ck_assert(pl_cache_dir(&path, false));
    ck_assert(!path_exists(in_dir(dir, ".cache")));
    for (int twice = 0; twice < 2; twice++) {
        pl_text_finish(&path);
        ck_assert(pl_cache_dir(&path, true));
        ck_assert_int_eq(stat(pl_text_str(&path), &st), 0);
        ck_assert_int_eq(st.st_mode & 0777, 0700);
    }
    pl_text_finish(&path);
    set("XDG_CACHE_HOME", in_dir(dir, "file")); /* a file where the directory would be */
    ck_assert(!pl_cache_dir(&path, true));
    pl_text_finish(&path);
    set("XDG_CACHE_HOME", in_dir(dir, "no/such"));
    ck_assert(!pl_cache_dir(&path, true));
    ck_assert(!path_exists(in_dir(dir, "no")));
    pl_text_finish(&path);
}
END_TEST

START_TEST(a_build_has_one_id) {
    const struct pl_build_id a = pl_build_id(), b = pl_build_id();
    ck_assert_str_eq(a.hex, b.hex);
    ck_assert_uint_eq(strlen(a.hex) % 2, 0);
    ck_assert_uint_eq(strspn(a.hex, "0123456789abcdef"), strlen(a.hex));
}
END_TEST

int main(void) {
    Suite *s = suite_create("base.places");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_test(t, a_file_is_opened_with_what_it_is);
    tcase_add_loop_test(t, what_is_no_file_is_refused_by_its_kind, 0, COUNT(no_files));
    tcase_add_test(t, nothing_stays_open_after_a_refusal);
    tcase_add_test(t, what_cannot_be_looked_at_is_not_absent);
    tcase_add_loop_test(t, the_cache_is_where_the_specification_says, 0, COUNT(homes));
    tcase_add_test(t, the_cache_is_made_when_asked_and_for_its_owner_only);
    tcase_add_test(t, a_build_has_one_id);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
