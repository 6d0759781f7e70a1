/* mpi_engine.c - the engine between CPUs: finds the module of MPI; a thread makes its calls. */
#include "runtime/comm/mpi_engine.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/comm/engines.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 50,     /* between two looks whether a rank was lost */
    RETURN_MS = 2000, /* limit for the thread to end an exchange that it was told to end */
};

/* The next task of the thread. */
enum task { TASK_NONE, TASK_START, TASK_SHARE, TASK_EXCHANGE, TASK_FINISH };

struct pl_mpi {
    const struct pl_mpi_module *module;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    enum task task; /* TASK_NONE again when it is done */
    bool ends;      /* the thread, after the task */
    int result;
    atomic_bool stop;
    uint32_t rank, size;
    void *shared;
    uint64_t shared_bytes;
    struct pl_move *moves; /* moves of the exchange, in pieces */
    void *memory;          /* memory for the module */
    uint32_t n, room;
};

/* ---- the module ---- */

static void *open_in(const char *folder, const char *below, char *tried, size_t bytes) {
    int n = snprintf(tried, bytes, "%s%s", folder, below);
    return n > 0 && (size_t)n < bytes ? dlopen(tried, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE)
                                      : NULL;
}

static void *open_module(char *tried, size_t bytes) {
    static const char *const below[] = {"/libplimsoll-mpi.so",
                                        "/../runtime/comm/libplimsoll-mpi.so"}; /* path in a build
                                                                                    directory */
    const char *given = getenv("PLIMSOLL_MPI_MODULE");
    char folder[512];
    void *library = NULL;
    if (given && *given) return open_in(given, "", tried, bytes);
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < sizeof below / sizeof *below && !library && slash; i++)
        library = access(folder, X_OK) == 0 ? open_in(folder, below[i], tried, bytes) : NULL;
    return library ? library : open_in(PL_MODULE_DIR, below[0], tried, bytes);
}

pl_err pl_mpi_find(const struct pl_mpi_module **out, struct pl_diag *d) {
    char tried[640] = "";
    const struct pl_mpi_module *module = NULL;
    void *library = open_module(tried, sizeof tried);
    const char *why = library ? NULL : dlerror();
    if (library) module = dlsym(library, PL_MPI_SYMBOL);
    *out = module;
    if (module && module->version == PL_MPI_VERSION) return PL_ERR_OK;
    pl_err err = pl_diag_set(d, PL_ERR_COMM_INIT, "ranks on CPUs need MPI: %s",
                             why       ? why
                             : !module ? "the library is no module of plimsoll"
                                       : "the module is of another version");
    pl_diag_hint(d, "build with libmpich-dev or libopenmpi-dev installed, or name "
                    "libplimsoll-mpi.so in PLIMSOLL_MPI_MODULE");
    return err;
}

/* Returns the `--mpi` of srun by which this MPI learns of the other ranks. */
static const char *srun_type(const struct pl_mpi_module *module) {
    return module->speaks_pmi ? "pmi2" : "pmix";
}

const char *pl_mpi_srun_type(void) {
    const struct pl_mpi_module *module;
    return pl_mpi_find(&module, NULL) == PL_ERR_OK ? srun_type(module) : NULL;
}

/* ---- the thread ---- */

