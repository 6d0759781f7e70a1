/* check_available.c - what bounds the memory of a process, read from trees of /proc and /sys. */
#include "runtime/device/available.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MOST_FILES 12
#define MEMINFO    "MemTotal:  8000 kB\nMemFree:  100 kB\nMemAvailable:    6000 kB\nBuffers: 1 kB\n"
#define STATUS     "Name:\tx\nVmPeak:\t   900 kB\nVmSize:\t     700 kB\nVmData:\t     200 kB\n"
#define KIB(n)     (UINT64_C(n) * 1024)

struct file {
    const char *path, *text;
};

static const struct tree {
    const char *name;
    struct file files[MOST_FILES];
    uint64_t as_limit, data_limit; /* 0: none */
    uint64_t expect;
    const char *source;
} trees[] = {
    {"nothing", {{0}}, 0, 0, KIB(8000), "memory of the machine"},
    {"meminfo", {{"proc/meminfo", MEMINFO}}, 0, 0, KIB(6000), "available memory"},
    {"v2 of the group",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/memory.max", "1048576\n"},
      {"sys/fs/cgroup/a/b/memory.current", "524288\n"}},
     0,
     0,
     KIB(512),
     "memory limit of the cgroup"},
    {"v2 file pages are free, but never more than is used",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "1048576\n"},
      {"sys/fs/cgroup/a/memory.current", "524288\n"},
      {"sys/fs/cgroup/a/memory.stat", "anon 1\nfile 400000\nworkingset_activate_file "
                                      "7\ninactive_file 131072\nactive_file 131072\n"}},
     0,
     0,
     KIB(768),
     "memory limit of the cgroup"},
    {"v2 of the parent, beside its other children",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/memory.max", "2097152\n"},
      {"sys/fs/cgroup/a/b/memory.current", "1024\n"},
      {"sys/fs/cgroup/a/memory.max", "2097152\n"},
      {"sys/fs/cgroup/a/memory.current", "2048000\n"}},
     0,
     0,
     KIB(48),
     "memory limit of the cgroup"},
    {"v2 max",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "max\n"},
      {"sys/fs/cgroup/a/memory.high", "max\n"},
      {"sys/fs/cgroup/a/memory.current", "524288\n"}},
     0,
     0,
     KIB(6000),
     "available memory"},
    {"v2 high",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "max\n"},
      {"sys/fs/cgroup/a/memory.high", "1048576\n"},
      {"sys/fs/cgroup/a/memory.current", "1024\n"}},
     0,
     0,
     KIB(1023),
     "memory limit of the cgroup"},
    {"v2 used up",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "1048576\n"},
      {"sys/fs/cgroup/a/memory.current", "1048577\n"}},
     0,
     0,
     0,
     "memory limit of the cgroup"},
    {"v2 in a container whose mount begins at its group",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/docker/0123\n"},
      {"sys/fs/cgroup/memory.max", "1048576\n"},
      {"sys/fs/cgroup/memory.current", "0\n"}},
     0,
     0,
     KIB(1024),
     "memory limit of the cgroup"},
    {"v2 seen from a namespace that it lies outside of",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/../../x\n"},
      {"sys/fs/cgroup/memory.max", "1048576\n"},
      {"sys/x/memory.max", "1\n"}},
     0,
     0,
     KIB(1024),
     "memory limit of the cgroup"},
    {"v1",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "9:cpu,cpuacct:/other\n4:hugetlb,memory:/job\n0::/\n"},
      {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n"},
      {"sys/fs/cgroup/memory/job/memory.usage_in_bytes", "524288\n"},
      {"sys/fs/cgroup/memory/job/memory.stat",
       "inactive_file 1\ntotal_inactive_file 65536\ntotal_active_file 65536\n"},
      {"sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1\n"}},
     0,
     0,
     KIB(640),
     "memory limit of the cgroup"},
    {"v1 without a limit",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "4:memory:/job\n"},
      {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/job/memory.usage_in_bytes", "524288\n"}},
     0,
     0,
     KIB(6000),
     "available memory"},
    {"v1 of the parent",
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "4:memory:/job/step\n"},
      {"sys/fs/cgroup/memory/job/step/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n"},
      {"sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1024\n"}},
     0,
     0,
     KIB(1023),
     "memory limit of the cgroup"},
    {"a group, and nothing of /proc",
     {{"sys/fs/cgroup/memory.max", "1048576\n"}, {"sys/fs/cgroup/memory.current", "1024\n"}},
     0,
     0,
     KIB(1023),
     "memory limit of the cgroup"},
    {"files of nonsense",
     {{"proc/meminfo", "MemAvailable: x kB\n\n\nMem"},
      {"proc/self/cgroup", "memory\n:\n::\n4:memory\n\n"},
      {"sys/fs/cgroup/memory.max", ""},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "-\n"}},
     0,
     0,
     KIB(8000),
     "memory of the machine"},
    {"RLIMIT_AS",
     {{"proc/meminfo", MEMINFO}, {"proc/self/status", STATUS}},
     KIB(1000),
     0,
     KIB(300),
     "RLIMIT_AS"},
    {"RLIMIT_DATA",
     {{"proc/meminfo", MEMINFO}, {"proc/self/status", STATUS}},
     KIB(1000),
     KIB(400),
     KIB(200),
     "RLIMIT_DATA"},
    {"a limit, and nothing of /proc", {{0}}, KIB(1000), 0, KIB(1000), "RLIMIT_AS"},
    {"a limit above what is there",
     {{"proc/meminfo", MEMINFO}, {"proc/self/status", STATUS}},
     KIB(90000),
     0,
     KIB(6000),
     "available memory"},
};

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void make_parents(const char *path) {
    char part[1024];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + strlen(dir) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        (void)mkdir(part, 0777);
    }
}

