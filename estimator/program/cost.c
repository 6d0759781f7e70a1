/* cost.c - the roofline of a micro-batch. */
#include "estimator/program/cost.h"

/* CPU: eight AVX-512 cores and two channels of memory, where a copy reads and writes the same
 * memory. GPU: an A100, whose 153 FLOPs a byte lie between those of consumer cards (160 to 170) and
 * of an H100 (295 dense); its link is PCIe 4.0 x16 less what protocol takes of 31.5 GB/s. */
static const struct pl_speed nominal[] = {
    [PL_BACKEND_CPU] = {5e11, 3e10, 1.5e10, 1e-6},
    [PL_BACKEND_NULL] = {5e11, 3e10, 1.5e10, 1e-6},
    [PL_BACKEND_CUDA] = {312e12, 2039e9, 25e9, 4e-6},
};

struct pl_speed pl_speed_nominal(const struct pl_traits *t) {
    return nominal[t->backend];
}

static double op_seconds(const struct pl_op *op, const struct pl_speed *s) {
    if (op->host) s = &nominal[PL_BACKEND_CPU];
    if (op->kind == PL_OP_COPY_IN || op->kind == PL_OP_COPY_OUT) /* counted at both ends */
        return s->start_seconds + op->bytes_moved / 2 / s->link_bytes_per_second;
    double compute = op->flops / s->flops_per_second;
    double traffic = op->bytes_moved / s->bytes_per_second;
    return s->start_seconds + (compute > traffic ? compute : traffic);
}

static double phase_seconds(const struct pl_program *p, enum pl_phase phase,
                            const struct pl_speed *s) {
    const struct pl_phase_range *r = &p->phases[phase];
    double sum = 0;
    for (uint32_t i = r->first_op; i < r->first_op + r->n_ops; i++)
        sum += op_seconds(&p->ops[i], s);
    return sum;
}

double pl_program_micro_seconds(const struct pl_program *p, const struct pl_speed *s) {
    return phase_seconds(p, PL_PHASE_MICRO, s);
}

double pl_program_seconds_per_token(const struct pl_program *p, const struct pl_speed *s) {
    return pl_program_micro_seconds(p, s) / (double)p->tokens;
}

double pl_program_step_seconds(const struct pl_program *p, const struct pl_speed *s,
                               double tokens) {
    return tokens * pl_program_seconds_per_token(p, s) + phase_seconds(p, PL_PHASE_OPTIMIZER, s);
}