/* Memory that the libraries below MPI keep until the process ends is not ours. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
static void expect_leaks(void) {
    __lsan_disable();
}
#else
static void expect_leaks(void) {}
#endif

static int perform(struct pl_mpi *m, enum task task) {
    switch (task) {
    case TASK_START:
        return m->module->start(&m->rank, &m->size);
    case TASK_SHARE:
        return m->module->share(m->shared, m->shared_bytes);
    case TASK_EXCHANGE:
        return m->module->exchange(m->moves, m->n, m->memory, &m->stop);
    case TASK_FINISH:
        return m->module->finish();
    case TASK_NONE:
        break;
    }
    return 0;
}

/* Y1 of mpi_module.h: this thread alone calls the module. */
static void *serve(void *mpi) {
    struct pl_mpi *m = mpi;
    expect_leaks();
    pthread_mutex_lock(&m->lock);
    while (!m->ends) {
        enum task task = m->task;
        if (task == TASK_NONE) {
            pthread_cond_wait(&m->moved, &m->lock);
            continue;
        }
        pthread_mutex_unlock(&m->lock);
        int result = perform(m, task);
        pthread_mutex_lock(&m->lock);
        m->result = result;
        m->task = TASK_NONE;
        pthread_cond_broadcast(&m->moved);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void begin(struct pl_mpi *m, enum task task) {
    pthread_mutex_lock(&m->lock);
    m->task = task;
    pthread_cond_broadcast(&m->moved);
    pthread_mutex_unlock(&m->lock);
}

/* False: it is still at it. */
static bool wait_ms(struct pl_mpi *m, uint32_t ms) {
    struct timespec until;
    int e = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    pthread_mutex_lock(&m->lock);
    while (m->task != TASK_NONE && e == 0)
        e = pthread_cond_timedwait(&m->moved, &m->lock, &until);
    bool done = m->task == TASK_NONE;
    pthread_mutex_unlock(&m->lock);
    return done;
}

static void destroy(struct pl_mpi *m) {
    pthread_cond_destroy(&m->moved);
    pthread_mutex_destroy(&m->lock);
    free(m->moves);
    free(m->memory);
    free(m);
}

/* The resources of a thread that never returned are not freed. */
static void abandon(struct pl_mpi **mpi) {
    pthread_detach((*mpi)->thread);
    *mpi = NULL;
}

static void join(struct pl_mpi **mpi) {
    struct pl_mpi *m = *mpi;
    pthread_mutex_lock(&m->lock);
    m->ends = true;
    pthread_cond_broadcast(&m->moved);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    destroy(m);
    *mpi = NULL;
}

static pl_err start_thread(struct pl_mpi *m, struct pl_diag *d) {
    pthread_condattr_t clock;
    sigset_t all, before;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&m->moved, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&m->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&m->thread, NULL, serve, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e == 0) return PL_ERR_OK;
    destroy(m);
    return pl_host_oom(d, "the thread of MPI");
}

static pl_err mpi_error(const struct pl_mpi *m, const char *what, struct pl_diag *d) {
    char text[PL_MPI_ERROR_TEXT] = "";
    m->module->text(m->result, text);
    return pl_diag_set(d, PL_ERR_COMM_INIT, "%s: %s", what, text);
}

static pl_err check_start(const struct pl_mpi *m, const struct pl_world *world, struct pl_diag *d) {
    if (m->result != 0) return mpi_error(m, "MPI does not start", d);
    if (m->rank == world->rank && m->size == world->size) return PL_ERR_OK;
    pl_err err =
        pl_diag_set(d, PL_ERR_COMM_INIT, "this is rank %u of %u by %s, and %u of %u by MPI",
                    world->rank, world->size, world->launcher, m->rank, m->size);
    if (world->by_srun)
        pl_diag_hint(d, "start ranks on CPUs with `srun --mpi=%s`", srun_type(m->module));
    else
        pl_diag_hint(d, "start ranks on CPUs with mpiexec of the MPI that plimsoll was built with, "
                        "or with `plimsoll train --devices N`");
    return err;
}

/* False: the limit passed, where there is one, or a rank was lost. */
static bool wait_watching(struct pl_mpi *m, const struct pl_control *control, uint32_t limit_ms) {
    uint64_t waited = 0;
    while (!wait_ms(m, LOOK_MS)) {
        waited += LOOK_MS;
        if ((limit_ms && waited >= limit_ms) || (control && pl_control_is_lost(control)))
            return false;
    }
    return true;
}

pl_err pl_mpi_start(struct pl_mpi **out, const struct pl_world *world, struct pl_control *control,
                    uint32_t limit_ms, struct pl_diag *d) {
    const struct pl_mpi_module *module;
    *out = NULL;
    PL_TRY(pl_mpi_find(&module, d));
    struct pl_mpi *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_host_oom(d, "the engine of MPI");
    m->module = module;
    PL_TRY(start_thread(m, d));
    begin(m, TASK_START);
    if (!wait_watching(m, control, limit_ms)) {
        abandon(&m);
        if (control) PL_TRY(pl_control_check(control, d));
        return pl_diag_set(d, PL_ERR_COMM_INIT, "MPI did not start within %u s", limit_ms / 1000);
    }
    pl_err err = check_start(m, world, d);
    if (err != PL_ERR_OK) pl_mpi_finish(&m, false, limit_ms);
    *out = m;
    return err;
}

pl_err pl_mpi_share(struct pl_mpi *m, void *p, uint32_t bytes, uint32_t limit_ms,
                    struct pl_diag *d) {
    m->shared = p;
    m->shared_bytes = bytes;
    begin(m, TASK_SHARE);
    if (!wait_ms(m, limit_ms))
        return pl_diag_set(d, PL_ERR_COMM_INIT, "rank 0 did not say within %u s where it listens",
                           limit_ms / 1000);
    return m->result == 0 ? PL_ERR_OK : mpi_error(m, "MPI_Bcast", d);
}

void pl_mpi_finish(struct pl_mpi **m, bool orderly, uint32_t limit_ms) {
    if (!*m) return;
    if (!wait_ms(*m, 0)) { /* it never came back from the task before */
        abandon(m);
        return;
    }
    if (orderly) begin(*m, TASK_FINISH);
    if (wait_ms(*m, limit_ms))
        join(m);
    else
        abandon(m);
}

/* ---- the engine ---- */

static pl_err engine_open(struct pl_comm *c, struct pl_diag *d) {
    if (c->mpi) return PL_ERR_OK;
    return pl_mpi_start(&c->mpi, &c->world, c->control,
                        c->request.timeout_seconds * PL_START_LIMITS * 1000, d);
}

/* pl_comm_close finishes MPI, which other engines may have met by. */
static void engine_close(struct pl_comm *c) {
    (void)c;
}

static void engine_abort(struct pl_comm *c) {
    atomic_store(&c->mpi->stop, true);
}

static uint64_t engine_bytes(struct pl_comm *c) {
    (void)c;
    return 0;
}

static pl_err make_room(struct pl_mpi *m, uint64_t n) {
    if (n <= m->room) return PL_ERR_OK;
    if (n > UINT32_MAX / 256) return PL_ERR_OVERFLOW;
    struct pl_move *moves = pl_realloc(m->moves, n * sizeof *moves);
    if (moves) m->moves = moves;
    void *memory = pl_realloc(m->memory, n * m->module->move_bytes);
    if (memory) m->memory = memory;
    if (!moves || !memory) return PL_ERR_HOST_OOM;
    m->room = (uint32_t)n;
    return PL_ERR_OK;
}

/* Moves of nothing are none; a long one is several. Both sides cut alike. */
static pl_err cut_moves(struct pl_comm *c, const struct pl_move *moves, uint32_t n,
                        uint64_t *sent) {
    uint64_t all = 0;
    struct pl_mpi *m = c->mpi;
    *sent = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (moves[i].peer >= c->world.size || moves[i].peer == c->world.rank)
            return PL_ERR_PLAN_BROKEN;
        all += pl_u64_div_up(moves[i].bytes, PL_MPI_MOVE_MOST);
        if (!moves[i].receive) *sent += moves[i].bytes;
    }
    PL_TRY(make_room(m, all));
    m->n = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t at = 0; at < moves[i].bytes; at += PL_MPI_MOVE_MOST) {
            struct pl_move *piece = &m->moves[m->n++];
            *piece = moves[i];
            piece->p = (char *)moves[i].p + at;
            piece->bytes = pl_u64_min(moves[i].bytes - at, PL_MPI_MOVE_MOST);
        }
    return PL_ERR_OK;
}

