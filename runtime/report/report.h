/* report.h - the output of a run for its user: log, progress, pictures.
 *
 * In: numbers of the trainer.  Out: train_log.jsonl, a progress line on stderr, loss.svg, vram.svg,
 * TensorBoard events. Needs: estimator.
 *   L1  the log is appended line by line and survives a crash up to the last whole line; a line
 *       that could not be written whole is taken back, and written before the next one
 *   L2  every line is JSON: numbers that are not finite are written as null
 *   L3  a link in the place of the log or its temporary is replaced or refused, never written
 *       through
 *   L4  pictures need no font, script or file but themselves, and have a layout for any input
 * Use: pl_log_open("out/train_log.jsonl", 0, NULL, &log, &diag);
 *      pl_log_step(log, &r, &diag); ... pl_log_close(&log); */
#ifndef PL_RUNTIME_REPORT_REPORT_H
#define PL_RUNTIME_REPORT_REPORT_H

#include "estimator/base/diag.h"
#include "estimator/picture/picture.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#define PL_STEP_MORE 16
struct pl_step_report {
    uint64_t step, total_steps;
    double epoch, loss, grad_norm, learning_rate;
    uint64_t tokens;          /* supervised tokens of the step */
    uint64_t computed_tokens; /* tokens of its samples */
    uint64_t samples;         /* rows that it passed over */
    double tokens_per_second; /* computed tokens over wall time of the step */
    uint32_t batch_size;
    uint64_t loss_scale; /* of the gradients; 0: none */
    bool skipped;        /* they overflowed: no weight was updated */
    uint64_t device_bytes, budget_bytes;
    struct pl_named_value {
        const char *name;
        double value;
    } more[PL_STEP_MORE]; /* [n_more]: what else the loss of the job is measured by */
    uint32_t n_more;
};

/* --- train_log.jsonl ------------------------------------------------------------------------- */
struct pl_log;
/* Opens for appending. keep_steps: on resume, lines of later steps are dropped first (the file is
 * rewritten crash-safely), and with them every line that is not a whole JSON object. 0 = a new run:
 * an older log is replaced. echo (nullable, borrowed until close) receives every line too (`train
 * --json`). */
pl_err pl_log_open(const char *path, uint64_t keep_steps, FILE *echo, struct pl_log **out,
                   struct pl_diag *d);
/* A reader of `echo` that leaves when *stop is set, or is about to be, is not a failure: Ctrl-C
 * reaches both ends of a pipe, in any order. The echo then ends. */
/* The calls below do nothing if log is NULL: the log is not kept. */
void pl_log_set_stop(struct pl_log *log, const volatile sig_atomic_t *stop);
/* Writes {"event":name, ...fields} as one line and flushes; steals `fields`, also on failure; NULL
 * fields (jansson had no memory) are PL_ERR_HOST_OOM. Doubles print with 17 significant digits. */
pl_err pl_log_event(struct pl_log *log, const char *name, json_t *fields, struct pl_diag *d);
/* A line that there was no memory for is made once more; one that the disk has refused is written
 * before the next one. */
pl_err pl_log_step(struct pl_log *log, const struct pl_step_report *r, struct pl_diag *d);
/* Makes the log survive a power cut; lines that could not be written are tried again. */
pl_err pl_log_sync(struct pl_log *log, struct pl_diag *d);
/* Returns a JSON number, or null if v is not finite, which JSON cannot express. */
json_t *pl_log_real(double v);
/* Drops the lines of steps after keep_steps, except those of recoveries: the steps run again. */
pl_err pl_log_go_back(struct pl_log *log, uint64_t keep_steps, struct pl_diag *d);
void pl_log_close(struct pl_log **log); /* NULL-safe; sets *log to NULL */
/* Calls `each` with every line of a log that is a JSON object, which it may keep a reference of. A
 * crash may have left half a line at the end, and a run may be writing it, so others are passed
 * over. Ends with the first failure of `each`. A missing file is PL_ERR_IO. run_log.h has the
 * figures of a log. */
