/* poison.c - births and deaths by op, and the shadow of the batch arenas. */
#include "runtime/exec/poison.h"

#ifdef PL_POISONS
#include "estimator/base/alloc.h"

#include <sanitizer/asan_interface.h>
#include <stdlib.h>

/* Tensors by an op of theirs: those of op i are ids[from[i]] to ids[from[i + 1] - 1]. */
struct by_op {
    uint32_t *from; /* [n_ops + 2]: the last is room for counting */
    uint32_t *ids;  /* [n_tensors] */
};

struct pl_poison {
    struct pl_arena arenas[PL_PLACE_COUNT]; /* that are poisoned; {0} = none */
    uint32_t first, end;                    /* the ops that ran last; none: 0, 0 */
    struct by_op born, dead;
};

/* False for a tensor that no op uses: its first op is after all ops. */
static bool has_life(const struct pl_plan *plan, uint32_t id) {
    return plan->program->tensors[id].scope == PL_SCOPE_STEP &&
           plan->places[id].first_op < plan->program->n_ops;
}

static uint32_t op_of(const struct pl_plan *plan, uint32_t id, bool last) {
    return last ? plan->places[id].last_op : plan->places[id].first_op;
}

/* A counting sort by first or last op. */
static bool list_by_op(struct by_op *b, const struct pl_plan *plan, bool last) {
    const struct pl_program *p = plan->program;
    b->from = pl_calloc((size_t)p->n_ops + 2, sizeof *b->from);
    b->ids = pl_malloc(((size_t)p->n_tensors + 1) * sizeof *b->ids);
    if (!b->from || !b->ids) return false;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (has_life(plan, i)) b->from[op_of(plan, i, last) + 2]++;
    for (uint32_t op = 2; op < p->n_ops + 2; op++)
        b->from[op] += b->from[op - 1];
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (has_life(plan, i)) b->ids[b->from[op_of(plan, i, last) + 1]++] = i;
    return true;
}

pl_err pl_poison_init(struct pl_exec *e, struct pl_diag *d) {
    if (e->device->ops != &pl_device_cpu) return PL_ERR_OK; /* Z4 */
    e->poison = pl_calloc(1, sizeof *e->poison);
    if (e->poison && list_by_op(&e->poison->born, e->plan, false) &&
        list_by_op(&e->poison->dead, e->plan, true))
        return PL_ERR_OK;
    return pl_host_oom(d, "the lifetimes of the plan");
}

static void open_tensor(const struct pl_exec *e, uint32_t id) {
    __asan_unpoison_memory_region(pl_exec_address(e, id), e->plan->program->tensors[id].bytes);
}

static void close_tensor(const struct pl_exec *e, uint32_t id) {
    __asan_poison_memory_region(pl_exec_address(e, id), e->plan->program->tensors[id].bytes);
}

static void each(const struct pl_exec *e, const struct by_op *b, uint32_t first, uint32_t end,
                 void (*visit)(const struct pl_exec *e, uint32_t id)) {
    for (uint32_t i = b->from[first]; i < b->from[end]; i++)
        visit(e, b->ids[i]);
}

/* Ops begin that do not follow those that ran last: what lives across the first is opened. */
static void begin(struct pl_exec *e, uint32_t op) {
    const struct pl_plan *plan = e->plan;
    struct pl_poison *s = e->poison;
    for (int place = 0; place < PL_PLACE_COUNT; place++) {
        s->arenas[place] = place == PL_PLACE_DEVICE ? e->batch_arena : e->host_arenas.batch[place];
        __asan_poison_memory_region(s->arenas[place].base, s->arenas[place].bytes);
    }
    if (op == plan->program->phases[plan->program->ops[op].phase].first_op) return;
    for (uint32_t i = 0; i < plan->program->n_tensors; i++)
        if (has_life(plan, i) && plan->places[i].first_op < op && plan->places[i].last_op >= op)
            open_tensor(e, i);
}

void pl_poison_before(struct pl_exec *e, uint32_t first, uint32_t n) {
    struct pl_poison *s = e->poison;
    if (!s) return;
    const struct pl_program *p = e->plan->program;
    const enum pl_phase phase = p->ops[first].phase;
    if (phase == PL_PHASE_LOAD || phase == PL_PHASE_SAVE) {
        pl_poison_lift(e);
        return;
    }
    if (s->end != first || p->phases[phase].first_op == first)
        begin(e, first);
    else
        each(e, &s->dead, s->first, s->end, close_tensor);
    each(e, &s->born, first, first + n, open_tensor);
    s->first = first;
    s->end = first + n;
}

void pl_poison_open(struct pl_exec *e, uint32_t tensor) {
    const struct pl_tensor *t = &e->plan->program->tensors[tensor];
    if (e->poison && t->scope == PL_SCOPE_STEP && e->poison->arenas[t->place].base)
        open_tensor(e, tensor);
}

void pl_poison_lift(struct pl_exec *e) {
    struct pl_poison *s = e->poison;
    if (!s) return;
    for (int place = 0; place < PL_PLACE_COUNT; place++) {
        __asan_unpoison_memory_region(s->arenas[place].base, s->arenas[place].bytes);
        s->arenas[place] = (struct pl_arena){0};
    }
    s->first = s->end = 0;
}

void pl_poison_finish(struct pl_exec *e) {
    if (!e->poison) return;
    pl_poison_lift(e);
    free(e->poison->born.from);
    free(e->poison->born.ids);
    free(e->poison->dead.from);
    free(e->poison->dead.ids);
    free(e->poison);
    e->poison = NULL;
}
#endif
