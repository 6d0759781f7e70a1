/* traffic.h - the bytes that ops between ranks send, as a run counts them.
 *
 * In: a program of one rank of several.  Out: bytes.  Needs: program, shard.h.
 * Every op between ranks is a group of sends and receives between each two of them
 * (runtime/kernels/between.c). The bytes follow from the rank's own rows or from those of the
 * others; all ranks take part until the one that moves the most is done.
 * Use: struct pl_op_traffic t = pl_op_traffic(p, op); */
#ifndef PL_ESTIMATOR_PROGRAM_TRAFFIC_H
#define PL_ESTIMATOR_PROGRAM_TRAFFIC_H

#include "estimator/program/program.h"

struct pl_op_traffic {
    uint64_t sent_bytes;    /* by this rank; 0 for an op that is not between ranks */
    uint64_t busiest_bytes; /* the larger of the bytes that the busiest rank sends and receives */
};
struct pl_op_traffic pl_op_traffic(const struct pl_program *p, const struct pl_op *op);
/* Returns the bytes that this rank sends in a step of so many micro-batches; a brief program counts
 * the ops that it stands for. */
double pl_program_sent_bytes(const struct pl_program *p, double micro_batches);

#endif
