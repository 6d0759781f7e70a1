/* check_share.c - checkpoints that several processes write: the bytes of one, whatever fails.
 *
 * The ranks agree over the real control channel. H2 of share.h: they have no engine, so that no
 * tensor can pass. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/cut.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/comm/launch.h"
#include "tests/checkpoint/rig.h"
#include "tests/comm/rank_process.h"
#include "tests/support/hang.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP = 2, SMALL_SHARD = 40000 };

static char dir[64];
static struct pl_diag diag;

/* --- what is saved ---------------------------------------------------------------------------- */

/* Files of more than PL_SHARE_LEAST bytes, but for the kind that says so. */
static const struct rig_options kinds[] = {
    {.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16, .master = true, .wide = true},
    {.mode = PL_MODE_FULL, .dtype = PL_DTYPE_F32, .untied = true, .fused = true, .wide = true},
    {.mode = PL_MODE_FULL,
     .dtype = PL_DTYPE_BF16,
     .master = true,
     .wide = true,
     .optimizer = PL_OPTIMIZER_ADAMW_8BIT,
     .staging_bytes = 4096},
    {.mode = PL_MODE_FULL, .dtype = PL_DTYPE_F32, .freeze_layers = 1, .bias = true}, /* small */
    {.mode = PL_MODE_LORA, .lora_r = 300, .wide = true, .dtype = PL_DTYPE_BF16},
    {.mode = PL_MODE_QLORA,
     .lora_r = 300,
     .wide = true,
     .optimizer = PL_OPTIMIZER_ADAMW_8BIT,
     .whole = {"embed_tokens", "lm_head"},
     .untied = true,
     .staging_bytes = 4096},
    {.mode = PL_MODE_LORA, /* files have it turned */
     .adapter_dtype = PL_DTYPE_BF16,
     .lora_r = 300,
     .master = true,
     .wide = true,
     .target = "embed_tokens",
     .staging_bytes = 4096},
    {.mode = PL_MODE_LORA,
     .lora_r = 300,
     .wide = true,
     .target = "embed_tokens",
     .optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.mode = PL_MODE_LORA, .lora_r = 300, .wide = true, .target = "q_proj"}, /* few tensors */
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_CUTS = 4, FEW = N_KINDS - 1 };
static const uint32_t cuts[N_CUTS] = {PL_SHARDING_NONE, PL_SHARDING_OPTIMIZER,
                                      PL_SHARDING_GRADIENTS, PL_SHARDING_WEIGHTS};

static const struct pl_run_state state = {.step = STEP, .batch_size = 3, .run_number = 1};

static pl_err put_checkpoint(struct pl_checkpoint *c, const struct pl_tensor_io *io,
                             uint64_t shard_bytes, struct pl_diag *d) {
    struct pl_job job;
    if (!pl_mode_adapts(io->program->shape.mode))
        return pl_model_put(io, &c->outbox, "{}", NULL, shard_bytes, d);
    PL_TRY(pl_job_defaults(&job, d));
    pl_err err = pl_adapter_put(io, &c->outbox, &job, NULL, d);
    pl_job_finish(&job);
    return err;
}

/* Saves as rank 0 does, with others or without. */
static pl_err save(const struct pl_tensor_io *io, const char *out, uint64_t shard_bytes,
                   struct pl_diag *d) {
    struct pl_checkpoint c = {0};
    pl_err err;
    PL_TRY_GOTO(pl_checkpoint_begin(&c, out, STEP, d), out);
    PL_TRY_GOTO(put_checkpoint(&c, io, shard_bytes, d), out);
    PL_TRY_GOTO(pl_checkpoint_write_state(&c, io, &state, NULL, d), out);
    err = pl_checkpoint_commit(&c, out, (struct pl_rotation){2, 0}, d);
out:
    pl_checkpoint_abort(&c);
    return err;
}

/* --- a rank ----------------------------------------------------------------------------------- */

struct crew {
    uint32_t n, kind, cut;
    uint64_t shard; /* 0 = as a run */
    uint32_t fault_rank, fault_at;
    void (*before)(void); /* nullable: what the fault does */
    bool late;            /* rank 1 opens its file when the directory has ended */
    bool odd;             /* rank 1 believes in more ranks, and writes less */
};
static struct crew crew; /* the ranks that are started */
static char where[80];   /* they save */

