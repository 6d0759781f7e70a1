/* emitted.h - the operands that the builder gives a kernel: their storage and alignment.
 *
 * A kernel must compute these. It may refuse any other, as a broken plan, before it changes a byte:
 * a library that multiplies for it may have no algorithm for matrices that begin off 4 bytes, and
 * no user can bring it one. tests/program/check_emitted.c holds the builder to the same table, so
 * that a new combination of it cannot be refused unnoticed.
 * Use: emitted_signature(in, out, text); emitted_storage(kind, text) && emitted_layout(...) */
#ifndef PL_TESTS_KERNELS_EMITTED_H
#define PL_TESTS_KERNELS_EMITTED_H

#include "estimator/program/program.h"

/* Inputs, '>', outputs, the end. */
enum { EMITTED_TEXT = PL_OP_MAX_IN + PL_OP_MAX_OUT + 2, EMITTED_ABSENT = -1 };

/* A letter for each operand in the order of ops.h: f fp32, b bf16, - for other types, operands that
 * are absent and inputs that are also outputs; none after the last letter of each side. */
void emitted_signature(const int in[PL_OP_MAX_IN], const int out[PL_OP_MAX_OUT],
                       char text[EMITTED_TEXT]);

/* True if the builder gives an op of this kind operands of these types. */
bool emitted_storage(enum pl_op_kind kind, const char *signature);

/* True if the builder places floats so: `first` bytes after a multiple of 256. Tensors begin on
 * such multiples and have no gaps. Windows of them begin and stride on multiples of 16 bytes if the
 * widths of the model are multiples of 8; those of vectors, such as the factors of a quantised
 * matrix, begin at any element. */
bool emitted_layout(enum pl_dtype dtype, uint64_t first, uint64_t cols, uint64_t ld);

#endif
