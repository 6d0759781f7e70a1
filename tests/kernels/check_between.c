/* check_between.c - SPREAD, SHARE and FETCH as moves: what each rank sends is what the others take.
 *
 * Several ranks live in one process. Each of them is asked for its moves, which an engine of the
 * test writes down; then every move that sends is matched with the one that takes it. */
#include "estimator/program/shard.h"
#include "runtime/comm/comm.h"
#include "runtime/kernels/between.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

static struct pl_move moves[MOST][2 * MOST];
static uint32_t n_moves[MOST];

static pl_err write_down(struct pl_comm *c, const struct pl_move *list, uint32_t n, void *stream) {
    ck_assert_ptr_null(stream);
    ck_assert_uint_le(n, 2 * MOST);
    memcpy(moves[c->world.rank], list, n * sizeof *list);
    n_moves[c->world.rank] = n;
    return PL_ERR_OK;
}

static const struct pl_comm_ops engine = {.name = "test", .exchange = write_down};

static uint32_t drawn = 1;
static uint32_t below(uint32_t n) {
    drawn = drawn * 1664525 + 1013904223;
    return (drawn >> 8) % n;
}

/* The first move of a rank that takes from `peer` and was not matched yet. */
static const struct pl_move *next_taken(uint32_t rank, uint32_t peer) {
    for (uint32_t i = 0; i < n_moves[rank]; i++) {
        struct pl_move *m = &moves[rank][i];
        if (!m->receive || m->peer != peer || !m->p) continue;
        static struct pl_move found;
        found = *m;
        m->p = NULL;
        return &found;
    }
    return NULL;
}

/* B1: no rank is its own peer. */
static void carry_all(uint32_t ranks) {
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < n_moves[r]; i++) {
            const struct pl_move *m = &moves[r][i];
            if (m->receive) continue;
            ck_assert_uint_ne(m->peer, r);
            const struct pl_move *to = next_taken(m->peer, r);
            ck_assert_msg(to && to->bytes == m->bytes,
                          "rank %u takes other bytes than rank %u sends", m->peer, r);
            memcpy(to->p, m->p, m->bytes);
        }
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < n_moves[r]; i++)
            ck_assert_msg(!moves[r][i].receive || !moves[r][i].p, "rank %u waits for nothing", r);
}

struct matrix {
    uint64_t rows, cols, block;
    uint32_t ranks;
    float *of[MOST]; /* [rows, cols] of every rank */
};

static float value(uint32_t rank, uint64_t i) {
    return (float)rank * 100000.0f + (float)i;
}

static struct matrix draw(void) {
    struct matrix m = {.rows = 1 + below(700), .cols = 1 + below(40), .ranks = 2 + below(MOST - 1)};
    m.block = pl_shard_block(m.rows, m.cols);
    for (uint32_t r = 0; r < m.ranks; r++) {
        m.of[r] = malloc(m.rows * m.cols * sizeof **m.of);
        ck_assert_ptr_nonnull(m.of[r]);
        for (uint64_t i = 0; i < m.rows * m.cols; i++)
            m.of[r][i] = value(r, i);
    }
    return m;
}

static void finish(struct matrix *m) {
    for (uint32_t r = 0; r < m->ranks; r++)
        free(m->of[r]);
}

static struct pl_view view(float *p, uint64_t rows, uint64_t cols) {
    return (struct pl_view){
        .p = rows ? p : NULL, .rows = rows, .cols = cols, .ld = cols, .dtype = PL_DTYPE_F32};
}

static struct pl_shard shard(const struct matrix *m, uint32_t rank) {
    return pl_shard_of(m->rows, m->block, m->ranks, rank);
}

static struct pl_attr attr_of(const struct matrix *m) {
    return (struct pl_attr){.ranks = m->ranks, .block_rows = (uint32_t)m->block};
}

static struct pl_comm comm_of(const struct matrix *m, uint32_t rank) {
    return (struct pl_comm){.ops = &engine, .world = {.rank = rank, .size = m->ranks}};
}

static void copy_own(const struct pl_own_copy *own) {
    if (own->bytes) memcpy(own->to, own->from, own->bytes);
}

/* Rows [row0, row0+n) of every rank's, from all ranks; n 0: all of them. */
static void spread_and_check(struct matrix *m, uint64_t row0, uint64_t n) {
    float *parts[MOST];
    struct pl_shard mine[MOST];
    struct pl_attr attr = attr_of(m);
    attr.piece_row0 = (uint32_t)row0;
    attr.piece_rows = (uint32_t)n;
    for (uint32_t r = 0; r < m->ranks; r++) {
        struct pl_comm comm = comm_of(m, r);
        struct pl_device dev = {.comm = &comm};
        mine[r] = n ? pl_shard_piece(shard(m, r), row0, n) : shard(m, r);
        parts[r] = calloc(mine[r].rows * (m->ranks - 1) * m->cols + 1, sizeof **parts);
        struct pl_call c = {.attr = &attr};
        c.in[PL_SPREAD_G] = view(m->of[r], m->rows, m->cols);
        c.out[PL_SPREAD_OUT_PARTS] = view(parts[r], mine[r].rows * (m->ranks - 1), m->cols);
        n_moves[r] = 0;
        ck_assert_int_eq(pl_ranks_spread(&dev, &c, NULL), PL_ERR_OK);
    }
    carry_all(m->ranks);
    for (uint32_t r = 0; r < m->ranks; r++) {
        for (uint32_t from = 0; from < m->ranks; from++)
            for (uint64_t i = 0; from != r && i < mine[r].rows * m->cols; i++)
                ck_assert(parts[r][(from - (from > r)) * mine[r].rows * m->cols + i] ==
                          value(from, mine[r].row0 * m->cols + i));
        free(parts[r]);
    }
}

