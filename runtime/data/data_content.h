/* data_content.h - opens the content of a file of the data, from which its rows are split: the file
 * itself, or what a compressed file or a Parquet file holds.
 *
 * In: a file that was found.  Out: its content, readable from any position.
 * Needs: formats, unpack, parquet.
 *   K1  packed content is unpacked once, however often it is asked for
 * Use: pl_data_unpack(data, f, &d); pl_split_open(&s, &f->content, f->path, f->csv, &d); */
#ifndef PL_RUNTIME_DATA_DATA_CONTENT_H
#define PL_RUNTIME_DATA_DATA_CONTENT_H

#include "runtime/data/data_state.h"

/* Makes sure that a file is open which the pool may have closed. */
pl_err pl_data_reopen(struct pl_data *data, const char *path, int *fd, struct pl_diag *d);
/* Makes f->content readable until the pool is asked for another file. */
pl_err pl_data_unpack(struct pl_data *data, struct data_file *f, struct pl_diag *d);

#endif
