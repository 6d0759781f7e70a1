/* comm_open.c - opens the control channel and the engine. */
#include "runtime/comm/comm.h"
#include "estimator/base/alloc.h"
#include "runtime/comm/control.h"
#include "runtime/comm/engines.h"
#include "runtime/comm/launch.h"
#include "runtime/comm/mpi_engine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- one rank ---- */

static pl_err alone_open(struct pl_comm *c, struct pl_diag *d) {
    (void)c, (void)d;
    return PL_ERR_OK;
}

static void alone_close(struct pl_comm *c) {
    (void)c;
}

static pl_err alone_exchange(struct pl_comm *c, const struct pl_move *moves, uint32_t n,
                             void *stream) {
    (void)moves, (void)stream;
    c->exchanges++;
    return n == 0 ? PL_ERR_OK : PL_ERR_PLAN_BROKEN; /* there is nobody to exchange with */
}

static uint64_t alone_bytes(struct pl_comm *c) {
    (void)c;
    return 0;
}

static const struct pl_comm_ops alone = {.name = "one rank",
                                         .open = alone_open,
                                         .close = alone_close,
                                         .exchange = alone_exchange,
                                         .abort = alone_close,
                                         .device_bytes = alone_bytes};

/* ---- where the ranks meet ---- */

/* srun starts ranks of CPUs and of GPUs, and which these are is not known yet. */
static void hint_at_srun(struct pl_diag *d) {
    const char *const type = pl_mpi_srun_type();
    pl_diag_hint(d,
                 "%s%s%sranks on GPUs need MASTER_ADDR, MASTER_PORT, and " PL_JOB_TOKEN
                 " with the same secret for all: export " PL_JOB_TOKEN "=$(openssl rand -hex 16)",
                 type ? "start ranks on CPUs with `srun --mpi=" : "", type ? type : "",
                 type ? "`; " : "");
}

static pl_err say_what_is_missing(const struct pl_world *w, const char *token, struct pl_diag *d) {
    pl_err err = pl_diag_set(d, PL_ERR_COMM_INIT, "%s started %u ranks, and %s is not set",
                             w->launcher, w->size,
                             !w->address[0] ? "MASTER_ADDR"
                             : !w->port     ? "MASTER_PORT"
                                            : PL_JOB_TOKEN);
    pl_diag_hint(d, "set %s to where rank 0 listens%s",
                 w->address[0] ? "MASTER_PORT" : "MASTER_ADDR",
                 w->port ? "" : ", with MASTER_PORT");
    if (w->by_srun)
        hint_at_srun(d);
    else if (!*token)
        pl_diag_hint(d, "set MASTER_ADDR, MASTER_PORT, and " PL_JOB_TOKEN
                        " to the same secret for all ranks: export " PL_JOB_TOKEN
                        "=$(openssl rand -hex 16)");
    return err;
}

/* rank 0 listens and tells the others over MPI where, and which token it made. */
static pl_err meet_by_mpi(struct pl_comm *c, struct pl_meeting *m, struct pl_diag *d) {
    uint32_t limit_ms = pl_meeting_ms(c->request.timeout_seconds * 1000);
    struct pl_meeting told = {.listener = -1};
    pl_err err = PL_ERR_OK;
    PL_TRY(pl_mpi_start(&c->mpi, &c->world, NULL, limit_ms, d));
    if (c->world.rank == 0) {
        err = pl_meeting_listen(m, &c->world, d);
        if (err == PL_ERR_OK && !*m->token) err = pl_token_make(m->token, d);
        if (err == PL_ERR_OK) told = *m;
    }
    PL_TRY(pl_mpi_share(c->mpi, &told, sizeof told, limit_ms, d));
    PL_TRY(err);
    if (told.port == 0) return pl_diag_set(d, PL_ERR_COMM_INIT, "rank 0 does not listen");
    int listener = m->listener;
    const struct pl_teller *teller = m->teller;
    *m = told;
    m->listener = listener;
    m->teller = teller;
    return PL_ERR_OK;
}

static pl_err find_meeting(struct pl_comm *c, struct pl_meeting *m, struct pl_diag *d) {
    const struct pl_world *w = &c->world;
    const char *token = getenv(PL_JOB_TOKEN);
    if (!token) token = "";
    if (strlen(token) > PL_TOKEN_MOST)
        return pl_diag_set(d, PL_ERR_COMM_INIT, PL_JOB_TOKEN " has more than %d characters",
                           PL_TOKEN_MOST);
    strcpy(m->address, w->address);
    strcpy(m->token, token);
    m->port = w->port;
    if (w->address[0] && w->port && *token) return PL_ERR_OK;
    const bool by_mpi =
        w->launcher && (strcmp(w->launcher, "Open MPI") == 0 || strcmp(w->launcher, "MPICH") == 0);
    return by_mpi ? meet_by_mpi(c, m, d) : say_what_is_missing(w, token, d);
}

