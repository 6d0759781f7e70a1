/* links.h - the links between GPUs, as data: one row per link.
 *
 * X(name, bytes per second, microseconds, kind, source)
 *   bytes per second  of one GPU in one direction, while it sends and receives at once
 *   microseconds      that a collective takes besides its bytes
 * The figures are nominal: good for comparing links and plans, not for a clock. A GPU of the table
 * has the link that its maker builds it with; the network between machines is never a default.
 * Sources of bytes per second: "datasheet" = half of the sum of both directions that NVIDIA prints
 * for the GPU (A100, H100 and Blackwell architecture papers, PCI Express base specification),
 * less 1/5 for the protocol of PCIe, as the nominal machine of program/cost.c has it; "rate" = the
 * bit rate of the network over eight. Microseconds are the sum of the base latency and the hardware
 * latency of a ring with the simple protocol in the tuning table of NCCL 2.28, src/graph/tuning.cc.
 * Needs: base. */
#ifndef PL_ESTIMATOR_CARD_LINKS_H
#define PL_ESTIMATOR_CARD_LINKS_H

#include "estimator/base/diag.h"

#include <stddef.h>

#define PL_LINK_NVLINK_SECONDS  11.8e-6
#define PL_LINK_PCIE_SECONDS    14.1e-6
#define PL_LINK_NETWORK_SECONDS 22.4e-6

#define PL_LINK_MAP(X)                                                                             \
    X("nvlink3", 300e9, NVLINK, "datasheet")                                                       \
    X("nvlink4", 450e9, NVLINK, "datasheet")                                                       \
    X("nvlink5", 900e9, NVLINK, "datasheet")                                                       \
    X("pcie3", 12e9, PCIE, "datasheet")                                                            \
    X("pcie4", 25e9, PCIE, "datasheet")                                                            \
    X("pcie5", 50e9, PCIE, "datasheet")                                                            \
    X("100g", 12.5e9, NETWORK, "rate")                                                             \
    X("400g", 50e9, NETWORK, "rate")

struct pl_link {
    const char *name, *source;
    double bytes_per_second; /* one way */
    double start_seconds;    /* start of a collective */
};

const struct pl_link *pl_link_table(size_t *n);
/* Finds the row of a name; "nvlink" is the NVLink of `card`, or nvlink4 if it has none. USAGE: no
 * such link. `card` (nullable) is the name of a row of cards.h. */
pl_err pl_link_require(const char *typed, const char *card, const struct pl_link **out,
                       struct pl_diag *d);
/* Returns the link that connects GPUs of this name in one machine. `typed` (nullable) is the user's
 * wording, which may say "PCIe" of a card that has both; `card` is a row of cards.h, NULL = none
 * was named. */
const struct pl_link *pl_link_of_card(const char *card, const char *typed);

#endif