pl_err pl_log_each(const char *path, pl_err (*each)(void *ctx, const char *line, json_t *o),
                   void *ctx, struct pl_diag *d);

/* --- progress on stderr ---------------------------------------------------------------------- */
struct pl_progress {
    FILE *out;
    bool terminal, colour;      /* terminal: one rewritten line, else a plain line each time */
    bool quiet;                 /* neither steps nor notes are shown */
    bool notes_alone;           /* notes are shown, steps are not */
    double started, last_drawn; /* seconds, monotonic */
    bool reads;                 /* the line shows how far a data file is read */
    uint64_t first_step;        /* steps done before this process began, for the ETA */
};
/* Failures to write are ignored: a run does not end because nothing reads them. {0} is silent. */
void pl_progress_init(struct pl_progress *p, FILE *out, bool quiet, uint64_t first_step);
void pl_progress_step(struct pl_progress *p, const struct pl_step_report *r);
/* Shows how far a data file is read, before the first step and on a terminal only. bytes 0: not
 * known. */
void pl_progress_reading(struct pl_progress *p, const char *path, uint64_t done_bytes,
                         uint64_t bytes, uint64_t rows);
void pl_progress_clear(struct pl_progress *p);                  /* wipes that line */
void pl_progress_note(struct pl_progress *p, const char *text); /* writes a line above the progress
                                                                   line */
void pl_progress_end(struct pl_progress *p);
bool pl_colour_wanted(FILE *out); /* decides by terminal, NO_COLOR, FORCE_COLOR and TERM=dumb */

/* --- pictures: self-contained SVG; those of a plan are in picture.h --- */
/* The figures of a run that learned from preferences: X(ID, name in the log). */
#define PL_REWARD_FIGURES_TABLE(X)                                                                 \
    X(CHOSEN, "rewards/chosen")                                                                    \
    X(REJECTED, "rewards/rejected")                                                                \
    X(MARGIN, "rewards/margins")                                                                   \
    X(ACCURACY, "rewards/accuracies")
enum pl_reward_figure {
#define X(id, name) PL_REWARD_##id,
    PL_REWARD_FIGURES_TABLE(X)
#undef X
        PL_REWARD_FIGURES
};
/* A figure over the steps and over the evaluations; NULL: it has no values there. */
struct pl_reward_columns {
    const double *of_steps, *of_evals;
};

/* The curves of loss.svg, all borrowed. */
struct pl_loss_curves {
    const double *steps, *losses; /* [n] */
    uint64_t n;
    const double *eval_steps, *eval_losses; /* [n_evals] */
    uint64_t n_evals;
    const double *marks; /* the steps of the recoveries, [n_marks] */
    uint64_t n_marks;
    struct pl_reward_columns rewards[PL_REWARD_FIGURES]; /* drawn below, where there are any */
};
/* Draws loss over steps with a smoothed line, the evaluations and axis labels. Points that are not
 * finite are left out, and those of steps are counted below the picture. */
void pl_svg_loss(const struct pl_loss_curves *c, const char *title, struct pl_text *out);
/* pl_svg_loss with the curves of a log (run_log.h). */
struct pl_run_log;
void pl_svg_loss_of_run(const struct pl_run_log *h, const char *title, struct pl_text *out);

/* --- TensorBoard ----------------------------------------------------------------------------- */
struct pl_tensorboard;
/* Makes `dir` if its parent exists, and a new events file in it. */
pl_err pl_tensorboard_open(const char *dir, struct pl_tensorboard **out, struct pl_diag *d);
/* Writes one event and flushes it. The format stores value as a float. */
pl_err pl_tensorboard_scalar(struct pl_tensorboard *t, const char *tag, uint64_t step, double value,
                             struct pl_diag *d);
/* Writes a text of n bytes, which TensorBoard shows as Markdown. A long one is cut. */
pl_err pl_tensorboard_text(struct pl_tensorboard *t, const char *tag, uint64_t step,
                           const char *text, size_t n, struct pl_diag *d);
void pl_tensorboard_close(struct pl_tensorboard **t); /* NULL-safe; sets *t to NULL */

#endif
