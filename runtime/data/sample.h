/* sample.h - one row of data as tokens and labels. A row of preferences holds two samples or one
 * with a mark, its parts, one after another.
 *
 * Use: struct pl_sample s = {0}; if (!pl_sample_reserve(&s, n)) ...; pl_sample_finish(&s); */
#ifndef PL_RUNTIME_DATA_SAMPLE_H
#define PL_RUNTIME_DATA_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#define PL_LABEL_MASKED (-100)

/* The label of the first token of a part, which nothing predicts. */
enum {
    PL_PART_ANSWERS = 1,   /* the token is one of the answer */
    PL_PART_UNDESIRED = 2, /* the answer is one to avoid */
    PL_PART_FLAGS = 3
};
#define PL_LABEL_PART(flags) (PL_LABEL_MASKED - 1 - (int32_t)(flags))
static inline bool pl_label_begins_part(int32_t label) {
    return label < PL_LABEL_MASKED;
}
static inline unsigned pl_label_part_flags(int32_t label) {
    return (unsigned)(PL_LABEL_MASKED - 1 - label);
}
static inline bool pl_label_is_target(int32_t label) {
    return label >= 0;
}

struct pl_sample {
    int32_t *ids, *labels; /* [n], owned, grown by pl_data_sample; labels are not shifted */
    uint64_t n, cap;
    uint64_t beyond;     /* tokens of the row after these n, which a limit left out */
    bool trained_beyond; /* some of these would be trained on */
    bool dropped;        /* a limit left no room for an answer */
    bool weighted;       /* the row has a weight other than 1 */
    float weight;        /* of each of its targets in the loss, where it is weighted */
};
static inline float pl_sample_weight(const struct pl_sample *s) {
    return s->weighted ? s->weight : 1.0f;
}
/* True if a row may have this weight. */
bool pl_sample_weight_is_valid(double weight);
/* Makes room for n ids and labels. False: no memory; the content of *s is unchanged. */
bool pl_sample_reserve(struct pl_sample *s, uint64_t n);
/* Returns a label as if its sample stood alone: that of a token that begins a part, without the
 * mark. */
int32_t pl_sample_label(const struct pl_sample *s, uint64_t i);
/* Returns how many of its tokens are predicted. */
uint64_t pl_sample_targets(const struct pl_sample *s);
/* Returns a digest of its ids, labels and weight: different samples have different ones. */
uint64_t pl_sample_digest(const struct pl_sample *s);
void pl_sample_finish(struct pl_sample *s); /* leaves {0} */

#endif
