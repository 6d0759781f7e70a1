#include "runtime/session/agree.h"

#include "estimator/base/digest.h"
#include "estimator/program/cost.h"
#include "runtime/comm/boot_id.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

/* A row of the record that all ranks have to have; NULL: another kind of row. */
static const char *common_row(const char *row, const json_t *value) {
    /* These say what the machine of a rank is. */
    static const char *const own[] = {"device", "vram_budget", "vram_margin", "threads"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(row, own[i]) == 0) return NULL;
    return json_string_value(value);
}

/* 128 bits of every row that ranks have in common. */
static void digest_rows(const json_t *record, uint64_t out[2]) {
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct pl_digest h;
        const char *row;
        json_t *value;
        pl_digest_init(&h, seed);
        json_object_foreach((json_t *)(uintptr_t)record, row, value) {
            const char *text = common_row(row, value);
            if (!text) continue;
            pl_digest_add(&h, row, strlen(row) + 1);
            pl_digest_add(&h, text, strlen(text) + 1);
        }
        out[seed] = pl_digest_value(&h);
    }
}

/* One row after the other, to name the one that differs. */
static pl_err compare_each_row(struct pl_session *s, const json_t *record, struct pl_diag *d) {
    const char *row;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)record, row, value) {
        char what[96];
        const char *text = common_row(row, value);
        if (!text) continue;
        snprintf(what, sizeof what, "`%s`", row);
        PL_TRY(pl_comm_compare(s->comm, what, text, d));
    }
    return PL_ERR_OK;
}

/* All ranks see the same digests, so that either all of them or none compare row by row. */
static pl_err compare_rows(struct pl_session *s, const json_t *record, struct pl_diag *d) {
    uint64_t mine[2], all[PL_RANKS_MAX][2];
    bool same = true;
    digest_rows(record, mine);
    PL_TRY(pl_comm_agree(s->comm, mine, sizeof mine, all, d));
    for (uint32_t r = 1; r < s->comm->world.size; r++)
        same = same && memcmp(all[r], all[0], sizeof all[0]) == 0;
    return same ? PL_ERR_OK : compare_each_row(s, record, d);
}

pl_err pl_session_join(struct pl_session *s, struct pl_diag *d) {
    if (!s->comm) return PL_ERR_OK;
    const struct pl_comm_request request = {.kind = s->job->comm,
                                            .gpu = pl_device_is_cuda(s->job->device),
                                            .nccl = s->device->ops->nccl,
                                            .timeout_seconds = s->job->comm_timeout_seconds};
    PL_TRY(pl_comm_start(s->comm, &request, d));
    s->device->comm = s->comm;
    char rows[32];
    PL_TRY(pl_comm_compare(s->comm, "the version", PL_VERSION, d));
    snprintf(rows, sizeof rows, "%zu", json_object_size(s->pf->files.record));
    PL_TRY(pl_comm_compare(s->comm, "the settings", rows, d));
    return compare_rows(s, s->pf->files.record, d);
}

/* Adds the operations by which ranks send each other data, in order, to a digest: they are the same
 * for all ranks. */
static void add_exchanges(struct pl_digest *h, const struct pl_program *p) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (pl_op_cost(op) != PL_COST_RANKS) continue;
        const struct pl_operand *x = op->kind == PL_OP_FETCH ? &op->out[PL_FETCH_OUT_X] : op->in;
        const struct pl_tensor *t = &p->tensors[x->id];
        const uint64_t facts[] = {op->kind,
                                  op->phase,
                                  op->attr.ranks,
                                  op->attr.block_rows,
                                  op->attr.piece_row0,
                                  op->attr.piece_rows,
                                  x->nrows ? x->nrows : t->dims[0],
                                  t->dims[1],
                                  t->dtype};
        pl_digest_add(h, facts, sizeof facts);
    }
}

/* Compares the plans of every rung, since ranks halve together. */
static pl_err compare_plans(struct pl_session *s, struct pl_diag *d) {
    struct pl_digest h;
    char text[17];
    pl_digest_init(&h, 0);
    for (uint32_t r = 0; r < s->n_rungs; r++)
        add_exchanges(&h, s->rungs[r].planned.program);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)pl_digest_value(&h));
    return pl_comm_compare(s->comm, "the plan", text, d);
}

