/* sample.h - one row of data as tokens and labels.
 *
 * Use: struct pl_sample s = {0}; if (!pl_sample_reserve(&s, n)) ...; pl_sample_finish(&s); */
#ifndef PL_RUNTIME_DATA_SAMPLE_H
#define PL_RUNTIME_DATA_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#define PL_LABEL_MASKED (-100)

struct pl_sample {
    int32_t *ids, *labels; /* [n], owned, grown by pl_data_sample; labels are not shifted */
    uint64_t n, cap;
    uint64_t beyond;     /* tokens of the row after these n, which a limit left out */
    bool trained_beyond; /* some of these would be trained on */
};
/* Makes room for n ids and labels. False: no memory; the content of *s is unchanged. */
bool pl_sample_reserve(struct pl_sample *s, uint64_t n);
/* Returns a digest of its ids and labels: different samples have different ones. */
uint64_t pl_sample_digest(const struct pl_sample *s);
void pl_sample_finish(struct pl_sample *s); /* leaves {0} */

#endif