START_TEST(every_rank_gets_its_rows_of_all) {
    drawn = (uint32_t)_i + 1;
    struct matrix m = draw();
    spread_and_check(&m, 0, 0);
    finish(&m);
}
END_TEST

START_TEST(pieces_are_all_of_it) {
    drawn = (uint32_t)_i + 77;
    struct matrix m = draw();
    const uint64_t step = 1 + below(60);
    uint64_t most = 0;
    for (uint32_t r = 0; r < m.ranks; r++)
        most = pl_u64_max(most, shard(&m, r).rows);
    for (uint64_t row = 0; row < most; row += step)
        spread_and_check(&m, row, step);
    finish(&m);
}
END_TEST

/* A rank has its rows right, and those of the others as they were. */
START_TEST(what_each_has_all_have) {
    drawn = (uint32_t)_i + 5;
    struct matrix m = draw();
    const struct pl_attr attr = attr_of(&m);
    for (uint32_t r = 0; r < m.ranks; r++) {
        struct pl_comm comm = comm_of(&m, r);
        struct pl_device dev = {.comm = &comm};
        struct pl_call c = {.attr = &attr};
        c.in[PL_SHARE_X] = c.out[PL_SHARE_OUT_X] = view(m.of[r], m.rows, m.cols);
        n_moves[r] = 0;
        ck_assert_int_eq(pl_ranks_share(&dev, &c, NULL), PL_ERR_OK);
    }
    carry_all(m.ranks);
    for (uint32_t r = 0; r < m.ranks; r++)
        for (uint32_t of = 0; of < m.ranks; of++)
            for (uint64_t i = 0; i < shard(&m, of).rows * m.cols; i++) {
                const uint64_t at = shard(&m, of).row0 * m.cols + i;
                ck_assert(m.of[r][at] == value(of, at));
            }
    finish(&m);
}
END_TEST

START_TEST(parts_become_the_whole) {
    drawn = (uint32_t)_i + 9;
    struct matrix m = draw();
    const struct pl_attr attr = attr_of(&m);
    float *whole[MOST];
    for (uint32_t r = 0; r < m.ranks; r++) {
        struct pl_comm comm = comm_of(&m, r);
        struct pl_device dev = {.comm = &comm};
        struct pl_own_copy own;
        const struct pl_shard mine = shard(&m, r);
        whole[r] = calloc(m.rows * m.cols, sizeof **whole);
        struct pl_call c = {.attr = &attr};
        c.in[PL_FETCH_PART] = view(m.of[r] + mine.row0 * m.cols, mine.rows, m.cols);
        c.out[PL_FETCH_OUT_X] = view(whole[r], m.rows, m.cols);
        n_moves[r] = 0;
        ck_assert_int_eq(pl_ranks_fetch(&dev, &c, NULL, &own), PL_ERR_OK);
        copy_own(&own);
    }
    carry_all(m.ranks);
    for (uint32_t r = 0; r < m.ranks; r++) {
        ck_assert_int_eq(memcmp(whole[r], whole[0], m.rows * m.cols * sizeof **whole), 0);
        for (uint64_t i = 0; i < shard(&m, r).rows * m.cols; i++)
            ck_assert(whole[0][shard(&m, r).row0 * m.cols + i] ==
                      value(r, shard(&m, r).row0 * m.cols + i));
    }
    for (uint32_t r = 0; r < m.ranks; r++)
        free(whole[r]);
    finish(&m);
}
END_TEST

/* A plan for other ranks than there are, for parts of another size, or without ranks. */
START_TEST(plans_of_others_are_refused) {
    struct matrix m = draw();
    struct pl_attr attr = attr_of(&m);
    struct pl_comm comm = comm_of(&m, 0);
    struct pl_device dev = {.comm = &comm};
    struct pl_call c = {.attr = &attr};
    c.in[PL_SPREAD_G] = view(m.of[0], m.rows, m.cols);
    c.out[PL_SPREAD_OUT_PARTS] = view(m.of[1], shard(&m, 0).rows * (m.ranks - 1) + 1, m.cols);
    ck_assert_int_eq(pl_ranks_spread(&dev, &c, NULL), PL_ERR_PLAN_BROKEN);
    c.in[PL_SHARE_X] = c.out[PL_SHARE_OUT_X] = view(m.of[0], m.rows, m.cols);
    attr.ranks++;
    ck_assert_int_eq(pl_ranks_share(&dev, &c, NULL), PL_ERR_PLAN_BROKEN);
    attr.ranks--;
    attr.block_rows = 0;
    ck_assert_int_eq(pl_ranks_share(&dev, &c, NULL), PL_ERR_PLAN_BROKEN);
    dev.comm = NULL;
    ck_assert_int_eq(pl_ranks_share(&dev, &c, NULL), PL_ERR_PLAN_BROKEN);
    finish(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("kernels.between");
    TCase *tc = tcase_create("moves");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_rank_gets_its_rows_of_all, 0, 20);
    tcase_add_loop_test(tc, pieces_are_all_of_it, 0, 10);
    tcase_add_loop_test(tc, what_each_has_all_have, 0, 20);
    tcase_add_loop_test(tc, parts_become_the_whole, 0, 20);
    tcase_add_test(tc, plans_of_others_are_refused);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
