/* plain_names.h - the names of tensors without what programs put around the names of a model.
 *
 * In: the files of a model or an adapter, opened.  Out: their tensors by plain names.
 *   P1  a name that a window asks for as it is in the file is taken as it is: plain names are asked
 *       only where there is none
 *   P2  no two tensors have one plain name
 * Use: pl_plain_names_make(&f, &d); e = pl_plain_names_find(&f, "model.norm.weight", &file); */
#ifndef PL_RUNTIME_CHECKPOINT_PLAIN_NAMES_H
#define PL_RUNTIME_CHECKPOINT_PLAIN_NAMES_H

#include "runtime/checkpoint/windows.h"

/* Lists the plain names. PL_ERR_CHECKPOINT_FORMAT: P2, or a file that holds an adapter together
 * with its base. */
pl_err pl_plain_names_make(struct pl_weight_files *f, struct pl_diag *d);
void pl_plain_names_finish(struct pl_weight_files *f);
/* Fills file and entry of a window by the plain name of what it asks for; false: there is none. */
bool pl_plain_names_find(const struct pl_weight_files *f, struct pl_window *w);
/* Adds a line where windows were found under other names than their own. */
void pl_plain_names_note(const struct pl_windows *w, const struct pl_weight_files *f,
                         struct pl_text *notes);
/* Adds to a message what the files have in place of a tensor that is missing, unless it is another
 * of the windows; to the hint, what to do with a beginning that names share. */
void pl_plain_names_suggest(const struct pl_weight_files *f, const struct pl_windows *w,
                            const char *missing, struct pl_text *message, struct pl_text *hint);

#endif