/* The tensors of the program of one rank, where this one has them. */
struct part {
    struct rig whole, held;
    struct pl_cut cut;
};

static void *address_of_part(void *ctx, uint32_t tensor) {
    const struct part *p = ctx;
    return p->held.memory[p->cut.whole ? p->cut.own[tensor] : tensor];
}

static bool is_saved(enum pl_role role) {
    return role == PL_ROLE_WEIGHT || role == PL_ROLE_LORA_A || role == PL_ROLE_LORA_B ||
           (role >= PL_ROLE_STATE && role <= PL_ROLE_MASTER);
}

/* Copies out of the whole what this rank holds of it. */
static void fill(struct part *p, uint32_t rank) {
    for (uint32_t t = 0; t < p->whole.program->n_tensors; t++) {
        const struct pl_tensor *x = &p->whole.program->tensors[t];
        const uint64_t size = pl_dtype_bytes(x->dtype);
        struct pl_cut_range ranges[PL_MAX_PARTS];
        const uint32_t own = p->cut.whole ? p->cut.own[t] : t;
        if (x->scope != PL_SCOPE_JOB || own == PL_NONE || !is_saved(x->role)) continue;
        if (!p->cut.whole || !pl_cut_is_cut(&p->cut, t)) {
            memcpy(p->held.memory[own], p->whole.memory[t], x->bytes);
            continue;
        }
        const uint32_t n = pl_cut_ranges(&p->cut, t, rank, ranges);
        for (uint32_t i = 0; i < n; i++)
            memcpy((char *)p->held.memory[own] + ranges[i].at * size,
                   (char *)p->whole.memory[t] + ranges[i].from * size, ranges[i].count * size);
    }
}

static pl_err part_open(struct part *p, const struct pl_world *w, struct pl_comm *comm,
                        struct pl_diag *d) {
    struct rig_options o = kinds[crew.kind];
    o.ranks = 1;
    rig_open(&p->whole, &o);
    rig_scramble(&p->whole, 77);
    o.ranks = w->size;
    o.rank = w->rank;
    o.sharding = cuts[crew.cut];
    rig_open(&p->held, &o);
    if (o.sharding >= PL_SHARDING_OPTIMIZER) PL_TRY(pl_cut_init(&p->cut, p->held.program, d));
    for (uint32_t t = 0; p->cut.whole && t < p->cut.whole->n_tensors; t++)
        ck_assert_uint_eq(p->cut.whole->tensors[t].role, p->whole.program->tensors[t].role);
    fill(p, w->rank);
    struct pl_tensor_io *io = &p->held.io;
    if (p->cut.whole) io->program = p->cut.whole;
    if (p->cut.whole) io->cut = &p->cut;
    if (crew.odd && w->rank == 1) p->cut.shape.ranks = PL_RANKS_MAX;
    io->address = address_of_part;
    io->ctx = p;
    io->comm = comm;
    io->shares = true;
    return PL_ERR_OK;
}

static void part_close(struct part *p) {
    rig_close(&p->whole);
    rig_close(&p->held);
    pl_cut_finish(&p->cut);
}

static bool is_temporary(const char *name, const void *found) {
    if (strstr(name, ".tmp")) *(bool *)(uintptr_t)found = true;
    return false;
}

static bool has_temporary(void) {
    bool found = false;
    OK(pl_dir_clear(where, is_temporary, &found, &diag));
    return found;
}

static void wait_for_the_end(void) {
    const uint64_t until = ranks_now_ns() + HANG_SECONDS * UINT64_C(1000000000);
    while (has_temporary() && ranks_now_ns() < until)
        usleep(1000);
}

static void set_fault(struct pl_io_fault *f, uint32_t rank) {
    *f = (struct pl_io_fault){.at = crew.fault_at, .count = 1, .before = crew.before};
    if (crew.late && rank == 1)
        *f = (struct pl_io_fault){1, 1, 0, wait_for_the_end};
    else if (rank != crew.fault_rank)
        f->at = 0;
    pl_checkpoint_set_fault(f);
}

