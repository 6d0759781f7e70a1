/* unicode_forms.h - normalization forms C, D, KC and KD (UAX 15) of spans.
 *
 * In: valid UTF-8.  Out: the same text in another form.  Needs: span.h, utf8proc (tables,
 * composing).
 *   F1  text is worked on in clusters: a character that nothing before it can act on, and what
 *       follows up to the next such; the bytes of a cluster come from where it began
 *   F2  marks of a cluster are put in order by a stable sort by counting: linear, where swapping
 *       neighbours would be quadratic in a hostile text
 * Use: pl_unicode_form(&buf, &span, PL_FORM_COMPOSE, &scratch) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_UNICODE_FORMS_H
#define PL_RUNTIME_DATA_TOKENIZER_UNICODE_FORMS_H

#include "runtime/data/tokenizer/span.h"

#define PL_FORM_COMPOSE 1u /* NFC, NFKC */
#define PL_FORM_COMPAT  2u /* NFKC, NFKD */

struct pl_form_scratch {
    int32_t *cluster, *sorted; /* [cap] */
    size_t n, cap;
};
void pl_form_scratch_finish(struct pl_form_scratch *s);

/* Appends to *out. False: out of memory. */
bool pl_unicode_form(struct pl_span_buf *out, const struct pl_span *in, unsigned form,
                     struct pl_form_scratch *s);

#endif
