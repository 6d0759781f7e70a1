/* report.h - what a run tells its user: log, progress, pictures.
 *
 * In: numbers of the trainer.  Out: train_log.jsonl, a progress line on stderr, loss.svg, vram.svg,
 * TensorBoard events. Needs: estimator. The log is appended line by line and survives a crash up
 * to the last whole line. */
#ifndef PL_RUNTIME_REPORT_REPORT_H
#define PL_RUNTIME_REPORT_REPORT_H

#include "estimator/base/diag.h"
#include "estimator/plan/plan.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct pl_step_report {
    uint64_t step, total_steps;
    double epoch, loss, grad_norm, learning_rate;
    uint64_t tokens;          /* supervised tokens of the step */
    double tokens_per_second; /* computed tokens over wall time of the step */
    uint32_t batch_size;
    uint64_t device_bytes, budget_bytes;
};

/* --- train_log.jsonl ------------------------------------------------------------------------- */
struct pl_log;
/* Opens for appending; keep_steps: on resume, lines of steps beyond it are dropped first (the file
 * is rewritten crash-safely). echo (nullable) receives every line too (`train --json`). */
pl_err pl_log_open(const char *path, uint64_t keep_steps, FILE *echo, struct pl_log **out,
                   struct pl_diag *d);
/* Writes {"event":name, ...fields} as one line and flushes; steals `fields`. Doubles print with 17
 * significant digits. */
pl_err pl_log_event(struct pl_log *log, const char *name, json_t *fields, struct pl_diag *d);
pl_err pl_log_step(struct pl_log *log, const struct pl_step_report *r, struct pl_diag *d);
void pl_log_close(struct pl_log **log);
/* (step, loss) pairs of all step lines, for pictures after a resume. *steps and *losses malloc'd. */
pl_err pl_log_read_losses(const char *path, double **steps, double **losses, uint64_t *n,
                          struct pl_diag *d);

/* --- progress on stderr ---------------------------------------------------------------------- */
struct pl_progress {
    FILE *out;
    bool terminal, colour; /* one rewritten line, else a plain line each time */
    bool quiet;
    double started, last_drawn; /* seconds, monotonic */
    uint64_t first_step;        /* of this process, for the ETA */
};
void pl_progress_init(struct pl_progress *p, FILE *out, bool quiet, uint64_t first_step);
void pl_progress_step(struct pl_progress *p, const struct pl_step_report *r);
void pl_progress_note(struct pl_progress *p, const char *text); /* a line above the progress line */
void pl_progress_end(struct pl_progress *p);
bool pl_colour_wanted(FILE *out); /* terminal, NO_COLOR, FORCE_COLOR, TERM=dumb */

/* --- pictures: self-contained SVG ------------------------------------------------------------ */
/* Loss over steps with a smoothed line, axis labels, and the recoveries marked. */
void pl_svg_loss(const double *steps, const double *losses, uint64_t n, const char *title,
                 struct pl_text *out);
/* Stacked bytes over the ops of the peak phase (job arena below, live transients by category
 * above), budget line, peak marked with its largest tensors, planned / allocated / measured. */
void pl_svg_vram(const struct pl_plan *plan, uint64_t budget_bytes, uint64_t allocated_bytes,
                 uint64_t measured_bytes, const char *title, struct pl_text *out);

/* --- TensorBoard ----------------------------------------------------------------------------- */
struct pl_tensorboard;
pl_err pl_tensorboard_open(const char *dir, struct pl_tensorboard **out, struct pl_diag *d);
pl_err pl_tensorboard_scalar(struct pl_tensorboard *t, const char *tag, uint64_t step, double value,
                             struct pl_diag *d);
void pl_tensorboard_close(struct pl_tensorboard **t);

#endif
