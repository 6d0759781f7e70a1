/* poison.h - under AddressSanitizer, bytes of a batch arena that no living tensor owns are
 * poisoned.
 *
 * In: a plan's lifetimes and the batch arenas of a bound executor.  Out: a read or a write outside
 * the life of a tensor, or in the padding between tensors, ends the program with a report.
 * Needs: executor.h. Private to exec.
 *   Z1  a tensor's bytes are open from its first op, or from pl_exec_lend() before that, until the
 *       next op after its last one begins: results of a phase can be read until then
 *   Z2  everything else of the batch arenas is poisoned while ops run
 *   Z3  nothing is poisoned before the first run, after pl_exec_forget() and while an op of LOAD or
 *       SAVE runs: the buffers of those two are filled and emptied outside of ops
 *   Z4  only arenas of the CPU device are poisoned: kernels of other devices are not instrumented,
 *       and may still run when the call that started them has returned
 * Without AddressSanitizer no code and no memory is used but for one pointer of pl_exec.
 * Use: pl_poison_init(&e, &d); for each group of ops that run as one: pl_poison_before(&e, i, n);
 *      pl_poison_lift(&e); pl_poison_finish(&e); */
#ifndef PL_RUNTIME_EXEC_POISON_H
#define PL_RUNTIME_EXEC_POISON_H

#include "runtime/exec/executor.h"

#if defined(__SANITIZE_ADDRESS__)
#define PL_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PL_POISONS 1
#endif
#endif

#ifdef PL_POISONS
pl_err pl_poison_init(struct pl_exec *e, struct pl_diag *d);
/* Called when ops [first, first + n) are about to run as one. */
void pl_poison_before(struct pl_exec *e, uint32_t first, uint32_t n);
/* Opens a STEP tensor that the host fills or reads before the next run. */
void pl_poison_open(struct pl_exec *e, uint32_t tensor);
void pl_poison_lift(struct pl_exec *e); /* called before the arenas go to another owner */
void pl_poison_finish(struct pl_exec *e);
#else
static inline pl_err pl_poison_init(struct pl_exec *e, struct pl_diag *d) {
    (void)e, (void)d;
    return PL_ERR_OK;
}
static inline void pl_poison_before(struct pl_exec *e, uint32_t first, uint32_t n) {
    (void)e, (void)first, (void)n;
}
static inline void pl_poison_open(struct pl_exec *e, uint32_t tensor) {
    (void)e, (void)tensor;
}
static inline void pl_poison_lift(struct pl_exec *e) {
    (void)e;
}
static inline void pl_poison_finish(struct pl_exec *e) {
    (void)e;
}
#endif

#endif