static pl_err exchange_result(struct pl_comm *c) {
    char text[PL_MPI_ERROR_TEXT] = "gave an exchange up";
    int result = c->mpi->result;
    if (result == 0) return PL_ERR_OK;
    if (result == PL_MPI_OTHER_SIZE)
        snprintf(text, sizeof text, "expects another number of bytes than a rank sends");
    else if (result == PL_MPI_UNREADABLE)
        snprintf(text, sizeof text, "cannot read the memory of a rank");
    else if (result != PL_MPI_STOPPED)
        c->mpi->module->text(result, text);
    /* MPI may see sooner than the control channel that a rank was killed, and not say which. */
    for (int waited = 0; result != PL_MPI_OTHER_SIZE && waited < RETURN_MS; waited += LOOK_MS) {
        if (pl_control_is_lost(c->control)) break;
        (void)poll(NULL, 0, LOOK_MS);
    }
    pl_control_lose(c->control, c->world.rank, text);
    return PL_ERR_COMM_PEER_LOST;
}

static pl_err engine_exchange(struct pl_comm *c, const struct pl_move *moves, uint32_t n,
                              void *stream) {
    struct pl_mpi *m = c->mpi;
    uint64_t sent;
    (void)stream;
    PL_TRY(pl_control_check(c->control, NULL));
    PL_TRY(cut_moves(c, moves, n, &sent));
    c->exchanges++;
    if (m->n == 0) return PL_ERR_OK;
    uint64_t before = now_ns();
    begin(m, TASK_EXCHANGE);
    bool returned = wait_watching(m, c->control, 0);
    if (!returned) {
        atomic_store(&m->stop, true);
        (void)wait_ms(m, RETURN_MS);
    }
    c->wait_seconds += 1e-9 * (double)(now_ns() - before);
    if (!returned) return PL_ERR_COMM_PEER_LOST;
    PL_TRY(exchange_result(c));
    c->sent_bytes += sent;
    return PL_ERR_OK;
}

const struct pl_comm_ops pl_comm_mpi = {.name = "mpi",
                                        .open = engine_open,
                                        .close = engine_close,
                                        .exchange = engine_exchange,
                                        .abort = engine_abort,
                                        .device_bytes = engine_bytes};