static int save_as_rank(void *unused) {
    struct pl_diag d = {0};
    struct pl_world w;
    struct pl_comm comm;
    struct part p = {0};
    struct pl_io_fault fault;
    (void)unused;
    pl_err err = pl_world_init(&w, &d);
    if (err == PL_ERR_OK) err = ranks_open_control(&comm, &w, &d);
    if (err == PL_ERR_OK) err = part_open(&p, &w, &comm, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    set_fault(&fault, w.rank);
    err = w.rank == 0 ? save(&p.held.io, where, crew.shard, &d)
                      : pl_checkpoint_join(&p.held.io, where, STEP, crew.shard, &d);
    ranks->of[w.rank].rounds = fault.calls;
    ranks_note(&w, err, &d);
    if (err != PL_ERR_OK) pl_control_fail(comm.control, err, d.message);
    pl_control_close(&comm.control, err == PL_ERR_OK);
    part_close(&p);
    return err != PL_ERR_OK;
}

/* --- all of them ------------------------------------------------------------------------------ */

static void run(const struct crew *c) {
    struct pl_diag d = {0};
    int status;
    crew = *c;
    if (!crew.shard) crew.shard = PL_SHARD_BYTES;
    for (uint32_t r = 0; r < c->n; r++)
        ranks->of[r] = (struct rank_outcome){.err = -1};
    const struct pl_launch l = {
        .ranks = c->n, .timeout_seconds = ranks->limit, .run = save_as_rank};
    ck_assert_msg(pl_launch(&l, &status, &d) == PL_ERR_OK, "%s", d.message);
}

static void expect_saved(const struct crew *c) {
    run(c);
    for (uint32_t r = 0; r < c->n; r++)
        ck_assert_msg(ranks->of[r].err == 0, "rank %u of %u: %s", r, c->n, ranks->of[r].message);
}

/* Saves as one rank does, in dir/one. */
static void save_one(uint32_t kind, uint64_t shard) {
    struct rig r;
    OK(pl_dir_create(in(dir, "one"), &diag));
    rig_open(&r, &kinds[kind]);
    rig_scramble(&r, 77);
    OK(save(&r.io, in(dir, "one"), shard ? shard : PL_SHARD_BYTES, &diag));
    rig_close(&r);
}

static const char *saved(const char *run, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/checkpoint-%d/%s", run, STEP, name);
    return in(dir, path);
}

static json_t *files_of(const char *run, int64_t *format) {
    struct pl_run_record r;
    json_t *root = json_load_file(saved(run, "trainer_state.json"), 0, NULL);
    *format = json_integer_value(json_object_get(json_object_get(root, "plimsoll"), "format"));
    json_decref(root);
    OK(pl_run_record_read(&r, saved(run, ""), &diag));
    json_t *files = json_incref(r.files);
    pl_run_record_finish(&r);
    OK(pl_manifest_check(files, saved(run, ""), &diag));
    return files;
}

static void expect_same_file(const char *name) {
    char *a, *b;
    uint64_t n, m;
    OK(pl_file_read(saved("one", name), UINT64_MAX, &a, &n, &diag));
    OK(pl_file_read(saved("many", name), UINT64_MAX, &b, &m, &diag));
    ck_assert_msg(n == m && memcmp(a, b, n) == 0, "%s differs", name);
    free(a);
    free(b);
}

/* The files of dir/many are those of dir/one; returns how many of them have pieces. */
static int compare(void) {
    int64_t one_format, many_format;
    json_t *one = files_of("one", &one_format), *many = files_of("many", &many_format), *entry;
    const char *name;
    int in_pieces = 0;
    json_object_foreach(many, name, entry) {
        expect_same_file(name);
        in_pieces += json_object_get(entry, "pieces") != NULL;
    }
    ck_assert_uint_eq(json_object_size(one), json_object_size(many));
    ck_assert(!pl_manifest_has_pieces(one));
    ck_assert_int_eq(one_format, 2);
    ck_assert_int_eq(many_format, in_pieces ? 3 : 2);
    json_decref(one);
    json_decref(many);
    return in_pieces;
}

/* H6 of share.h: the kind whose files are small has no pieces, unless its tensors are cut. */
START_TEST(the_files_of_any_number_of_ranks_are_those_of_one) {
    const uint32_t kind = (uint32_t)_i / N_CUTS, cut = (uint32_t)_i % N_CUTS;
    const bool small = kind == 3 && cut == 0;
    save_one(kind, 0);
    OK(pl_dir_create(where, &diag));
    expect_saved(&(struct crew){.n = 2 + (kind + cut) % 3, .kind = kind, .cut = cut});
    ck_assert((compare() > 0) != small);
}
END_TEST

START_TEST(a_model_of_many_files_is_shared_file_by_file) {
    const uint32_t cut = _i ? 3 : 0;
    save_one(1, SMALL_SHARD);
    OK(pl_dir_create(where, &diag));
    expect_saved(&(struct crew){.n = 3, .kind = 1, .cut = cut, .shard = SMALL_SHARD});
    ck_assert_int_gt(compare(), 5);
    ck_assert(exists(saved("many", "model.safetensors.index.json")));
}
END_TEST

/* --- pieces ----------------------------------------------------------------------------------- */

static void flip(const char *path, uint64_t at) {
    FILE *f = fopen(path, "r+b");
    ck_assert(f && fseek(f, (long)at, SEEK_SET) == 0);
    const int c = fgetc(f);
    ck_assert(c != EOF && fseek(f, (long)at, SEEK_SET) == 0 && fputc(c ^ 4, f) != EOF);
    ck_assert_int_eq(fclose(f), 0);
}

static void expect_found(json_t *files, const char *name, uint64_t begin, uint64_t end) {
    char says[64];
    const uint64_t places[] = {begin, (begin + end) / 2, end - 1};
    snprintf(says, sizeof says, "bytes %llu to %llu were saved", (unsigned long long)begin,
             (unsigned long long)end);
    for (int i = 0; i < 3; i++) {
        flip(saved("many", name), places[i]);
        FAILS(pl_manifest_check(files, saved("many", ""), &diag), PL_ERR_CHECKPOINT_FORMAT, says);
        flip(saved("many", name), places[i]);
    }
}

START_TEST(a_changed_byte_of_any_piece_is_found_and_named) {
    int64_t format;
    const char *name = "optimizer.safetensors";
    OK(pl_dir_create(where, &diag));
    expect_saved(&(struct crew){.n = 3, .kind = 2, .cut = _i ? 3 : 0});
    json_t *files = files_of("many", &format), *piece;
    const json_t *pieces = json_object_get(json_object_get(files, name), "pieces");
    uint64_t begin = 0;
    size_t i;
    ck_assert_uint_ge(json_array_size(pieces), 3);
    json_array_foreach(pieces, i, piece) {
        const uint64_t end = (uint64_t)json_integer_value(json_array_get(piece, 0));
        if (i < 3 || i + 3 > json_array_size(pieces)) expect_found(files, name, begin, end);
        begin = end;
    }
    OK(pl_manifest_check(files, saved("many", ""), &diag));
    json_decref(files);
}
END_TEST

START_TEST(bytes_that_no_rank_or_two_write_are_found) {
    OK(pl_dir_create(where, &diag));
    run(&(struct crew){.n = 2, .kind = 0, .cut = 3, .odd = true});
    ck_assert_int_eq(ranks->of[0].err, PL_ERR_PLAN_BROKEN);
    ck_assert_msg(strstr(ranks->of[0].message, "not one rank writes byte"), "%s",
                  ranks->of[0].message);
    ck_assert(!exists(saved("many", "")));
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

/* Rank 0 fails all with its own error where the others wait for it. */
static void expect_failure(const struct crew *c) {
    const struct rank_outcome *failed = &ranks->of[c->fault_rank];
    ck_assert_msg(failed->err == PL_ERR_CHECKPOINT_WRITE, "call %u: rank %u: %s", c->fault_at,
                  c->fault_rank, failed->message);
    for (uint32_t r = 0; r < c->n; r++) {
        const struct rank_outcome *o = &ranks->of[r];
        const bool lost = o->err == PL_ERR_COMM_PEER_LOST && c->fault_rank == 0;
        ck_assert_msg(o->err == PL_ERR_CHECKPOINT_WRITE || lost, "call %u: rank %u: %s",
                      c->fault_at, r, o->message);
        char says[32];
        snprintf(says, sizeof says, "rank %u%s", c->fault_rank, lost ? " on" : ": cannot");
        if (r != c->fault_rank)
            ck_assert_msg(strstr(o->message, says), "call %u: rank %u: %s", c->fault_at, r,
                          o->message);
    }
    ck_assert_msg(!exists(saved("many", "")), "call %u of rank %u", c->fault_at, c->fault_rank);
    ck_assert_msg(!has_temporary(), "call %u of rank %u", c->fault_at, c->fault_rank);
}

/* Every call on a file, one after the other, of one rank. */
START_TEST(whichever_call_fails_all_fail_and_nothing_is_left) {
    struct crew c = {.n = 3, .kind = FEW, .cut = (uint32_t)_i % 2, .fault_rank = 1};
    if (_i >= 2) c.fault_rank = 2;
    OK(pl_dir_create(where, &diag));
    for (c.fault_at = 1;; c.fault_at++) {
        run(&c);
        if (ranks->of[c.fault_rank].rounds < c.fault_at) break;
        expect_failure(&c);
    }
    ck_assert_uint_gt(c.fault_at, 8); /* open, write, fsync and close of two files */
    ck_assert(exists(saved("many", "trainer_state.json")));
}
END_TEST

START_TEST(what_rank_0_cannot_do_no_rank_does) {
    struct crew c = {.n = 2, .kind = FEW, .cut = 1};
    OK(pl_dir_create(where, &diag));
    for (c.fault_at = 1;; c.fault_at += 3) {
        run(&c);
        if (exists(saved("many", ""))) break;
        ck_assert_msg(ranks->of[0].err == PL_ERR_CHECKPOINT_WRITE, "%s", ranks->of[0].message);
        ck_assert_msg(!has_temporary(), "call %u", c.fault_at);
    }
    ck_assert_uint_gt(c.fault_at, 10);
}
END_TEST

/* Expects the loss of rank 2. */
static void expect_loss(uint32_t at) {
    ck_assert_int_eq(ranks->of[2].err, -1);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(ranks->of[r].err == PL_ERR_COMM_PEER_LOST &&
                          strstr(ranks->of[r].message, "rank 2 on"),
                      "call %u: rank %d: %s", at, r, ranks->of[r].message);
}

/* The rank's temporaries have no name that is read, and rank 0 removes them. */
START_TEST(a_rank_that_is_killed_while_it_writes_ends_the_others) {
    struct crew c = {.n = 3, .kind = FEW, .cut = (uint32_t)_i, .fault_rank = 2, .before = rig_die};
    OK(pl_dir_create(where, &diag));
    for (c.fault_at = 1;; c.fault_at += 3) {
        const uint64_t before = ranks_now_ns();
        run(&c);
        if (ranks->of[2].err == 0) break;
        expect_loss(c.fault_at);
        ck_assert_uint_lt(ranks_now_ns() - before, UINT64_C(8000000000));
        ck_assert(!exists(saved("many", "")) && !has_temporary());
    }
    ck_assert_uint_gt(c.fault_at, 7);
}
END_TEST

/* Rank 0 removes the file before rank 1 opens it. */
START_TEST(a_late_rank_tells_the_loss_and_not_what_followed_from_it) {
    OK(pl_dir_create(where, &diag));
    run(&(struct crew){.n = 3,
                       .kind = FEW,
                       .cut = 1,
                       .fault_rank = 2,
                       .fault_at = 1,
                       .before = rig_die,
                       .late = true});
    expect_loss(1);
}
END_TEST

/* --- the suite -------------------------------------------------------------------------------- */

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
    snprintf(where, sizeof where, "%s/many", dir);
    ranks_init();
    unlink(getenv("RANKS_SHARED")); /* the ranks inherit it */
    ranks->limit = 10;
}
static void teardown(void) {
    dir_remove(dir);
}

int main(void) {
    Suite *s = suite_create("checkpoint.share");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, the_files_of_any_number_of_ranks_are_those_of_one, 0, N_KINDS * N_CUTS);
    tcase_add_loop_test(t, a_model_of_many_files_is_shared_file_by_file, 0, 2);
    tcase_add_loop_test(t, a_changed_byte_of_any_piece_is_found_and_named, 0, 2);
    tcase_add_test(t, bytes_that_no_rank_or_two_write_are_found);
    tcase_add_loop_test(t, whichever_call_fails_all_fail_and_nothing_is_left, 0, 4);
    tcase_add_test(t, what_rank_0_cannot_do_no_rank_does);
    tcase_add_loop_test(t, a_rank_that_is_killed_while_it_writes_ends_the_others, 0, 2);
    tcase_add_test(t, a_late_rank_tells_the_loss_and_not_what_followed_from_it);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