/* Returns the bytes through which files are staged in the arena of a rank; pinned memory for this
 * is of one size everywhere. */
static uint64_t staging_of(const struct pl_session *s) {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < s->n_rungs; r++)
        for (uint32_t i = 0; i < s->rungs[r].planned.program->n_tensors; i++) {
            const struct pl_tensor *t = &s->rungs[r].planned.program->tensors[i];
            if (t->role == PL_ROLE_STAGING && t->bytes < least) least = t->bytes;
        }
    return least;
}

/* The directory that files are saved in, as a rank sees it; all 0: it does not. */
struct place {
    uint64_t machine, device, inode;
};

static struct place place_of(const char *dir) {
    char machine[PL_MACHINE_TEXT];
    struct pl_digest h;
    struct stat st;
    pl_machine_read(machine);
    if (!machine[0] || stat(dir, &st) != 0) return (struct place){0};
    pl_digest_init(&h, 0);
    pl_digest_add(&h, machine, strlen(machine));
    return (struct place){pl_digest_value(&h), st.st_dev, st.st_ino};
}

/* Rank 0 has made it before the ranks met. */
static pl_err compare_places(struct pl_session *s, struct pl_diag *d) {
    const struct place mine = place_of(s->job->output_dir);
    struct place all[PL_RANKS_MAX];
    PL_TRY(pl_comm_agree(s->comm, &mine, sizeof mine, all, d));
    s->shares_files = all[0].machine != 0;
    for (uint32_t r = 1; r < s->comm->world.size; r++)
        s->shares_files = s->shares_files && memcmp(&all[r], &all[0], sizeof all[0]) == 0;
    return PL_ERR_OK;
}

pl_err pl_session_cut(struct pl_session *s, struct pl_diag *d) {
    uint64_t all[PL_RANKS_MAX];
    if (!s->comm) return PL_ERR_OK;
    PL_TRY(compare_plans(s, d));
    PL_TRY(compare_places(s, d));
    if (s->rungs[0].planned.program->shape.sharding < PL_SHARDING_OPTIMIZER) return PL_ERR_OK;
    const uint64_t mine = staging_of(s);
    PL_TRY(pl_comm_agree(s->comm, &mine, sizeof mine, all, d));
    s->staging_bytes = mine;
    for (uint32_t r = 0; r < s->comm->world.size; r++)
        if (all[r] < s->staging_bytes) s->staging_bytes = all[r];
    PL_TRY(pl_cut_init(&s->cut, s->rungs[0].planned.program, d));
    if (pl_cut_is_scattered(&s->cut)) s->shares_files = false;
    return PL_ERR_OK;
}

/* --- agreement ------------------------------------------------------------------------------- */

struct vote {
    uint32_t err, injected;
    int32_t stop, unused;
    uint64_t requested_bytes, free_bytes;
    char what[48];
};
_Static_assert(sizeof(struct vote) <= PL_AGREE_MOST, "what an agreement carries");

static struct vote vote_of(const struct pl_session *s, struct pl_outcome mine) {
    struct vote v = {.err = mine.err, .stop = mine.stop};
    if (mine.err != PL_ERR_DEVICE_OOM) return v;
    v.injected = s->facts.injected;
    v.requested_bytes = s->facts.requested_bytes;
    v.free_bytes = s->facts.free_bytes;
    snprintf(v.what, sizeof v.what, "%s", s->facts.what);
    return v;
}

/* True if b is to be told rather than a. */
static bool outweighs(const struct vote *a, const struct vote *b) {
    if (a->err == PL_ERR_OK || b->err == PL_ERR_OK) return a->err == PL_ERR_OK && b->err;
    return a->err == PL_ERR_DEVICE_OOM && b->err != PL_ERR_DEVICE_OOM;
}

