/* normalizer.h - what is done to text before it is cut: Unicode forms, replacements, prefixes.
 *
 * In: a span.  Out: the changed span, in buffers of the scratch.  Needs: span.h, pattern.h,
 * unicode_forms.h.
 *   N1  steps run in the order of the file; a Sequence is flattened
 *   N2  what stands for several characters comes from where the first of them came
 *   N3  text that grows beyond PL_NORMALIZER_MOST_GROWTH times its size is an error
 * Use: pl_normalizer_run(&n, &scratch, patterns, &span, &changed, &d) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_NORMALIZER_H
#define PL_RUNTIME_DATA_TOKENIZER_NORMALIZER_H

#include "runtime/data/tokenizer/pattern.h"
#include "runtime/data/tokenizer/span.h"
#include "runtime/data/tokenizer/unicode_forms.h"

#include <stdint.h>

#define PL_NORMALIZER_MOST_STEPS  16
#define PL_NORMALIZER_MOST_GROWTH 256u

enum pl_normalizer_kind {
    PL_NORMALIZER_NFC,
    PL_NORMALIZER_NFD,
    PL_NORMALIZER_NFKC,
    PL_NORMALIZER_NFKD,
    PL_NORMALIZER_PREPEND,
    PL_NORMALIZER_REPLACE,
    PL_NORMALIZER_STRIP,
};

struct pl_normalizer_step {
    enum pl_normalizer_kind kind;
    char *content; /* prepend, replace: [n_content], owned */
    size_t n_content;
    struct pl_pattern *pattern; /* replace, owned */
    bool left, right;           /* strip */
};

struct pl_normalizer {
    struct pl_normalizer_step steps[PL_NORMALIZER_MOST_STEPS];
    uint32_t n;
};
void pl_normalizer_finish(struct pl_normalizer *n);

struct pl_normalizer_scratch {
    struct pl_span_buf bufs[2]; /* steps read one and write the other */
    struct pl_form_scratch form;
};
void pl_normalizer_scratch_finish(struct pl_normalizer_scratch *s);

/* *out is `in` itself where nothing changed, else valid until the next call. */
pl_err pl_normalizer_run(const struct pl_normalizer *n, struct pl_normalizer_scratch *s,
                         struct pl_pattern_scratch *ps, const struct pl_span *in,
                         struct pl_span *out, struct pl_diag *d);

#endif
