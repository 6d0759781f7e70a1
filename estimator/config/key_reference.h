/* key_reference.h - the keys for people: configs/REFERENCE.md, and its parts for other pages. */
#ifndef PL_ESTIMATOR_CONFIG_KEY_REFERENCE_H
#define PL_ESTIMATOR_CONFIG_KEY_REFERENCE_H

#include "estimator/base/text.h"
#include "estimator/config/job.h"

void pl_key_reference(struct pl_text *out); /* configs/REFERENCE.md */
/* These are the parts of the reference, for other forms of it; names and values stand in
 * `backquotes`. */
const char *pl_key_introduction(void);
const char *pl_key_section(enum pl_key_id key); /* the title of the section it opens, or NULL */
const char *pl_key_type_label(enum pl_key_id key);
void pl_key_write_values(enum pl_key_id key, struct pl_text *out); /* choices, or the range */

#endif
