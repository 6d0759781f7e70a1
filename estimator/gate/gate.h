/* gate.h - may this job start? Decided on the plan, before a device is opened.
 *
 * In: a question and its plan.  Out: a verdict.  Needs: plan. No I/O.
 *   G1  `fits` means arena + context + doubt + margin <= total, byte for byte what will be
 *       reserved; `tight` that it does not, and yet arena + context - doubt <= total, of a total
 *       that has room for the margin
 *   G2  a full fine-tune that trains more than full_ft_ceiling_billions is refused whatever the
 *       memory, unless weights, gradients and states live on the host; frozen layers do not count
 *   G3  on a GPU that the kernels are not made for nothing fits, and no change helps; on one that
 *       they compute on in other types than the job's, only a change of the type does */
#ifndef PL_ESTIMATOR_GATE_GATE_H
#define PL_ESTIMATOR_GATE_GATE_H

#include "estimator/search/question.h"

enum pl_verdict_kind { PL_VERDICT_FITS, PL_VERDICT_TIGHT, PL_VERDICT_NO, PL_VERDICT_UNKNOWN };
const char *pl_verdict_name(enum pl_verdict_kind k); /* "fits", "tight", "no", "unknown" */

struct pl_verdict {
    enum pl_verdict_kind kind;
    uint64_t needed_bytes;  /* arenas + context */
    uint64_t most_bytes;    /* the same of the rank that needs the most, which the verdict is of */
    bool over_ceiling;      /* G2 */
    bool no_kernels;        /* G3 */
    double trained_billions; /* exact count / 1e9 */
    uint64_t short_bytes;    /* tight: what it lacks to fit for certain, without the margin where */
    bool inside_doubt;       /* that alone is not enough: it is the context that decides */
};
/* Parameters that the optimizer of a program updates. */
uint64_t pl_gate_trained(const struct pl_program *p);
bool pl_gate_over_ceiling(const struct pl_program *p, const struct pl_job *job); /* G2 */
/* Devices that share gradients and states, each of which the ceiling is for. */
uint32_t pl_gate_ceiling_devices(const struct pl_program *p);
struct pl_verdict pl_gate_judge(const struct pl_plan *plan, const struct pl_question *q);
/* Why the job does not run on the device of the question (G3), and what would help. */
void pl_gate_add_no_kernels(const struct pl_question *q, struct pl_text *out);
const char *pl_gate_no_kernels_help(const struct pl_question *q);
/* "30.00 MiB (31457280 bytes) inside the margin of 64.00 MiB", of a tight one. */
void pl_gate_add_tight(const struct pl_verdict *v, const struct pl_question *q,
                       struct pl_text *out);
/* The verdict as an error: OK for fits, tight and unknown. */
pl_err pl_gate_error(const struct pl_verdict *v, const struct pl_question *q, struct pl_diag *d);

#endif
