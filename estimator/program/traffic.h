/* traffic.h - what the ops between ranks send, in bytes, as a run counts them.
 *
 * In: a program of one rank of several.  Out: bytes.  Needs: program, shard.h.
 * Every op between ranks is a group of sends and receives between each two of them
 * (runtime/kernels/between.c). A rank sends as many bytes as its own rows, or those of the others,
 * say; all of them are in it until the one that moves the most is done.
 * Use: struct pl_op_traffic t = pl_op_traffic(p, op); */
#ifndef PL_ESTIMATOR_PROGRAM_TRAFFIC_H
#define PL_ESTIMATOR_PROGRAM_TRAFFIC_H

#include "estimator/program/program.h"

struct pl_op_traffic {
    uint64_t sent_bytes;    /* by this rank; 0 of an op that is not between ranks */
    uint64_t busiest_bytes; /* that the busiest rank sends, or receives, if those are more */
};
struct pl_op_traffic pl_op_traffic(const struct pl_program *p, const struct pl_op *op);
/* Of a step of so many micro-batches, by this rank; a brief program counts what it stands for. */
double pl_program_sent_bytes(const struct pl_program *p, double micro_batches);

#endif
