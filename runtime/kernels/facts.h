/* facts.h - the facts of a micro-batch, as kernels read them from the memory of a device. */
#ifndef PL_RUNTIME_KERNELS_FACTS_H
#define PL_RUNTIME_KERNELS_FACTS_H

#include "estimator/ops/call.h"

/* The derived figures are rounded once, from double. */
void pl_facts_fill(const struct pl_batch *b, struct pl_facts *out);

#endif