static void take_facts(struct pl_session *s, uint32_t rank, const struct vote *v) {
    snprintf(s->what_of_rank, sizeof s->what_of_rank, "%s, rank %u", v->what, rank);
    s->facts = (struct pl_oom_facts){.what = s->what_of_rank,
                                     .requested_bytes = v->requested_bytes,
                                     .free_bytes = v->free_bytes,
                                     .injected = v->injected};
}

struct pl_outcome pl_session_agree(struct pl_session *s, struct pl_outcome mine,
                                   struct pl_diag *d) {
    struct vote all[PL_RANKS_MAX], vote;
    struct pl_diag other = {0};
    uint32_t worst = 0;
    if (!s->comm || mine.err == PL_ERR_COMM_PEER_LOST) return mine;
    vote = vote_of(s, mine);
    pl_err err = pl_comm_agree(s->comm, &vote, sizeof vote, all, &other);
    if (err != PL_ERR_OK) {
        if (mine.err == PL_ERR_OK && d) *d = other;
        return (struct pl_outcome){mine.err == PL_ERR_OK ? err : mine.err, mine.stop};
    }
    struct pl_outcome out = {.stop = all[0].stop};
    for (uint32_t r = 1; r < s->comm->world.size; r++) {
        if (outweighs(&all[worst], &all[r])) worst = r;
        if (!out.stop) out.stop = all[r].stop;
    }
    out.err = (pl_err)all[worst].err;
    if (out.err == PL_ERR_DEVICE_OOM) take_facts(s, worst, &all[worst]);
    if (out.err != PL_ERR_OK && mine.err == PL_ERR_OK)
        pl_diag_set(d, out.err, "rank %u failed: %s", worst, pl_err_code(out.err));
    return out;
}

pl_err pl_session_tally(struct pl_session *s, const struct pl_books *books,
                        struct pl_rank_tally all[PL_RANKS_MAX], struct pl_diag *d) {
    const struct pl_rank_tally mine = {.planned_bytes = books->planned_bytes,
                                       .allocated_bytes = books->allocated_bytes,
                                       .sent_bytes = s->comm->sent_bytes,
                                       .comm_bytes = books->comm_bytes,
                                       .registered_bytes = pl_session_registered_bytes(s),
                                       .wait_seconds = s->comm->wait_seconds};
    return pl_comm_agree(s->comm, &mine, sizeof mine, all, d);
}

pl_err pl_session_follow_leader(struct pl_session *s, int32_t *id, struct pl_diag *d) {
    int32_t all[PL_RANKS_MAX];
    if (!s->comm) return PL_ERR_OK;
    PL_TRY(pl_comm_agree(s->comm, id, sizeof *id, all, d));
    *id = all[0];
    return PL_ERR_OK;
}

/* Moves *at on to the next row of a rank; false: there is none. */
static bool next_row(const uint32_t *of, uint64_t n, uint32_t rank, uint64_t *at) {
    while (*at < n && of[*at] != rank)
        ++*at;
    return *at < n;
}

pl_err pl_session_share_rows(struct pl_session *s, void *rows, uint32_t bytes, const uint32_t *of,
                             uint64_t n, struct pl_diag *d) {
    char mine[PL_AGREE_MOST] = {0}, all[PL_RANKS_MAX * PL_AGREE_MOST], *const row = rows;
    uint64_t sent = 0, received[PL_RANKS_MAX] = {0};
    const uint32_t most = PL_AGREE_MOST / bytes, carried = most * bytes;
    for (uint64_t left = s->comm ? n : 0; left;) {
        for (uint32_t k = 0; k < most && next_row(of, n, s->comm->world.rank, &sent); k++)
            memcpy(mine + (size_t)k * bytes, row + sent++ * bytes, bytes);
        PL_TRY(pl_comm_agree(s->comm, mine, carried, all, d));
        for (uint32_t r = 0; r < s->comm->world.size; r++)
            for (uint32_t k = 0; k < most && next_row(of, n, r, &received[r]); k++, left--)
                memcpy(row + received[r]++ * bytes, all + (size_t)r * carried + (size_t)k * bytes,
                       bytes);
    }
    return PL_ERR_OK;
}
