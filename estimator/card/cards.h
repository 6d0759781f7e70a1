/* cards.h - GPUs as data, for questions about a card that is not in this machine.
 *
 * X(name, kind, nameplate GB, visible bytes, context MiB, sm, source, context source)
 *   name     a row is meant when every word of it stands in what the driver calls the GPU, so rows
 *            with more words come before those whose words they include
 *   visible  what a process can get on an idle card before its own context, as far as known
 *   context  what driver and kernels take before the first arena: a guess until a run has measured
 *            it (the context cache), so it errs on the high side; it grows with the number of
 *            multiprocessors
 *   sm       compute capability times ten
 * Sources of `visible`: "free" = free memory nvidia-smi reports on an idle card; "total" = the
 * total it reports, less 1/64 for what the driver keeps, where no idle report was found; "mig" =
 * what `nvidia-smi mig -lgip` lists (NVIDIA's MIG User Guide), less the same. Drivers, ECC and
 * operating systems shift these: where a GPU answers, its own figures win.
 * Sources of `context`: "guess", or who published a measurement of a bare process (fitcheck: 133 to
 * 147 MiB on a T4; llama.cpp: about 450 MiB on a 4090). */
#ifndef PL_ESTIMATOR_CARD_CARDS_H
#define PL_ESTIMATOR_CARD_CARDS_H

#include "estimator/base/diag.h"
#include "estimator/card/budget.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_CARD_MIB(n)   (UINT64_C(n) << 20)
#define PL_CARD_TOTAL(n) (PL_CARD_MIB(n) - PL_CARD_MIB(n) / 64)

