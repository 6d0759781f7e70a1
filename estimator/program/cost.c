/* cost.c - the roofline of a micro-batch. */
#include "estimator/program/cost.h"

/* CPU: eight AVX-512 cores and two channels of memory. GPU: an A100, whose 153 FLOPs a byte lie
 * between those of consumer cards (160 to 170) and of an H100 (295 dense). */
static const struct pl_speed nominal[] = {
    [PL_BACKEND_CPU] = {5e11, 3e10, 1e-6},
    [PL_BACKEND_NULL] = {5e11, 3e10, 1e-6},
    [PL_BACKEND_CUDA] = {312e12, 2039e9, 4e-6},
};

struct pl_speed pl_speed_nominal(const struct pl_traits *t) {
    return nominal[t->backend];
}

double pl_program_micro_seconds(const struct pl_program *p, const struct pl_speed *s) {
    const struct pl_phase_range *micro = &p->phases[PL_PHASE_MICRO];
    double sum = 0;
    for (uint32_t i = micro->first_op; i < micro->first_op + micro->n_ops; i++) {
        double compute = p->ops[i].flops / s->flops_per_second;
        double traffic = p->ops[i].bytes_moved / s->bytes_per_second;
        sum += s->start_seconds + (compute > traffic ? compute : traffic);
    }
    return sum;
}
