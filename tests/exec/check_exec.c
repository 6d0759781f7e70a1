/* check_exec.c - a plan is bound to arenas of exactly its size, or not at all; running it asks for
 * nothing. On the null device, whose memory has addresses alone. */
#include "estimator/base/alloc.h"
#include "runtime/device/null/null.h"
#include "runtime/exec/exec.h"
#include "runtime/kernels/back_ends.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct pl_model model;
static struct pl_planned planned;
static struct pl_device *dev;
static struct pl_exec e;
static struct pl_arena job, batch, host[PL_PLACE_COUNT][2];
static struct pl_diag diag;

/* offload: the states of the optimizer lie in host memory. */
static void open_plan(bool offload) {
    diag = (struct pl_diag){0};
    pl_test_model("SmolLM2-135M", &model);
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_LORA, PL_RECOMPUTE_FULL, 2, 64);
    if (offload) s.recompute = PL_RECOMPUTE_OFFLOAD;
    pl_test_plan(&planned, &s, &model);
    ck_assert_int_eq(pl_device_open(&pl_back_end_null, 1, PL_NO_BUDGET, &dev, &diag), PL_ERR_OK);
    ck_assert_int_eq(pl_arena_reserve(dev, planned.plan->job_bytes, "job", &job, &diag), PL_ERR_OK);
    ck_assert_int_eq(pl_arena_reserve(dev, planned.plan->batch_bytes, "batch", &batch, &diag),
                     PL_ERR_OK);
    ck_assert_int_eq(pl_exec_init(&e, planned.plan, dev, &diag), PL_ERR_OK);
    for (int p = PL_PLACE_PINNED; p < PL_PLACE_COUNT; p++) {
        const struct pl_host_plan *h = &planned.plan->host[p];
        ck_assert_int_eq(pl_host_reserve(dev, p, h->job_bytes, "x", &host[p][0], &diag), PL_ERR_OK);
        ck_assert_int_eq(pl_host_reserve(dev, p, h->batch_bytes, "x", &host[p][1], &diag),
                         PL_ERR_OK);
        e.host_arenas.job[p] = host[p][0];
        e.host_arenas.batch[p] = host[p][1];
    }
}

static void close_plan(void) {
    pl_exec_finish(&e);
    for (int p = PL_PLACE_PINNED; p < PL_PLACE_COUNT; p++) {
        pl_host_release(dev, p, &host[p][0]);
        pl_host_release(dev, p, &host[p][1]);
    }
    pl_arena_release(dev, &job);
    pl_arena_release(dev, &batch);
    ck_assert_uint_eq(dev->used_bytes, 0);
    pl_device_close(&dev);
    pl_planned_finish(&planned);
}

/* E1: every operand of every call lies in its tensor, which lies in its arena. */
START_TEST(every_operand_lies_inside_its_arena) {
    open_plan(_i);
    ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, &diag), PL_ERR_OK);
    const struct pl_program *p = planned.program;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const char *at = pl_exec_address(&e, i);
        const struct pl_tensor *t = &p->tensors[i];
        const struct pl_arena *a = pl_exec_arena(&e, t);
        if (!t->bytes) continue;
        ck_assert(at >= (char *)a->base);
        ck_assert(at + t->bytes <= (char *)a->base + a->bytes);
        if (t->place == PL_PLACE_DEVICE)
            ck_assert_ptr_eq(a->base, t->scope == PL_SCOPE_JOB ? job.base : batch.base);
    }
    close_plan();
}
END_TEST

START_TEST(arenas_of_another_size_are_a_broken_plan) {
    open_plan(false);
    const int64_t off[][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, -1}};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        const struct pl_arena j = {job.base, job.bytes + (uint64_t)off[i][0]};
        const struct pl_arena b = {batch.base, batch.bytes + (uint64_t)off[i][1]};
        char said[160];
        diag = (struct pl_diag){0};
        ck_assert_int_eq(pl_exec_bind(&e, &j, &b, &diag), PL_ERR_PLAN_BROKEN);
        snprintf(said, sizeof said, "planned %llu + %llu bytes, bound %llu + %llu",
                 (unsigned long long)job.bytes, (unsigned long long)batch.bytes,
                 (unsigned long long)j.bytes, (unsigned long long)b.bytes);
        ck_assert_str_eq(diag.message, said);
    }
    ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, NULL), PL_ERR_OK);
    close_plan();
}
END_TEST

