/* check_graph_books.c - memory that graphs of the CUDA back-end take: what is granted, measured,
 * given back. */
#include "estimator/ops/scratch/workspace_cuda_rows.h"
#include "tests/cuda_sim/sim.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <stdlib.h>

#define NODE_BYTES 4096
enum { KERNELS = 3 };

static struct machine machine;
static struct pl_device *dev;
static struct pl_call call;
static void *operands[3];
static double sum;

static void set_up(void) {
    static const float ones[4] = {1, 1, 1, 1};
    static const unsigned char zeros[8 * PL_CUDA_SQUARE_BLOCKS];
    static const struct pl_attr attr;
    static const struct pl_batch batch;
    ck_assert_int_eq(setenv("PLSIM_GRAPH_NODE_BYTES", "4096", 1), 0);
    machine_open(&machine);
    const struct runner *r = &machine.runners[0];
    machine_turn_to(r);
    dev = r->dev;
    sum = 0;
    operands[0] = machine_put(r, ones, sizeof ones);
    operands[1] = machine_put(r, &sum, sizeof sum);
    operands[2] = machine_put(r, zeros, sizeof zeros);
    call = (struct pl_call){.attr = &attr, .batch = &batch};
    call.in[0] = (struct pl_view){operands[0], 4, 1, 1, PL_DTYPE_F32};
    call.in[1] = call.out[0] = (struct pl_view){operands[1], 1, 1, 1, PL_DTYPE_F64};
    call.in[2] = (struct pl_view){operands[2], sizeof zeros, 1, 1, PL_DTYPE_U8};
}

static void tear_down(void) {
    machine_close(&machine);
}

static pl_err record(struct pl_graph **out) {
    *out = NULL;
    ck_assert_int_eq(dev->ops->record_begin(dev), PL_ERR_OK);
    for (int i = 0; i < KERNELS; i++)
        ck_assert_int_eq(dev->groups[PL_OP_SQUARE_SUM](dev, &call, 1), PL_ERR_OK);
    return dev->ops->record_end(dev, true, out);
}

START_TEST(what_a_graph_took_is_given_back_with_it) {
    struct pl_graph *g[2];
    dev->graphs = (struct pl_graph_books){.limit_bytes = 1 << 20};
    ck_assert_int_eq(record(&g[0]), PL_ERR_OK);
    const uint64_t bytes = dev->graphs.bytes, nodes = dev->graphs.nodes;
    ck_assert_uint_ge(nodes, KERNELS);
    ck_assert_uint_eq(bytes, nodes * NODE_BYTES);
    ck_assert_uint_eq(plsim_graph_bytes(), bytes);
    ck_assert_int_eq(record(&g[1]), PL_ERR_OK);
    ck_assert_uint_eq(dev->graphs.bytes, 2 * bytes);
    dev->ops->forget(dev, &g[0]);
    ck_assert_ptr_null(g[0]);
    ck_assert_uint_eq(dev->graphs.bytes, bytes);
    ck_assert_uint_eq(dev->graphs.nodes, nodes);
    dev->ops->forget(dev, &g[1]);
    ck_assert_uint_eq(dev->graphs.bytes + dev->graphs.nodes + plsim_graph_bytes(), 0);
    ck_assert_uint_eq(dev->graphs.peak_bytes, 2 * bytes);
    ck_assert_uint_eq(dev->graphs.peak_nodes, 2 * nodes);
    ck_assert_uint_eq(dev->graphs.made, 2);
}
END_TEST

/* Decided by the predicted size of its nodes before it is made, and by its actual size after. */
static const struct { uint64_t node_bytes, made; } larger[] = {{NODE_BYTES, 0}, {0, 1}, {1, 1}};

START_TEST(a_graph_larger_than_the_grant_is_not_kept) {
    struct pl_graph *g;
    dev->graphs =
        (struct pl_graph_books){.limit_bytes = NODE_BYTES, .node_bytes = larger[_i].node_bytes};
    ck_assert_int_eq(record(&g), PL_ERR_DEVICE_OOM);
    ck_assert_ptr_null(g);
    ck_assert_uint_eq(dev->graphs.made, larger[_i].made);
    ck_assert_uint_eq(plsim_counters.graphs, larger[_i].made);
    ck_assert_uint_eq(dev->graphs.bytes + dev->graphs.nodes + plsim_graph_bytes(), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("memory of graphs");
    TCase *tc = tcase_create("books");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, what_a_graph_took_is_given_back_with_it);
    tcase_add_loop_test(tc, a_graph_larger_than_the_grant_is_not_kept, 0,
                        (int)(sizeof larger / sizeof *larger));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
