/* check_nccl_table.c - the table of functions against a real NCCL, where there is one. */
#include "runtime/comm/nccl_table.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77 };

START_TEST(the_real_library_has_every_function) {
    const struct pl_nccl *nccl;
    struct pl_diag d = {0};
    ck_assert_msg(pl_nccl_load(&nccl, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_int_ge(nccl->version, PL_NCCL_LEAST);
    ck_assert_int_lt(nccl->version, 30000);
    ck_assert_str_eq(nccl->ncclGetErrorString(ncclSuccess), "no error");
    ck_assert(nccl->mem_stats != NULL || nccl->version < 22907);
    ck_assert(nccl->register_memory != NULL || nccl->version < 21900);
    ck_assert((nccl->register_memory != NULL) == (nccl->deregister_memory != NULL));
    ck_assert((nccl->mem_alloc != NULL) == (nccl->version >= PL_NCCL_GIVES_MEMORY));
    ck_assert((nccl->mem_alloc != NULL) == (nccl->mem_free != NULL));
    printf("NCCL %d\n", nccl->version);
    pl_nccl_unload(&nccl);
    ck_assert_ptr_null(nccl);
}
END_TEST

/* A library, but not of NCCL; and none. */
START_TEST(another_library_is_refused) {
    static const char *const names[] = {"libc.so.6", "/nonexistent/libnccl.so.2"};
    static const char *const words[] = {"the library lacks ncclGetVersion", "/nonexistent"};
    const struct pl_nccl *nccl;
    struct pl_diag d = {0};
    setenv("PLIMSOLL_NCCL", names[_i], 1);
    ck_assert_int_eq(pl_nccl_load(&nccl, &d), PL_ERR_COMM_INIT);
    ck_assert_ptr_null(nccl);
    ck_assert_msg(strstr(d.message, words[_i]), "%s", d.message);
}
END_TEST

int main(void) {
    const struct pl_nccl *nccl;
    struct pl_diag d = {0};
    bool there = pl_nccl_load(&nccl, &d) == PL_ERR_OK;
    if (!there && !strstr(d.message, "the library lacks") && !strstr(d.message, "was found")) {
        fprintf(stderr, "skipped: needs NCCL (libnccl.so.2): %s\n", d.message);
        return SKIPPED;
    }
    pl_nccl_unload(&nccl);
    Suite *s = suite_create("nccl_table");
    TCase *tc = tcase_create("nccl_table");
    tcase_add_test(tc, the_real_library_has_every_function);
    tcase_add_loop_test(tc, another_library_is_refused, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
