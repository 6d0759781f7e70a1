/* file_shape.h - files of JSON without rows: rows inside one object, columns, texts, lists, the
 * answer of a server. This names them, with the line that makes rows of them.
 *
 * In: the first value of a file that was refused as a row.  Out: a sentence and a hint.
 * Needs: row_members, row_command.
 *   S1  a value that may be a row of a known format is not refused here: it is looked at after the
 *       formats have refused it
 * Use: struct pl_text hint = {0}; const char *what = NULL;
 *      if (pl_file_shape(text, n, &src, whole, &what, &hint)) ... */
#ifndef PL_RUNTIME_DATA_FILE_SHAPE_H
#define PL_RUNTIME_DATA_FILE_SHAPE_H

#include "runtime/data/row_command.h"

/* `whole`: nothing follows the value in its file. *what = NULL: the earlier message about the row
 * stands. False: such a value is unknown; *out is then unchanged. */
bool pl_file_shape(const char *text, size_t n, const struct pl_row_source *src, bool whole,
                   const char **what, struct pl_text *out);

#endif
