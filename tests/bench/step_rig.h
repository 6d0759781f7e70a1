/* step_rig.h - a planned job bound to a device, filled with plain values, to be run op by op.
 * Benchmarks only; failures exit(1).
 *
 * In: a job and a model.  Out: an executor whose arenas hold weights of about the usual
 * distribution, quickly made and not by any initialiser, and a micro-batch at capacity.
 * Use: struct rig r; rig_init(&r); r.model = ...; rig_set(&r, "mode", "lora"); ...
 *      rig_open(&r, &pl_back_end_cpu, 2); rig_fill_batch(&r); pl_exec_run(&r.exec, ...);
 *      rig_close(&r); */
#ifndef PL_TESTS_BENCH_STEP_RIG_H
#define PL_TESTS_BENCH_STEP_RIG_H

#include "estimator/search/planned.h"
#include "runtime/exec/exec.h"
#include "runtime/kernels/back_ends.h"

struct rig {
    struct pl_job job;
    struct pl_model model;
    struct pl_planned planned;
    struct pl_device *device;
    struct pl_arena job_arena, batch_arena;
    struct pl_exec exec;
    int32_t *inputs; /* room for a row of them */
};

/* Prints what went wrong and ends the program, unless err is OK. */
void must(pl_err err, const struct pl_diag *d);

void rig_init(struct rig *r);                                    /* a job of defaults */
void rig_set(struct rig *r, const char *key, const char *value); /* of a configuration */
/* Sets key=value of each word up to a NULL; the words are changed. */
void rig_set_words(struct rig *r, char **words);
/* The job at its batch_size, which must be a number; a job that offloads is refused. */
void rig_open(struct rig *r, const struct pl_back_end *back_end, uint32_t threads);
/* Full rows of ids; every position but a row's last predicts. Once a round: later tensors take the
 * place of inputs that were read for the last time. */
void rig_fill_batch(struct rig *r);
void rig_sync(struct rig *r);  /* waits for what was started */
void rig_close(struct rig *r); /* leaves {0} */

/* --- the time of ops, added up by kind and shape ---------------------------------------------- */

enum { RIG_ROUNDS = 9 };

struct cost {
    enum pl_op_kind kind;
    enum pl_dtype dtype;                      /* of the first operand */
    uint64_t rows, cols, inner;               /* of the result; columns of the first operand */
    double seconds[RIG_ROUNDS], flops, bytes; /* planned figures: of all calls of a round */
    double middle;                            /* costs_finish(): median of seconds */
    int calls;                                /* of a round */
    uint32_t op;                              /* one of them */
};

struct costs {
    struct cost rows[256];
    int n;
    double total; /* costs_finish(): sum of the medians */
};

/* How many ops from `first` on, all before `end`, the device runs as one: exec.h. At least 1. */
uint32_t rig_together(const struct rig *r, uint32_t first, uint32_t end);
/* Adds the time of n ops that ran as one, in one round; round < 0 is not counted. Each gets a share
 * by the bytes it moves, which is what such ops wait for. */
void costs_add(struct costs *c, const struct rig *r, uint32_t first, uint32_t n, int round,
               double seconds);
void costs_finish(struct costs *c); /* sorts the dearest first */

#endif
