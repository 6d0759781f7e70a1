/* receipt.h - what was asked, planned and measured, in one JSON that travels.
 *
 * In: an estimate, and after a run what it measured.  Out: the receipt; and one that was written is
 * read back and checked.  Needs: answer.h, plan_digest.h. No I/O.
 *   RC1  there is one ledger: `planned` is the answer (answer.h) as every surface gives it, and no
 *        byte is computed here
 *   RC2  `asked` is the question as it was put, `decided` what was chosen where it is open;
 *        `digests` tell what is the same: of `asked`, of the program that answers it, and of the
 *        plan with every offset
 *   RC3  a receipt that is read adds up: its ledger is its arenas, with context and comm its total,
 *        and the lines of the host are the bytes of the host
 * Use: struct pl_text text = {0}; pl_receipt_write(&estimate, notes, NULL, &text);
 *      json_t *r; pl_receipt_parse(data, n, "old.json", &r, &d); ... json_decref(r); */
#ifndef PL_ESTIMATOR_INQUIRY_RECEIPT_H
#define PL_ESTIMATOR_INQUIRY_RECEIPT_H

#include "estimator/gate/estimate.h"

#define PL_RECEIPT_BYTES_MOST (UINT64_C(16) << 20) /* of a file that is read */

/* Appends the receipt as a file holds it; measured (stolen): what a run found, NULL: there was
 * none. Out of memory, here or before, is `failed` of the text. */
void pl_receipt_write(const struct pl_estimate *e, const struct pl_text *notes, json_t *measured,
                      struct pl_text *out);
/* DATA_SYNTAX: no JSON; DATA_FIELD: no receipt, or one that does not add up (RC3). */
pl_err pl_receipt_parse(const char *text, size_t n, const char *name, json_t **out,
                        struct pl_diag *d);

#endif
