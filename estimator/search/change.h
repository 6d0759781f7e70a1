/* change.h - one changed key: which changes there are, for which jobs, and making one.
 *
 * In: a question.  Out: a variant of it with the change made.  Needs: change_rows.h, question.h.
 *   H1  a change that is made alters the job: one that has no meaning for it, or is its own
 *       already, is refused
 *   H2  a change that the job cannot have is left out of an answer; any other error ends it
 * Use: struct pl_variant v; pl_variant_of(&v, &q);
 *      err = pl_change_make(PL_CHANGE_MOMENTS, pl_changes[PL_CHANGE_MOMENTS].settings, &v); */
#ifndef PL_ESTIMATOR_SEARCH_CHANGE_H
#define PL_ESTIMATOR_SEARCH_CHANGE_H

#include "estimator/search/question.h"

enum pl_change_id {
#define PL_CHANGE(ID, key, HOW, value, SETTING, WAY) PL_CHANGE_##ID,
#include "estimator/search/change_rows.h"
    PL_CHANGE_COUNT
};

enum pl_change_how {
    PL_HOW_SET,             /* the value as it is written */
    PL_HOW_EVERY_CHOICE,    /* each of the key's words, which the caller sets in turn */
    PL_HOW_LIGHTER,         /* the lighter optimizer of the same rule */
    PL_HOW_HALVE,           /* the number that stands there */
    PL_HOW_DOUBLE,          /* the same */
    PL_HOW_HALVE_MICRO,     /* the micro-batch, and the step stays as it is */
    PL_HOW_ONE_MICRO,       /* the same, to one sample */
    PL_HOW_HALF_THE_LAYERS, /* the first half of the model's */
    PL_HOW_NO_MODULES,      /* no module is trained whole together with adapters */
    PL_HOW_BOTH_MODULES     /* embedding and head are */
};

struct pl_change {
    enum pl_key_id key;
    enum pl_change_how how;
    const char *value;
    unsigned settings, ways, remedies;       /* jobs that have it, bits of change.c */
    uint32_t rank;                           /* among remedies; 0: none by itself */
    enum pl_change_id also;                  /* a remedy that goes with it; 0: none */
    bool (*may)(const struct pl_variant *v); /* nullable */
    /* nullable; job: with the change */
    bool (*helps)(const struct pl_question *was, const struct pl_job *job);
};
extern const struct pl_change pl_changes[]; /* [PL_CHANGE_COUNT] */

/* Makes the change on v, whose job has to be one of `jobs`. An error other than PL_ERR_HOST_OOM: it
 * is none for this job, since it has no meaning there, is what stands there already, or leaves the
 * key's range; *v is of no use then. Rules between keys are not looked at (pl_job_validate). */
pl_err pl_change_make(const struct pl_change *c, unsigned jobs, struct pl_variant *v);
/* H2. Both take the error of a change and say in *has whether the job has it.
 * made: that of making it, or of asking about the rules between keys; what: what is made, for the
 * message. Only memory of the host that is not there ends the answer. */
pl_err pl_change_made(pl_err made, const char *what, bool *has, struct pl_diag *d);
/* planned: that of planning it, which told `why`. What the model or another key refuses is a change
 * that the job cannot have. */
pl_err pl_change_planned(pl_err planned, const struct pl_diag *why, bool *has, struct pl_diag *d);
/* The change as it is typed, "key: value"; q: with the change. */
void pl_change_write(const struct pl_change *c, const struct pl_question *q, struct pl_text *out);
/* "key: value" as the question is planned. */
void pl_change_write_key(const struct pl_question *q, enum pl_key_id key, struct pl_text *out);

/* Sets batch_size, max_seq_length or another U32 key from a number; an error: outside its range,
 * or more tokens than a micro-batch may have. */
pl_err pl_change_put(struct pl_variant *v, enum pl_key_id key, uint32_t value, struct pl_diag *d);
uint32_t pl_change_get(const struct pl_question *q, enum pl_key_id key);
/* The largest value of such a key with which the question can be asked. */
uint32_t pl_change_most(const struct pl_question *q, enum pl_key_id key);

#endif