START_TEST(host_memory_of_another_size_is_a_broken_plan) {
    open_plan(true);
    uint64_t planned_bytes = 0;
    for (int p = PL_PLACE_PINNED; p < PL_PLACE_COUNT; p++) {
        planned_bytes += host[p][0].bytes + host[p][1].bytes;
        for (int k = 0; k < 2; k++) {
            struct pl_arena *a = k ? &e.host_arenas.batch[p] : &e.host_arenas.job[p];
            diag = (struct pl_diag){0};
            a->bytes++;
            ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, &diag), PL_ERR_PLAN_BROKEN);
            ck_assert_msg(strstr(diag.message, " memory, bound ") != NULL, "%s", diag.message);
            ck_assert_msg(strstr(diag.message, pl_place_name(p)) != NULL, "%s", diag.message);
            a->bytes--;
        }
    }
    ck_assert_uint_gt(planned_bytes, 0); /* this plan has some */
    ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, NULL), PL_ERR_OK);
    close_plan();
}
END_TEST

/* Arenas may move: every address moves with them, by the same distance. */
START_TEST(a_new_binding_follows_its_arenas) {
    open_plan(false);
    ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, NULL), PL_ERR_OK);
    const struct pl_program *p = planned.program;
    const struct pl_arena moved_job = {(char *)job.base + (1 << 20), job.bytes};
    const struct pl_arena moved_batch = {(char *)batch.base + (3 << 20), batch.bytes};
    const char *before[2] = {NULL, NULL};
    uint32_t id[2] = {0, 0};
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].place == PL_PLACE_DEVICE && p->tensors[i].bytes)
            id[p->tensors[i].scope == PL_SCOPE_JOB] = i;
    for (int k = 0; k < 2; k++)
        before[k] = pl_exec_address(&e, id[k]);
    const uint32_t patches = e.n_patches;
    ck_assert_int_eq(pl_exec_bind(&e, &moved_job, &moved_batch, NULL), PL_ERR_OK);
    ck_assert_ptr_eq(pl_exec_address(&e, id[1]), before[1] + (1 << 20));
    ck_assert_ptr_eq(pl_exec_address(&e, id[0]), before[0] + (3 << 20));
    ck_assert_uint_eq(e.n_patches, patches); /* not appended to the earlier ones */
    close_plan();
}
END_TEST

/* E2, and the same of a second binding. */
START_TEST(running_and_binding_again_ask_for_no_memory) {
    open_plan(_i);
    ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, &diag), PL_ERR_OK);
    const uint64_t requests = pl_alloc_requests();
    const uint64_t allocations = dev->allocations + dev->host_allocations;
    for (int round = 0; round < 3; round++) {
        const struct pl_batch b = {.n_tokens = 10 + (uint64_t)round, .n_seqs = 1, .n_targets = 9};
        ck_assert_int_eq(pl_exec_describe(&e, &b, &diag), PL_ERR_OK);
        for (int phase = 0; phase < PL_PHASE_COUNT; phase++) {
            const pl_err err = pl_exec_run_phase(&e, (enum pl_phase)phase, &diag);
            ck_assert_msg(err == PL_ERR_OK, "%s", diag.message);
        }
        ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, &diag), PL_ERR_OK);
    }
    ck_assert_uint_eq(pl_alloc_requests(), requests);
    /* R3 of program.h */
    ck_assert_uint_eq(dev->allocations + dev->host_allocations, allocations);
    close_plan();
}
END_TEST

/* Every request of the binding may fail; nothing is held afterwards. */
START_TEST(a_binding_without_memory_says_so) {
    open_plan(false);
    for (uint64_t at = 1; at < 10; at++) {
        struct pl_exec x;
        diag = (struct pl_diag){0};
        pl_alloc_fail(at, 1);
        const pl_err err = pl_exec_init(&x, planned.plan, dev, &diag);
        const bool failed = pl_alloc_requests() >= at;
        pl_alloc_fail(0, 0);
        ck_assert_int_eq(err, failed ? PL_ERR_HOST_OOM : PL_ERR_OK);
        if (failed) ck_assert_str_eq(diag.message, "no memory for the binding of the plan");
        if (failed) ck_assert(!x.calls && !x.patches);
        if (!failed) ck_assert_uint_gt(at, 2);
        pl_exec_finish(&x);
        if (!failed) break;
    }
    close_plan();
}
END_TEST

int main(void) {
    Suite *s = suite_create("exec.exec");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_operand_lies_inside_its_arena, 0, 2);
    tcase_add_test(t, arenas_of_another_size_are_a_broken_plan);
    tcase_add_test(t, host_memory_of_another_size_is_a_broken_plan);
    tcase_add_test(t, a_new_binding_follows_its_arenas);
    tcase_add_loop_test(t, running_and_binding_again_ask_for_no_memory, 0, 2);
    tcase_add_test(t, a_binding_without_memory_says_so);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
