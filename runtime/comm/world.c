/* world.c - who this process is among those that a launcher started. */
#include "runtime/comm/comm.h"
#include "runtime/comm/launch.h"

#include <stdlib.h>
#include <string.h>

/* Launchers in order of precedence: a wrapper under mpirun may set RANK and WORLD_SIZE, and srun
 * may start the ranks of mpirun. */
static const struct launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    bool may_differ; /* its variables may describe the launcher of another launcher's ranks */
} launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", false},
    /* SLURM_NTASKS and SLURM_PROCID are also set in a batch script, which is no rank. */
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
     true},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static const char *value_of(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The number that s begins with; *end is what follows it. False: none, or one above most. */
static bool leading_number(const char *s, uint32_t most, uint32_t *out, const char **end) {
    uint64_t v = 0;
    const char *at = s;
    while (*at >= '0' && *at <= '9' && v <= most)
        v = v * 10 + (uint64_t)(*at++ - '0');
    *out = (uint32_t)v;
    *end = at;
    return at > s && v <= most;
}

/* *out stays as it is where the variable is not set. */
static pl_err read_number(const char *name, uint32_t most, uint32_t *out, struct pl_diag *d) {
    const char *value = value_of(name), *end;
    uint32_t v;
    if (!value) return PL_ERR_OK;
    if (!leading_number(value, most, &v, &end) || *end)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "%s is `%.40s`, no number up to %u", name, value,
                           most);
    *out = v;
    return PL_ERR_OK;
}

/* Slurm's "4(x2),3": the node that SLURM_NODEID counts has so many tasks. 0 = it says nothing. */
static uint32_t tasks_of_node(const char *list, uint32_t node) {
    uint32_t tasks, times;
    while (leading_number(list, PL_RANKS_MAX, &tasks, &list)) {
        times = 1;
        if (list[0] == '(' && list[1] == 'x') {
            if (!leading_number(list + 2, UINT16_MAX, &times, &list) || *list != ')') return 0;
            list++;
        }
        if (node < times) return tasks;
        node -= times;
        if (*list++ != ',') return 0;
    }
    return 0;
}

static pl_err read_local_size(const struct launcher *l, uint32_t *out, struct pl_diag *d) {
    uint32_t node = 0;
    const char *list = value_of(l->local_size);
    if (!l->may_differ) return read_number(l->local_size, PL_RANKS_MAX, out, d);
    PL_TRY(read_number("SLURM_NODEID", UINT16_MAX, &node, d));
    uint32_t tasks = list ? tasks_of_node(list, node) : 0;
    if (tasks) *out = tasks;
    return PL_ERR_OK;
}

struct identity {
    uint32_t rank, size, local_rank, local_size; /* UINT32_MAX = not said */
};

/* Reads the variables of a launcher, if it has set them. COMM_INIT: half of them are set. */
static pl_err read_launcher(const struct launcher *l, struct identity *p, bool *there,
                            struct pl_diag *d) {
    bool rank = value_of(l->rank), size = value_of(l->size);
    *p = (struct identity){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    *there = rank && size;
    if (rank != size && !l->may_differ)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "%s is set and %s is not", rank ? l->rank : l->size,
                           rank ? l->size : l->rank);
    if (!*there) return PL_ERR_OK;
    PL_TRY(read_number(l->rank, UINT16_MAX, &p->rank, d));
    PL_TRY(read_number(l->size, UINT16_MAX, &p->size, d));
    PL_TRY(read_number(l->local_rank, UINT16_MAX, &p->local_rank, d));
    return read_local_size(l, &p->local_size, d);
}

static pl_err check_identity(const struct launcher *l, const struct identity *p,
                             struct pl_diag *d) {
    if (p->size == 0 || p->size > PL_RANKS_MAX)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "%s is %u, there may be 1 to %u ranks", l->size,
                           p->size, PL_RANKS_MAX);
    if (p->rank >= p->size)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "%s is %u and %s is %u: ranks count from 0",
                           l->rank, p->rank, l->size, p->size);
    return PL_ERR_OK;
}

static pl_err find_identity(const struct launcher **by, struct identity *out, bool *by_srun,
                            struct pl_diag *d) {
    *by = NULL;
    for (int i = 0; i < LAUNCHERS; i++) {
        const struct launcher *l = &launchers[i];
        struct identity p;
        bool there;
        PL_TRY(read_launcher(l, &p, &there, d));
        if (!there) continue;
        *by_srun = l->may_differ && p.size > 1;
        bool agrees = *by && p.rank == out->rank && p.size == out->size;
        if (*by && !agrees && l->may_differ) continue;
        if (*by && !agrees)
            return pl_diag_set(
                d, PL_ERR_COMM_INIT, "%s and %s say rank %u of %u, %s and %s say rank %u of %u",
                (*by)->rank, (*by)->size, out->rank, out->size, l->rank, l->size, p.rank, p.size);
        if (*by) {
            /* The chosen one may not give all facts about this machine. */
            if (out->local_rank == UINT32_MAX) out->local_rank = p.local_rank;
            if (out->local_size == UINT32_MAX) out->local_size = p.local_size;
            continue;
        }
        PL_TRY(check_identity(l, &p, d));
        *by = l;
        *out = p;
    }
    return PL_ERR_OK;
}

static pl_err check_local(const struct launcher *l, struct identity *p, struct pl_diag *d) {
    if (p->size == 1) p->local_rank = 0, p->local_size = 1;
    if (p->local_rank == UINT32_MAX || p->local_size == UINT32_MAX)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "%s is set and %s is not", l->rank,
                           p->local_rank == UINT32_MAX ? l->local_rank : l->local_size);
    if (p->local_rank >= p->local_size || p->local_size > p->size)
        return pl_diag_set(d, PL_ERR_COMM_INIT,
                           "%s is %u and %s is %u, of %u ranks: they contradict each other",
                           l->local_rank, p->local_rank, l->local_size, p->local_size, p->size);
    return PL_ERR_OK;
}

static pl_err read_address(struct pl_world *w, struct pl_diag *d) {
    const char *address = value_of("MASTER_ADDR"),
               *store = value_of("TORCHELASTIC_USE_AGENT_STORE");
    uint32_t port = 0;
    if (address && strlen(address) >= sizeof w->address)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "MASTER_ADDR has more than %zu characters",
                           sizeof w->address - 1);
    if (address) strcpy(w->address, address);
    PL_TRY(read_number("MASTER_PORT", UINT16_MAX, &port, d));
    if (value_of("MASTER_PORT") && port == 0)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "MASTER_PORT is 0, ports begin at 1");
    /* torchrun itself listens at the port that it names; the next one is what it leaves to us. A
     * launcher of ours that torchrun started names its own. */
    if (port && port < UINT16_MAX && store && strcmp(store, "True") == 0 && !value_of(PL_LAUNCHED))
        port++;
    w->port = (uint16_t)port;
    return PL_ERR_OK;
}

pl_err pl_world_init(struct pl_world *out, struct pl_diag *d) {
    const struct launcher *by;
    struct identity p = {0};
    *out = (struct pl_world){.size = 1, .local_size = 1};
    PL_TRY(find_identity(&by, &p, &out->by_srun, d));
    if (!by) return PL_ERR_OK;
    PL_TRY(check_local(by, &p, d));
    out->launcher = value_of(PL_LAUNCHED) && by == launchers ? "plimsoll" : by->name;
    out->rank = p.rank;
    out->size = p.size;
    out->local_rank = p.local_rank;
    out->local_size = p.local_size;
    return p.size > 1 ? read_address(out, d) : PL_ERR_OK;
}
