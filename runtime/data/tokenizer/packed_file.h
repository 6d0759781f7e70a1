/* packed_file.h - the files of a tokenizer, which may be packed. */
#ifndef PL_RUNTIME_DATA_TOKENIZER_PACKED_FILE_H
#define PL_RUNTIME_DATA_TOKENIZER_PACKED_FILE_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"

#include <stdbool.h>

/* Appends the file, unpacked; *there = false, and no error, when there is none. FILE.gguf/NAME is a
 * text that a GGUF file holds (gguf_tokenizer.h). */
pl_err pl_tokenizer_read_file(const char *path, struct pl_text *out, bool *there,
                              struct pl_diag *d);

#endif