#define PL_CARD_MAP(X)                                                                             \
    X("A100 1g.5gb", MIG, 5, PL_CARD_TOTAL(4864), 480, 80, "mig", "guess")                         \
    X("A100 2g.10gb", MIG, 10, PL_CARD_TOTAL(9984), 480, 80, "mig", "guess")                       \
    X("A100 3g.20gb", MIG, 20, PL_CARD_TOTAL(20096), 480, 80, "mig", "guess")                      \
    X("A100 7g.40gb", MIG, 40, PL_CARD_TOTAL(40448), 480, 80, "mig", "guess")                      \
    X("A100 1g.10gb", MIG, 10, PL_CARD_TOTAL(9728), 480, 80, "mig", "guess")                       \
    X("A100 2g.20gb", MIG, 20, PL_CARD_TOTAL(19968), 480, 80, "mig", "guess")                      \
    X("A100 3g.40gb", MIG, 40, PL_CARD_TOTAL(40192), 480, 80, "mig", "guess")                      \
    X("A100 7g.80gb", MIG, 80, PL_CARD_TOTAL(80640), 480, 80, "mig", "guess")                      \
    X("A30 1g.6gb", MIG, 6, PL_CARD_TOTAL(5952), 320, 80, "mig", "guess")                          \
    X("A30 2g.12gb", MIG, 12, PL_CARD_TOTAL(11968), 320, 80, "mig", "guess")                       \
    X("A30 4g.24gb", MIG, 24, PL_CARD_TOTAL(24000), 320, 80, "mig", "guess")                       \
    X("H100 1g.10gb", MIG, 10, PL_CARD_TOTAL(9984), 560, 90, "mig", "guess")                       \
    X("H100 1g.20gb", MIG, 20, PL_CARD_TOTAL(20096), 560, 90, "mig", "guess")                      \
    X("H100 2g.20gb", MIG, 20, PL_CARD_TOTAL(20096), 560, 90, "mig", "guess")                      \
    X("H100 3g.40gb", MIG, 40, PL_CARD_TOTAL(40448), 560, 90, "mig", "guess")                      \
    X("H100 7g.80gb", MIG, 80, PL_CARD_TOTAL(81152), 560, 90, "mig", "guess")                      \
    X("B200", DATACENTRE, 180, PL_CARD_TOTAL(183359), 640, 100, "total", "guess")                  \
    X("GH200", DATACENTRE, 96, PL_CARD_TOTAL(97871), 560, 90, "total", "guess")                    \
    X("H200", DATACENTRE, 141, PL_CARD_TOTAL(143771), 560, 90, "total", "guess")                   \
    X("H100 NVL", DATACENTRE, 94, PL_CARD_TOTAL(95830), 560, 90, "total", "guess")                 \
    X("H100", DATACENTRE, 80, PL_CARD_MIB(81079), 560, 90, "free", "guess")                        \
    X("A100 80GB", DATACENTRE, 80, PL_CARD_TOTAL(81920), 480, 80, "total", "guess")                \
    X("A100 40GB", DATACENTRE, 40, PL_CARD_TOTAL(40960), 480, 80, "total", "guess")                \
    X("A30", DATACENTRE, 24, PL_CARD_TOTAL(24576), 320, 80, "total", "guess")                      \
    X("A40", DATACENTRE, 48, PL_CARD_TOTAL(46068), 400, 86, "total", "guess")                      \
    X("A10G", DATACENTRE, 24, PL_CARD_TOTAL(23028), 320, 86, "total", "guess")                     \
    X("A10", DATACENTRE, 24, PL_CARD_TOTAL(23028), 320, 86, "total", "guess")                      \
    X("A16", DATACENTRE, 16, PL_CARD_TOTAL(15356), 200, 86, "total", "guess")                      \
    X("A2", DATACENTRE, 16, PL_CARD_TOTAL(15356), 200, 86, "total", "guess")                       \
    X("L40S", DATACENTRE, 48, PL_CARD_TOTAL(46068), 450, 89, "total", "guess")                     \
    X("L40", DATACENTRE, 48, PL_CARD_TOTAL(46068), 450, 89, "total", "guess")                      \
    X("L4", DATACENTRE, 24, PL_CARD_TOTAL(23034), 320, 89, "total", "guess")                       \
    X("V100 32GB", DATACENTRE, 32, PL_CARD_TOTAL(32768), 400, 70, "total", "guess")                \
    X("V100 16GB", DATACENTRE, 16, PL_CARD_TOTAL(16384), 400, 70, "total", "guess")                \
    X("P100 16GB", DATACENTRE, 16, PL_CARD_TOTAL(16384), 320, 60, "total", "guess")                \
    X("T4", DATACENTRE, 16, PL_CARD_MIB(14912), 150, 75, "free", "fitcheck")                       \
    X("RTX PRO 6000 Blackwell", WORKSTATION, 96, PL_CARD_TOTAL(97887), 560, 120, "total", "guess") \
    X("RTX 6000 Ada", WORKSTATION, 48, PL_CARD_TOTAL(49140), 450, 89, "total", "guess")            \
    X("RTX 5000 Ada", WORKSTATION, 32, PL_CARD_TOTAL(32760), 450, 89, "total", "guess")            \
    X("RTX 4500 Ada", WORKSTATION, 24, PL_CARD_TOTAL(24570), 400, 89, "total", "guess")            \
    X("RTX 4000 Ada", WORKSTATION, 20, PL_CARD_TOTAL(20475), 320, 89, "total", "guess")            \
    X("RTX 2000 Ada", WORKSTATION, 16, PL_CARD_TOTAL(16380), 320, 89, "total", "guess")            \
    X("RTX A6000", WORKSTATION, 48, PL_CARD_TOTAL(49140), 400, 86, "total", "guess")               \
    X("RTX A5000", WORKSTATION, 24, PL_CARD_TOTAL(24564), 320, 86, "total", "guess")               \
    X("RTX A4500", WORKSTATION, 20, PL_CARD_TOTAL(20470), 320, 86, "total", "guess")               \
    X("RTX A4000", WORKSTATION, 16, PL_CARD_TOTAL(16376), 320, 86, "total", "guess")               \
    X("RTX A2000 12GB", WORKSTATION, 12, PL_CARD_TOTAL(12282), 200, 86, "total", "guess")          \
    X("RTX 5090 Laptop", LAPTOP, 24, PL_CARD_TOTAL(24463), 560, 120, "total", "guess")             \
    X("RTX 5080 Laptop", LAPTOP, 16, PL_CARD_TOTAL(16303), 450, 120, "total", "guess")             \
    X("RTX 5070 Ti Laptop", LAPTOP, 12, PL_CARD_TOTAL(12227), 450, 120, "total", "guess")          \
    X("RTX 5070 Laptop", LAPTOP, 8, PL_CARD_TOTAL(8151), 450, 120, "total", "guess")               \
    X("RTX 5060 Laptop", LAPTOP, 8, PL_CARD_TOTAL(8151), 400, 120, "total", "guess")               \
    X("RTX 4090 Laptop", LAPTOP, 16, PL_CARD_TOTAL(16376), 450, 89, "total", "guess")              \
    X("RTX 4080 Laptop", LAPTOP, 12, PL_CARD_TOTAL(12282), 400, 89, "total", "guess")              \
    X("RTX 4070 Laptop", LAPTOP, 8, PL_CARD_TOTAL(8188), 320, 89, "total", "guess")                \
    X("RTX 4060 Laptop", LAPTOP, 8, PL_CARD_TOTAL(8188), 320, 89, "total", "guess")                \
    X("RTX 4050 Laptop", LAPTOP, 6, PL_CARD_TOTAL(6141), 320, 89, "total", "guess")                \
    X("RTX 3080 Laptop", LAPTOP, 16, PL_CARD_TOTAL(16384), 320, 86, "total", "guess")              \
    X("RTX 3070 Laptop", LAPTOP, 8, PL_CARD_TOTAL(8192), 320, 86, "total", "guess")                \
    X("RTX 3060 Laptop", LAPTOP, 6, PL_CARD_TOTAL(6144), 320, 86, "total", "guess")                \
    X("RTX 3050 Laptop", LAPTOP, 4, PL_CARD_TOTAL(4096), 320, 86, "total", "guess")                \
    X("RTX 5090", CONSUMER, 32, PL_CARD_MIB(32121), 560, 120, "free", "guess")                     \
    X("RTX 5080", CONSUMER, 16, PL_CARD_TOTAL(16303), 450, 120, "total", "guess")                  \
    X("RTX 5070 Ti", CONSUMER, 16, PL_CARD_TOTAL(16303), 450, 120, "total", "guess")               \
    X("RTX 5070", CONSUMER, 12, PL_CARD_TOTAL(12227), 450, 120, "total", "guess")                  \
    X("RTX 5060 Ti 16GB", CONSUMER, 16, PL_CARD_TOTAL(16311), 400, 120, "total", "guess")          \
    X("RTX 5060 Ti", CONSUMER, 8, PL_CARD_TOTAL(8151), 400, 120, "total", "guess")                 \
    X("RTX 5060", CONSUMER, 8, PL_CARD_TOTAL(8151), 400, 120, "total", "guess")                    \
    X("RTX 4090", CONSUMER, 24, PL_CARD_MIB(24080), 450, 89, "free", "llama.cpp")                  \
    X("RTX 4080 SUPER", CONSUMER, 16, PL_CARD_TOTAL(16376), 400, 89, "total", "guess")             \
    X("RTX 4080", CONSUMER, 16, PL_CARD_TOTAL(16376), 400, 89, "total", "guess")                   \
    X("RTX 4070 Ti SUPER", CONSUMER, 16, PL_CARD_TOTAL(16376), 400, 89, "total", "guess")          \
    X("RTX 4070 Ti", CONSUMER, 12, PL_CARD_TOTAL(12282), 400, 89, "total", "guess")                \
    X("RTX 4070 SUPER", CONSUMER, 12, PL_CARD_TOTAL(12282), 400, 89, "total", "guess")             \
    X("RTX 4070", CONSUMER, 12, PL_CARD_TOTAL(12282), 400, 89, "total", "guess")                   \
    X("RTX 4060 Ti 16GB", CONSUMER, 16, PL_CARD_TOTAL(16380), 320, 89, "total", "guess")           \
    X("RTX 4060 Ti", CONSUMER, 8, PL_CARD_TOTAL(8188), 320, 89, "total", "guess")                  \
    X("RTX 4060", CONSUMER, 8, PL_CARD_TOTAL(8188), 320, 89, "total", "guess")                     \
    X("RTX 3090 Ti", CONSUMER, 24, PL_CARD_TOTAL(24564), 320, 86, "total", "guess")                \
    X("RTX 3090", CONSUMER, 24, PL_CARD_TOTAL(24576), 320, 86, "total", "guess")                   \
    X("RTX 3080 Ti", CONSUMER, 12, PL_CARD_TOTAL(12288), 320, 86, "total", "guess")                \
    X("RTX 3080 12GB", CONSUMER, 12, PL_CARD_TOTAL(12288), 320, 86, "total", "guess")              \
    X("RTX 3080", CONSUMER, 10, PL_CARD_TOTAL(10240), 320, 86, "total", "guess")                   \
    X("RTX 3070 Ti", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 86, "total", "guess")                  \
    X("RTX 3070", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 86, "total", "guess")                     \
    X("RTX 3060 Ti", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 86, "total", "guess")                  \
    X("RTX 3060", CONSUMER, 12, PL_CARD_TOTAL(12288), 320, 86, "total", "guess")                   \
    X("RTX 3050 6GB", CONSUMER, 6, PL_CARD_TOTAL(6144), 320, 86, "total", "guess")                 \
    X("RTX 3050", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 86, "total", "guess")                     \
    X("Quadro RTX 8000", WORKSTATION, 48, PL_CARD_TOTAL(48601), 400, 75, "total", "guess")         \
    X("Quadro RTX 6000", WORKSTATION, 24, PL_CARD_TOTAL(24220), 400, 75, "total", "guess")         \
    X("Quadro RTX 5000", WORKSTATION, 16, PL_CARD_TOTAL(16125), 320, 75, "total", "guess")         \
    X("Quadro RTX 4000", WORKSTATION, 8, PL_CARD_TOTAL(7982), 320, 75, "total", "guess")           \
    X("T1000 8GB", WORKSTATION, 8, PL_CARD_TOTAL(8192), 200, 75, "total", "guess")                 \
    X("T1000", WORKSTATION, 4, PL_CARD_TOTAL(4096), 200, 75, "total", "guess")                     \
    X("TITAN RTX", CONSUMER, 24, PL_CARD_TOTAL(24220), 400, 75, "total", "guess")                  \
    X("RTX 2080 Ti", CONSUMER, 11, PL_CARD_TOTAL(11264), 320, 75, "total", "guess")                \
    X("RTX 2080 SUPER", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 75, "total", "guess")               \
    X("RTX 2080", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 75, "total", "guess")                     \
    X("RTX 2070 SUPER", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 75, "total", "guess")               \
    X("RTX 2070", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 75, "total", "guess")                     \
    X("RTX 2060 12GB", CONSUMER, 12, PL_CARD_TOTAL(12288), 320, 75, "total", "guess")              \
    X("RTX 2060 SUPER", CONSUMER, 8, PL_CARD_TOTAL(8192), 320, 75, "total", "guess")               \
    X("RTX 2060", CONSUMER, 6, PL_CARD_TOTAL(6144), 320, 75, "total", "guess")                     \
    X("GTX 1660 SUPER", CONSUMER, 6, PL_CARD_TOTAL(6144), 200, 75, "total", "guess")               \
    X("GTX 1660 Ti", CONSUMER, 6, PL_CARD_TOTAL(6144), 200, 75, "total", "guess")                  \
    X("GTX 1660", CONSUMER, 6, PL_CARD_TOTAL(6144), 200, 75, "total", "guess")                     \
    X("GTX 1650 SUPER", CONSUMER, 4, PL_CARD_TOTAL(4096), 200, 75, "total", "guess")               \
    X("GTX 1650", CONSUMER, 4, PL_CARD_TOTAL(4096), 200, 75, "total", "guess")

