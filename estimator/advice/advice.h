/* advice.h - the answer to "what should I set": what fits, where it ends, what each knob costs.
 *
 * In: a question whose level and chunk are decided, and what is known of the data.
 * Out: struct pl_advice, and its text, JSON, CSV, YAML and pictures.
 * Needs: gate, autobatch, picture, plan. No I/O, no device.
 * Work is the planned FLOPs of a micro-batch per token; time is its roofline on a nominal machine,
 * only ever shown as a ratio: neither is a statement about seconds. Nothing of the user's settings
 * is changed; what the YAML changes is listed separately.
 *   A1  every byte was read off a plan that was made for it; nothing is extrapolated
 *   A2  a wall is exact: its value was planned and fits, the next was planned and does not
 *   A3  where the job leaves level or chunk open, every row decides them again: its figures are
 *       those of the job with that row's setting typed after it
 * Use: struct pl_advice a; pl_advice_init(&a, &question, &d); pl_advice_text(&a, ...);
 *      pl_advice_finish(&a); */
#ifndef PL_ESTIMATOR_ADVICE_ADVICE_H
#define PL_ESTIMATOR_ADVICE_ADVICE_H

#include "estimator/advice/figures.h"

/* effective_batch: samples that a step should see; 0: as many as global_batch_size says, or a batch
 * with an accumulation of its own. */
pl_err pl_advice_init(struct pl_advice *a, const struct pl_question *q,
                      const struct pl_lengths *lengths, uint32_t effective_batch,
                      struct pl_diag *d);
/* In two parts: what is advised, and the tables that surround it, which take most of the time. */
pl_err pl_advice_begin(struct pl_advice *a, const struct pl_question *q,
                       const struct pl_lengths *lengths, uint32_t effective_batch,
                       struct pl_diag *d);
pl_err pl_advice_tables(struct pl_advice *a, struct pl_diag *d);
void pl_advice_finish(struct pl_advice *a); /* leaves {0} */

/* The grid alone: powers of two around the question's own batch and length, which are in it. */
pl_err pl_advice_grid(const struct pl_question *q, struct pl_trials *t, struct pl_fit_grid *out,
                      struct pl_diag *d);
/* Along batch_size, max_seq_length or lora_r; the budget must be known. */
pl_err pl_advice_wall(const struct pl_question *q, enum pl_key_id key, struct pl_trials *t,
                      struct pl_wall *out, struct pl_diag *d);

/* The sections of the text, by the names that --tables takes. */
#define PL_ADVICE_SECTIONS(X)                                                                      \
    X(LEDGER, "ledger")                                                                            \
    X(DATA, "data")                                                                                \
    X(GRID, "grid")                                                                                \
    X(LIMITS, "limits")                                                                            \
    X(SETTINGS, "settings")                                                                        \
    X(LEVELS, "levels")                                                                            \
    X(STEP, "step")                                                                                \
    X(CARDS, "cards")                                                                              \
    X(ASSUMES, "assumes")                                                                          \
    X(ADVICE, "advice")
enum pl_advice_section {
#define X(id, name) PL_ADVICE_##id,
    PL_ADVICE_SECTIONS(X)
#undef X
        PL_ADVICE_SECTION_COUNT
};
#define PL_ADVICE_BIT(id) (1u << PL_ADVICE_##id)
#define PL_ADVICE_ALL     ((1u << PL_ADVICE_SECTION_COUNT) - 1)
/* "data,grid" -> bits of sections; PL_ERR_USAGE names a word that is none. */
pl_err pl_advice_sections(const char *names, unsigned *out, struct pl_diag *d);
/* For people: these sections; columns: the width to stay in. */
void pl_advice_text(const struct pl_advice *a, unsigned sections, bool colour, unsigned columns,
                    struct pl_text *out);
struct pl_recommendation; /* recommend.h */
/* One object; notes as in pl_estimate_json; found (nullable): the recommendation, whose first way
 * is then the advice. NULL when out of memory. */
json_t *pl_advice_json(const struct pl_advice *a, const struct pl_recommendation *found,
                       const char *notes);
/* batch_size,max_seq_length,needed_bytes,verdict: one line per cell (RFC 4180). */
void pl_advice_csv(const struct pl_fit_grid *g, struct pl_text *out);
/* Heat map: the colour is the share of the budget. */
void pl_advice_grid_svg(const struct pl_fit_grid *g, const struct pl_budget *budget,
                        const char *title, struct pl_text *out);
/* The job with the advised batch, length and accumulation; every key that was given stays. */
void pl_advice_yaml(const struct pl_advice *a, struct pl_text *out);
/* A command line for a POSIX shell that uses the advice. */
void pl_advice_command(const struct pl_advice *a, struct pl_text *out);

#endif
