/* json_write.h - bytes as the inside of a JSON string. They are passed on as they are but for those
 * that JSON escapes: the scanner reports errors in them. */
#ifndef PL_ESTIMATOR_BASE_JSON_WRITE_H
#define PL_ESTIMATOR_BASE_JSON_WRITE_H

#include "estimator/base/text.h"

void pl_json_write_escaped(struct pl_text *out, const char *s, size_t n);

#endif