enum pl_card_kind {
    PL_CARD_DATACENTRE,
    PL_CARD_MIG, /* a slice of a data centre GPU */
    PL_CARD_WORKSTATION,
    PL_CARD_CONSUMER,
    PL_CARD_LAPTOP
};
const char *pl_card_kind_name(enum pl_card_kind k);

struct pl_card {
    const char *name, *source, *context_source;
    uint64_t visible_bytes, context_bytes;
    uint32_t nameplate_gb, sm;
    enum pl_card_kind kind;
};

/* Returns the row whose words stand in a driver's `name` as words of their own ("L4" is not
 * "L40S"), and a laptop's or a slice's row if the name says so. NULL = none. */
const struct pl_card *pl_card_find(const char *name);
/* Returns the row that a person means: "rtx4090", "4090", "A100-80GB", or a name as the driver
 * gives it. If several rows hold the words, *ambiguous is set and the one with the least memory is
 * returned: "A100" is the one of 40 GB. A word such as "12GB" that is not the row's size makes it
 * another card, and "1g.5gb" stands for a slice. NULL = none. */
const struct pl_card *pl_card_named(const char *typed, bool *ambiguous);
/* Writes the names most like `typed` to out[], nearest first; returns their number. */
size_t pl_card_nearest(const char *typed, const char **out, size_t most);
/* Like pl_card_named, but an error instead of NULL: PL_ERR_USAGE if there is no such row (the hint
 * holds the nearest names), if several GPUs are asked for ("2x RTX 4090"), and for a device that
 * has no kernels. */
