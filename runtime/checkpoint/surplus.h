/* surplus.h - tensors of files that no window of the program asks for: the base's weight in the
 * files of an adapter, a tied head, and those that are not used. */
#ifndef PL_RUNTIME_CHECKPOINT_SURPLUS_H
#define PL_RUNTIME_CHECKPOINT_SURPLUS_H

#include "estimator/base/text.h"
#include "runtime/checkpoint/weight_files.h"

/* PEFT may save the weight of the embedding or the head (`slot`) with an adapter: a window of that
 * copy where the files have one. A base that differs from it is not the one that the adapter
 * was trained on. */
pl_err pl_windows_add_base_copy(struct pl_windows *w, const struct pl_weight_files *f,
                                const struct pl_model *m, enum pl_slot slot, uint32_t tensor,
                                struct pl_diag *d);
bool pl_window_names_base_copy(const char *name);
/* PL_ERR_CHECKPOINT_MISMATCH: the base of that copy is another. */
pl_err pl_window_refuse_copy(const struct pl_window *copy, struct pl_diag *d);
/* True in *same if two resolved windows hold the same values, in the narrower of their types. */
pl_err pl_windows_compare(const struct pl_window *a, const struct pl_window *b, bool *same,
                          struct pl_diag *d);

/* The head of a model is its embedding: a head of its own in the files must hold the same values,
 * else PL_ERR_MODEL_WEIGHTS. transformers trains such a head, whatever the configuration says. */
pl_err pl_windows_check_tied_head(const struct pl_windows *w, const struct pl_weight_files *f,
                                  struct pl_diag *d);
/* Adds a line with the number and the first names of the tensors that no window is; a tied head is
 * none of them. Terminal controls in names are the printer's business, as in all notes. */
pl_err pl_windows_note_surplus(const struct pl_windows *w, const struct pl_weight_files *f,
                               struct pl_text *notes, struct pl_diag *d);

#endif
