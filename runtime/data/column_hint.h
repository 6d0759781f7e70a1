/* column_hint.h - hints for a file whose rows have the columns of no format: the lines of its entry
 * of `datasets` that read it, or the command that makes rows of it.
 *
 * In: the first row as JSON, the form of its file, the format that was asked for.  Out: a hint.
 * Needs: formats, row_command.
 *   C1  the lines that it gives read the row: columns are named only if their values have the kind
 *       that the format reads
 *   C2  names are compared by letters and digits alone, in either case
 * Use: struct pl_text hint = {0}; if (pl_column_hint(text, n, &src, f, &hint)) ... */
#ifndef PL_RUNTIME_DATA_COLUMN_HINT_H
#define PL_RUNTIME_DATA_COLUMN_HINT_H

#include "estimator/base/text.h"
#include "runtime/data/formats.h"
#include "runtime/data/row_command.h"

/* f: nullable. False: such columns are unknown; *out is then unchanged. */
bool pl_column_hint(const char *text, size_t n, const struct pl_row_source *src,
                    const struct pl_format *f, struct pl_text *out);

#endif
