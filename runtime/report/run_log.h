/* run_log.h - what a run has logged, as columns of figures over its steps.
 *
 * In: train_log.jsonl, finished or still being written.  Out: struct pl_run_log. Needs: report.h.
 *   HI1  a figure is the double that the log has, bit for bit; null, and a key that a line lacks,
 *        are NaN
 *   HI2  steps and evaluations increase: where a step was written again the later line counts, and
 *        the steps and evaluations after it are those of the run that wrote it. Recoveries stay
 *   HI3  a line that is not a whole JSON object, as a run leaves it while it writes, is passed over
 *   HI4  every key of a step or of an evaluation with a number or a boolean is a column, up to
 *        PL_FIGURES_MOST of them: a new figure of the log needs no change here
 * Use: struct pl_run_log h; PL_TRY(pl_run_log_read(path, &h, d));
 *      const double *loss = pl_figures_column(&h.steps, "loss"); ... pl_run_log_finish(&h); */
#ifndef PL_RUNTIME_REPORT_RUN_LOG_H
#define PL_RUNTIME_REPORT_RUN_LOG_H

#include "estimator/base/diag.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PL_FIGURES_MOST 40

struct pl_figure_column {
    char *name; /* owned */
    double *v;  /* owned, [n] of the table */
};

struct pl_figures {
    double *step; /* owned, [n] */
    uint64_t n, cap;
    struct pl_figure_column columns[PL_FIGURES_MOST];
    uint32_t n_columns;
};

struct pl_run_log {
    struct pl_figures steps, evals; /* of the events "step" and "eval" */
    struct pl_figures resumes;      /* the steps after which the run was resumed; no columns */
    struct pl_figures recoveries;   /* the steps of the events "oom_recovery"; may repeat */
    json_t *recovery_events;        /* array of these events, each as it was logged */
    json_t *samples;                /* array of the events "sample"; their steps do not decrease */
    json_t *preflight, *summary;    /* the last of each; NULL: there is none */
    bool ended;                     /* the run that wrote last has written its summary */
};

/* Reads a log. On failure *h is empty. A missing file is PL_ERR_IO. */
pl_err pl_run_log_read(const char *path, struct pl_run_log *h, struct pl_diag *d);
void pl_run_log_finish(struct pl_run_log *h); /* leaves {0} */
/* Returns the values of a column, [n] of the table; NULL: no line has the key. */
const double *pl_figures_column(const struct pl_figures *t, const char *name);

#endif