/* M1, M2, M3: by trees of files, some of which lack some. */
START_TEST(the_narrowest_bound_is_what_is_available) {
    const struct tree *t = &trees[_i];
    for (const struct file *f = t->files; f->path && f < t->files + MOST_FILES; f++) {
        make_parents(in_dir(dir, f->path));
        file_write(in_dir(dir, f->path), f->text);
    }
    const struct pl_available_from from = {
        .root = dir,
        .machine_bytes = KIB(8000),
        .as_limit = t->as_limit ? t->as_limit : RLIM_INFINITY,
        .data_limit = t->data_limit ? t->data_limit : RLIM_INFINITY,
    };
    const struct pl_available a = pl_available_read(&from);
    const bool is_limit = strncmp(t->source, "RLIMIT", 6) == 0 || strstr(t->source, "limit of");
    ck_assert_msg(a.bytes == t->expect && strcmp(a.source, t->source) == 0 && a.limit == is_limit,
                  "%s: %llu, %s", t->name, (unsigned long long)a.bytes, a.source);
}
END_TEST

/* AddressSanitizer's shadow, terabytes of it, counts as data of the process: the limit leaves
 * nothing then, and stands for the one question only. */
START_TEST(this_process_has_some_and_no_more_than_its_limit) {
    struct rlimit was;
    ck_assert_int_eq(getrlimit(RLIMIT_DATA, &was), 0);
    const struct rlimit narrow = {.rlim_cur = UINT64_C(1) << 36, .rlim_max = was.rlim_max};
    const struct pl_available before = pl_cpu_available();
    const int lowered = setrlimit(RLIMIT_DATA, &narrow);
    const struct pl_available after = pl_cpu_available();
    const int restored = setrlimit(RLIMIT_DATA, &was);
    ck_assert_int_eq(lowered, 0);
    ck_assert_int_eq(restored, 0);
    ck_assert_uint_gt(before.bytes, 0);
#ifndef __SANITIZE_ADDRESS__
    ck_assert_uint_gt(after.bytes, 0);
#endif
    ck_assert_uint_lt(after.bytes, narrow.rlim_cur);
}
END_TEST

int main(void) {
    Suite *s = suite_create("device.available");
    TCase *c = tcase_create("available");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, the_narrowest_bound_is_what_is_available, 0,
                        sizeof trees / sizeof *trees);
    tcase_add_test(c, this_process_has_some_and_no_more_than_its_limit);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
