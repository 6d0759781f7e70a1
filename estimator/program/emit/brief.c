/* brief.c - which of the layers that are alike a brief program leaves out. */
#include "estimator/program/emit/brief.h"

#include "estimator/base/alloc.h"

#include <stdlib.h>

/* Runs of layers are looked for that repeat after at most this many. */
#define MOST_PERIOD 8

/* Periods at either end of a run that are kept; one more where a layer leaves something for its
 * neighbour: copies of what that needs, or gradients that ranks exchange meanwhile. */
static uint32_t ends_of(const struct pl_job_shape *s) {
    const bool shares = s->offload != PL_OFFLOAD_NONE || s->embedding_on_host ||
                        pl_recompute_offloads(s->recompute) || pl_shape_is_of_ranks(s);
    return shares ? 2 : 1;
}

static bool are_alike(const struct pl_builder *b, uint64_t lowest, uint64_t i, uint64_t j) {
    const struct pl_layer *x = &b->m->layer[i], *y = &b->m->layer[j];
    const struct pl_job_shape *s = b->s;
    return pl_layers_are_alike(x, y) && (i > lowest) == (j > lowest) &&
           (i < s->freeze_layers) == (j < s->freeze_layers) &&
           pl_shape_adapted_rows(s, i) == pl_shape_adapted_rows(s, j) &&
           pl_recompute_of_layer(s->recompute, i) == pl_recompute_of_layer(s->recompute, j);
}

/* Layers from `first` on of which each is like the one a period before. */
static uint64_t run_of(const struct pl_builder *b, uint64_t lowest, uint64_t first,
                       uint64_t period) {
    uint64_t n = period;
    while (first + n < b->m->layers && are_alike(b, lowest, first + n, first + n - period))
        n++;
    return n;
}

/* Periods that may be left out: an even number of layers, since copies of neighbours alternate
 * between two sets of buffers. */
static uint64_t spare_of(uint64_t run, uint64_t period, uint64_t ends) {
    const uint64_t n = run / period, kept = 2 * ends + 1, spare = n > kept ? n - kept : 0;
    return period % 2 ? spare / 2 * 2 : spare;
}

/* The run whose period is the shortest; its length, with *spare 0 where none is worth it. */
static uint64_t find_run(const struct pl_builder *b, uint64_t lowest, uint64_t first,
                         uint64_t *period, uint64_t *spare) {
    const uint64_t left = b->m->layers - first;
    *spare = 0;
    for (*period = 1; *period <= MOST_PERIOD && *period <= left; ++*period) {
        const uint64_t run = run_of(b, lowest, first, *period);
        *spare = spare_of(run, *period, ends_of(b->s));
        if (*spare) return run;
    }
    return 0;
}

static void leave_out(uint32_t *list, uint64_t period, uint64_t spare) {
    for (uint64_t i = 0; i < period; i++)
        list[i] = (uint32_t)spare;
    for (uint64_t i = period; i < period * (1 + spare); i++)
        list[i] = PL_LAYER_LEFT_OUT;
}

void pl_brief_choose_layers(struct pl_builder *b) {
    struct pl_program *p = b->p;
    uint64_t period, spare, run;
    bool any = false;
    /* these come and go in an order of their own: with the step's last micro-batch */
    if (b->s->gradients == PL_GRADIENTS_OF_STEP) return;
    p->layers_equal = pl_calloc(b->m->layers, sizeof *p->layers_equal);
    if (!p->layers_equal) {
        b->err = pl_host_oom(b->d, "the plan");
        return;
    }
    const uint64_t lowest = pl_build_lowest_layer(b);
    p->periods_kept = ends_of(b->s);
    for (uint64_t l = 0; l < b->m->layers; l += run) {
        run = find_run(b, lowest, l, &period, &spare);
        if (!spare) run = 1;
        if (spare) leave_out(p->layers_equal + l + p->periods_kept * period, period, spare);
        any |= spare > 0;
    }
    p->shortened = p->brief && any && !b->s->inference;
    if (p->shortened) p->layers_left_out = p->layers_equal;
    if (any) return;
    free(p->layers_equal);
    p->layers_equal = NULL;
}
