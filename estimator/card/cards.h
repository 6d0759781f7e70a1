/* cards.h - GPUs as data, for questions about a card that is not in this machine.
 *
 * X(name, nameplate GB, visible bytes, context bytes, sm, source)
 *   name     a part of what the driver calls the GPU, longer names before those they contain
 *   visible  what a process can get on an idle card before its own context, as far as known
 *   context  what driver and kernels take before the first arena: a guess until a run has measured
 *            it (the context cache), so it errs on the high side; it grows with the number of
 *            multiprocessors
 *   sm       compute capability times ten
 * Sources of `visible`: "free" = free memory nvidia-smi reports on an idle card, "total" = the total
 * it reports less 1/64 for what the driver keeps, where no idle report was found. Drivers, ECC and
 * operating systems shift these: where a GPU answers, its own figures win. */
#ifndef PL_ESTIMATOR_CARD_CARDS_H
#define PL_ESTIMATOR_CARD_CARDS_H

#include <stddef.h>
#include <stdint.h>

#define PL_CARD_MIB(n)   (UINT64_C(n) << 20)
#define PL_CARD_TOTAL(n) (PL_CARD_MIB(n) - PL_CARD_MIB(n) / 64)

#define PL_CARD_MAP(X)                                                                             \
    X("H200", 141, PL_CARD_TOTAL(143771), PL_CARD_MIB(560), 90, "total")                           \
    X("H100", 80, PL_CARD_MIB(81079), PL_CARD_MIB(560), 90, "free")                                \
    X("A100-SXM4-80GB", 80, PL_CARD_TOTAL(81920), PL_CARD_MIB(480), 80, "total")                   \
    X("A100 80GB", 80, PL_CARD_TOTAL(81920), PL_CARD_MIB(480), 80, "total")                        \
    X("A100", 40, PL_CARD_TOTAL(40960), PL_CARD_MIB(480), 80, "total")                             \
    X("RTX 5090", 32, PL_CARD_MIB(32121), PL_CARD_MIB(560), 120, "free")                           \
    X("RTX 4090", 24, PL_CARD_MIB(24080), PL_CARD_MIB(450), 89, "free")                            \
    X("RTX 4080", 16, PL_CARD_TOTAL(16376), PL_CARD_MIB(400), 89, "total")                         \
    X("RTX 3090", 24, PL_CARD_TOTAL(24576), PL_CARD_MIB(320), 86, "total")                         \
    X("L40S", 48, PL_CARD_TOTAL(46068), PL_CARD_MIB(450), 89, "total")                             \
    X("L40", 48, PL_CARD_TOTAL(46068), PL_CARD_MIB(450), 89, "total")                              \
    X("L4", 24, PL_CARD_TOTAL(23034), PL_CARD_MIB(320), 89, "total")                               \
    X("A10", 24, PL_CARD_TOTAL(23028), PL_CARD_MIB(320), 86, "total")                              \
    X("V100", 32, PL_CARD_TOTAL(32768), PL_CARD_MIB(400), 70, "total")                             \
    X("T4", 16, PL_CARD_MIB(14912), PL_CARD_MIB(150), 75, "free")

struct pl_card {
    const char *name, *source;
    uint64_t visible_bytes, context_bytes;
    uint32_t nameplate_gb, sm;
};

/* The row whose name stands in `name` as words of their own ("L4" is not "L40S"); NULL = none. */
const struct pl_card *pl_card_find(const char *name);
const struct pl_card *pl_card_table(size_t *n);

/* The context of a GPU that has no row. */
#define PL_CARD_CONTEXT_DEFAULT PL_CARD_MIB(560)
/* The oldest GPU the kernels run on: bf16 tensor cores and asynchronous copies need Ampere. */
#define PL_CARD_OLDEST_SM 80

#endif
