#include "tests/support/saved.h"
#include "runtime/checkpoint/manifest.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <string.h>

json_t *saved_state(const char *dir, json_t **plimsoll) {
    json_error_t error;
    json_t *root = json_load_file(in_dir(dir, "trainer_state.json"), 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", dir, error.text);
    *plimsoll = json_object_get(root, "plimsoll");
    ck_assert_msg(json_is_object(*plimsoll), "%s has no state of ours", dir);
    return root;
}

/* Digests are those of the files, in one piece or in several; sizes are left to be compared. */
static void check_files(const char *dir, json_t *ours) {
    json_t *files = json_object_get(ours, "files"), *entry;
    struct pl_diag d = {0};
    const char *name;
    const bool pieces = pl_manifest_has_pieces(files);
    ck_assert_msg(pl_manifest_check(files, dir, &d) == PL_ERR_OK, "%s", d.message);
    json_object_foreach(files, name, entry) {
        json_object_del(entry, "xxh64");
        json_object_del(entry, "pieces");
    }
    ck_assert_int_eq(json_integer_value(json_object_get(ours, "format")), pieces ? 3 : 2);
    json_object_del(ours, "format");
}

static json_t *comparable_state(const char *dir) {
    static const char *const of_the_run[] = {"run_id", "job", "state_xxh64"};
    json_t *ours, *root = saved_state(dir, &ours);
    check_files(dir, ours);
    for (size_t i = 0; i < sizeof of_the_run / sizeof *of_the_run; i++)
        ck_assert_msg(json_object_del(ours, of_the_run[i]) == 0, "%s: no %s", dir, of_the_run[i]);
    return root;
}

struct pair {
    const char *a, *b;
};

static void expect_same(const char *name, void *ctx) {
    const struct pair *p = ctx;
    if (strcmp(name, "trainer_state.json") != 0) {
        ck_assert_msg(file_same(textf("%s/%s", p->a, name), textf("%s/%s", p->b, name)),
                      "%s differs between %s and %s", name, p->a, p->b);
        return;
    }
    json_t *x = comparable_state(p->a), *y = comparable_state(p->b);
    ck_assert_msg(json_equal(x, y), "counters differ between %s and %s", p->a, p->b);
    json_decref(x);
    json_decref(y);
}

static void pass_over(const char *name, void *ctx) {
    (void)name, (void)ctx;
}

void checkpoint_assert_same(const char *a, const char *b) {
    char path[2][2 * SCRATCH_PATH];
    snprintf(path[0], sizeof path[0], "%s", a);
    snprintf(path[1], sizeof path[1], "%s", b);
    struct pair p = {path[0], path[1]};
    const size_t n = dir_each(path[0], expect_same, &p);
    ck_assert_uint_ge(n, 4);
    ck_assert_uint_eq(dir_each(path[1], pass_over, NULL), n);
}