pl_err pl_card_require(const char *typed, const struct pl_card **out, bool *ambiguous,
                       struct pl_diag *d);
const struct pl_card *pl_card_table(size_t *n);

/* Returns the bytes by which the context of a row may be off, to either side. */
uint64_t pl_card_context_doubt(const struct pl_card *c);
/* The memory of the card when it is idle, for one rank, with the usual margin. */
struct pl_budget pl_card_budget(const struct pl_card *c);

/* The context of a GPU that has no row. */
#define PL_CARD_CONTEXT_DEFAULT PL_CARD_MIB(560)
/* Free memory is not one obtainable block, and the driver hands it out in pages of 2 MiB. */
#define PL_CARD_MARGIN PL_CARD_MIB(64)
/* The capability that is planned for when no GPU is named: Hopper's kernels need the most
 * scratch. */
#define PL_CARD_DEFAULT_SM 90
/* The oldest capability that the kernels run on: Turing's tensor cores sum fp16 in fp32. */
#define PL_CARD_OLDEST_SM 75
/* The oldest one that they run on in bf16. */
#define PL_CARD_OLDEST_BF16_SM 80
/* Returns the most columns of a head that attention has room for on a GPU of this compute
 * capability; sm 0: on a CPU. */
uint32_t pl_card_head_dim(uint32_t sm);
/* NO_DEVICE, with `gpu` as the subject of the sentence, if this one is older. */
pl_err pl_card_check_sm(const char *gpu, uint32_t sm, struct pl_diag *d);

#endif
