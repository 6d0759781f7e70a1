/* With weights an epoch is a list of turns, `take` of them for each file, and the order permutes
 * the turns. A turn belongs to a file and is one visit to it, numbered from 0; visits go round the
 * file's rows in a walk of their own, so that weight 0.5 takes one half of the rows in one epoch
 * and the other half in the next. */
#include "runtime/data/walk.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <math.h>
#include <stdlib.h>

void pl_walk_init(struct pl_walk *w, uint64_t first, uint64_t n, bool shuffle, uint64_t seed) {
    *w = (struct pl_walk){
        .first = first, .rows = n, .epoch_rows = n, .shuffle = shuffle, .seed = seed};
}

void pl_walk_finish(struct pl_walk *w) {
    free(w->parts);
    *w = (struct pl_walk){0};
}

/* Weights are at most 1000 and rows below 2^48, so that the product is exact to the row. */
static pl_err add_part(struct pl_walk *w, const struct pl_data_file *f, struct pl_diag *d) {
    const struct pl_holdout *h = w->held;
    uint64_t before = h ? pl_holdout_below(h, f->first) : 0;
    uint64_t held = h ? pl_holdout_below(h, f->first + f->rows) - before : 0;
    struct pl_walk_part part = {
        .first = f->first - before, .rows = f->rows - held, .start = w->epoch_rows};
    if (!part.rows) return PL_ERR_OK;
    part.take = pl_u64_max(1, (uint64_t)llround(f->weight * (double)part.rows));
    if (!pl_u64_add(w->epoch_rows, part.take, &w->epoch_rows))
        return pl_diag_set(d, PL_ERR_OVERFLOW, "an epoch of that many rows cannot be counted");
    w->parts[w->n_parts++] = part;
    return PL_ERR_OK;
}

pl_err pl_walk_mix(struct pl_walk *w, const struct pl_data *data, const struct pl_holdout *held,
                   bool shuffle, uint64_t seed, struct pl_diag *d) {
    pl_walk_init(w, 0, pl_data_rows(data) - (held ? held->n : 0), shuffle, seed);
    w->held = held;
    bool weighted = false;
    for (uint32_t i = 0; i < pl_data_files(data); i++)
        weighted = weighted || pl_data_file(data, i)->weight != 1;
    if (!weighted) return PL_ERR_OK;
    w->epoch_rows = 0;
    w->parts = pl_calloc(pl_data_files(data), sizeof *w->parts);
    if (!w->parts) return pl_host_oom(d, "the mix of the data");
    pl_err err = PL_ERR_OK;
    for (uint32_t i = 0; i < pl_data_files(data) && err == PL_ERR_OK; i++)
        err = add_part(w, pl_data_file(data, i), d);
    if (err != PL_ERR_OK) pl_walk_finish(w);
    return err;
}

void pl_walk_held(struct pl_walk *w, const struct pl_holdout *held) {
    pl_walk_init(w, 0, held->n, false, 0);
    w->held = held;
    w->of_held = true;
}

/* The part that holds a turn of an epoch. */
static uint32_t part_of(const struct pl_walk *w, uint64_t turn) {
    uint32_t low = 0, high = w->n_parts;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (w->parts[mid].start <= turn)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Row `position` of the walk, among those that it counts. */
static uint64_t counted(const struct pl_walk *w, uint64_t position) {
    if (!w->parts) return pl_data_order(position, w->first, w->rows, w->shuffle, w->seed);
    uint64_t epoch = position / w->epoch_rows;
    uint64_t turn = pl_data_order(position, 0, w->epoch_rows, w->shuffle, w->seed);
    uint32_t p = part_of(w, turn);
    const struct pl_walk_part *part = &w->parts[p];
    uint64_t visit = epoch * part->take + (turn - part->start);
    /* a seed of its own: files of one length must not run in step */
    return pl_data_order(visit, part->first, part->rows, w->shuffle, w->seed + 1 + p);
}

uint64_t pl_walk_row(const struct pl_walk *w, uint64_t position) {
    uint64_t i = counted(w, position);
    if (!w->held) return i;
    return w->of_held ? w->held->rows[i] : pl_holdout_kept(w->held, i);
}

uint64_t pl_walk_left(const struct pl_walk *w, uint64_t position) {
    if (w->circle || !w->epoch_rows) return UINT64_MAX;
    return w->epoch_rows - position % w->epoch_rows;
}
