/* machine_cpu.c - the CPU back-end as runners: each instruction set is a family. */
#include "tests/kernels/runners.h"

#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <stdio.h>

enum { MOST_THREADS = 3 };

/* Without PL_AMX_KERNELS every level of the machine has its own kernels; with it, the level that
 * multiplies pairs has those, of which AMX is emulated. */
#if defined(PL_AMX_KERNELS)
extern const pl_kernel_fn PL_AMX_KERNELS[PL_OP_COUNT];
static const pl_kernel_fn *kernels_of(const struct pl_cpu_level *level) {
    return level->in_bf16 ? PL_AMX_KERNELS : NULL;
}
#else
static const pl_kernel_fn *kernels_of(const struct pl_cpu_level *level) {
    return pl_back_end_cpu.kernels->tables[level->number];
}
#endif

void machine_open(struct machine *m) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    struct pl_diag d = {0};
    m->n = 0;
    m->most_rounds = UINT32_MAX;
    for (uint32_t l = 0; l < n; l++)
        for (uint32_t threads = 1; kernels_of(&levels[l]) && threads <= MOST_THREADS; threads++) {
            ck_assert_uint_lt(m->n, MACHINE_RUNNERS);
            struct runner *r = &m->runners[m->n];
            r->number = m->n++;
            snprintf(r->name, sizeof r->name, "%s, %u threads", levels[l].name, threads);
            r->kernels = kernels_of(&levels[l]);
            r->is_first = threads == 1;
            if (pl_device_open(&pl_back_end_cpu, threads, PL_NO_BUDGET, &r->dev, &d) != PL_ERR_OK)
                ck_abort_msg("%s", d.message);
        }
}

void machine_close(struct machine *m) {
    for (uint32_t i = 0; i < m->n; i++)
        pl_device_close(&m->runners[i].dev);
}

void machine_turn_to(const struct runner *r) {
    (void)r;
}

struct pl_batch machine_describe(const struct runner *r, const struct pl_batch *b) {
    (void)r;
    return *b;
}

void *machine_put(const struct runner *r, const void *host, uint64_t bytes) {
    (void)r, (void)host, (void)bytes;
    return NULL;
}

void machine_take(const struct runner *r, void *host, void *copy, uint64_t bytes) {
    (void)r, (void)host, (void)copy, (void)bytes;
}
