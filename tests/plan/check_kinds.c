/* check_kinds.c - which tensors of a layer take turns: D1 of kinds.h, and that a kind has one
 * tensor of each piece of one loop. */
#include "estimator/plan/kinds.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>

/* Jobs with pieces: chunks of the MLP, made anew in the backward pass or not; panels of matrices
 * in 4 bits, in chunks or not; windows of updates that come from host memory. */
static const struct {
    const char *model;
    uint32_t mode, level, offload;
    uint64_t chunk;
    bool in_panels;
} jobs[] = {
    {"Gemma-3-4B", PL_MODE_LORA, PL_RECOMPUTE_OFFLOAD, PL_OFFLOAD_NONE, 256, false},
    {"Gemma-3-12B", PL_MODE_LORA, PL_RECOMPUTE_FULL, PL_OFFLOAD_WEIGHTS, 64, false},
    {"Llama-3.1-8B", PL_MODE_QLORA, PL_RECOMPUTE_FULL, PL_OFFLOAD_NONE, 0, true},
    {"Qwen2.5-7B", PL_MODE_QLORA, PL_RECOMPUTE_ATTENTION, PL_OFFLOAD_NONE, 128, true},
    {"Llama-3.2-1B", PL_MODE_FULL, PL_RECOMPUTE_FULL, PL_OFFLOAD_OPTIMIZER, 0, false},
};
#define JOBS (int)(sizeof jobs / sizeof *jobs)

struct kinds_of_plan {
    struct pl_model model;
    struct pl_planned planned;
    uint32_t *ids;
    struct pl_phase_tensors tensors;
    struct pl_kinds kinds;
};

static void find_kinds(int i, bool brief, enum pl_phase phase, struct kinds_of_plan *out) {
    const struct pl_traits traits = pl_traits_cuda(80);
    *out = (struct kinds_of_plan){0};
    pl_test_model(jobs[i].model, &out->model);
    struct pl_job_shape s = pl_test_shape(&out->model, jobs[i].mode, jobs[i].level, 2, 1729);
    s.mlp_chunk_tokens = jobs[i].chunk;
    s.offload = jobs[i].offload;
    if (jobs[i].in_panels) s.unpack_bytes = UINT64_C(1) << 24;
    ck_assert_int_eq(
        brief ? pl_program_create_brief(&out->model, &s, &traits, &out->planned.program, NULL)
              : pl_program_create(&out->model, &s, &traits, &out->planned.program, NULL),
        PL_ERR_OK);
    ck_assert_int_eq(pl_plan_create(out->planned.program, &out->planned.plan, NULL), PL_ERR_OK);
    out->ids = malloc(out->planned.program->n_tensors * sizeof *out->ids);
    ck_assert_ptr_nonnull(out->ids);
    out->tensors = pl_test_tensors(out->planned.plan, phase, PL_PLACE_DEVICE, out->ids);
    ck_assert_int_eq(pl_kinds_find(&out->tensors, &out->kinds, NULL), PL_ERR_OK);
}

static void finish(struct kinds_of_plan *k) {
    pl_kinds_finish(&k->kinds);
    free(k->ids);
    pl_planned_finish(&k->planned);
}

static uint32_t check_members(const struct kinds_of_plan *k) {
    const struct pl_tensor *tensors = k->planned.program->tensors;
    const struct pl_tensor **latest = calloc(k->kinds.n, sizeof *latest);
    uint32_t joined = 0;
    ck_assert_ptr_nonnull(latest);
    for (uint32_t i = 0; i < k->tensors.n; i++) {
        const struct pl_tensor *t = &tensors[k->ids[i]], *before = latest[k->kinds.of[i]];
        if (before) {
            joined++;
            ck_assert_uint_eq(t->loop, before->loop);
            ck_assert_uint_gt(t->piece, before->piece);
            ck_assert_uint_eq(t->bytes, before->bytes);
            ck_assert_uint_eq(t->layer, before->layer);
        }
        latest[k->kinds.of[i]] = t;
    }
    free(latest);
    return joined;
}

START_TEST(a_kind_has_one_tensor_of_each_piece_of_a_loop) {
    uint32_t joined = 0;
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++) {
        struct kinds_of_plan k;
        find_kinds(_i, false, phase, &k);
        joined += check_members(&k);
        finish(&k);
    }
    ck_assert_uint_gt(joined, 0);
}
END_TEST

/* Compares the layers that it has. Returns the number of tensors that it lacks. */
static uint32_t compare(int i, enum pl_phase phase) {
    struct kinds_of_plan whole, brief;
    find_kinds(i, false, phase, &whole);
    find_kinds(i, true, phase, &brief);
    const uint32_t lacks = whole.tensors.n - brief.tensors.n;
    for (uint32_t l = 0; l <= whole.model.layers; l++)
        if (l == whole.model.layers || !pl_program_skips(brief.planned.program, l))
            ck_assert_uint_eq(brief.kinds.in_layer[l], whole.kinds.in_layer[l]);
    finish(&whole);
    finish(&brief);
    return lacks;
}

START_TEST(a_brief_program_has_the_kinds_of_the_whole) {
    uint32_t lacks = 0;
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++)
        lacks += compare(_i, (enum pl_phase)phase);
    ck_assert_uint_gt(lacks, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.kinds");
    TCase *tc = tcase_create("pieces");
    tcase_add_loop_test(tc, a_kind_has_one_tensor_of_each_piece_of_a_loop, 0, JOBS);
    tcase_add_loop_test(tc, a_brief_program_has_the_kinds_of_the_whole, 0, JOBS);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
