/* remarks.h - remarks on the rows of one file before the first step: rows that train nothing, are
 * cut or dropped, have odd traits or keys that nothing reads.
 *
 * In: remarks on its rows, one by one.  Out: counts in statistics, notes and warnings.
 * Needs: formats.
 *   R1  a remark keeps a count and the line of the first row: memory is bounded for any file
 *   R2  remarks hold no pointer: the cache of a file keeps them as they are, and they are repeated
 *       when its tokens come from there
 * Use: pl_remark_add(&r.truncated, line); ... pl_remarks_count(&r, &stats);
 *      pl_remarks_note(&r, &about, &notes); */
#ifndef PL_RUNTIME_DATA_REMARKS_H
#define PL_RUNTIME_DATA_REMARKS_H

#include "estimator/base/text.h"
#include "runtime/data/data_stats.h"
#include "runtime/data/formats.h"
#include "runtime/data/row_keys.h"

/* The count of a remark, and the line of the first row. */
struct pl_remark {
    uint64_t line, n;
};
static inline void pl_remark_add(struct pl_remark *r, uint64_t line) {
    if (!r->n++) r->line = line;
}

struct pl_remarks {
    struct pl_remark unsupervised, truncated, dropped;
    struct pl_remark cut_off; /* cut before all tokens that would have been trained on */
    uint64_t whole;           /* tokens of the longest row before cutting */
    struct pl_file_traits traits;
    struct pl_told_keys told;
};

/* The file that remarks are about; everything is borrowed. */
struct pl_remarks_about {
    const char *path;
    const struct pl_data_stats *stats; /* remarks are counted in them already */
    const struct pl_format *format;
    const struct pl_job *job;
    uint64_t positions; /* positions that the model was made for; 0 = it scales them */
};

/* Adds the rows that have remarks to *stats. */
void pl_remarks_count(const struct pl_remarks *r, struct pl_data_stats *stats);
/* Writes a line for each remark, and for settings that would waste a run. */
void pl_remarks_note(const struct pl_remarks *r, const struct pl_remarks_about *about,
                     struct pl_text *notes);

#endif