/* ---- opening and closing ---- */

static pl_err choose_engine(const struct pl_comm *c, const struct pl_comm_ops **out,
                            struct pl_diag *d) {
    const struct pl_comm_request *r = &c->request;
    bool nccl = r->kind == PL_COMM_NCCL || (r->kind == PL_COMM_AUTO && r->gpu);
    if (nccl && !r->gpu)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "`comm: nccl` moves memory of GPUs alone");
    if (!nccl && r->gpu)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "`comm: mpi` moves memory of the host alone");
    if (nccl && !r->nccl) return pl_diag_set(d, PL_ERR_COMM_INIT, "this build has no NCCL");
    *out = nccl ? r->nccl : &pl_comm_mpi;
    if (c->world.size == 1 && r->kind != PL_COMM_NCCL) *out = &alone;
    return PL_ERR_OK;
}

static pl_err open_control(struct pl_comm *c, const struct pl_teller *teller, struct pl_diag *d) {
    struct pl_meeting m = {.listener = -1, .teller = teller};
    pl_err err = PL_ERR_OK;
    if (c->world.size > 1) err = find_meeting(c, &m, d);
    if (err == PL_ERR_OK)
        err = pl_control_open(&c->control, &c->world, &m, c->request.timeout_seconds, d);
    pl_meeting_finish(&m);
    return err;
}

/* Whatever waits for the lost rank in the engine, on the host or on the device, ends. */
static void abort_engine(void *comm) {
    struct pl_comm *c = comm;
    c->ops->abort(c);
}

pl_err pl_comm_meet(struct pl_comm **out, const struct pl_world *world, uint32_t timeout_seconds,
                    const struct pl_teller *teller, struct pl_diag *d) {
    struct pl_comm *c = pl_calloc(1, sizeof *c);
    *out = NULL;
    /* N1 where mpiexec stands between this process and the launcher. */
    if (getenv(PL_LAUNCHED)) (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!c) return pl_host_oom(d, "the other ranks");
    c->world = *world;
    c->request.timeout_seconds = timeout_seconds;
    c->ops = &alone; /* until the other is open: what pl_comm_close closes */
    pl_err err = open_control(c, teller, d);
    if (err != PL_ERR_OK) pl_comm_close(&c);
    *out = c;
    return err;
}

pl_err pl_comm_start(struct pl_comm *c, const struct pl_comm_request *request, struct pl_diag *d) {
    const struct pl_comm_ops *ops = &alone;
    c->request = *request;
    pl_err err = choose_engine(c, &ops, d);
    /* The limit of an engine's start is not for who is still reading files. */
    if (err == PL_ERR_OK) err = pl_comm_barrier(c, d);
    if (err == PL_ERR_OK) err = ops->open(c, d);
    if (err == PL_ERR_OK) {
        c->ops = ops;
        pl_control_on_loss(c->control, abort_engine, c);
        return PL_ERR_OK;
    }
    /* The others wait in the start of the engine, or in what follows it. */
    if (c->world.size > 1) pl_comm_fail(c, err, d ? d->message : "it did not start");
    return err;
}

pl_err pl_comm_open(struct pl_comm **out, const struct pl_world *world,
                    const struct pl_comm_request *request, struct pl_diag *d) {
    PL_TRY(pl_comm_meet(out, world, request->timeout_seconds, NULL, d));
    pl_err err = pl_comm_start(*out, request, d);
    if (err != PL_ERR_OK) pl_comm_close(out);
    return err;
}

/* True: every rank is at its end, and none was lost. */
static bool all_close(struct pl_comm *c) {
    const struct pl_round r = {.call = PL_CALL_CLOSE,
                               .limit_ms = c->request.timeout_seconds * 1000};
    return c->control && !pl_control_is_lost(c->control) &&
           pl_control_round(c->control, &r, NULL) == PL_ERR_OK;
}

void pl_comm_close(struct pl_comm **comm) {
    struct pl_comm *c = *comm;
    if (!c) return;
    bool orderly = all_close(c);
    if (c->control) pl_control_on_loss(c->control, NULL, NULL);
    if (!orderly) c->ops->abort(c);
    c->ops->close(c);
    pl_mpi_finish(&c->mpi, orderly, c->request.timeout_seconds * 1000);
    pl_control_close(&c->control, orderly);
    free(c);
    *comm = NULL;
}
