/* check_library.c - a library of NVIDIA's wheels is found from the program's directory, and no
 * other Python is searched. */
#include "runtime/comm/library.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME "nvidia/nccl/lib/libnccl.so.2"

static void make_folders(const char *root, const char *below) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, below);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0755);
    }
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

/* Rule 1 of library.h: the environment is that of the program's own directory. */
START_TEST(a_wheel_next_to_the_program) {
    char root[SCRATCH_PATH], folder[PATH_MAX], file[PATH_MAX], path[PATH_MAX], small[8];
    scratch_make(root);
    make_folders(root, "bin");
    make_folders(root, "lib/python3.11/site-packages/nvidia/nccl/lib");
    snprintf(folder, sizeof folder, "%s/bin", root);
    ck_assert(!pl_library_in_wheel(folder, NAME, path, sizeof path));
    snprintf(file, sizeof file, "%s/lib/python3.11/site-packages/" NAME, root);
    file_write(file, "");
    ck_assert(pl_library_in_wheel(folder, NAME, path, sizeof path));
    ck_assert_ptr_nonnull(strstr(path, "/bin/../lib/python3.11/site-packages/" NAME));
    ck_assert(path_exists(path));
    ck_assert(!pl_library_in_wheel(folder, NAME, small, sizeof small));
    ck_assert(!pl_library_in_wheel("/nonexistent", NAME, path, sizeof path));
    scratch_remove(root);
}
END_TEST

/* Rule 2 of library.h: the loader finds the C library by its name alone. */
START_TEST(other_names_go_to_the_loader) {
    void *libc = pl_library_open("libc.so.6", RTLD_NOW | RTLD_LOCAL);
    ck_assert_ptr_nonnull(libc);
    ck_assert_ptr_nonnull(dlsym(libc, "malloc"));
    dlclose(libc);
    ck_assert_ptr_null(pl_library_open(NAME, RTLD_NOW | RTLD_LOCAL)); /* not next to this program */
}
END_TEST

int main(void) {
    Suite *s = suite_create("library");
    TCase *tc = tcase_create("library");
    tcase_add_test(tc, a_wheel_next_to_the_program);
    tcase_add_test(tc, other_names_go_to_the_loader);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
