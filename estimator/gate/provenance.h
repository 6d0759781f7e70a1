/* provenance.h - where the figures of an estimate come from, and what they take for granted.
 *
 * In: an estimate.  Out: one word per line of the ledger, and sentences.  Needs: gate. */
#ifndef PL_ESTIMATOR_GATE_PROVENANCE_H
#define PL_ESTIMATOR_GATE_PROVENANCE_H

#include "estimator/gate/estimate.h"

/* X(name, "word") */
#define PL_PROVENANCE_MAP(X)                                                                       \
    X(PLANNED, "planned")   /* read off the plan: what will be reserved, byte for byte */          \
    X(MEASURED, "measured") /* by a device or a run */                                             \
    X(PROFILED, "profiled") /* a row of the card table */                                          \
    X(USER, "user")         /* as given */

enum pl_provenance {
#define X(name, word) PL_PROVENANCE_##name,
    PL_PROVENANCE_MAP(X)
#undef X
        PL_PROVENANCE_COUNT
};
const char *pl_provenance_name(enum pl_provenance p);

/* The provenance of the card's size, and of the context line. */
enum pl_provenance pl_budget_provenance(const struct pl_budget *b);
enum pl_provenance pl_context_provenance(const struct pl_budget *b);

/* One sentence a line: what has to be true for the figures to hold. */
void pl_estimate_assumptions(const struct pl_estimate *e, struct pl_text *out);
/* {"arena":"planned","context":...,"budget":...,"margin":...}; NULL when out of memory. */
json_t *pl_estimate_provenance_json(const struct pl_estimate *e);
/* The assumptions as a list of strings. */
json_t *pl_estimate_assumptions_json(const struct pl_estimate *e);

#endif
